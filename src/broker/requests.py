"""Requests to the replica manager and their answers, as plain values.

Both front ends (gRPC and the Kafka protocol) translate to these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import QuorumlogError
from ..ids import Epoch, Offset
from ..records.batch import HEADER_SIZE, TRANSACTIONAL_BIT
from ..records.compression import Buffer
from ..storage import SegmentRange

LATEST = -1  # as a timestamp: the high watermark
EARLIEST = -2  # as a timestamp: the log start offset
MAX_TIMESTAMP = -3  # as a timestamp: the record with the largest timestamp

_ATTRIBUTES_AT = 22  # the low byte of a batch's attributes


def is_transactional(records: Buffer) -> bool:
    """Return True for transactional batches. The attributes of the first batch suffice, because
    the log accepts batches with a producer id only one at a time."""
    return len(records) >= HEADER_SIZE and records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT != 0


@dataclass(slots=True)  # not frozen, for speed: every partition of a fetch creates one
class FetchSpec:
    """One partition of a fetch."""

    topic: str
    partition: int
    offset: int  # first offset wanted; the first batch returned may start below it
    max_bytes: int  # a first batch is returned even if larger
    leader_epoch: int | None  # None: not checked
    topic_id: bytes = b""  # empty: not checked
    rack: str = ""  # of the reader; empty: none
    committed_only: bool = False  # below the last stable offset; without aborted ones, or with
    # their transactions named in `FoundRecords.aborted`
    last_epoch: int = -1  # of the last record that the reader has; -1: not sent


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """The result for one partition of a fetch: whole batches as stored, or an error."""

    spec: FetchSpec
    high_watermark: int  # -1 on an error
    last_stable_offset: int  # -1 on an error
    log_start_offset: int  # -1 when unknown
    records: bytes  # empty if there are no new records; committed ones with `committed_only`
    next_offset: int  # the next offset to read; `spec.offset` if `records` is empty
    error: QuorumlogError | None = None
    preferred_replica: int | None = None  # a node in the reader's rack to read from instead


@dataclass(slots=True)  # not frozen, for speed: every partition of a fetch creates one
class FoundRecords:
    """The location of a partition's records in its files, for zero-copy sends; or an error.

    The owner must call `release` once.
    """

    spec: FetchSpec
    high_watermark: int = -1  # -1 on an error
    last_stable_offset: int = -1  # -1 on an error
    log_start_offset: int = -1  # -1 when unknown
    range: SegmentRange | None = None  # located whole batches; None: no new records
    aborted: Sequence[tuple[int, int]] = ()  # producer id, first offset; with `committed_only`
    diverging: tuple[int, int] | None = None  # last common epoch and its end
    error: QuorumlogError | None = None
    preferred_replica: int | None = None  # a node in the reader's rack to read from instead

    @property
    def size(self) -> int:
        """The size of the records in bytes."""
        return 0 if self.range is None else self.range.size

    def release(self) -> None:
        """Release the lease on the file."""
        if self.range is not None:
            self.range.release()
            self.range = None


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """A position to translate into an offset."""

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
    """A leader epoch of one partition, to look up its end offset."""

    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int | None = None  # of the client's metadata; None: not checked
    topic_id: bytes = b""  # empty: not checked


@dataclass(frozen=True, slots=True)
class EpochEndOutcome:
    """The end offset of the latest epoch up to the requested one, or an error."""

    spec: EpochEndSpec
    leader_epoch: int  # the largest one up to the requested epoch; -1: unknown
    end_offset: int  # exclusive; -1: unknown
    error: QuorumlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """The state of a producer id in a log."""

    producer_id: int
    producer_epoch: int
    last_sequence: int  # -1: unknown
    last_timestamp_ms: int  # of its last batch
    coordinator_epoch: int  # of the last marker, -1: none
    transaction_start: int  # first offset of its open transaction; -1: none


@dataclass(frozen=True, slots=True)
class DeletionSpec:
    """The records to delete at the start of one partition."""

    topic: str
    partition: int
    before_offset: int  # exclusive; -1: the last stable offset
    topic_id: bytes = b""  # empty: not checked


@dataclass(frozen=True, slots=True)
class DeletionOutcome:
    """The new log start offset of a partition, or an error."""

    spec: DeletionSpec
    log_start_offset: int  # durable; -1 on an error
    error: QuorumlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """The disk usage of one partition on this broker."""

    topic: str
    partition: int
    size_bytes: int = 0  # of its batches
    log_start_offset: Offset | int = 0
    log_end_offset: Offset | int = 0
    error: QuorumlogError | None = None  # the log cannot be used
