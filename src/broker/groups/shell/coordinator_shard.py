"""The coordinator of the groups of one partition of `__consumer_offsets`, during one leadership.

It loads the stored groups, then decides requests. The requests of one iteration of the event loop
are decided in order, and their records are appended as one batch at its end. The next batch waits
until that is written, so no batch follows a failed one in the log. A reply is sent once everything
it depends on is committed. Writes use callbacks: waking a task for each batch would cost as much as
the batch.

After a failed append it is unknown which part of the state is stored. The state is discarded,
pending requests fail with a retriable error, and the partition is loaded again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from ....errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    MessageTooLarge,
    NotCoordinator,
    Overloaded,
    QuorumlogError,
    TimedOut,
)
from ....ids import Epoch
from ....metadata.image import MetadataImage, TopicImage
from ....records import Record, encode_plain_batch
from ....runtime import Clock, Entropy
from ....storage import AppendOrigin
from ....storage.shell.append_queue import AppendOutcome
from ....storage.shell.data_directory import DataDirectory
from ...purgatory import Acks
from ...shell.replica import Replica
from ..config import OFFSETS_TOPIC, GroupConfig
from ..decision import Answered, Failed, GroupDecision, Reply, Ticket
from ..formats import encode
from ..records import ClassicGroup, ConsumerGroup, OffsetCommitted, OffsetForgotten
from ..requests import DescribeGroup, FetchOffsets, GroupRequest, ListedGroup
from ..shard import GroupShard
from .group_ids import check_texts
from .loader import GroupLogReader
from .metrics import GroupMetrics

BATCH_BYTES: Final = 512 << 10
"""A batch of this size gets no further decision, and no further offsets of its decision."""
DECISION_BYTES_MAX: Final = 99 << 20
"""The maximum size of one decision, whatever the segment size: a follower accepts at most 128
MiB."""
RECORD_BYTES: Final = 16
"""A lower bound of a record's size in a batch beyond its key and value."""
HEAD_BYTES: Final = 128
"""A lower bound of a batch's size beyond its records."""


