"""What a mirror appends: batches of another cluster's log, at the offsets that they have there.

A follower's append, with two differences: the batches get this leader's epoch (their source's
epochs mean nothing here), and the leader waits for its own followers. Four things keep the copy
right:

- the caller names the copy's end as it knows it, and nothing is appended anywhere else: a repeat, a
  second mirror, or a leader that lost an end that nobody acknowledged makes no hole and no double;
- a gap is what the source does not have; before the first one the log says durably that it may have
  gaps, so that a recovery does not take it for damage, and followers learn it from their leader;
- a leader's first batches in its epoch begin where the log ended: where there is a gap, a batch
  without records spans it. Replicas part where an epoch begins, and a leader that comes back may
  have old batches of the source in that gap, which nobody acknowledged;
- no batch has a producer. Its numbers are the source cluster's, and another producer may get the
  same ones here after a promotion: its first batches would be taken for repeats, and be lost. In
  place of the sequence stands the source's leader epoch, for mirrors to compare.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from ...errors import InvalidRecord, MirrorOutOfPlace, NotMirror, QuorumlogError, StorageError
from ...ids import Epoch
from ...records.batch import (
    CONTROL_BIT,
    NO_PRODUCER,
    TRANSACTIONAL_BIT,
    iterate_batches,
    parse_header,
    without_records,
)
from ...runtime import Buffer, Clock
from ...storage import Log, Origin
from ...storage.shell.append_queue import Appended
from ...storage.shell.data_directory import Directory
from ..partition import Acks
from .appends import PendingAppend
from .replica import Find, Replica

_MARKS: Final = CONTROL_BIT | TRANSACTIONAL_BIT
_EPOCH_AT: Final = 12
"""Where a batch has its leader epoch, in 4 bytes that its CRC does not cover."""

_SPAN_MAX: Final = 2**31 - 1  # offsets of one batch


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSpec:
    """What a mirror has for one partition."""

    topic: str
    partition: int
    source: str  # the topic's mirror.source, as the mirror knows it
    log_end_offset: int  # where the copy ends, as the mirror knows it
    records: Buffer = b""  # whole batches; empty: only to be told how far the copy is
    topic_id: bytes = b""  # empty: not checked


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOutcome:
    """How far the copy is now, -1 where that is unknown; with why nothing was stored."""

    log_start_offset: int = -1
    log_end_offset: int = -1
    high_watermark: int = -1
    error: QuorumlogError | None = None


class Mirroring:
    """The appends of mirrors to the partitions that this node leads."""

    def __init__(self, clock: Clock, directory: Directory, find: Find) -> None:
        self._clock = clock
        self._directory = directory
        self._find = find

    async def append(self, spec: MirrorSpec, deadline_ms: int) -> MirrorOutcome:
        """Append what the spec has, and return once it is committed, or at `deadline_ms`
        (Clock.now_ms()); raises nothing of what a request can meet."""
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
                raise StorageError(f"{log.folder}: {error}") from None
        # Nothing is waited for between these checks and the append's place in the queue.
        epoch = _check(replica, spec)
        if log.log_end_offset != spec.log_end_offset:
            raise MirrorOutOfPlace(
                f"the copy ends at offset {log.log_end_offset}, the batches are for"
                f" {spec.log_end_offset}: go on from its end",
                topic=spec.topic,
                partition=spec.partition,
            )
        self._directory.check_room(len(spec.records))  # a mirror is a client, and has no bound else
        records = with_epoch(spec.records, epoch)
        if epoch > log.latest_epoch:
            records[:0] = begun(records, spec.log_end_offset, epoch)
        future = self._directory.append_nowait(
            log,
            records,
            leader_epoch=epoch,
            origin=Origin.REPLICATED,
            flush=replica.flushes,
        )
        future.add_done_callback(_retrieve)
        pending = PendingAppend(self._clock, replica, future, Acks.ALL, leader_epoch=epoch)
        await pending.settle(deadline_ms)


def has_gap(records: Buffer, log_end_offset: int) -> bool:
    """Whether whole batches leave an offset out from the log's end on. Raises InvalidRecord for
    what no mirror may append, CorruptionError for what are no batches."""
    expected = log_end_offset
    found = False
    for _, header in iterate_batches(records):
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise InvalidRecord(
                f"a batch of offsets {header.base_offset} to {header.last_offset} is to follow"
                f" offset {expected}: send what begins there, in order"
            )
        if header.producer_id != NO_PRODUCER or header.attributes & _MARKS:
            raise InvalidRecord(
                f"the batch at offset {header.base_offset} has a producer or is one of a"
                " transaction: a mirror sends plain batches"
            )
        found = found or header.base_offset > expected
        expected = header.next_offset
    return found


def with_epoch(records: Buffer, leader_epoch: Epoch) -> bytearray:
    """Return whole batches with another leader epoch; all else stays as it is."""
    stamped = bytearray(records)
    mark = int(leader_epoch).to_bytes(4, "big")
    for position, _ in iterate_batches(records):
        stamped[position + _EPOCH_AT : position + _EPOCH_AT + 4] = mark
    return stamped


def begun(records: Buffer, log_end_offset: int, leader_epoch: Epoch) -> bytes:
    """Return what a leader's first batches in its epoch are to be preceded by: a batch without
    records where there is a gap in front of them, else nothing. A gap so large that no index spans
    it is left to the append to refuse."""
    first_offset = parse_header(records).base_offset
    if not log_end_offset < first_offset <= log_end_offset + _SPAN_MAX:
        return b""
    return without_records(log_end_offset, first_offset, leader_epoch=leader_epoch)


def _check(replica: Replica, spec: MirrorSpec) -> Epoch:
    """Return the epoch that this node leads a mirror of this source in; raises why it does not."""
    state = replica.partition.admit(Acks.ALL, None, is_mirrored=True)
    if state.mirrors != spec.source:
        raise NotMirror(
            f"this topic mirrors {state.mirrors}, not {spec.source}: nothing of another source is"
            " copied into it",
            topic=spec.topic,
            partition=spec.partition,
        )
    return state.leader_epoch


def _retrieve(append: "asyncio.Future[Appended]") -> None:
    """Look at the outcome, so that nobody is warned when its caller is gone."""
    if not append.cancelled():
        append.exception()
