"""Execution of a member's decisions: heartbeats, revocations, assignments, commits.

Each runs in its own task, so that none waits for the application's processing.

A partition is revoked once the application has finished its records: at its next reading call, or
at once if it has none. The other partitions are consumed without a pause. A member that lost its
partitions, or must assume so without responses, delivers and commits nothing more of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final, Literal, TypeAlias

from ...errors import (
    ClientClosed,
    FencedMemberEpoch,
    InvalidRequest,
    NoCommittedOffset,
    QuorumlogError,
    StaleMemberEpoch,
    TimedOut,
    UnknownMember,
    UnreleasedInstance,
)
from ...ids import TopicPartition
from ...runtime import Scope
from ..config import ConsumerConfig
from ..connection import Connection
from ..consumer.assigned_partitions import AssignedPartitions
from ..consumer.fetcher import ConsumerFetcher
from ..consumer.partition_reader import PartitionReader
from ..coordination import Changes
from ..offsets import PartitionLike, Position
from . import coordinator
from .commits import COMMIT_MS, Commits, DeliveredPositions, reader_positions
from .coordinator import CommittedOffset, MemberIdentity, steady_ms
from .member import (
    GroupHeartbeat,
    GroupSubscription,
    MemberStateMachine,
    Phase,
)
from .reconciler import AssignmentReconciler, RebalanceStep, StepKind

OnPartitions: TypeAlias = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""A rebalance callback: called with a list of partitions; may be async."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The rebalance callbacks of a consumer."""

    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None  # None: `on_revoked` is called

    def __post_init__(self) -> None:
        for name in ("on_assigned", "on_revoked", "on_lost"):
            callback: object = getattr(self, name)
            if callback is not None and not callable(callback):
                raise InvalidRequest(
                    f"{name} is {callback!r}: give a function that takes a list of TopicPartition"
                )


async def call(
    callback: OnPartitions | None, places: Collection[PartitionLike]
) -> Exception | None:
    """Run a callback of the application; return the error that it raised, if any."""
    if callback is None:
        return None
    try:
        outcome = callback([TopicPartition(*place) for place in places])
        if isawaitable(outcome):
            await outcome
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        failure = InvalidRequest(
            "a callback awaited a task that was cancelled: catch asyncio.CancelledError in it"
        )
        failure.__cause__ = error
        return failure
    except Exception as error:
        return error
    return None


LOST: Final = (Phase.FENCED, Phase.JOINING, Phase.AWAY, Phase.FAILED)
LEAVE_MS: Final = 3_000  # time limit of the leave heartbeat; without it the session expires
MEMBER_ID_SIZE: Final = 16

GroupStart: TypeAlias = Position | Literal["error"]
"""The position without a committed offset; "error": raise NoCommittedOffset."""

_log = logging.getLogger(__name__)