class BatchLimits:
    """The limits of one partition, derived from its segment size at load."""

    __slots__ = ("batch_bytes", "decision_bytes_max")

    def __init__(self, segment_bytes: int) -> None:
        self.batch_bytes = min(BATCH_BYTES, segment_bytes // 4)
        self.decision_bytes_max = min(DECISION_BYTES_MAX, segment_bytes - HEAD_BYTES)

    def limit(self, config: GroupConfig) -> GroupConfig:
        """Return the configuration with a limit on subscriptions. It leaves space to store them
        together with assignments of the same size and the small fields."""
        fitting = self.decision_bytes_max * 15 // 32
        return replace(config, group_bytes_max=min(config.group_bytes_max, fitting))

    def check(self, size: int) -> None:
        """Raise MessageTooLarge for a decision that cannot be appended. The state is then reloaded,
        and the client must not retry."""
        if size > self.decision_bytes_max:
            raise MessageTooLarge(
                f"the group's update has {size} bytes, the limit is {self.decision_bytes_max}; use"
                " fewer members or topics"
            )


R = TypeVar("R")
ReplyCallback: TypeAlias = Callable[[Any], None]
"""Receives the answer of a request, or the QuorumlogError that it failed with; must not block."""

_LOG = logging.getLogger("quorumlog.groups")

RETRY_S: Final = 0.2
"""The pause before a failed open or load is retried."""
CANCELLED_MAX: Final = 100
"""The number of cancelled requests with replies that may be kept, unless more requests are pending.
Without the limit, they would stay until their records are replicated."""
READ_ONLY: Final = (FetchOffsets, DescribeGroup)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorDeps:
    """Dependencies shared by the shards of one broker; no callable blocks."""

    clock: Clock
    entropy: Entropy
    directory: DataDirectory
    config: GroupConfig
    figures: GroupMetrics
    replica_of: Callable[[str, int], Replica]  # raises NotLeaderOrFollower, ...
    image: Callable[[], MetadataImage]
    may_be_replaced: Callable[[Replica], bool]  # True: another broker may lead by now
    loading: asyncio.Semaphore  # limits concurrent loads


class _PendingBatch:
    """Records and replies of one batch that is not in the log yet."""

    __slots__ = ("records", "replies", "size")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.size = 0

    def split(self, first: int, size: int) -> "_PendingBatch":
        """Move the records from `first` on to a new batch and return it; no reply depends on them
        alone."""
        other = _PendingBatch()
        other.records, other.size = self.records[first:], self.size - size
        del self.records[first:]
        self.size = size
        return other


class CoordinatorShard:
    """Serves one partition during one leadership; see the module. A `Watcher` of the replica."""

    def __init__(self, deps: CoordinatorDeps, partition: int, leader_epoch: Epoch) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self._deps = deps
        self._replica: Replica | None = None
        self._groups: GroupShard | None = None  # None: not loaded
        self._ended: QuorumlogError | None = None
        self._wake = asyncio.Event()
        self._sleep_until_ms: int | None = None  # by `_now_ms`; None: until an event
        self._pending: deque[_PendingBatch] = deque()  # decided and not appended, in order
        self._is_write_due = False  # at the end of this iteration of the loop
        self._writing: _PendingBatch | None = None  # being appended
        self._wake_after_write = False  # `_serve` waits for an append
        self._failed: QuorumlogError | None = None  # the failure of an append; for `_serve`
        self._refused_requests = False  # requests were refused for lack of a writable log
        self._uncommitted: deque[tuple[int, list[Reply]]] = deque()  # end offset, replies
        self._waiting: dict[Ticket, ReplyCallback] = {}
        self._cancelled = 0  # replies without a pending request that may be kept
        self._next_ticket = 0
        self._limits = BatchLimits(BATCH_BYTES)  # replaced at the load
        # Sessions must not depend on jumps of the wall clock, so its offset is read once a load.
        self._wall_ahead_ms = 0

    # --- requests ---------------------------------------------------------------------------------

    async def ask(self, request: GroupRequest[R], deadline_ms: int) -> R:
        """Decide a request; see `GroupCoordinator.ask`."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        ticket = self.submit(request, partial(_settle, future))
        try:
            if future.done():
                return future.result()
            left_ms = max(0, deadline_ms - self._deps.clock.now_ms())
            async with asyncio.timeout(left_ms / 1000):
                return await future
        except TimedOut:
            raise  # the reply itself, not the deadline
        except TimeoutError:
            raise timed_out(request) from None
        finally:
            if ticket is not None:
                self.cancel(ticket)
            if future.done() and not future.cancelled():
                future.exception()  # retrieves the error, so that asyncio logs none

    def submit(self, request: GroupRequest[R], reply_to: ReplyCallback) -> Ticket | None:
        """Decide a request; return its ticket, or None if the reply has been sent already.

        `reply_to` is called once with the answer. Raises the errors that precede a decision.
        """
        if self._ended is None and self._replica is not None:
            self._check_not_replaced(request)  # also while loading: clients then wait
        groups = self._loaded_groups()
        self._check_storable(request)
        ticket = Ticket(self._next_ticket)
        self._next_ticket += 1
        self._waiting[ticket] = reply_to
        try:
            self._enqueue(groups.handle(ticket, request, self._deps.image(), self._now_ms()))
        except Exception as error:  # a bug: the state may have changed without being stored
            self.cancel(ticket)
            self._discard(
                CoordinatorNotAvailable(f"the decision failed unexpectedly: {error}; retry")
            )
            raise
        return ticket if ticket in self._waiting else None

    def cancel(self, ticket: Ticket) -> None:
        """Cancel a request: its reply is dropped."""
        if self._waiting.pop(ticket, None) is not None:
            self._cancelled += 1
            if self._cancelled > max(CANCELLED_MAX, len(self._waiting)):
                self._cancelled = 0
                writing = () if self._writing is None else (self._writing,)
                for replies in (
                    *(batch.replies for batch in (*writing, *self._pending)),
                    *(replies for _, replies in self._uncommitted),
                ):
                    replies[:] = [reply for reply in replies if reply.ticket in self._waiting]

    def _loaded_groups(self, *, lists: bool = False) -> GroupShard:
        """Return the loaded groups. Raises the reason if there are none: CoordinatorLoading, which
        makes clients wait, only while this broker certainly leads."""
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        if self._replica is None and not lists:
            raise CoordinatorNotAvailable(
                f"{OFFSETS_TOPIC}-{self.partition}: the coordinator of its groups is starting;"
                " retry shortly"
            )
        if self._groups is None:
            raise CoordinatorLoading(
                f"{OFFSETS_TOPIC}-{self.partition}: the coordinator is loading its groups; retry"
                " shortly"
            )
        return self._groups

    def _check_not_replaced(self, request: GroupRequest[Any]) -> None:
        """Refuse every request once another broker may coordinate. That broker could assign the
        same partitions to other members, and accept commits that are missing here."""
        if self._may_be_replaced():
            self._refused_requests = True
            raise CoordinatorNotAvailable(
                f"group {request.group}: another broker may coordinate it, since this one has had"
                " no contact with the controllers and not with all in-sync replicas for too long;"
                " look up the coordinator again"
            )

    def _may_be_replaced(self) -> bool:
        return self._replica is None or self._deps.may_be_replaced(self._replica)

    def _check_storable(self, request: GroupRequest[Any]) -> None:
        """Refuse a request that cannot be stored, before it is decided."""
        check_texts(request)
        if len(self._waiting) >= self._deps.config.waits_max:
            raise Overloaded(
                f"{OFFSETS_TOPIC}-{self.partition}: {len(self._waiting)} requests of its groups"
                f" are pending, the limit is {self._deps.config.waits_max}; retry later"
            )
        if not isinstance(request, READ_ONLY):
            try:
                self._admit()
            except QuorumlogError as error:
                self._refused_requests = True
                raise CoordinatorNotAvailable(
                    f"group updates cannot be stored now: {error.message}"
                ) from None

    def _admit(self) -> None:
        """Raise the error with which an append would be refused now."""
        assert self._replica is not None, "not open"
        self._replica.check()
        self._replica.partition.check_leader(self.leader_epoch).admit(Acks.ALL)

    def listings(self) -> list[ListedGroup]:
        """Return the groups, by ascending name; raise CoordinatorLoading."""
        return self._loaded_groups(lists=True).listings()

    @property
    def groups(self) -> GroupShard | None:
        """The loaded groups, for metrics; None: not loaded."""
        return self._groups

    def image_changed(self, image: MetadataImage, deleted: Iterable[TopicImage]) -> None:
        """Apply a metadata change with these deleted topics."""
        if self._groups is not None and self._ended is None:
            try:
                self._enqueue(self._groups.image_changed(image, self._now_ms(), deleted=deleted))
            except Exception as error:  # the expiry check finds the offsets again
                self._write_failed(error)

    # --- decisions --------------------------------------------------------------------------------

    def _enqueue(self, decision: GroupDecision) -> None:
        """Queue a decision for storage; its replies follow."""
        if not decision.records and not decision.replies:
            self._wake_earlier()
            return
        if not decision.records and not self._pending and self._writing is None:
            if self._uncommitted:
                self._uncommitted[-1][1].extend(decision.replies)
            else:
                self._answer(decision.replies)
            self._wake_earlier()
            return
        batch_bytes = self._limits.batch_bytes
        if not self._pending or self._pending[-1].size >= batch_bytes:
            self._pending.append(_PendingBatch())
        batch, now_ms = self._pending[-1], self._now_ms()
        commits, generations, first, before = 0, 0, len(batch.records), batch.size
        for record in decision.records:
            kind = type(record)
            if kind is OffsetCommitted:
                commits += 1
            elif kind is ClassicGroup or kind is ConsumerGroup:
                generations += 1
            if batch.size >= batch_bytes and (kind is OffsetCommitted or kind is OffsetForgotten):
                batch, first, before = _PendingBatch(), 0, 0
                self._pending.append(batch)
            key, value = encode(record)
            batch.records.append(Record(0, now_ms, key, value))
            batch.size += RECORD_BYTES + len(key) + (0 if value is None else len(value))
        self._limits.check(batch.size - before)
        if before and batch.size > self._limits.decision_bytes_max:
            batch = batch.split(first, before)  # each fits into a batch, both together do not
            self._pending.append(batch)
        batch.replies += decision.replies
        self._deps.figures.decided(commits=commits, generations=generations)
        self._write_soon()
        self._wake_earlier()

    def _wake_earlier(self) -> None:
        """Wake the task that runs expired deadlines, if the next deadline is earlier than planned.
        The most frequent requests, heartbeats, only move it later."""
        due_ms = None if self._groups is None else self._groups.deadline_ms()
        if due_ms is not None and (self._sleep_until_ms is None or due_ms < self._sleep_until_ms):
            self._wake.set()

    def _answer(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            reply_to = self._waiting.pop(reply.ticket, None)
            if reply_to is not None:  # else the request was cancelled
                reply_to(reply.outcome if isinstance(reply, Answered) else reply.error)

    def _now_ms(self) -> int:
        return self._deps.clock.now_ms() + self._wall_ahead_ms

    # --- lifecycle --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, then serve, until the leadership ends."""
        try:
            while self._ended is None:
                try:
                    await self._open()
                    await self._load()
                    await self._serve()
                except QuorumlogError as error:
                    self._discard(error)
                    await self._pause()
                except Exception as error:  # a bug, which the next leader has too
                    _LOG.error("groups.term_broke partition=%d", self.partition, exc_info=error)
                    self._discard(
                        CoordinatorNotAvailable(
                            f"the coordinator failed unexpectedly: {error!r}; retry"
                        )
                    )
                    await self._pause()
        finally:
            self.end(_not_leader_error(self.partition))
            if self._replica is not None:
                self._replica.watchers.discard(self)

    async def _pause(self) -> None:
        """Wait before a reload, unless the leadership has ended."""
        if self._ended is None:
            self._wake.clear()
            await self._wait_for_wake(RETRY_S)

    def end(self, error: QuorumlogError) -> None:
        """End the leadership: fail pending requests and decide nothing more."""
        if self._ended is None:
            self._ended = error
            self._groups = None
            self._fail(error)

    def _discard(self, error: QuorumlogError) -> None:
        """Discard the state; it is reloaded."""
        was_serving, self._groups = self._groups is not None, None
        if was_serving and self._ended is None:
            _LOG.warning("groups.read_anew partition=%d error=%s", self.partition, error)
            self._deps.figures.reloads += 1
        self._fail(
            CoordinatorNotAvailable(
                "the outcome is unknown, because the update could not be stored; retry"
                f" ({error.message.rstrip('.')})"
            )
        )

    def _fail(self, error: QuorumlogError) -> None:
        self._pending.clear()
        self._writing = None
        self._uncommitted.clear()
        waiting, self._waiting = self._waiting, {}
        for reply_to in waiting.values():
            reply_to(error.with_traceback(None))
        self._wake.set()

    async def _open(self) -> None:
        """Get the replica; raise NotLeaderOrFollower while it does not lead."""
        replica = self._deps.replica_of(OFFSETS_TOPIC, self.partition)
        await replica.opened()
        replica.partition.check_leader(self.leader_epoch)
        self._replica = replica
        replica.watchers.add(self)

    async def _load(self) -> None:
        """Load all stored groups once the whole log is committed."""
        assert self._replica is not None, "not open"
        log, clock = self._replica.log, self._deps.clock
        began_ms = clock.now_ms()
        settled = self._deps.directory.settle(log)
        if settled is not None:  # queued appends of the previous leadership come first
            await settled
            self._check_leading()
        end_offset = log.log_end_offset
        while self._replica.partition.high_watermark < end_offset:
            await self._wait_for_wake(RETRY_S)
            self._check_leading()
        self._limits = BatchLimits(log.config.segment_bytes)
        groups = GroupShard(self._limits.limit(self._deps.config), self._draw)
        async with self._deps.loading:
            stored = GroupLogReader(
                self._deps.directory, log, end_offset=end_offset, partition=self.partition
            )
            while (records := await stored.take()) is not None:
                self._check_leading()
                for record in records:
                    groups.replay(record)
        self._check_leading()
        self._wall_ahead_ms = clock.wall_ms() - clock.now_ms()
        decision = groups.loaded(self._now_ms())
        self._groups = groups
        took_ms = clock.now_ms() - began_ms
        self._deps.figures.loaded(took_ms)
        if end_offset:
            _LOG.info(
                "groups.loaded partition=%d leader_epoch=%d records=%d offsets=%d took_ms=%d",
                self.partition,
                self.leader_epoch,
                end_offset - log.log_start_offset,
                groups.offset_count,
                took_ms,
            )
        self._enqueue(decision)

    def _draw(self) -> str:
        return self._deps.entropy.token(16).hex()

    def _check_leading(self) -> None:
        """Raise the reason if the leadership has ended."""
        assert self._replica is not None, "not open"
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        self._replica.check()
        self._replica.partition.check_leader(self.leader_epoch)

    async def _serve(self) -> None:
        """Handle expired deadlines until the state is discarded; raise the reason if an append
        failed.

        The records of one step are written before the next step.
        """
        while self._ended is None:
            if self._groups is None:
                failed, self._failed = self._failed, None
                if failed is not None:
                    raise failed.with_traceback(None)
                return
            due_ms = self._sleep_until_ms = self._groups.deadline_ms()
            now_ms = self._now_ms()
            if due_ms is None:
                await self._wait_for_wake(None)
            elif due_ms > now_ms:
                await self._wait_for_wake((due_ms - now_ms) / 1000)
            elif self._pending or self._writing is not None:
                self._wake_after_write = True
                await self._wait_for_wake(None)
            else:
                await self._expire(now_ms)

    async def _expire(self, now_ms: int) -> None:
        """Handle expired deadlines. Not while the log cannot be written, nor right after: members
        with refused heartbeats would expire."""
        assert self._groups is not None, "not loaded"
        try:
            self._admit()
        except QuorumlogError:
            await self._wait_for_wake(RETRY_S)
            return
        if self._may_be_replaced():
            await self._wait_for_wake(RETRY_S)
            return
        if self._refused_requests:
            self._refused_requests = False
            self._groups.restart_sessions(now_ms)
            return
        self._enqueue(self._groups.expire(now_ms, self._deps.image()))
        due_ms = self._groups.deadline_ms()
        if due_ms is not None and due_ms <= now_ms and not self._pending:
            await asyncio.sleep(0.001)

    async def _wait_for_wake(self, timeout_s: float | None) -> None:
        """Wait for an event or the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return
        finally:
            self._wake.clear()

    # --- writes -----------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        """Schedule the append of this iteration's decisions at its end."""
        if not self._is_write_due and self._writing is None:
            self._is_write_due = True
            asyncio.get_running_loop().call_soon(self._write_pending)

    def _write_pending(self) -> None:
        """Append the decided batches until one has to wait for the log."""
        self._is_write_due = False
        while self._pending and self._writing is None:
            batch = self._pending.popleft()
            try:
                self._write(batch)
            except Exception as error:
                self._write_failed(error)

    def _write(self, batch: _PendingBatch) -> None:
        """Append one batch; its replies wait for the commit."""
        replica = self._replica
        assert replica is not None, "not open"
        if not batch.records:
            self._written(batch, replica.log.log_end_offset)
            return
        self._admit()
        append = self._deps.directory.append_nowait(
            replica.log,
            encode_plain_batch(batch.records),
            leader_epoch=self.leader_epoch,
            origin=AppendOrigin.INTERNAL,
            flush=replica.flushes,
        )
        outcome = append.outcome()
        if outcome is None:
            self._writing = batch
            append.call_when_done(partial(self._appended, batch))
        elif isinstance(outcome, QuorumlogError):
            raise outcome
        else:
            self._written(batch, outcome.next_offset)

    def _appended(self, batch: _PendingBatch, outcome: AppendOutcome) -> None:
        """Handle a finished append; ignore it if the batch was discarded."""
        if self._writing is not batch:
            return
        self._writing = None
        try:
            if isinstance(outcome, QuorumlogError):
                raise outcome
            self._check_leading()
            self._written(batch, outcome.next_offset)
        except Exception as error:
            self._write_failed(error)
        self._write_pending()

    def _written(self, batch: _PendingBatch, end_offset: int) -> None:
        self._uncommitted.append((end_offset, batch.replies))
        self.committed()
        if self._wake_after_write:
            self._wake_after_write = False
            self._wake.set()

    def _write_failed(self, error: Exception) -> None:
        """Handle a failed append; its outcome is unknown. A bug counts as one: no task would see
        it, and serving would continue."""
        if not isinstance(error, QuorumlogError):
            _LOG.error("groups.write_broke partition=%d", self.partition, exc_info=error)
            error = CoordinatorNotAvailable(f"the update could not be written: {error!r}; retry")
        self._failed = error
        self._discard(error)

    # --- the replica ------------------------------------------------------------------------------

    def grew(self) -> None:
        """Do nothing, as a `Watcher` of appends."""

    def committed(self) -> None:
        """Send the replies that waited for the high watermark."""
        self._wake_loader()
        replica = self._replica
        if replica is None or self._ended is not None or not replica.partition.is_leader:
            return
        high_watermark = replica.partition.high_watermark
        waiting, ready = self._uncommitted, list[Reply]()
        while waiting and waiting[0][0] <= high_watermark:
            ready += waiting.popleft()[1]
        # The followers' last fetches may be older than a stall of this process.
        if ready and self._may_be_replaced():
            self._refused_requests = True
            error = CoordinatorNotAvailable(
                f"{OFFSETS_TOPIC}-{self.partition}: the request took so long that another broker"
                " may coordinate its groups by now; look up the coordinator again"
            )
            ready = [Failed(reply.ticket, error) for reply in ready]
        self._answer(ready)

    def _wake_loader(self) -> None:
        if self._groups is None:
            self._wake.set()

    def role_changed(self) -> None:
        """End the leadership if the replica leads no more."""
        replica = self._replica
        if replica is None:
            return
        partition = replica.partition
        if not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            self.end(_not_leader_error(self.partition))


def timed_out(request: GroupRequest[Any]) -> CoordinatorNotAvailable:
    """Return the error of a request that timed out."""
    return CoordinatorNotAvailable(
        f"group {request.group}: timed out; the outcome is unknown; retry"
    )


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return  # cancelled
    if isinstance(outcome, QuorumlogError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _not_leader_error(partition: int) -> NotCoordinator:
    return NotCoordinator(
        f"{OFFSETS_TOPIC}-{partition}: this broker does not lead the partition any more; look up"
        " the coordinator again"
    )
