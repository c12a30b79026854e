"""The offset commits of a group member: in order, in the member's present epoch.

Records count as processed at the application's next call; only those are committed automatically.

No offset of a partition revoked since is committed. A default commit stores the positions of the
owned partitions, with the id of their topic. If a background commit fails, records are consumed
again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ...errors import (
    ClientClosed,
    FencedMemberEpoch,
    Overloaded,
    QuorumlogError,
    StaleMemberEpoch,
    TimedOut,
    UnknownMember,
)
from ...runtime import Scope
from ..connection import Connection
from ..consumer.fetcher import ConsumerFetcher
from ..consumer.partition_reader import PartitionReader
from ..consumer.record import ConsumerRecord
from ..coordination import Changes
from ..offsets import PartitionLike
from . import coordinator
from .coordinator import Caller, CommittedOffset, MemberIdentity, TransactionalCommit
from .member import MemberStateMachine


class DeliveredPositions:
    """Delivered positions of an asyncio consumer: the result of the last reading call."""

    __slots__ = ("_count", "_last")

    def __init__(self) -> None:
        self._last: Sequence[ConsumerRecord] | Mapping[PartitionLike, int] = ()
        self._count = 0  # of completed reading calls

    def record(self, last: Sequence[ConsumerRecord] | Mapping[PartitionLike, int]) -> None:
        """Record what a reading call returns: records, or rows that begin at these offsets."""
        self._last = last
        self._count += 1

    def finish_delivered(self) -> None:
        """Record that the application finished all delivered records: it called again."""
        self._last = ()

    def pending(self) -> dict[PartitionLike, int]:
        """Return the first offset of each partition with unfinished records."""
        if isinstance(self._last, Mapping):
            return dict(self._last)
        return first_offsets(self._last)

    def undelivered(self) -> dict[PartitionLike, int]:
        """Return the first undelivered offset of each partition with a position beyond it."""
        return {}

    def mark(self) -> object:
        """Return a value that changes whenever the application makes progress."""
        return self._count

    def recall(self, places: Collection[PartitionLike]) -> None:
        """Withhold the undelivered records of these partitions, which are being revoked."""


def first_offsets(records: Sequence[ConsumerRecord]) -> dict[PartitionLike, int]:
    """Return the first offset of each partition in a sequence of records."""
    found: dict[PartitionLike, int] = {}
    for record in records:
        found.setdefault((record.topic, record.partition), record.offset)
    return found


COMMIT_MS: Final = 10_000  # time limit of a background commit
WAITING_MAX: Final = 1_000  # limit of queued commits without a waiting caller
GRACE_S: Final = 0.1  # extra wait at the deadline, to raise the commit's own error

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedCommit:
    """A queued commit."""

    offsets: Mapping[PartitionLike, CommittedOffset]
    deadline_ms: int
    joins: int  # the member's number of joins when it was queued
    readers: Mapping[
        PartitionLike, PartitionReader | None
    ]  # the owned readers then; None: not owned
    outcome: "asyncio.Future[None]"
    transaction: TransactionalCommit | None = None


class Commits:
    """The commits of one member; see the module. Not thread-safe: one event loop."""

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        joining: MemberIdentity,
        *,
        member: Callable[[], MemberStateMachine],
        fetcher: ConsumerFetcher,
        changes: Changes,
        on_failure: Callable[[BaseException], None],
        on_refusal: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._clock = connection.runtime.clock
        self._scope = scope
        self._joining = joining
        self._member = member
        self._fetcher = fetcher
        self._changes = changes  # of the member
        self._on_failure = on_failure  # an application's callback raised
        self._on_refusal = on_refusal  # the coordinator does not have the member
        self._stored: dict[PartitionLike, int] = {}  # last stored offsets of owned partitions
        self._waiting: deque[_QueuedCommit] = deque()  # the first one is in flight
        self._worker: asyncio.Task[None] | None = None

    # --- stored offsets ------------------------------------------------------------------------

    def found(self, place: PartitionLike, offset: int) -> None:
        """Record the group's committed offset: it needs no commit until the position changes."""
        self._stored[place] = offset

    def forget(self, place: PartitionLike) -> None:
        """Remove a partition that the member no longer owns."""
        self._stored.pop(place, None)

    def with_topic_ids(
        self, offsets: Mapping[PartitionLike, CommittedOffset]
    ) -> dict[PartitionLike, CommittedOffset]:
        """Return the offsets with the ids of the topics that are being read."""
        ids = {place: reader.topic_id for place, reader in self._fetcher.readers.items()}
        return {
            place: replace(each, topic_id=each.topic_id or ids.get(place) or b"")
            for place, each in offsets.items()
        }

    # --- storing -------------------------------------------------------------------------------

    async def store_changed(self, positions: Mapping[PartitionLike, CommittedOffset]) -> None:
        """Store the offsets that changed, within `COMMIT_MS`; log a failure."""
        news = {
            place: each
            for place, each in positions.items()
            if self._stored.get(place) != each.offset
        }
        try:
            await self.store(news, deadline_ms=self._clock.now_ms() + COMMIT_MS)
        except QuorumlogError as error:
            _log.warning("group.commit_failed group=%s error=%s", self._joining.group, error)

    async def store(
        self,
        offsets: Mapping[PartitionLike, CommittedOffset],
        *,
        deadline_ms: int,
        transaction: TransactionalCommit | None = None,
    ) -> None:
        """Queue a commit and wait until it is stored; raise its error.

        With a `transaction` the offsets are pending until it ends. Raises TimedOut if the commits
        before it take too long.
        """
        if not offsets:
            return
        outcome = self._put(offsets, deadline_ms, transaction)
        left_ms = deadline_ms - self._clock.now_ms()
        try:
            async with asyncio.timeout(max(0, left_ms) / 1000 + GRACE_S):
                await outcome
        except TimedOut:
            raise
        except TimeoutError:
            raise TimedOut(
                "the commits queued before this one did not complete in time: nothing of it is "
                "committed; allow more time, or commit less often"
            ) from None

    def store_soon(
        self,
        offsets: Mapping[PartitionLike, CommittedOffset],
        on_done: Callable[[QuorumlogError | None], None] | None,
    ) -> None:
        """Queue a commit and return; pass a failure to `on_done`, or log it.

        Raises Overloaded if `WAITING_MAX` commits are queued.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} commits of the consumer are queued: commit less often")

        def report(outcome: "asyncio.Future[None]") -> None:
            self._report(outcome, on_done)

        self._put(offsets, self._connection.deadline_ms()).add_done_callback(report)

    def _report(
        self,
        outcome: "asyncio.Future[None]",
        on_done: Callable[[QuorumlogError | None], None] | None,
    ) -> None:
        failure = (
            ClientClosed("the consumer is closed") if outcome.cancelled() else outcome.exception()
        )
        error = failure if isinstance(failure, QuorumlogError) else None
        if on_done is not None:
            try:
                on_done(error)
            except Exception as raised:  # raised by the application's callback
                _log.exception("group.callback_failed group=%s", self._joining.group)
                self._on_failure(raised)
        elif error is not None:
            _log.warning("group.commit_failed group=%s error=%s", self._joining.group, error)

    def _put(
        self,
        offsets: Mapping[PartitionLike, CommittedOffset],
        deadline_ms: int,
        transaction: TransactionalCommit | None = None,
    ) -> "asyncio.Future[None]":
        """Queue a commit."""
        readers = {place: self._fetcher.readers.get(place) for place in offsets}
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due = _QueuedCommit(
            offsets, deadline_ms, self._member().joins, readers, outcome, transaction
        )
        self._waiting.append(due)
        if not offsets:
            outcome.set_result(None)
        if self._worker is None or self._worker.done():
            self._worker = self._scope.spawn(self._work(), name="commits in turn")
        return outcome

    async def _work(self) -> None:
        """Store the queued commits in order."""
        while self._waiting:
            due = self._waiting[0]
            try:
                if not due.outcome.done():
                    await self._store(due)
                    _end(due.outcome, None)
            except QuorumlogError as error:
                _end(due.outcome, error)
            finally:
                self._waiting.popleft()
                self._changes.announce()

    async def _store(self, due: _QueuedCommit) -> None:
        while True:
            caller = self.caller()
            self._check_owned(due)
            if due.transaction is not None:
                due.transaction.on_send()
            try:
                await coordinator.commit(
                    self._connection,
                    self._joining.group,
                    due.offsets,
                    by=caller,
                    transaction=due.transaction,
                    deadline_ms=due.deadline_ms,
                )
            except StaleMemberEpoch:
                # sometimes: a commit waits for the next member epoch
                await self._next_epoch(caller.epoch, due.deadline_ms)
            except (UnknownMember, FencedMemberEpoch) as error:
                self._on_refusal()
                raise self._no_member() from error
            else:
                break
        if due.transaction is not None:
            # A rejoined member may keep its epoch. The coordinator then accepts offsets sent under
            # the previous assignment, after the new one has fetched older offsets; these records
            # would be read again.
            self._check_owned(due)
            return
        for place, offset in due.offsets.items():
            if place in self._fetcher.readers:
                self._stored[place] = offset.offset

    def _check_owned(self, due: _QueuedCommit) -> None:
        """Raise if the member was fenced, or a partition revoked, since the commit was queued."""
        if due.joins != self._member().joins:
            raise self._no_member()
        for place, reader in due.readers.items():
            if reader is not None and self._fetcher.readers.get(place) is not reader:
                # sometimes: a partition is revoked before its queued commit
                raise StaleMemberEpoch(
                    "nothing is committed: the partition was revoked before the commit was sent, "
                    "and another member may have consumed more",
                    topic=place[0],
                    partition=place[1],
                )

    async def settled(self, places: Collection[PartitionLike]) -> None:
        """Wait until no commit of these partitions is queued, `COMMIT_MS` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_MS / 1000):
                while any(not due.offsets.keys().isdisjoint(places) for due in self._waiting):
                    await self._changes.wait()

    async def ended(self) -> None:
        """Wait until no commit is queued, `COMMIT_MS` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_MS / 1000):
                while self._waiting:
                    await self._changes.wait()

    def cancel(self) -> None:
        """Cancel all queued commits."""
        if self._worker is not None:
            self._worker.cancel()
        for due in self._waiting:
            due.outcome.cancel()

    # --- the member ----------------------------------------------------------------------------

    def caller(self) -> Caller:
        """Return the member with its present epoch; raise UnknownMember if it has not joined."""
        epoch = self._member().epoch
        if epoch <= 0:
            raise self._no_member()
        return Caller(member_id=self._joining.member_id, epoch=epoch)

    def _no_member(self) -> UnknownMember:
        if not self._member().joins:
            return UnknownMember(
                f"nothing is committed: the consumer has not joined group {self._joining.group} "
                "yet: poll, or enter it with `with`, first"
            )
        return UnknownMember(
            f"nothing is committed: the consumer is no longer a member of group "
            f"{self._joining.group}, and others may own its partitions; poll to join again, "
            "uncommitted records are delivered again"
        )

    async def _next_epoch(self, epoch: int, deadline_ms: int) -> None:
        """Wait for the member's next epoch; raise StaleMemberEpoch if none comes in time."""
        left_ms = deadline_ms - self._clock.now_ms()
        try:
            async with asyncio.timeout(max(0, left_ms) / 1000):
                while self._member().epoch == epoch:
                    await self._changes.wait()
        except TimeoutError:
            raise StaleMemberEpoch(
                f"nothing is committed: group {self._joining.group} is rebalancing and the "
                "member's new epoch did not arrive in time; commit again"
            ) from None


def _end(outcome: "asyncio.Future[None]", error: QuorumlogError | None) -> None:
    if outcome.done():
        return  # the caller stopped waiting
    if error is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(error)


def reader_positions(
    readers: Iterable[PartitionReader], at_most: Mapping[PartitionLike, int]
) -> dict[PartitionLike, CommittedOffset]:
    """Return the readers' positions, limited by `at_most`, with topic ids.

    The id keeps an offset from being applied to a topic of the same name created later.
    """
    found: dict[PartitionLike, CommittedOffset] = {}
    for reader in readers:
        if reader.position >= 0 and (reader.target is None or isinstance(reader.target, int)):
            place = (reader.topic, reader.partition)
            offset = min(reader.position, at_most.get(place, reader.position))
            found[place] = CommittedOffset(offset, topic_id=reader.topic_id or b"")
    return found
