"""The coordinator of one partition of an internal topic, during one leadership.

It loads the stored state, then decides requests. The requests of one iteration of the event loop
are decided in order, and their records are appended as one batch at its end. The next batch waits
until that is written, so no batch follows a failed one in the log. A reply is sent, and an effect
started, once everything it depends on is committed. Writes use callbacks: waking a task for each
batch would cost as much as the batch.

After a failed append it is unknown which part of the state is stored. The state is discarded,
pending requests fail with a retriable error, and the partition is loaded again.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ....errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    CorruptionError,
    MessageTooLarge,
    NotCoordinator,
    Overloaded,
    QuorumlogError,
    TimedOut,
)
from ....ids import Epoch, ProducerIdentity
from ....metadata.image import MetadataImage, TopicImage
from ....records import Record, encode_batch, encode_plain_batch
from ....records.control import TransactionMarker, encode_marker
from ....runtime import Clock
from ....storage import AppendOrigin
from ....storage.shell.append_queue import AppendOutcome
from ....storage.shell.data_directory import DataDirectory
from ....storage.shell.writer import InlineAppend
from ...partition_leader import PartitionLeader
from ...purgatory import Acks
from ...shell.replica import Replica
from ..decision import UNDECIDED, Answered, Failed, Reply, ShardDecision, Ticket
from ..shard import CoordinatorRequest, Shard
from .coordinator import CoordinatorMetrics
from .internal_topic import CoordinatorNames
from .loader import ShardLoader

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


R = TypeVar("R")
S = TypeVar("S", bound=Shard[Any])
ReplyCallback: TypeAlias = Callable[[Any], None]
"""Receives the answer of a request, or the QuorumlogError that it failed with; must not block."""

RETRY_S: Final = 0.2
"""The pause before a failed open or load is retried."""
DAMAGED_RETRY_S: Final = 10.0
"""The pause before a log with an unreadable record is loaded again."""
CANCELLED_MAX: Final = 100
"""The number of cancelled requests with replies that may be kept, unless more requests are pending.
Without the limit, they would stay until their records are replicated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorDeps:
    """Dependencies shared by the shards of one coordinator; no callable blocks."""

    clock: Clock
    directory: DataDirectory
    figures: CoordinatorMetrics
    waits_max: int  # pending requests of one partition
    replica_of: Callable[[str, int], Replica]  # raises NotLeaderOrFollower, ...
    image: Callable[[], MetadataImage]
    may_be_replaced: Callable[[Replica], bool]  # True: another broker may lead by now
    loading: asyncio.Semaphore  # limits concurrent loads


class _PendingBatch:
    """Records, replies and effects of one batch that is not in the log yet."""

    __slots__ = ("effects", "marker", "producer", "records", "replies", "size")

    def __init__(
        self, producer: ProducerIdentity | None = None, marker: TransactionMarker | None = None
    ) -> None:
        self.producer = producer
        self.marker = marker
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.effects: list[Any] = []
        self.size = 0

    @property
    def is_separate(self) -> bool:
        """True for the batch of a producer and for a control batch, which are one decision."""
        return self.producer is not None or self.marker is not None

    def encode(self, now_ms: int) -> bytes:
        """Return the batch for the log, or no bytes if there is nothing to store."""
        if self.marker is not None:
            producer_id, producer_epoch = self.marker.producer
            return encode_marker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                kind=self.marker.kind,
                coordinator_epoch=self.marker.coordinator_epoch,
                timestamp_ms=now_ms,
            )
        if not self.records:
            return b""
        if self.producer is not None:
            producer_id, producer_epoch = self.producer
            return encode_batch(
                self.records,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=True,
            )
        return encode_plain_batch(self.records)

    def split(self, first: int, size: int) -> "_PendingBatch":
        """Move the records from `first` on to a new batch and return it; no reply depends on them
        alone."""
        other = _PendingBatch()
        other.records, other.size = self.records[first:], self.size - size
        del self.records[first:]
        self.size = size
        return other


class _Uncommitted:
    """Replies and effects that wait for the commit of everything below an end offset."""

    __slots__ = ("effects", "end_offset", "replies")

    def __init__(self, end_offset: int, replies: list[Reply], effects: list[Any]) -> None:
        self.end_offset = end_offset
        self.replies = replies
        self.effects = effects


