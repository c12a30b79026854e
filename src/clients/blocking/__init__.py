"""Blocking clients: `connect` returns a `Log`, which runs the asyncio client on one I/O thread.

`io_thread` owns that thread and handles forks and process exit.
"""

from .admin import Admin
from .consumer import Consumer
from .group_consumer import GroupConsumer
from .log import Log, connect
from .producer import BulkDelivery, Delivery, Producer
from .staged_producer import StagedProducer
from .transactional_producer import Transaction, TransactionalProducer

__all__ = [
    "Admin",
    "BulkDelivery",
    "Consumer",
    "Delivery",
    "GroupConsumer",
    "Log",
    "Producer",
    "StagedProducer",
    "Transaction",
    "TransactionalProducer",
    "connect",
]
