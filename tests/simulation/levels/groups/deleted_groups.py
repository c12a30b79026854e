"""Short-lived groups: offsets are committed without members, fetched, deleted, fetched again.
Deleted offsets must never be found again, on any coordinator."""

import asyncio
from dataclasses import dataclass
from typing import Final

from quorumlog.errors import QuorumlogError
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.testing.checkers import Place

from ..kafka.client import KafkaClient
from . import calls
from .calls import GroupCalls
from .kept_offsets import KeptGroup, KeptOffsets

GROUP_ID_NOT_FOUND: Final = 69
PAUSE_S: Final = 0.3
ROUNDS: Final = 4  # deletions after which a group stays deleted, and the next one follows
NOTHING: Final = (-1, "")


@dataclass(slots=True)
class DeletedGroups:
    """A program that sends one request at a time, and starts a new group after an unknown
    outcome. So the expected offset is always known."""

    kept_offsets: KeptOffsets  # checks the groups that stay deleted
    bootstrap: str
    is_over: bool = False
    rounds: int = 0
    _number: int = 0  # of the group
    _offset: int = 0

    async def run(self, runtime: Runtime) -> None:
        """Run until the run is over."""
        client = KafkaClient(
            runtime, self.bootstrap.split(","), name="passing", timeout_ms=2_000, codec=Codec.NONE
        )
        while not self.is_over:
            self._number += 1
            group = f"passing-{self._number}"
            asking = GroupCalls(runtime, client, group, timeout_ms=2_000)
            if await self._live(asking, group):
                self.kept_offsets.kept.insert(0, KeptGroup(group, is_deleted=True))
            asking.close()
        client.close()

    async def _live(self, asking: GroupCalls, group: str) -> bool:
        """Run the cycles of one group. Return True if it is certainly deleted."""
        for _ in range(ROUNDS):
            stored = await self._commit(asking)
            if stored is None:
                return False
            await self._look_twice(asking, group, stored)
            if not await self._delete(asking):
                return False
            self.rounds += 1
            await self._look_twice(asking, group, NOTHING)
            if self.is_over:
                break
        return True

    async def _commit(self, asking: GroupCalls) -> tuple[int, str] | None:
        """Commit a new offset; return it once it is stored, None for an unknown outcome."""
        self._offset += 1
        mine = (self._offset, f"p{self._offset}")
        try:
            codes = await asking.commit("", "", -1, {self.kept_offsets.place: mine})
        except QuorumlogError as error:
            self.kept_offsets.group_history.errors[type(error).__name__] += 1
            codes = {}
        if codes.get(self.kept_offsets.place) == calls.NONE:
            return mine
        await asyncio.sleep(PAUSE_S)
        return None

    async def _delete(self, asking: GroupCalls) -> bool:
        """Delete the group. Return True if it is certainly deleted."""
        try:
            code = await asking.delete_group()
        except QuorumlogError as error:
            self.kept_offsets.group_history.errors[type(error).__name__] += 1
            code = calls.NOT_AVAILABLE
        if code in (calls.NONE, GROUP_ID_NOT_FOUND):
            return True
        await asyncio.sleep(PAUSE_S)
        return False

    async def _look_twice(self, asking: GroupCalls, group: str, expected: tuple[int, str]) -> None:
        await self._check(asking, group, self.kept_offsets.place, expected)
        await asyncio.sleep(PAUSE_S)
        await self._check(asking, group, self.kept_offsets.place, expected)

    async def _check(
        self, asking: GroupCalls, group: str, place: Place, expected: tuple[int, str]
    ) -> None:
        """Fetch the offset, and compare it with the expected one."""
        group_history = self.kept_offsets.group_history
        try:
            code, found = await asking.fetch([place])
        except QuorumlogError as error:
            group_history.errors[type(error).__name__] += 1
            return
        if code:
            return
        group_history.counts["passing looks"] += 1
        seen = (found[place].offset, found[place].note)
        if seen != expected:
            name = "Resurrected" if expected == NOTHING else "LostOffset"
            group_history.found.append(
                f"{name}: {seen} is committed in {group}, {expected} must be"
            )
