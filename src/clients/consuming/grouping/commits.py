"""The commits of a group's member: one after the other, in the member's present epoch.

What is committed by default is a position of a partition that the member has, in the topic that it
is in. A failure of a commit that nobody waits for costs that records are read again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from ....errors import FencedMemberEpoch, QuorumlogError, StaleMemberEpoch, UnknownMember
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

_log = logging.getLogger(__name__)


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
    ) -> None:
        self._connection = connection
        self._clock = connection.runtime.clock
        self._scope = scope
        self._joining = joining
        self._member = member
        self._fetcher = fetcher
        self._changes = changes  # of the member
        self._on_failure = on_failure  # of a callback of the application
        self._stored: dict[Place, int] = {}  # as far as is known, of partitions that it has
        self._turn = asyncio.Lock()
        self._unattended: dict[asyncio.Task[None], None] = {}  # that nobody waits for

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
        """Store offsets, one commit after the other."""
        if not offsets:
            return
        async with self._turn:
            while True:
                caller = self.caller()
                try:
                    await calls.commit(
                        self._connection,
                        self._joining.group,
                        offsets,
                        by=caller,
                        deadline_ms=deadline_ms,
                    )
                except StaleMemberEpoch:
                    await self._next_epoch(caller.epoch, deadline_ms)
                except (UnknownMember, FencedMemberEpoch) as error:
                    raise self._no_member() from error
                else:
                    break
        for place, offset in offsets.items():
            if place in self._fetcher.readers:
                self._stored[place] = offset.offset

    def store_soon(
        self,
        offsets: Mapping[Place, CommittedOffset],
        on_done: Callable[[QuorumlogError | None], None] | None,
    ) -> None:
        """Store offsets without waiting for it; a failure is told, or logged."""

        async def work() -> None:
            deadline_ms = self._connection.deadline_ms()
            error: QuorumlogError | None = None
            try:
                await self.store(offsets, deadline_ms=deadline_ms)
            except QuorumlogError as failure:
                error = failure
            if on_done is not None:
                try:
                    on_done(error)
                except Exception as failure:  # the application's own
                    _log.exception("group.callback_failed group=%s", self._joining.group)
                    self._on_failure(failure)
            elif error is not None:
                _log.warning("group.commit_failed group=%s error=%s", self._joining.group, error)

        self._keep(work())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._scope.spawn(work, name="commit")
        self._unattended[task] = None
        task.add_done_callback(self._unattended.pop)

    async def ended(self) -> None:
        """Wait for those that nobody waits for."""
        if self._unattended:
            await asyncio.gather(*self._unattended, return_exceptions=True)

    def cancel(self) -> None:
        """Give up those that nobody waits for."""
        for task in self._unattended:
            task.cancel()

    # --- by whom -------------------------------------------------------------------------------

    def caller(self) -> Caller:
        """Return the member in its present epoch; raises UnknownMember when it is none."""
        epoch = self._member().epoch
        if epoch <= 0:
            raise self._no_member()
        return Caller(member_id=self._joining.member_id, epoch=epoch)

    def _no_member(self) -> UnknownMember:
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
