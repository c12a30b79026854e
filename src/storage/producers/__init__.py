"""Producers with an id: a repeated batch is stored once, an aborted one is known as such.

`ProducerStates` decides, `ProducerBook` keeps it beside a log, with its snapshots and its index of
aborted transactions. Pure but for the parts that say that they run in the write lane.
"""

from .book import ProducerBook
from .states import AlreadyStored, ProducerEntry, ProducerLimits, ProducerStates, StoredBatch
from .transactions import AbortedTransaction, TransactionIndex

__all__ = [
    "ProducerBook",
    "ProducerStates",
    "ProducerLimits",
    "ProducerEntry",
    "StoredBatch",
    "AlreadyStored",
    "AbortedTransaction",
    "TransactionIndex",
]
