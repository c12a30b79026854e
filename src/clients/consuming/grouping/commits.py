"""The commits of a group's member: one after the other, as they were asked for, in the member's
present epoch, and of no partition that was given back since.

What is committed by default is a position of a partition that the member has, in the topic that it
is in. A failure of a commit that nobody waits for costs that records are read again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ....errors import (
    FencedMemberEpoch,
    Overloaded,
    QuorumlogError,
    StaleMemberEpoch,
    Stopping,
    TimedOut,
    UnknownMember,
)
from ....runtime import Scope
from ...connection import Connection
from ...coordination import Changes
from ...offsets import Place
from ..fetcher import Fetcher
from ..partition_reader import PartitionReader
from . import calls
from .calls import Caller, CommittedOffset, Joining
from .member import GroupMember

COMMIT_MS: Final = 10_000  # for the commits that nobody waits for
WAITING_MAX: Final = 1_000  # of those that the application does not wait for
GRACE_S: Final = 0.1  # for a commit's own account of what kept it, at its deadline

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Due:
    """A commit that waits for its turn."""

    offsets: Mapping[Place, CommittedOffset]
    deadline_ms: int
    joins: int  # how often the member had joined when it was given its turn
    readers: Mapping[Place, PartitionReader | None]  # those it had then, None: it had it not
    outcome: "asyncio.Future[None]"


class Commits:
    """See the module. Belongs to the loop that it is made in."""

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        joining: Joining,
        *,
        member: Callable[[], GroupMember],
        fetcher: Fetcher,
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
        self._on_failure = on_failure  # of a callback of the application
        self._on_refusal = on_refusal  # the coordinator knows no such member
        self._stored: dict[Place, int] = {}  # as far as is known, of partitions that it has
        self._waiting: deque[_Due] = deque()  # the first one is under way
        self._worker: asyncio.Task[None] | None = None

    # --- what is known -------------------------------------------------------------------------

    def found(self, place: Place, offset: int) -> None:
        """The group has committed this: nothing is news before it changes."""
        self._stored[place] = offset

    def forget(self, place: Place) -> None:
        """The partition is the member's no longer."""
        self._stored.pop(place, None)

    def in_topics(self, offsets: Mapping[Place, CommittedOffset]) -> dict[Place, CommittedOffset]:
        """Return offsets in the topics that their partitions are read in."""
        ids = {place: reader.topic_id for place, reader in self._fetcher.readers.items()}
        return {
            place: replace(each, topic_id=each.topic_id or ids.get(place) or b"")
            for place, each in offsets.items()
        }

    # --- storing -------------------------------------------------------------------------------

    async def store_news(self, positions: Mapping[Place, CommittedOffset]) -> None:
        """Store what is news, in `COMMIT_MS`; a failure is logged."""
        news = {
            place: each
            for place, each in positions.items()
            if self._stored.get(place) != each.offset
        }
        try:
            await self.store(news, deadline_ms=self._clock.now_ms() + COMMIT_MS)
        except QuorumlogError as error:
            _log.warning("group.commit_failed group=%s error=%s", self._joining.group, error)

    async def store(self, offsets: Mapping[Place, CommittedOffset], *, deadline_ms: int) -> None:
        """Store offsets in their turn, and return when that is so. Raises what prevents it, and
        TimedOut when the turn does not come in time."""
        if not offsets:
            return
        outcome = self._put(offsets, deadline_ms)
        left_ms = deadline_ms - self._clock.now_ms()
        try:
            async with asyncio.timeout(max(0, left_ms) / 1000 + GRACE_S):
                await outcome
        except TimeoutError:
            raise TimedOut(
                "other commits are under way still, and this one waits for them: nothing of it is "
                "committed; allow more time, or commit less often"
            ) from None

    def store_soon(
        self,
        offsets: Mapping[Place, CommittedOffset],
        on_done: Callable[[QuorumlogError | None], None] | None,
    ) -> None:
        """Store offsets in their turn without waiting for it; a failure is told, or logged. Raises
        Overloaded when too many wait."""
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded(
                f"{WAITING_MAX} commits of the consumer wait for the coordinator: commit less often"
            )

        def tell(outcome: "asyncio.Future[None]") -> None:
            self._tell(outcome, on_done)

        self._put(offsets, self._connection.deadline_ms()).add_done_callback(tell)

    def _tell(
        self,
        outcome: "asyncio.Future[None]",
        on_done: Callable[[QuorumlogError | None], None] | None,
    ) -> None:
        failure = Stopping("the consumer is closed") if outcome.cancelled() else outcome.exception()
        error = failure if isinstance(failure, QuorumlogError) else None
        if on_done is not None:
            try:
                on_done(error)
            except Exception as raised:  # the application's own
                _log.exception("group.callback_failed group=%s", self._joining.group)
                self._on_failure(raised)
        elif error is not None:
            _log.warning("group.commit_failed group=%s error=%s", self._joining.group, error)

    def _put(
        self, offsets: Mapping[Place, CommittedOffset], deadline_ms: int
    ) -> "asyncio.Future[None]":
        """Give a commit its turn behind all that were given one."""
        readers = {place: self._fetcher.readers.get(place) for place in offsets}
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due = _Due(offsets, deadline_ms, self._member().joins, readers, outcome)
        self._waiting.append(due)
        if not offsets:
            outcome.set_result(None)
        if self._worker is None or self._worker.done():
            self._worker = self._scope.spawn(self._work(), name="commits in turn")
        return outcome

    async def _work(self) -> None:
        """Store one after the other what waits."""
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

    async def _store(self, due: _Due) -> None:
        while True:
            caller = self.caller()
            self._check_owned(due)
            try:
                await calls.commit(
                    self._connection,
                    self._joining.group,
                    due.offsets,
                    by=caller,
                    deadline_ms=due.deadline_ms,
                )
            except StaleMemberEpoch:
                await self._next_epoch(caller.epoch, due.deadline_ms)
            except (UnknownMember, FencedMemberEpoch) as error:
                self._on_refusal()
                raise self._no_member() from error
            else:
                break
        for place, offset in due.offsets.items():
            if place in self._fetcher.readers:
                self._stored[place] = offset.offset

    def _check_owned(self, due: _Due) -> None:
        """Raise what keeps a commit from counting that was due before: others may have read on."""
        if due.joins != self._member().joins:
            raise self._no_member()
        for place, reader in due.readers.items():
            if reader is not None and self._fetcher.readers.get(place) is not reader:
                raise StaleMemberEpoch(
                    "nothing is committed: the partition was given back before the commit had its "
                    "turn, and another member may have read further",
                    topic=place[0],
                    partition=place[1],
                )

    async def settled(self, places: Collection[Place]) -> None:
        """Wait until no commit of these partitions waits, `COMMIT_MS` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_MS / 1000):
                while any(not due.offsets.keys().isdisjoint(places) for due in self._waiting):
                    await self._changes.wait()

    async def ended(self) -> None:
        """Wait for all that wait, `COMMIT_MS` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_MS / 1000):
                while self._waiting:
                    await self._changes.wait()

    def cancel(self) -> None:
        """Give up all that wait."""
        if self._worker is not None:
            self._worker.cancel()
        for due in self._waiting:
            due.outcome.cancel()

    # --- by whom -------------------------------------------------------------------------------

    def caller(self) -> Caller:
        """Return the member in its present epoch; raises UnknownMember when it is none."""
        epoch = self._member().epoch
        if epoch <= 0:
            raise self._no_member()
        return Caller(member_id=self._joining.member_id, epoch=epoch)

    def _no_member(self) -> UnknownMember:
        if not self._member().joins:
            return UnknownMember(
                f"nothing is committed: the consumer has not joined group {self._joining.group} "
                "yet: poll, or enter it by `with`, first"
            )
        return UnknownMember(
            f"nothing is committed: the consumer is no member of group {self._joining.group} now, "
            "and others may read its partitions; poll to join again, what was not committed is "
            "read again"
        )

    async def _next_epoch(self, epoch: int, deadline_ms: int) -> None:
        """Wait for the member's next epoch; raises StaleMemberEpoch when none comes in time."""
        left_ms = deadline_ms - self._clock.now_ms()
        try:
            async with asyncio.timeout(max(0, left_ms) / 1000):
                while self._member().epoch == epoch:
                    await self._changes.wait()
        except TimeoutError:
            raise StaleMemberEpoch(
                f"nothing is committed: group {self._joining.group} shares its partitions out anew "
                "and the member's new epoch did not come in time; commit again"
            ) from None


def _end(outcome: "asyncio.Future[None]", error: QuorumlogError | None) -> None:
    if outcome.done():
        return  # nobody waits any more
    if error is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(error)


def positions_of(
    readers: Iterable[PartitionReader], at_most: Mapping[Place, int]
) -> dict[Place, CommittedOffset]:
    """Return positions, in the topics that they are in: a name may be another topic's by now, where
    they would say nothing."""
    found: dict[Place, CommittedOffset] = {}
    for reader in readers:
        if reader.position >= 0 and (reader.target is None or isinstance(reader.target, int)):
            place = (reader.topic, reader.partition)
            offset = min(reader.position, at_most.get(place, reader.position))
            found[place] = CommittedOffset(offset, topic_id=reader.topic_id or b"")
    return found