class Membership:
    """The membership of one consumer; see the module. Not thread-safe: one event loop."""

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ConsumerConfig,
        *,
        group: str,
        instance_id: str,
        subscription: GroupSubscription,
        start: GroupStart,
        parts: AssignedPartitions,
        fetcher: ConsumerFetcher,
        arrivals: Changes,
        callbacks: Callbacks,
        on_recall: Callable[[], None],
    ) -> None:
        self._connection, runtime = connection, connection.runtime
        self._clock = runtime.clock
        self._scope = scope
        self._config = config
        self._start = start
        self._parts = parts
        self._fetcher = fetcher
        self._arrivals = arrivals
        self._callbacks = callbacks
        self._on_recall = on_recall  # makes the next reading call enter this class first
        self.delivered = DeliveredPositions()
        self.revocations = 0  # partitions that were revoked or lost
        self.joining = MemberIdentity(
            group=group,
            member_id=runtime.entropy.token(MEMBER_ID_SIZE).hex(),
            instance_id=instance_id,
            rack=config.rack or "",
            assignor=config.assignor or "",
            rebalance_timeout_ms=config.max_poll_interval_ms,
        )
        self.reconciler = AssignmentReconciler()
        self.member = MemberStateMachine(
            subscription,
            self.reconciler,
            is_static=bool(instance_id),
            poll_interval_ms=config.max_poll_interval_ms,
            backoff_ms=connection.backoff.wait_ms,
            now_ms=steady_ms(runtime.clock),
        )
        self._changes = Changes()
        self._beats = Changes()  # a heartbeat has ended
        self._work = asyncio.Event()
        self._mark: object = None  # `delivered.mark()` at the last check
        self._fresh: dict[PartitionLike, None] = {}  # taken since the last reading call
        # Commits by the application of delivered records.
        self._application_commits: dict[PartitionLike, int] = {}
        self._application_commits_mark: object = None  # `delivered.mark()` of those
        self._error: BaseException | None = None  # of a callback or a step; not raised yet
        self._is_closing = False
        self._closer: asyncio.Task[Any] | None = None  # the task that closes
        self._is_over = False  # closed
        self._is_in_callback = False  # a callback runs
        self.commits = Commits(
            connection,
            scope,
            self.joining,
            member=lambda: self.member,
            fetcher=fetcher,
            changes=self._changes,
            on_failure=self._keep_error,
            on_refusal=self._request_heartbeat,
        )
        self._heart: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # --- calls of the application --------------------------------------------------------------

    def begin(self) -> None:
        """Join the group, unless the member has begun."""
        if self._heart is None and not self._is_closing:
            self._heart = self._scope.spawn(self._run_heartbeats(), name="heartbeats")
            self._tasks = [
                self._scope.spawn(self._run_steps(), name="rebalances"),
                self._scope.spawn(self._run_deadlines(), name="session"),
                self._scope.spawn(
                    coordinator.log_absent_topics(
                        self._connection, self.joining.group, self.member.topics
                    ),
                    name="absent topics",
                ),
            ]
            if self._config.auto_commit:
                self._tasks.append(self._scope.spawn(self._run_auto_commit(), name="commits"))

    def start_poll(self) -> None:
        """Start a reading call: the application finished the records delivered before."""
        self.begin()
        self.check_deadlines()
        self.delivered.finish_delivered()
        self.member.is_polling = True
        self.member.poll_started(steady_ms(self._clock))
        self._changed()

    def end_poll(self) -> None:
        """End a reading call."""
        self._fresh.clear()
        self.member.is_polling = False
        self.member.polled(steady_ms(self._clock))
        self._work.set()

    def check_deadlines(self) -> None:
        """Check the deadlines; withhold everything if other members may own it.

        Call it before a delivery from `member.holds_until_ms` on.
        """
        now_ms, before = steady_ms(self._clock), self.member.phase
        self._note_progress(now_ms)
        self.member.check_deadlines(now_ms)
        self._phase_changed(before)

    def _phase_changed(self, before: Phase) -> None:
        """Stop the delivery of partitions that were just lost; a step drops them and calls back."""
        phase = self.member.phase
        if phase is before:
            return
        if before is Phase.JOINED and phase in LOST:
            places = list(self.reconciler.owned)
            self.delivered.recall(places)
            self._on_recall()
            for reader in self._readers(places):
                self._parts.stop_delivery(reader)
        _log.info(
            "group.member_moved group=%s member=%s epoch=%d phase=%s",
            self.joining.group,
            self.joining.member_id,
            self.member.epoch,
            phase.value,
        )
        self._changed()

    def raise_error(self) -> None:
        """Raise the member's error, or that of a callback."""
        self.raise_callback_error()
        error = self.member.error
        if error is not None and self.reconciler.has_no_step and not self.reconciler.owned:
            self.member.error_raised()
            raise error.with_traceback(None)

    def raise_callback_error(self) -> None:
        """Raise the error of a callback that no poll has raised, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def subscribe(self, subscription: GroupSubscription) -> None:
        """Replace the subscription."""
        self.member.subscribe(subscription)
        self._changed()

    async def joined(self) -> None:
        """Wait until the member owns its target assignment; raise the error that prevents it.

        The time limit is `call_timeout_ms`, not counting callbacks.
        """
        self.start_poll()
        wait_ms = self._connection.config.call_timeout_ms
        deadline_ms = self._clock.now_ms() + wait_ms
        try:
            while not self.reconciler.is_settled:
                self.raise_error()
                self._check_open()
                left_ms = deadline_ms - self._clock.now_ms()
                if self._is_in_callback:
                    await self._changes.wait()
                    deadline_ms = self._clock.now_ms() + wait_ms
                elif left_ms > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(left_ms / 1000):
                            await self._changes.wait()
                else:
                    raise self.member.failure or TimedOut(
                        f"joining group {self.joining.group} timed out after {wait_ms} ms,"
                        " callbacks not counted; check that its coordinator is alive"
                    )
        finally:
            self.end_poll()

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClientClosed("the consumer is closed")

    def _changed(self) -> None:
        self._work.set()
        self._changes.announce()
        self._arrivals.announce()

    # --- heartbeats --------------------------------------------------------------------------

    async def _run_heartbeats(self) -> None:
        """Send heartbeats until the member has left."""
        while self.member.phase is not Phase.GONE:
            self._work.clear()
            now_ms = steady_ms(self._clock)
            self._note_progress(now_ms)
            phase = self.member.phase
            beat = self.member.beat(now_ms)
            self._phase_changed(phase)
            if beat is not None:
                await self._send(beat)
                continue
            wait_ms = self.member.due_ms() - now_ms
            try:
                async with asyncio.timeout(max(1, min(wait_ms, 3_600_000)) / 1000):
                    await self._work.wait()
            except TimeoutError:
                pass
        self._changes.announce()

    def _note_progress(self, now_ms: int) -> None:
        """Record the application's progress: iteration over buffered records makes no call."""
        mark = self.delivered.mark()
        if mark != self._mark:
            self._mark = mark
            self.member.polled(now_ms)

    async def _run_deadlines(self) -> None:
        """Check the deadlines in time, whatever the other tasks wait for."""
        while True:
            self.check_deadlines()
            wait_ms = self.member.holds_until_ms - steady_ms(self._clock)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(1, min(wait_ms, 3_600_000)) / 1000):
                    await self._beats.wait()

    def _request_heartbeat(self) -> None:
        """Send a heartbeat at once, to check the membership."""
        self.member.request_heartbeat()
        self._work.set()

    async def _send(self, beat: GroupHeartbeat) -> None:
        member = self.member
        try:
            answer = await coordinator.heartbeat(
                self._connection, self.joining, beat, retry=member.retry_of(beat)
            )
        except QuorumlogError as error:
            before = member.phase
            is_news = type(error) is not type(member.failure)
            member.refused(beat, error, steady_ms(self._clock))
            if is_news and isinstance(error, UnreleasedInstance):
                _log.warning("group.name_taken group=%s error=%s", self.joining.group, error)
            _log.info("group.heartbeat_failed group=%s error=%s", self.joining.group, error)
        else:
            before = member.phase
            member.answered(
                beat,
                epoch=answer.epoch,
                interval_ms=answer.interval_ms,
                assignment=answer.assignment,
                session_ms=answer.session_ms,
                sent_ms=answer.sent_ms,
                now_ms=steady_ms(self._clock),
            )
        self._phase_changed(before)
        self._beats.announce()
        self._changed()

    # --- partitions --------------------------------------------------------------------------

    async def _run_steps(self) -> None:
        """Execute the member's steps."""
        while not self._is_over:
            step = None if self._is_closing else self.reconciler.step()
            if step is None:
                await self._changes.wait()
                continue
            match step.act:
                case StepKind.REVOKE:
                    await self._revoke(step)
                case StepKind.ASSIGN:
                    await self._assign(step)
                case StepKind.LOSE:
                    await self._drop_lost(step.places)
                    self.reconciler.done(step)
            self._changed()

    async def _revoke(self, step: RebalanceStep) -> None:
        self.delivered.recall(step.places)
        self._on_recall()
        readers = self._readers(step.places)
        for reader in readers:
            self._parts.stop_delivery(reader)
        places = set(step.places)
        while self.reconciler.still_applies(step) and places & self._pending().keys():
            if self._is_closing:
                break  # close revokes everything, these too
            await self._changes.wait()
        if self._is_closing:
            self.reconciler.done(step, has_failed=True)
            return
        await self.commits.settled(places)
        if self.reconciler.still_applies(step) and self._config.auto_commit:
            await self.commits.store_changed(reader_positions(readers, {}))
        if self.reconciler.still_applies(step):
            await self._call_back(self._callbacks.on_revoked, step.places)
            self._drop(readers)
        else:
            # sometimes: a member is fenced during a revocation
            await self._drop_lost(step.places)
        self.reconciler.done(step)

    async def _assign(self, step: RebalanceStep) -> None:
        stored = await self._fetch_committed(step)
        if stored is None:
            self.reconciler.done(step, has_failed=True)
            return
        readers = [self._reader(place, stored.get(place), step) for place in step.places]
        for reader in readers:
            reader.is_from_group = True
            self._parts.take(reader)
        # Unfinished records of these partitions are from an ownership that was lost.
        self._fresh.update(dict.fromkeys(step.places))
        await self._call_back(self._callbacks.on_assigned, step.places)
        for reader in readers:
            self._parts.start_delivery(reader)
        self.reconciler.done(step)

    async def _drop_lost(self, places: Collection[PartitionLike]) -> None:
        """Drop partitions that other members may own, then call back."""
        self.delivered.recall(places)
        self._on_recall()
        readers = self._readers(places)
        for reader in readers:
            self._parts.stop_delivery(reader)
        self._drop(readers)
        _log.warning(
            "group.partitions_lost group=%s partitions=%s reason=%s",
            self.joining.group,
            list(places),
            self.reconciler.why_lost,
        )
        on_lost = self._callbacks.on_lost or self._callbacks.on_revoked
        await self._call_back(on_lost, places)

    def _drop(self, readers: Iterable[PartitionReader]) -> None:
        for reader in readers:
            place = (reader.topic, reader.partition)
            if self._fetcher.readers.get(place) is reader:
                self.commits.forget(place)
                self._parts.drop(reader)
                self.revocations += 1

    def _readers(self, places: Iterable[PartitionLike]) -> list[PartitionReader]:
        found = (self._fetcher.readers.get(place) for place in places)
        return [reader for reader in found if reader is not None]

    def _reader(
        self, place: PartitionLike, stored: CommittedOffset | None, step: RebalanceStep
    ) -> PartitionReader:
        """Return a reader at the committed offset, or at `start` if there is none."""
        topic_id = step.topic_ids.get(place)
        if stored is not None and (not topic_id or stored.topic_id in (b"", topic_id)):
            self.commits.found(place, stored.offset)
            reader = PartitionReader(place, stored.offset, wants_end=False)
            reader.topic_id = stored.topic_id or None
            reader.position = stored.offset
            return reader
        if self._start != "error":
            return PartitionReader(place, self._start, wants_end=False)
        reader = PartitionReader(place, "earliest", wants_end=False)
        reader.error = NoCommittedOffset(
            f"group {self.joining.group} has no committed offset, and start is 'error': seek to a "
            "position, or give start='earliest' or 'latest'",
            topic=place[0],
            partition=place[1],
        )
        return reader

    async def _fetch_committed(
        self, step: RebalanceStep
    ) -> Mapping[PartitionLike, CommittedOffset | None] | None:
        """Fetch the committed offsets, retrying; None if the step no longer applies."""
        failures = 0
        while self.reconciler.still_applies(step) and not self._is_closing:
            deadline_ms = self._clock.now_ms() + COMMIT_MS
            try:
                return await coordinator.fetch(
                    self._connection,
                    self.joining.group,
                    step.places,
                    by=self.commits.caller(),
                    deadline_ms=deadline_ms,
                )
            except QuorumlogError as error:
                failures += 1
                is_of_membership = isinstance(
                    error, StaleMemberEpoch | UnknownMember | FencedMemberEpoch
                )
                if not (error.retriable or is_of_membership):
                    self._keep_error(error)
                _log.info("group.offsets_unknown group=%s error=%s", self.joining.group, error)
            await asyncio.sleep(self._connection.backoff.wait_ms(failures) / 1000)
        return None

    async def _call_back(
        self, callback: OnPartitions | None, places: Collection[PartitionLike]
    ) -> None:
        """Run a callback; its error is raised by the next poll, or by `close`."""
        self._is_in_callback = True
        try:
            error = await call(callback, places)
        finally:
            self._is_in_callback = False
        if error is not None:
            _log.error("group.callback_failed group=%s", self.joining.group, exc_info=error)
            self._keep_error(error)

    def _keep_error(self, error: BaseException) -> None:
        self._error = error
        self._arrivals.announce()
        self._changes.announce()

    # --- commits -----------------------------------------------------------------------------

    async def _run_auto_commit(self) -> None:
        """Commit processed positions periodically until the consumer closes.

        `close` commits the rest; no commit may follow that one.
        """
        while not self._is_closing:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            if self.member.phase is Phase.JOINED and not self._is_closing:
                await self.commits.store_changed(self.processed_positions())

    def delivered_positions(self) -> dict[PartitionLike, CommittedOffset]:
        """Return the offsets after the delivered records, by partition."""
        return reader_positions(self._fetcher.readers.values(), self.delivered.undelivered())

    def processed_positions(self) -> dict[PartitionLike, CommittedOffset]:
        """Return the offsets after the processed records, by partition."""
        pending = self._pending()  # before the positions: those only grow
        if self._application_commits_mark == self.delivered.mark():
            pending = {
                place: max(offset, self._application_commits.get(place, 0))
                for place, offset in pending.items()
            }
        return reader_positions(self._fetcher.readers.values(), pending)

    def committed_by_application(self, offsets: Mapping[PartitionLike, CommittedOffset]) -> None:
        """Record offsets that the application commits: the records before them are processed."""
        mark = self.delivered.mark()
        if self._application_commits_mark != mark:
            self._application_commits, self._application_commits_mark = {}, mark
        self._application_commits |= {place: each.offset for place, each in offsets.items()}

    def _pending(self) -> dict[PartitionLike, int]:
        pending = self.delivered.pending()
        return {place: offset for place, offset in pending.items() if place not in self._fresh}

    async def committed(
        self, places: Collection[PartitionLike], *, deadline_ms: int
    ) -> dict[PartitionLike, CommittedOffset | None]:
        """Return the committed offsets of partitions."""
        return await coordinator.fetch(
            self._connection, self.joining.group, places, deadline_ms=deadline_ms
        )

    # --- leaving -----------------------------------------------------------------------------

    async def close(self, *, is_well: bool) -> bool:
        """Commit, revoke everything, leave; `is_well`: the delivered records are processed.

        A second call waits for the first, within the time limits of its parts. A call from a
        callback that the first call waits for returns False at once.
        """
        if self._is_closing:
            if asyncio.current_task() in (self._closer, *self._tasks) and not self._is_over:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout((2 * COMMIT_MS + LEAVE_MS) / 1000):
                    while not self._is_over:
                        await self._changes.wait()
            self._cancel()
            return True
        self._is_closing, self._closer = True, asyncio.current_task()
        self._changed()
        try:
            await self._leave(is_well=is_well)
        finally:
            self._cancel()
            self._changes.announce()
        return True

    async def _leave(self, *, is_well: bool) -> None:
        positions = self.delivered_positions() if is_well else self.processed_positions()
        in_step: Collection[PartitionLike] = ()
        if asyncio.current_task() in self._tasks:  # called from a callback
            in_step = self.reconciler.revoking
        else:
            await self._wait_step_end()
        readers = self._readers(place for place in self.reconciler.owned if place not in in_step)
        for reader in readers:
            self._parts.stop_delivery(reader)
        self._on_recall()
        await self.commits.ended()
        if readers and self.member.phase is Phase.JOINED:
            places = [(reader.topic, reader.partition) for reader in readers]
            if self._config.auto_commit:  # partitions revoked before belong to others
                await self.commits.store_changed(
                    {place: positions[place] for place in places if place in positions}
                )
            await self._call_back(self._callbacks.on_revoked, places)
        elif readers:
            await self._drop_lost([(reader.topic, reader.partition) for reader in readers])
        self._drop(readers)
        self.member.leave()
        self._work.set()
        if self._heart is not None:
            try:
                async with asyncio.timeout(LEAVE_MS / 1000):
                    await asyncio.gather(self._heart, return_exceptions=True)
            except TimeoutError:
                _log.info("group.left_without_answer group=%s", self.joining.group)

    async def _wait_step_end(self) -> None:
        """Wait for the step in progress, `COMMIT_MS` at most; then cancel it."""
        try:
            async with asyncio.timeout(COMMIT_MS / 1000):
                while not self.reconciler.has_no_step:
                    await self._changes.wait()
        except TimeoutError:
            others = [task for task in self._tasks if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    def _cancel(self) -> None:
        self._is_over = True
        for task in (*self._tasks, self._heart):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self.commits.cancel()