class _Admission:
    """The result of checking that no other broker may coordinate and that the log accepts an
    append. It holds within a millisecond of the clock, with the same image, leadership and ISR:
    the leases depend on nothing else that could end them."""

    __slots__ = ("image", "leader", "now_ms", "state")

    def __init__(self, now_ms: int, image: MetadataImage, leader: PartitionLeader) -> None:
        self.now_ms = now_ms
        self.image = image
        self.leader = leader
        self.state = leader.isr.state


class CoordinatorShard(Generic[S], ABC):
    """Serves one partition during one leadership; see the module. A `Watcher` of the replica."""

    def __init__(
        self, deps: CoordinatorDeps, names: CoordinatorNames, partition: int, leader_epoch: Epoch
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self._deps = deps
        self._names = names
        self._kind = names.entities  # the prefix of log events
        self._log = logging.getLogger(f"quorumlog.{names.entities}")
        self._log_name = f"{names.topic}-{partition}"
        self._replica: Replica | None = None
        self._state: S | None = None  # None: not loaded
        self._damage: CorruptionError | None = None  # found by the last load
        self._ended: QuorumlogError | None = None
        self._wake = asyncio.Event()
        self._sleep_until_ms: int | None = None  # by `_now_ms`; None: until an event
        self._pending: deque[_PendingBatch] = deque()  # decided and not appended, in order
        self._is_write_due = False  # at the end of this iteration of the loop
        self._writing: _PendingBatch | None = None  # being appended
        self._wake_after_write = False  # `_serve` waits for an append
        self._failed: QuorumlogError | None = None  # the failure of an append; for `_serve`
        self._refused_requests = False  # requests were refused for lack of a writable log
        self._uncommitted: deque[_Uncommitted] = deque()
        self._waiting: dict[Ticket, ReplyCallback] = {}
        self._cancelled = 0  # replies without a pending request that may be kept
        self._next_ticket = 0
        self._limits = BatchLimits(BATCH_BYTES)  # replaced at the load
        self._admission: _Admission | None = None  # the last one
        # Sessions must not depend on jumps of the wall clock, so its offset is read once a load.
        self._wall_ahead_ms = 0

    # --- differences between coordinators ---------------------------------------------------------

    @abstractmethod
    def _new_state(self, limits: BatchLimits) -> S:
        """Return a state without content."""

    @abstractmethod
    def _encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Return the key and the value of a record; no value: a tombstone."""

    @abstractmethod
    def _decode(self, record: Record) -> Any:
        """Return the decoded record, None to skip it. Raises CorruptionError."""

    @abstractmethod
    def _check_request(self, request: Any) -> None:
        """Raise the error of a request that cannot be stored, whatever the state."""

    @abstractmethod
    def _is_read_only(self, request: Any) -> bool:
        """Return True if the request stores nothing."""

    def _at_once(self, state: S, request: Any, now_ms: int) -> Any:
        """Return the answer to a request that stores nothing, or UNDECIDED, without an effect.
        `now_ms` is that of `_now_ms`."""
        return UNDECIDED

    @abstractmethod
    def _log_loaded(self, state: S, records: int, took_ms: int) -> None:
        """Log that the state is loaded from this number of records."""

    def _skips_damage(self) -> bool:
        """Return True if a load skips unreadable records; otherwise it fails."""
        return True

    def _may_split_at(self, record: Any) -> bool:
        """Return True if the decision may be split before this record."""
        return False

    def _count(self, records: Sequence[Any]) -> None:
        """Count the records of a decision, for the metrics."""
        self._deps.figures.decisions += 1

    def _too_large(self, size: int, limit: int) -> MessageTooLarge:
        """Return the error of a decision that cannot be stored."""
        return MessageTooLarge(
            f"the update of the {self._names.entities} has {size} bytes, the limit is {limit}"
        )

    def _start(self, effect: Any) -> None:
        """Start an effect of a committed decision; must not block."""
        raise NotImplementedError(f"{self._names.entities} have no effects: {effect}")

    def _state_dropped(self) -> None:
        """Stop the effects: the leadership has ended, or the state is loaded again."""

    def _name_of(self, request: CoordinatorRequest[Any]) -> str:
        """Return the name of the entity that the request concerns, for error messages."""
        return f"{self._names.entity} {request.key}"

    # --- requests ---------------------------------------------------------------------------------

    async def ask(self, request: CoordinatorRequest[R], deadline_ms: int) -> R:
        """Decide a request; see `Coordinator.ask`."""
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
            raise timed_out(self._name_of(request)) from None
        finally:
            if ticket is not None:
                self.cancel(ticket)
            if future.done() and not future.cancelled():
                future.exception()  # retrieves the error, so that asyncio logs none

    def submit(self, request: CoordinatorRequest[R], reply_to: ReplyCallback) -> Ticket | None:
        """Decide a request; return its ticket, or None if the reply has been sent already.

        `reply_to` is called once with the answer. Raises the errors that precede a decision.
        """
        state = self.serving_state(request)
        self._check_storable(request)
        ticket = Ticket(self._next_ticket)
        self._next_ticket += 1
        self._waiting[ticket] = reply_to
        try:
            self._enqueue(state.handle(ticket, request, self._deps.image(), self._now_ms()))
        except Exception as error:  # a bug: the state may have changed without being stored
            self.cancel(ticket)
            self._discard(
                CoordinatorNotAvailable(f"the decision failed unexpectedly: {error}; retry")
            )
            raise
        return ticket if ticket in self._waiting else None

    def answer_at_once(self, request: CoordinatorRequest[Any]) -> Any:
        """Return the answer to a request that stores nothing and depends on nothing uncommitted;
        UNDECIDED, without an effect, for any other and for a refused one: `submit` it."""
        now_ms = self._deps.clock.now_ms()
        state = self.settled_state(now_ms)
        if state is None:
            return UNDECIDED
        return self._at_once(state, request, now_ms + self._wall_ahead_ms)

    def settled_state(self, now_ms: int) -> S | None:
        """Return the state if a request may be answered at `now_ms`, the time of the clock, because
        everything decided before is committed; otherwise None."""
        state = self._state
        if (
            state is None
            or self._uncommitted
            or self._pending
            or self._writing is not None
            or len(self._waiting) >= self._deps.waits_max
        ):
            return None
        admission, replica = self._admission, self._replica
        if (
            admission is not None
            and replica is not None
            and admission.now_ms == now_ms
            and admission.image is self._deps.image()
            and admission.leader is replica.partition.leader
            and admission.state is admission.leader.isr.state
            and not replica.is_given_up
        ):
            return state
        self._admission = self._admission_at(now_ms)
        return None if self._admission is None else state

    def _admission_at(self, now_ms: int) -> _Admission | None:
        """Return an admission if no other broker may coordinate and an append would be accepted;
        otherwise None."""
        replica = self._replica
        if replica is None or self._may_be_replaced():
            return None
        try:
            leader = self._admit()
        except QuorumlogError:
            return None
        return _Admission(now_ms, self._deps.image(), leader)

    def cancel(self, ticket: Ticket) -> None:
        """Cancel a request: its reply is dropped."""
        if self._waiting.pop(ticket, None) is not None:
            self._cancelled += 1
            if self._cancelled > max(CANCELLED_MAX, len(self._waiting)):
                self._cancelled = 0
                writing = () if self._writing is None else (self._writing,)
                for replies in (
                    *(batch.replies for batch in (*writing, *self._pending)),
                    *(each.replies for each in self._uncommitted),
                ):
                    replies[:] = [reply for reply in replies if reply.ticket in self._waiting]

    def serving_state(self, request: CoordinatorRequest[Any]) -> S:
        """Return the state that may decide a request. Raises NotCoordinator,
        CoordinatorNotAvailable if another broker may coordinate, and CoordinatorLoading."""
        if self._ended is None and self._replica is not None:
            self._check_not_replaced(request)  # also while loading: clients then wait
        return self._loaded_state()

    def loaded_state(self) -> S:
        """Return the state, for listings. Raises CoordinatorLoading while there is none."""
        return self._loaded_state(lists=True)

    def _loaded_state(self, *, lists: bool = False) -> S:
        """Return the state. Raises the reason if there is none: CoordinatorLoading, which makes
        clients wait, only while this broker certainly leads."""
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        if self._replica is None and not lists:
            raise CoordinatorNotAvailable(
                f"{self._log_name}: the coordinator of its {self._names.entities} is starting;"
                " retry shortly"
            )
        if self._damage is not None:
            raise CoordinatorNotAvailable(
                f"{self._log_name}: its {self._names.entities} cannot be loaded:"
                f" {self._damage.message}; let another replica lead the partition, or run the"
                " version that wrote the record"
            )
        if self._state is None:
            raise CoordinatorLoading(
                f"{self._log_name}: the coordinator is loading its {self._names.entities}; retry"
                " shortly"
            )
        return self._state

    def _check_not_replaced(self, request: CoordinatorRequest[Any]) -> None:
        """Refuse every request once another broker may coordinate. That broker could assign the
        same partitions to other members, and accept commits that are missing here."""
        if self._may_be_replaced():
            self._refused_requests = True
            raise CoordinatorNotAvailable(
                f"{self._name_of(request)}: another broker may coordinate it, since this one has"
                " had no contact with the controllers and not with all in-sync replicas for too"
                " long; look up the coordinator again"
            )

    def _may_be_replaced(self) -> bool:
        return self._replica is None or self._deps.may_be_replaced(self._replica)

    def _check_storable(self, request: CoordinatorRequest[Any]) -> None:
        """Refuse a request that cannot be stored, before it is decided."""
        self._check_request(request)
        if len(self._waiting) >= self._deps.waits_max:
            raise Overloaded(
                f"{self._log_name}: {len(self._waiting)} requests of its {self._names.entities}"
                f" are pending, the limit is {self._deps.waits_max}; retry later"
            )
        if not self._is_read_only(request):
            try:
                self._admit()
            except QuorumlogError as error:
                self._refused_requests = True
                raise CoordinatorNotAvailable(
                    f"{self._names.entity} updates cannot be stored now: {error.message}"
                ) from None

    def _admit(self) -> PartitionLeader:
        """Return the leadership; raise the error with which an append would be refused now."""
        replica = self._replica
        assert replica is not None, "not open"
        leader = replica.check()
        if leader.isr.state.leader_epoch != self.leader_epoch:
            leader = replica.partition.check_leader(self.leader_epoch)
        leader.admit(Acks.ALL)
        return leader

    @property
    def state(self) -> S | None:
        """The state, for metrics; None: not loaded."""
        return self._state

    def image_changed(self, image: MetadataImage, deleted: Iterable[TopicImage]) -> None:
        """Apply a metadata change with these deleted topics."""
        if self._state is not None and self._ended is None:
            try:
                self._enqueue(self._state.image_changed(image, self._now_ms(), deleted=deleted))
            except Exception as error:  # the state is loaded again
                self._write_failed(error)

    # --- decisions --------------------------------------------------------------------------------

    def _enqueue(self, decision: ShardDecision[Any]) -> None:
        """Queue a decision for storage; its replies and effects follow."""
        if not decision.records and decision.marker is None:
            self._enqueue_replies(decision)
            self._wake_earlier()
            return
        batch = self._batch_for(decision)
        batch_bytes, now_ms = self._limits.batch_bytes, self._now_ms()
        first, before = len(batch.records), batch.size
        encode, size = self._encode, before
        for record in decision.records:
            if size >= batch_bytes and self._may_split_at(record):
                batch.size = size
                batch, first, before, size = _PendingBatch(decision.producer), 0, 0, 0
                self._pending.append(batch)
            key, value = encode(record)
            batch.records.append(Record(0, now_ms, key, value))
            size += RECORD_BYTES + len(key) + (0 if value is None else len(value))
        batch.size = size
        limit = self._limits.decision_bytes_max
        if batch.size - before > limit:
            raise self._too_large(batch.size - before, limit)
        if before and batch.size > limit:
            batch = batch.split(first, before)  # each fits into a batch, both together do not
            self._pending.append(batch)
        batch.replies += decision.replies
        batch.effects += decision.effects
        self._count(decision.records)
        self._write_soon()
        self._wake_earlier()

    def _enqueue_replies(self, decision: ShardDecision[Any]) -> None:
        """Queue replies and effects behind the last decision that is stored."""
        if not decision.replies and not decision.effects:
            return
        if self._pending or self._writing is not None:
            if not self._pending:
                self._pending.append(_PendingBatch())
            self._pending[-1].replies += decision.replies
            self._pending[-1].effects += decision.effects
            self._write_soon()
        elif self._uncommitted:
            self._uncommitted[-1].replies += decision.replies
            self._uncommitted[-1].effects += decision.effects
        else:
            self._deliver(decision.replies, decision.effects)

    def _batch_for(self, decision: ShardDecision[Any]) -> _PendingBatch:
        """Return the batch that the decision's first record belongs to."""
        if self._pending and decision.producer is None and decision.marker is None:
            last = self._pending[-1]
            if last.size < self._limits.batch_bytes and not last.is_separate:
                return last
        batch = _PendingBatch(decision.producer, decision.marker)
        self._pending.append(batch)
        return batch

    def _wake_earlier(self) -> None:
        """Wake the task that runs expired deadlines, if the next deadline is earlier than planned.
        The most frequent requests, heartbeats, only move it later."""
        due_ms = None if self._state is None else self._state.deadline_ms()
        if due_ms is not None and (self._sleep_until_ms is None or due_ms < self._sleep_until_ms):
            self._wake.set()

    def _deliver(self, replies: Iterable[Reply], effects: Iterable[Any]) -> None:
        """Start effects, then send replies: a reply may lead to the next request at once."""
        for effect in effects:
            self._start(effect)
        self._answer(replies)

    def _answer(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            reply_to = self._waiting.pop(reply.ticket, None)
            if reply_to is not None:  # else the request was cancelled
                self._reply(reply_to, reply.outcome if isinstance(reply, Answered) else reply.error)

    def _reply(self, reply_to: ReplyCallback, outcome: Any) -> None:
        """Send one reply. Log an exception of the callback; other requests continue."""
        try:
            reply_to(outcome)
        except Exception as error:
            self._log.error(
                "%s.reply_broke partition=%d", self._kind, self.partition, exc_info=error
            )

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
                    self._damage = error if isinstance(error, CorruptionError) else None
                    await self._pause(RETRY_S if self._damage is None else DAMAGED_RETRY_S)
                except Exception as error:  # a bug, which the next leader has too
                    self._log.error(
                        "%s.term_broke partition=%d", self._kind, self.partition, exc_info=error
                    )
                    self._discard(
                        CoordinatorNotAvailable(
                            f"the coordinator failed unexpectedly: {error!r}; retry"
                        )
                    )
                    await self._pause(RETRY_S)
        finally:
            self.end(_not_leader_error(self._log_name))
            if self._replica is not None:
                self._replica.watchers.discard(self)

    async def _pause(self, pause_s: float) -> None:
        """Wait before a reload, unless the leadership has ended."""
        if self._ended is None:
            self._wake.clear()
            await self._wait_for_wake(pause_s)

    def end(self, error: QuorumlogError) -> None:
        """End the leadership: fail pending requests and decide nothing more."""
        if self._ended is None:
            self._ended = error
            self._state = None
            self._fail(error)

    def _discard(self, error: QuorumlogError) -> None:
        """Discard the state; it is reloaded."""
        was_serving, self._state = self._state is not None, None
        if was_serving and self._ended is None:
            self._log.warning(
                "%s.read_anew partition=%d error=%s", self._kind, self.partition, error
            )
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
        self._state_dropped()
        waiting, self._waiting = self._waiting, {}
        for reply_to in waiting.values():
            self._reply(reply_to, error.with_traceback(None))
        self._wake.set()

    async def _open(self) -> None:
        """Get the replica; raise NotLeaderOrFollower while it does not lead."""
        replica = self._deps.replica_of(self._names.topic, self.partition)
        await replica.opened()
        replica.partition.check_leader(self.leader_epoch)
        self._replica = replica
        replica.watchers.add(self)

    async def _load(self) -> None:
        """Load the stored state once the whole log is committed."""
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
        state = self._new_state(self._limits)
        async with self._deps.loading:
            stored = ShardLoader(
                self._deps.directory,
                log,
                end_offset=end_offset,
                partition=self.partition,
                kind=self._kind,
                decode=self._decode,
                skips_damage=self._skips_damage(),
            )
            while (entries := await stored.take()) is not None:
                self._check_leading()
                for entry in entries:
                    if isinstance(entry, TransactionMarker):
                        state.replay_marker(entry)
                    else:
                        state.replay(entry[0], entry[1])
        self._check_leading()
        self._wall_ahead_ms = clock.wall_ms() - clock.now_ms()
        decision = state.loaded(self._deps.image(), self._now_ms())
        self._state, self._damage = state, None
        took_ms = clock.now_ms() - began_ms
        self._deps.figures.loaded(took_ms)
        if end_offset:
            self._log_loaded(state, end_offset - log.log_start_offset, took_ms)
        self._enqueue(decision)

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
            if self._state is None:
                failed, self._failed = self._failed, None
                if failed is not None:
                    raise failed.with_traceback(None)
                return
            due_ms = self._sleep_until_ms = self._state.deadline_ms()
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
        assert self._state is not None, "not loaded"
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
            self._state.restart_sessions(now_ms)
            return
        self._enqueue(self._state.expire(now_ms, self._deps.image()))
        due_ms = self._state.deadline_ms()
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
        content = batch.encode(self._now_ms())
        if not content:
            self._written(batch, replica.log.log_end_offset)
            return
        self._admit()
        if not replica.flushes:
            inline = self._write_inline(replica, content)
            if inline is not None:
                if inline.error is not None:
                    raise inline.error
                self._written(batch, inline.next_offset)
                return
        append = self._deps.directory.append_nowait(
            replica.log,
            content,
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

    def _write_inline(self, replica: Replica, content: bytes) -> InlineAppend | None:
        """Write a batch on the loop; return the append with its end or its error, or None if the
        batch must be queued instead."""
        inline = InlineAppend(
            self._deps.directory.inline,
            replica.log,
            self.leader_epoch,
            origin=AppendOrigin.INTERNAL,
        )
        if inline.add(content, self._deps.clock.wall_ms()) is None:
            return None
        inline.write()
        return inline

    def append_at_once(self, content: bytes) -> bool:
        """Append a batch that is committed as soon as it is written, while the state is settled.
        Return False if nothing was stored: other replicas or a flush commit it, the batch must be
        queued, or the write failed."""
        replica = self._replica
        assert replica is not None, "not open"
        leader = replica.partition.leader
        if leader is None or leader.isr.remotes or len(leader.isr.maximal_isr()) > 1:
            return False
        if replica.flushes or leader.isr.state.counts_flushed:
            return False
        if leader.high_watermark != replica.log.log_end_offset:
            return False
        inline = self._write_inline(replica, content)
        if inline is None or inline.error is not None:
            return False
        assert leader.high_watermark == inline.next_offset, (
            f"{self._log_name}: written to {inline.next_offset}, committed to"
            f" {leader.high_watermark}"
        )
        return True

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
        self._uncommitted.append(_Uncommitted(end_offset, batch.replies, batch.effects))
        self.committed()
        if self._wake_after_write:
            self._wake_after_write = False
            self._wake.set()

    def _write_failed(self, error: Exception) -> None:
        """Handle a failed append; its outcome is unknown. A bug counts as one: no task would see
        it, and serving would continue."""
        if not isinstance(error, QuorumlogError):
            self._log.error(
                "%s.write_broke partition=%d", self._kind, self.partition, exc_info=error
            )
            error = CoordinatorNotAvailable(f"the update could not be written: {error!r}; retry")
        self._failed = error
        self._discard(error)

    # --- the replica ------------------------------------------------------------------------------

    def grew(self) -> None:
        """Do nothing, as a `Watcher` of appends."""

    def committed(self) -> None:
        """Send the replies, and start the effects, that waited for the high watermark."""
        self._wake_loader()
        replica = self._replica
        if replica is None or self._ended is not None or not replica.partition.is_leader:
            return
        waiting = self._uncommitted
        if not waiting:
            return
        high_watermark, ready, effects = (
            replica.partition.high_watermark,
            list[Reply](),
            list[Any](),
        )
        while waiting and waiting[0].end_offset <= high_watermark:
            done = waiting.popleft()
            ready += done.replies
            effects += done.effects
        # The followers' last fetches may be older than a stall of this process.
        if ready and self._may_be_replaced():
            self._refused_requests = True
            error = CoordinatorNotAvailable(
                f"{self._log_name}: the request took so long that another broker may coordinate"
                f" its {self._names.entities} by now; look up the coordinator again"
            )
            ready = [Failed(reply.ticket, error) for reply in ready]
        try:  # the effects are committed: every later coordinator starts the same ones
            self._deliver(ready, effects)
        except Exception as error:  # a bug in an effect: the load repeats it
            self._write_failed(error)

    def _wake_loader(self) -> None:
        if self._state is None:
            self._wake.set()

    def role_changed(self) -> None:
        """End the leadership if the replica leads no more."""
        replica = self._replica
        if replica is None:
            return
        partition = replica.partition
        if not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            self.end(_not_leader_error(self._log_name))


def timed_out(name: str) -> CoordinatorNotAvailable:
    """Return the error of a request that timed out; `name` is the entity that it concerns."""
    return CoordinatorNotAvailable(f"{name}: timed out; the outcome is unknown; retry")


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return  # cancelled
    if isinstance(outcome, QuorumlogError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _not_leader_error(log_name: str) -> NotCoordinator:
    return NotCoordinator(
        f"{log_name}: this broker does not lead the partition any more; look up the coordinator"
        " again"
    )
