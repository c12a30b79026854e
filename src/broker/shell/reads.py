"""Reads by consumers: long-poll fetches over many partitions, offset and epoch lookups.

A fetch plans ranges over all its partitions without waiting. If they have enough bytes, or its time
is up, it reads them. Otherwise it releases the ranges and waits until one of its partitions moves.
Records are not decoded: the stored bytes are returned.

A follower serves consumers that send a rack, below its own high watermark; a leader redirects them
to a replica in their rack (KIP-392).

Readers check for log truncation by the end offsets of leader epochs (KIP-320). The log has an epoch
from its first batch on, but a leadership starts earlier, at the log's end. A reader that has its
epoch without a record of it is answered as if the log had that epoch.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...errors import (
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    Overloaded,
    QuorumlogError,
)
from ...ids import NodeId, Offset
from ...metrics import LATENCY_MS, Histogram
from ...native import FetchPart, FetchResult
from ...runtime import Clock
from ...runtime.client_bounds import ClientEntries
from ...storage import AbortedTransaction, Log, committed_batches
from ...storage import SegmentRange as SegmentRange  # front ends import it from here
from ...storage.shell.data_directory import DataDirectory
from ..partition_leader import PartitionLeader
from ..requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    EpochEndOutcome,
    EpochEndSpec,
    FetchOutcome,
    FetchSpec,
    FoundRecords,
    OffsetOutcome,
    OffsetSpec,
)
from .replica import Find, Replica
from .replication.follower import FetcherLink

UNKNOWN: Final = (-1, -1)


def end_offset_for(replica: Replica, epoch: int) -> tuple[int, int]:
    """Return the largest epoch of an open log that is not above `epoch`, and its end, exclusive.

    For an epoch older than the log, the end is the start of the log's first epoch; for an epoch
    newer than the current one, the result is `UNKNOWN`.
    """
    log, leader = replica.log, replica.partition.leader
    latest_epoch = log.epochs.latest
    if leader is None or epoch <= latest_epoch:
        return log.epochs.end_offset_for(epoch, log.log_end_offset)
    if epoch > leader.state.leader_epoch:
        return UNKNOWN
    # No record of the epoch yet, so the previous one ends at the log end.
    is_present = epoch == leader.state.leader_epoch
    known = epoch if is_present or latest_epoch < 0 else latest_epoch
    return known, log.log_end_offset


UsualPart: TypeAlias = tuple[Replica, FetchPart]
"""An open replica, and the partition as requested."""

UsualFound: TypeAlias = FetchResult
"""A result with records as bytes, if they are few, or as a located `SegmentRange`."""

TOO_FEW: Final[list[UsualFound]] = []
"""Returned, as this object, in place of fewer bytes than the reader waits for."""


@dataclass(slots=True)
class _Part:
    """One partition of a fetch while it is planned."""

    spec: FetchSpec
    replica: Replica | None = None
    range: SegmentRange | None = None
    error: QuorumlogError | None = None
    preferred: NodeId | None = None  # read from this replica instead
    diverging: tuple[int, int] | None = None  # last common epoch and its end
    aborted: Sequence[AbortedTransaction] = ()  # those of the range; with `committed_only`

    @property
    def is_final(self) -> bool:
        """True if waiting would not change the result."""
        return not (self.error is None and self.preferred is None and self.diverging is None)

    @property
    def is_located(self) -> bool:
        """True if the position of its records in the file is known."""
        return self.range is None or self.range.is_located


class ReadMetrics:
    """Counters of reads since the start; times in ms."""

    __slots__ = ("at_once_ms", "fetched_bytes", "waited_ms")

    def __init__(self) -> None:
        self.fetched_bytes = 0
        self.at_once_ms = Histogram(LATENCY_MS)
        self.waited_ms = Histogram(LATENCY_MS)  # of fetches that waited for records

    def answered(self, size: int, took_ms: int, *, waited: bool) -> None:
        """Count a fetch that was answered with `size` bytes."""
        self.fetched_bytes += size
        (self.waited_ms if waited else self.at_once_ms).observe(took_ms)


class FetchWait:
    """A fetch that waits until one of its partitions moves."""

    __slots__ = ("_replicas", "_timer", "_waits", "_woken", "is_due", "wake")

    def __init__(
        self,
        waits: "ClientEntries[FetchWait]",
        replicas: Sequence[Replica],
        wait_ms: int,
        woken: Callable[[], None] | None,
        principal: str,
    ) -> None:
        """Wait in `waits`. `woken` is called once, on the loop and not by a call to this object,
        unless `cancel` is called before. Without it, the caller awaits `wake`."""
        loop = asyncio.get_running_loop()
        self.is_due = False  # the time is up
        self._waits, self._replicas, self._woken = waits, replicas, woken
        self.wake: asyncio.Future[None] = loop.create_future()
        self.wake.add_done_callback(self._end)
        waits.add(self, principal)
        for replica in replicas:
            replica.watchers.add_fetch(self.wake)
        self._timer = loop.call_later(wait_ms / 1000, self.expire)

    def cancel(self) -> None:
        """Stop waiting."""
        self._woken = None
        self.wake.cancel()

    def expire(self) -> None:
        """End the wait as if the time was up."""
        self._waits.discard(self)
        if not self.wake.done():
            self.is_due = True
            self.wake.set_result(None)

    def _end(self, wake: "asyncio.Future[None]") -> None:
        self._timer.cancel()
        self._waits.discard(self)
        for replica in self._replicas:
            replica.watchers.discard_fetch(wake)
        if self._woken is not None:
            self._woken()


class ReplicaReader:
    """Reads of the replicas of one node."""

    def __init__(
        self, clock: Clock, directory: DataDirectory, find: Find, *, waits_max: int
    ) -> None:
        self.figures = ReadMetrics()
        self._clock = clock
        self._reader = directory.reader
        self._find = find
        self._waits_max = waits_max  # beyond it, one of the principal with the most ends
        self._waits: ClientEntries[FetchWait] = ClientEntries()
        self._stopping = False
        self._link: FetcherLink | None = None  # None: no controllers, so no other leader

    def attach(self, link: FetcherLink) -> None:
        """Set the session with the controllers."""
        self._link = link

    @property
    def waiting(self) -> int:
        """The number of fetches that wait for records."""
        return len(self._waits)

    def stop_waiting(self) -> None:
        """Answer every waiting and every later fetch without a wait."""
        self._stopping = True
        for wait in self._waits:
            if not wait.wake.done():
                wait.wake.set_result(None)

    async def fetch(
        self,
        specs: Sequence[FetchSpec],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        principal: str = "",
    ) -> list[FetchOutcome]:
        """Return the records of each partition below its high watermark, in the order of `specs`.

        Answers at once if `min_bytes` are available, if a partition fails or must be read
        elsewhere, or if `max_wait_ms` is 0. `max_bytes` limits the sum; a first batch is returned
        even if larger. Raises Overloaded if it would have to wait and too many fetches wait, unless
        another principal has more of them than `principal`: see `wait`.
        """
        began_ms = self._clock.now_ms()
        parts, waited = await self._planned(specs, max_wait_ms, min_bytes, max_bytes, principal)
        outcomes = await self._read_all(parts)
        size = sum(len(outcome.records) for outcome in outcomes)
        self.figures.answered(size, self._clock.now_ms() - began_ms, waited=waited)
        return outcomes

    async def find(
        self,
        specs: Sequence[FetchSpec],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        principal: str = "",
    ) -> list[FoundRecords]:
        """Fetch as `fetch` does, but return the location of the records; the caller releases
        each."""
        began_ms = self._clock.now_ms()
        parts, waited = await self._planned(specs, max_wait_ms, min_bytes, max_bytes, principal)
        try:
            found = [await self._found(part) for part in parts]
        except BaseException:
            _release(parts)
            raise
        size = sum(one.size for one in found)
        self.figures.answered(size, self._clock.now_ms() - began_ms, waited=waited)
        return found

    def find_nowait(
        self, specs: Sequence[FetchSpec], *, min_bytes: int, max_bytes: int
    ) -> list[FoundRecords] | None:
        """Fetch as `find` does, but never wait: for records, for a log to open, or for the device.

        Returns None if it would have to; with `min_bytes` 0 it does not wait for records.
        """
        parts = []
        for spec in specs:
            part = _Part(spec)
            try:
                part.replica = self._find(spec.topic, spec.partition, spec.topic_id)
                if not part.replica.is_open:
                    return None
                part.replica.check_open()
            except QuorumlogError as error:
                part.replica, part.error = None, error
            parts.append(part)
        size = _plan(parts, max_bytes, self._link)
        is_answer = size >= min_bytes or self._stopping or any(part.is_final for part in parts)
        if not is_answer or not all(part.is_located for part in parts):
            _release(parts)
            return None
        self.figures.answered(size, 0, waited=False)
        return [_located(part) for part in parts]

    def find_at_once(
        self,
        asked: Sequence[UsualPart],
        *,
        min_bytes: int,
        max_bytes: int,
        committed_only: bool,
        waited_ms: int = -1,
    ) -> list[UsualFound] | None:
        """Fetch as `find_nowait` does in the usual case, which takes a third of its time: each
        partition is led here, in the reader's epoch, and read without an error, aborted
        transactions, or a wait for the device. Return `TOO_FEW` if there are fewer than
        `min_bytes`, and None in every other case; nothing has changed then. `waited_ms`: how long
        the fetch has waited, for the metrics; -1: not at all."""
        found: list[UsualFound] = []
        size = 0
        for replica, part in asked:
            one = _usual(replica, part, max_bytes - size, not size, committed_only)
            if one is None:
                break
            found.append(one)
            size += one[3]
        if len(found) < len(asked) or size < min_bytes:
            for *_, taken in found:
                _release_usual(taken)
            return TOO_FEW if len(found) == len(asked) else None
        self.figures.answered(size, max(0, waited_ms), waited=waited_ms >= 0)
        return found

    def wait(
        self,
        replicas: Sequence[Replica],
        wait_ms: int,
        woken: Callable[[], None] | None = None,
        *,
        principal: str = "",
    ) -> FetchWait | None:
        """Start a wait until one of the partitions moves, or for `wait_ms`; see `FetchWait`. Return
        None if no fetch may wait now. At the limit the oldest wait of the principal with the most
        of them ends."""
        if self._stopping:
            return None
        if len(self._waits) >= self._waits_max:
            most = self._waits.of_most(principal)
            if most is None:
                return None
            next(iter(most)).expire()
        return FetchWait(self._waits, replicas, wait_ms, woken, principal)

    async def _planned(
        self,
        specs: Sequence[FetchSpec],
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        principal: str,
    ) -> tuple[list[_Part], bool]:
        """Plan until the plan is an answer; return the parts, and True if that needed a wait."""
        deadline_ms, waited = self._clock.now_ms() + max_wait_ms, False
        while True:
            parts = await self._open_all(specs)
            size = _plan(parts, max_bytes, self._link)
            left_ms = deadline_ms - self._clock.now_ms()
            is_final = any(part.is_final for part in parts)
            if size >= max(1, min_bytes) or is_final or left_ms <= 0 or self._stopping:
                return parts, waited
            _release(parts)
            waited = True
            if not await self._wait_for_progress(parts, left_ms, principal):
                deadline_ms = self._clock.now_ms()  # the next plan is the answer

    async def list_offsets(self, specs: Sequence[OffsetSpec]) -> list[OffsetOutcome]:
        """Translate positions into offsets, in the order of `specs`."""
        return [await self._list_offset(spec) for spec in specs]

    async def epoch_ends(self, specs: Sequence[EpochEndSpec]) -> list[EpochEndOutcome]:
        """Look epochs up in the logs that this node leads, in the order of `specs`."""
        outcomes = []
        for spec in specs:
            try:
                replica = self._find(spec.topic, spec.partition, spec.topic_id)
                await replica.opened()
                replica.partition.check_leader(spec.current_leader_epoch)
                epoch, end_offset = end_offset_for(replica, spec.leader_epoch)
                outcomes.append(EpochEndOutcome(spec, epoch, end_offset))
            except QuorumlogError as error:
                outcomes.append(EpochEndOutcome(spec, -1, -1, error))
        return outcomes

    async def _open_all(self, specs: Sequence[FetchSpec]) -> list[_Part]:
        parts = [_Part(spec) for spec in specs]
        for part in parts:
            spec = part.spec
            try:
                part.replica = self._find(spec.topic, spec.partition, spec.topic_id)
                part.replica.begin_open()  # start all, then wait for each
            except QuorumlogError as error:
                part.error = error
        for part in parts:
            if part.replica is not None:
                try:
                    await part.replica.opened()
                except QuorumlogError as error:
                    part.replica, part.error = None, error
        return parts

    async def _wait_for_progress(
        self, parts: Sequence[_Part], left_ms: int, principal: str
    ) -> bool:
        """Wait until a partition moves (True) or the time is up (False)."""
        replicas = [part.replica for part in parts if part.replica is not None]
        wait = self.wait(replicas, left_ms, principal=principal)
        if wait is None:
            raise Overloaded(
                f"too many waiting fetches; {len(self._waits)} wait, the limit is"
                f" fetch.waits.max={self._waits_max}; retry later"
            )
        try:
            await wait.wake
        finally:
            wait.cancel()
        return not wait.is_due

    async def _read_all(self, parts: Sequence[_Part]) -> list[FetchOutcome]:
        try:
            return [await self._read(part) for part in parts]
        finally:
            _release(parts)

    async def _read(self, part: _Part) -> FetchOutcome:
        spec, replica, taken = part.spec, part.replica, part.range
        part.range = None  # the read releases it in any case
        try:
            if part.error is not None:
                raise part.error
            assert replica is not None, f"{spec} has neither a replica nor an error"
            high_watermark = replica.partition.high_watermark
            records, next_offset = b"", spec.offset
            if taken is not None:
                records = await self._reader.read(taken)
                # The exact end is known only now. A gap after the last batch must not look like
                # lost batches, and a log need not have a record of its gaps.
                end = taken.end_of(records) if records else taken.next_offset
                next_offset = max(spec.offset, end)
                records = committed_batches(records, part.aborted)
            log = replica.log
            return FetchOutcome(
                spec,
                high_watermark,
                min(high_watermark, log.last_stable_offset),
                log.log_start_offset,
                records,
                next_offset,
                preferred_replica=part.preferred,
            )
        except QuorumlogError as error:
            return FetchOutcome(spec, -1, -1, -1, b"", spec.offset, error)

    async def _found(self, part: _Part) -> FoundRecords:
        taken = part.range
        try:
            if taken is not None:
                await self._reader.locate(taken)
                if not taken.size:  # known only after the read of the index
                    _release((part,))
            return _located(part)
        except QuorumlogError as error:
            _release((part,))
            return FoundRecords(part.spec, error=error)

    async def _list_offset(self, spec: OffsetSpec) -> OffsetOutcome:
        try:
            replica = self._find(spec.topic, spec.partition, spec.topic_id)
            log = await replica.opened()
            partition = replica.partition
            leader = partition.check_leader(spec.leader_epoch)
            if spec.timestamp_ms == LATEST:
                latest = leader.check_committed()
                if spec.committed_only:
                    latest = Offset(min(latest, log.last_stable_offset))
                return OffsetOutcome(spec, latest, -1, partition.leader_epoch)
            if spec.timestamp_ms == EARLIEST:
                return OffsetOutcome(spec, log.log_start_offset, -1, -1)
            end_offset: int = leader.high_watermark
            if spec.committed_only:
                end_offset = min(end_offset, log.last_stable_offset)
            # As of the lookup: the high watermark may move while that waits for the device.
            missing = _uncommitted(leader)
            if spec.timestamp_ms == MAX_TIMESTAMP and missing is not None:
                raise missing
            found = await self._reader.offset_for_time(
                log,
                None if spec.timestamp_ms == MAX_TIMESTAMP else spec.timestamp_ms,
                end_offset=end_offset,
            )
            if found is None:
                if missing is not None:
                    raise missing  # the first such record may be above the high watermark (KIP-207)
                return OffsetOutcome(spec, -1, -1, -1)
            return OffsetOutcome(spec, found.offset, found.timestamp, found.leader_epoch)
        except QuorumlogError as error:
            return OffsetOutcome(spec, -1, -1, -1, error)


def _uncommitted(leader: PartitionLeader) -> OffsetNotAvailable | None:
    """Return the error of `PartitionLeader.check_committed`."""
    try:
        leader.check_committed()
    except OffsetNotAvailable as error:
        return error
    return None


def _located(part: _Part) -> FoundRecords:
    """Return the found records of a part with a located range."""
    spec, replica, taken = part.spec, part.replica, part.range
    if part.error is not None or replica is None:
        return FoundRecords(spec, error=part.error)
    log, high_watermark = replica.log, replica.partition.high_watermark
    found = FoundRecords(
        spec,
        high_watermark,
        min(high_watermark, log.last_stable_offset),
        log.log_start_offset,
        taken,
        diverging=part.diverging,
        preferred_replica=part.preferred,
    )
    if taken is not None:
        found.aborted = [
            (each.producer_id, each.first_offset)
            for each in part.aborted
            if each.first_offset < taken.next_offset
        ]
    return found


def _plan(parts: Sequence[_Part], max_bytes: int, link: FetcherLink | None) -> int:
    """Plan a range of each partition within the budget; return the planned bytes."""
    size = 0
    for part in parts:
        replica, spec = part.replica, part.spec
        if replica is None:
            continue
        try:
            partition = replica.partition
            if spec.rack:
                partition.check_readable(spec.leader_epoch)
                if partition.leader is not None:
                    part.preferred = partition.leader.preferred_replica(spec.rack, spec.offset)
            else:  # without a rack, the reader assumes that this replica leads
                partition.check_leader(spec.leader_epoch)
            if spec.last_epoch >= 0:
                part.diverging = _diverging(replica, spec)
            if part.preferred is None and part.diverging is None:
                _check_not_stale(replica, spec, link)
                part.range = _range(replica, spec, max_bytes - size, first=size == 0)
                if spec.committed_only and part.range is not None:
                    part.aborted = _aborted(replica, spec, part.range)
        except QuorumlogError as error:
            part.error = error
        if part.range is not None:
            size += part.range.size
    return size


def _check_not_stale(replica: Replica, spec: FetchSpec, link: FetcherLink | None) -> None:
    """Raise NotLeaderOrFollower if the offset is beyond this log's end while the controllers are
    not reached: another leader's log may have it. OffsetOutOfRange would reset the reader to an end
    of the log. Kafka's brokers return that; its clients check the leader epoch of their last
    record."""
    if spec.offset > replica.log.log_end_offset and link is not None and link.is_lapsed():
        raise NotLeaderOrFollower(
            f"offset {spec.offset} is beyond the log end offset, and the controllers are not"
            " reached; another broker may lead; refresh the metadata",
            topic=spec.topic,
            partition=spec.partition,
        )


def _range(replica: Replica, spec: FetchSpec, left: int, *, first: bool) -> SegmentRange | None:
    log, high_watermark = replica.log, replica.partition.high_watermark
    if not log.log_start_offset <= spec.offset <= log.log_end_offset:
        raise OffsetOutOfRange(
            f"offset {spec.offset} is out of range; the log has [{log.log_start_offset},"
            f" {log.log_end_offset}]",
            topic=spec.topic,
            partition=spec.partition,
        )
    if spec.offset > high_watermark and not replica.partition.is_leader:
        raise OffsetNotAvailable(
            f"this replica's high watermark is {high_watermark}; read from the leader, or retry",
            topic=spec.topic,
            partition=spec.partition,
        )
    end_offset: int = high_watermark
    if spec.committed_only:
        end_offset = min(high_watermark, log.last_stable_offset)
    if spec.offset >= end_offset or (left <= 0 and not first):
        return None
    return log.read(
        spec.offset,
        max_bytes=min(spec.max_bytes, max(left, 1)),
        end_offset=end_offset,
        min_one=first,
    )


def _usual(
    replica: Replica, part: FetchPart, left: int, first: bool, committed_only: bool
) -> UsualFound | None:
    """Find the records of one partition within `left` bytes; None if it is not the usual case."""
    _, leader_epoch, offset, last_epoch, part_bytes = part
    log, leader = replica.log, replica.partition.leader
    if leader is None or leader_epoch not in (-1, replica.partition.leader_epoch):
        return None
    if last_epoch not in (-1, log.epochs.latest):
        return None
    if not log.log_start_offset <= offset <= log.log_end_offset:
        return None
    high_watermark, stable = leader.high_watermark, log.last_stable_offset
    if stable > high_watermark:
        stable = high_watermark
    end_offset = stable if committed_only else high_watermark
    if offset >= end_offset or (left <= 0 and not first):
        return high_watermark, stable, log.log_start_offset, 0, None
    try:
        taken = _usual_records(
            log, offset, end_offset, min(max(part_bytes, 0), max(left, 1)), first
        )
    except QuorumlogError:
        return None  # the general path has the error
    if taken is None:
        return None
    records, size, next_offset = taken
    if committed_only and size and log.aborted_transactions(offset, next_offset):
        _release_usual(records)
        return None
    return high_watermark, stable, log.log_start_offset, size, records


def _usual_records(
    log: Log, offset: int, end_offset: int, max_bytes: int, first: bool
) -> tuple[bytes | SegmentRange | None, int, int] | None:
    """Return records, their size and the offset behind them; None if reading could wait."""
    small = log.reads.read_small(offset, max_bytes=max_bytes, end_offset=end_offset)
    if small is not None:
        return small[0], len(small[0]), small[1]
    taken = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one=first)
    if taken is None:
        return None, 0, offset
    if taken.is_located and taken.size:
        return taken, taken.size, taken.next_offset
    taken.release()
    return (None, 0, offset) if taken.is_located else None


def _release_usual(taken: bytes | SegmentRange | None) -> None:
    if isinstance(taken, SegmentRange):
        taken.release()


def _aborted(
    replica: Replica, spec: FetchSpec, taken: SegmentRange
) -> Sequence[AbortedTransaction]:
    """Return the aborted transactions of a range, when its file is leased: compaction may remove
    aborted batches, and their entries of the index, while the range is read."""
    log = replica.log
    end_offset = taken.next_offset if taken.is_located else log.last_stable_offset
    return log.aborted_transactions(spec.offset, end_offset)


def _diverging(replica: Replica, spec: FetchSpec) -> tuple[int, int] | None:
    """Return the last common epoch and its end offset, if the reader's log diverges from this one
    before the requested offset (KIP-595); else None."""
    epoch, end = end_offset_for(replica, spec.last_epoch)
    if epoch < 0:
        raise OffsetOutOfRange(
            f"leader epoch {spec.last_epoch} is older than all records of this log; get the"
            " earliest offset with ListOffsets",
            topic=spec.topic,
            partition=spec.partition,
        )
    return (epoch, end) if epoch < spec.last_epoch or end < spec.offset else None


def _release(parts: Sequence[_Part]) -> None:
    for part in parts:
        if part.range is not None:
            part.range.release()
            part.range = None
