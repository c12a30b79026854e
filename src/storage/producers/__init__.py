"""Producers with an id: deduplication of their batches, and aborted transactions.

`ProducerStates` holds the rules. `ProducerStateManager` keeps the states of one log with its
snapshots and its transaction index. Pure, except for functions marked as running in the write lane.
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
