"""Appends of mirrors: batches of another cluster's log, at their source offsets.

Such an append works like a follower's, with two differences: the batches get this leader's epoch
(source epochs are meaningless here), and the append waits for this partition's followers. Four
rules keep the copy correct:

- The request has the copy's end offset as the mirror has it, and is appended only there. A
  repeat, a second mirror, or a leader that lost an unacknowledged end thus causes neither holes nor
  duplicates.
- A gap in the batches is a gap in the source. Before the first one, the log durably records that it
  may have gaps, so that recovery does not treat them as damage; followers get that from the leader.
- The first batches of a leader epoch start at the log's end. If they have a gap there, a batch
  without records spans it. Logs diverge at the start of an epoch, and a returning leader may have
  unacknowledged batches of the source in that gap.
- No batch has a producer id. Ids of the source cluster may be allocated here too after a promotion,
  and the first batches of that producer would be dropped as duplicates. The sequence field holds
  the source's leader epoch, for mirrors to compare.
"""

from dataclasses import dataclass
from typing import Final

from ...errors import DiskFailed, InvalidRecord, MirrorOutOfPlace, NotMirror, QuorumlogError
from ...ids import Epoch
from ...records.batch import (
    CONTROL_BIT,
    NO_PRODUCER,
    TRANSACTIONAL_BIT,
    client_batches,
    iterate_batches,
    parse_header,
    without_records,
)
from ...runtime import Buffer, Clock
from ...storage import AppendOrigin, Log
from ...storage.shell.data_directory import DataDirectory
from ..purgatory import Acks
from .produce import DelayedProduce
from .replica import Find, Replica

_MARKS: Final = CONTROL_BIT | TRANSACTIONAL_BIT
_EPOCH_AT: Final = 12
"""The position of the leader epoch in a batch: 4 bytes that the CRC does not cover."""

_SPAN_MAX: Final = 2**31 - 1  # offsets of one batch


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSpec:
    """The batches of a mirror for one partition."""

    topic: str
    partition: int
    source: str  # the topic's mirror.source, as the mirror has it
    log_end_offset: int  # the end of the copy, as the mirror has it
    records: Buffer = b""  # whole batches; empty: only request the end of the copy
    topic_id: bytes = b""  # empty: not checked


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOutcome:
    """The end of the copy, -1 if unknown, and the error if nothing was stored."""

    log_start_offset: int = -1
    log_end_offset: int = -1
    high_watermark: int = -1
    error: QuorumlogError | None = None


class MirrorWriter:
    """Appends of mirrors to partitions that this node leads."""

    def __init__(self, clock: Clock, directory: DataDirectory, find: Find) -> None:
        self._clock = clock
        self._directory = directory
        self._find = find

    async def append(self, spec: MirrorSpec, deadline_ms: int) -> MirrorOutcome:
        """Append the batches and wait until they are committed, or until `deadline_ms`
        (Clock.now_ms()). Errors are returned, not raised."""
        try:
            replica = self._find(spec.topic, spec.partition, spec.topic_id)
            log = await replica.opened()
            _check(replica, spec)
        except QuorumlogError as error:
            return MirrorOutcome(error=error)
        failure: QuorumlogError | None = None
        if len(spec.records):
            try:
                await self._append(replica, log, spec, deadline_ms)
            except QuorumlogError as error:
                failure = error
        return MirrorOutcome(
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=replica.partition.high_watermark,
            error=failure,
        )

    async def _append(self, replica: Replica, log: Log, spec: MirrorSpec, deadline_ms: int) -> None:
        if has_gap(spec.records, spec.log_end_offset) and not log.was_compacted:
            try:
                await self._directory.expect_gaps(log)
            except OSError as error:
                raise DiskFailed(f"{log.folder}: {error}") from None
        # No await between these checks and the place in the append queue.
        epoch = _check(replica, spec)
        if log.log_end_offset != spec.log_end_offset:
            raise MirrorOutOfPlace(
                f"the copy ends at offset {log.log_end_offset}, the batches follow offset"
                f" {spec.log_end_offset}; continue from its end",
                topic=spec.topic,
                partition=spec.partition,
            )
        # A mirror is a client without another limit.
        self._directory.check_capacity(len(spec.records))
        records = with_epoch(spec.records, epoch)
        if epoch > log.epochs.latest:
            records[:0] = gap_batch(records, spec.log_end_offset, epoch)
        append = DelayedProduce(
            self._directory.completed, replica, records, Acks.ALL, epoch, AppendOrigin.REPLICATED
        )
        self._directory.submit(log, append)
        await append.wait_until(self._clock, deadline_ms)


def has_gap(records: Buffer, log_end_offset: int) -> bool:
    """Return True if whole batches leave out an offset from the log's end on.

    Raises InvalidRecord for batches that a mirror must not append and for more than BATCHES_MAX,
    CorruptionError for malformed ones.
    """
    expected = log_end_offset
    found = False
    for _, header in client_batches(records):
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise InvalidRecord(
                f"the batch of offsets {header.base_offset} to {header.last_offset} must follow"
                f" offset {expected}; send batches in order"
            )
        if header.producer_id != NO_PRODUCER or header.attributes & _MARKS:
            raise InvalidRecord(
                f"the batch at offset {header.base_offset} has a producer id or is transactional;"
                " a mirror must send plain batches"
            )
        found = found or header.base_offset > expected
        expected = header.next_offset
    return found


def with_epoch(records: Buffer, leader_epoch: Epoch) -> bytearray:
    """Return whole batches with another leader epoch."""
    stamped = bytearray(records)
    mark = int(leader_epoch).to_bytes(4, "big")
    for position, _ in iterate_batches(records):
        stamped[position + _EPOCH_AT : position + _EPOCH_AT + 4] = mark
    return stamped


def gap_batch(records: Buffer, log_end_offset: int, leader_epoch: Epoch) -> bytes:
    """Return the batch without records that spans a gap before a leader's first batches, or no
    bytes without a gap. A gap too large for an index is left for the append to refuse."""
    first_offset = parse_header(records).base_offset
    if not log_end_offset < first_offset <= log_end_offset + _SPAN_MAX:
        return b""
    return without_records(log_end_offset, first_offset, leader_epoch=leader_epoch)


def _check(replica: Replica, spec: MirrorSpec) -> Epoch:
    """Return the epoch in which this node leads a mirror of the source; raise an error if it does
    not."""
    state = replica.partition.check_leader(None).admit(Acks.ALL, is_mirrored=True)
    if state.mirrors != spec.source:
        raise NotMirror(
            f"this topic mirrors {state.mirrors}, not {spec.source}; batches of another source"
            " cannot be appended",
            topic=spec.topic,
            partition=spec.partition,
        )
    return state.leader_epoch
