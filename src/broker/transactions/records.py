"""The stored facts of transactional ids as plain values; `formats` encodes them in Kafka's format.

Each record replaces the previous record of the same transactional id.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from ...ids import TopicId

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


# --- staged commits -------------------------------------------------------------------------------


class AttemptState(IntEnum):
    """The state of a task attempt; the number in its record."""

    OPEN = 1
    SEALED = 2
    COMMITTING = 3  # not stored: the record of the name has it in `committing`
    ABORTING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedName:
    """The commits of one name. Key type 1000.

    A change of many attempts is this one record. An attempt in `committing` commits. Any other
    attempt of a write up to `fenced_write_id` aborts, whatever its own record says.
    """

    transactional_id: str  # the name
    last_committed: int = -1  # number
    committed_write_id: int = -1
    committed_count: int = 0  # records of the last committed batch
    write_id: int = -1  # the highest one that began
    number: int = -1  # of that write
    fenced_write_id: int = -1
    committing: tuple[tuple[int, int], ...] = ()  # producer id and epoch, without all markers
    updated_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedNameForgotten:
    """The tombstone of `StagedName`."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class StagedPartition:
    """A partition of an attempt."""

    topic: str
    partition: int
    topic_id: TopicId
    count: int = 0  # records
    last_sequence: int = -1  # -1: nothing is written, or the attempt is not sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedAttempt:
    """The task attempt that holds a producer id. Key type 1001, by producer id."""

    producer_id: int
    producer_epoch: int
    transactional_id: str  # the name
    number: int
    write_id: int
    task: int
    attempt: int
    state: AttemptState
    partitions: tuple[StagedPartition, ...] = ()  # sorted
    timeout_ms: int  # of the sealed stage
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeProducerId:
    """An unused producer id of the pool, with its next epoch. Key as `StagedAttempt`."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdForgotten:
    """The tombstone of `StagedAttempt` and `FreeProducerId`."""

    producer_id: int


TransactionalIdRecord: TypeAlias = TransactionMetadata | TransactionalIdForgotten
StagedRecord: TypeAlias = (
    StagedName | StagedNameForgotten | StagedAttempt | FreeProducerId | ProducerIdForgotten
)
TransactionRecord: TypeAlias = TransactionalIdRecord | StagedRecord
