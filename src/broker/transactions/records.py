"""The stored facts of transactional ids as plain values; `formats` encodes them in Kafka's format.

Each record replaces the previous record of the same transactional id.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIME_MS: Final = -1
EPOCH_MAX: Final = 2**15 - 1
"""The highest epoch. Only the markers of an id's last transaction carry it."""
CLIENT_EPOCH_MAX: Final = EPOCH_MAX - 1
"""The highest epoch of a client: the next one is left to fence it. Then the id is replaced."""


class TransactionState(IntEnum):
    """The state of a transactional id; the number in its record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # never stored: the id expires, and a tombstone replaces its record
    PREPARE_EPOCH_FENCE = 7  # never stored: fencing and PREPARE_ABORT are one decision

    @property
    def kafka_name(self) -> str:
        """The name in the Kafka protocol and in tools: "Ongoing", "PrepareCommit"."""
        return "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """Key version 0: the state of a transactional id.

    The markers of a decided transaction (PREPARE_*) carry `producer_id` and `producer_epoch`. With
    `version` 2 that is the epoch of the transaction's batches + 1.
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID  # the id before this one, for repeated requests
    next_producer_id: int = NO_PRODUCER_ID  # replaces `producer_id` when the markers are written
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH  # the producer's epoch before; -1: it was fenced
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[tuple[str, int]] = frozenset()
    updated_ms: int
    started_ms: int = NO_TIME_MS  # of the open transaction, or of the last one; -1: none
    version: int = 0  # transaction.version of the last end of a transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalIdForgotten:
    """The tombstone of `TransactionMetadata`."""

    transactional_id: str


TransactionRecord: TypeAlias = TransactionMetadata | TransactionalIdForgotten
