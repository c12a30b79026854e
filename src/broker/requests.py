"""What the front doors ask of the replica manager, and what it answers: plain frozen values.

Both front doors (gRPC, the Kafka protocol) translate to these. Nothing here decides or waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidTxnState, QuorumlogError
from ..ids import Epoch, Offset
from ..records.batch import HEADER_SIZE, TRANSACTIONAL_BIT
from ..records.compression import Buffer
from ..storage import Range

LATEST = -1  # as a timestamp: the high watermark
EARLIEST = -2  # as a timestamp: the log start offset
MAX_TIMESTAMP = -3  # as a timestamp: the record with the largest timestamp

_ATTRIBUTES_AT = 22  # the low byte of a batch's attributes


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a partition's batches went."""

    base_offset: Offset  # of the first record; -1 where nobody waited for it (acks=0)
    log_append_time_ms: int  # -1 unless the topic stamps the broker's time
    log_start_offset: Offset
    next_offset: Offset  # behind the last record


def refuse_transactional(records: Buffer) -> None:
    """Raise InvalidTxnState for a batch of a transaction: nobody here could end that, and an open
    one holds up all who read what is committed. One look at the first batch's attributes is enough,
    for batches with a producer id are refused by the log unless they come alone."""
    if len(records) >= HEADER_SIZE and records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT:
        raise InvalidTxnState(
            "transactions are not offered yet: send batches that are not transactional"
        )


@dataclass(slots=True)  # not frozen: a fetch makes one a partition
class FetchSpec:
    """One partition of a fetch."""

    topic: str
    partition: int
    offset: int  # first offset wanted; the first batch returned may begin below it
    max_bytes: int  # one batch comes even if larger
    leader_epoch: int | None  # None: not checked
    topic_id: bytes = b""  # empty: not checked
    rack: str = ""  # that the reader is in; empty: none
    committed_only: bool = False  # nothing from the last stable offset on
    last_epoch: int = -1  # of the last record that the reader has; -1: it does not say


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """What one partition of a fetch gives: whole batches as stored, or an error."""

    spec: FetchSpec
    high_watermark: int  # -1 on an error
    last_stable_offset: int  # -1 on an error
    log_start_offset: int  # -1 when unknown
    records: bytes  # empty when there is nothing new
    next_offset: int  # where to go on; the offset asked for when `records` is empty
    error: QuorumlogError | None = None
    preferred_replica: int | None = None  # the node in the reader's rack, to read from instead


@dataclass(slots=True)  # not frozen: a fetch makes one a partition
class FoundRecords:
    """Where a partition's records lie, for who sends them from their file; or an error.

    Whoever has it releases it, once.
    """

    spec: FetchSpec
    high_watermark: int = -1  # -1 on an error
    last_stable_offset: int = -1  # -1 on an error
    log_start_offset: int = -1  # -1 when unknown
    range: Range | None = None  # located whole batches; None: there is nothing new
    aborted: Sequence[tuple[int, int]] = ()  # producer id, first offset; with `committed_only`
    diverging: tuple[int, int] | None = None  # epoch and its end, where the reader's log parts
    error: QuorumlogError | None = None
    preferred_replica: int | None = None  # the node in the reader's rack, to read from instead

    @property
    def size(self) -> int:
        """Bytes of records."""
        return 0 if self.range is None else self.range.size

    def release(self) -> None:
        """Give back the lease on the file."""
        if self.range is not None:
            self.range.release()
            self.range = None


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """One position to translate into an offset."""

    topic: str
    partition: int
    timestamp_ms: int  # milliseconds since 1970, or LATEST, EARLIEST, MAX_TIMESTAMP
    topic_id: bytes = b""  # empty: not checked
    leader_epoch: int | None = None  # None: not checked
    committed_only: bool = False  # LATEST is the last stable offset


@dataclass(frozen=True, slots=True)
class OffsetOutcome:
    """The offset of a position, or an error."""

    spec: OffsetSpec
    offset: int  # -1: no record at or after the time
    timestamp_ms: int  # of the record found, -1 when none was looked up
    leader_epoch: Epoch | int  # of the batch found, -1 when unknown
    error: QuorumlogError | None = None


@dataclass(frozen=True, slots=True)
class EpochEndSpec:
    """A leader epoch of one partition, whose end is asked for."""

    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int | None = None  # that the caller believes in; None: not checked
    topic_id: bytes = b""  # empty: not checked


@dataclass(frozen=True, slots=True)
class EpochEndOutcome:
    """Where the log of the one who asks may part from this one, or an error."""

    spec: EpochEndSpec
    leader_epoch: int  # the largest that is not above the one asked for, -1: unknown
    end_offset: int  # exclusive; -1: unknown
    error: QuorumlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """What a log remembers of a producer with an id."""

    producer_id: int
    producer_epoch: int
    last_sequence: int  # -1: unknown
    last_timestamp_ms: int  # of its last batch, -1: unknown
    coordinator_epoch: int  # of the last marker, -1: none
    transaction_start: int  # first offset of its open transaction, -1: none


@dataclass(frozen=True, slots=True)
class DeletionSpec:
    """The beginning of one partition that is to go."""

    topic: str
    partition: int
    before_offset: int  # what lies below it goes; -1: what lies below the high watermark
    topic_id: bytes = b""  # empty: not checked


@dataclass(frozen=True, slots=True)
class DeletionOutcome:
    """Where a partition starts now, or why it starts where it did."""

    spec: DeletionSpec
    log_start_offset: int  # durable; -1 on an error
    error: QuorumlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """What one partition takes on this broker's disk."""

    topic: str
    partition: int
    size_bytes: int = 0  # of its batches
    log_start_offset: Offset | int = 0
    log_end_offset: Offset | int = 0
    error: QuorumlogError | None = None  # why the log cannot be used
