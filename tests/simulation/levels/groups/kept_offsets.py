"""Durable commits: an offset that was acknowledged, or found once, is found for ever.

One program commits to a group, one request at a time, with ascending offsets. After an unknown
outcome, that commit may take effect at any later time: the group is left unchanged, and another one
used. So a least offset is known for each group at any time, whatever happens to coordinators.
Fetches come from another program on another machine, which may reach another coordinator. A group
that was certainly deleted must stay empty.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from quorumlog.errors import QuorumlogError
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.testing.checkers import Place

from ..kafka.client import KafkaClient
from .calls import GroupCalls
from .history import GroupHistory

TIMEOUT_MS: Final = 2_000
RETRY_S: Final = 0.2
OLD: Final = 0.3  # probability of a fetch of an older group


@dataclass(slots=True, eq=False)
class KeptGroup:
    """A group, and its expected offset; 0: none."""

    group: str
    sent: int = 0  # the highest sent
    sure: int = 0  # the highest acknowledged or found
    is_deleted: bool = False


@dataclass(slots=True)
class KeptOffsets:
    """The programs `put` and `look`, each on its own machine."""

    group_history: GroupHistory
    bootstrap: str
    place: Place
    pause_ms: tuple[int, int]  # between two commits, and between two fetches
    is_over: bool = False
    kept: list[KeptGroup] = field(default_factory=list)

    async def put(self, runtime: Runtime) -> None:
        """Commit until the run is over."""
        client, number = self._client(runtime), 0
        while not self.is_over:
            number += 1
            kept = KeptGroup(f"kept-{number}")
            self.kept.append(kept)
            calls = GroupCalls(runtime, client, kept.group, timeout_ms=TIMEOUT_MS)
            await self._fill(calls, kept, runtime)
            calls.close()
            if not kept.sure:
                self.kept.remove(kept)  # nothing is certain about it
            await asyncio.sleep(RETRY_S)
        client.close()

    async def look(self, runtime: Runtime) -> None:
        """Fetch offsets until the run is over, mostly of the newest group."""
        client = self._client(runtime)
        calls: GroupCalls | None = None
        newest: KeptGroup | None = None
        while not self.is_over:
            await self._pause(runtime)
            if not self.kept:
                continue
            if runtime.entropy.uniform(0, 1) < OLD:
                some = self.kept[runtime.entropy.below(len(self.kept))]
                await self._look_once(runtime, client, some)
                continue
            if self.kept[-1] is not newest or calls is None:
                if calls is not None:
                    calls.close()
                newest = self.kept[-1]
                calls = GroupCalls(runtime, client, newest.group, timeout_ms=TIMEOUT_MS)
            await self._look_at(calls, newest)
        if calls is not None:
            calls.close()
        client.close()

    async def look_at_all(self, runtime: Runtime) -> None:
        """Fetch the offsets of every group once more, with retries."""
        client = self._client(runtime)
        left = list(self.kept)
        while left:
            if await self._look_once(runtime, client, left[-1]):
                left.pop()
            else:
                await asyncio.sleep(RETRY_S)
        client.close()

    # --- inside --------------------------------------------------------------------------------

    def _client(self, runtime: Runtime) -> KafkaClient:
        return KafkaClient(
            runtime,
            self.bootstrap.split(","),
            name="keeper",
            timeout_ms=TIMEOUT_MS,
            codec=Codec.NONE,
        )

    async def _pause(self, runtime: Runtime) -> None:
        await asyncio.sleep(runtime.entropy.uniform(*self.pause_ms) / 1000)

    async def _fill(self, calls: GroupCalls, kept: KeptGroup, runtime: Runtime) -> None:
        """Commit to one group while all outcomes are known."""
        while not self.is_over and await self._commit(calls, kept):
            await self._pause(runtime)

    async def _commit(self, calls: GroupCalls, kept: KeptGroup) -> bool:
        """Commit the next offset. Return True if it is certainly stored."""
        kept.sent += 1
        offset = kept.sent
        try:
            codes = await calls.commit("", "", -1, {self.place: (offset, f"k{offset}")})
        except QuorumlogError as error:
            self.group_history.errors[type(error).__name__] += 1
            return False
        if codes.get(self.place) != 0:
            return False
        self.group_history.counts["kept"] += 1
        kept.sure = max(kept.sure, offset)
        return True

    async def _look_once(self, runtime: Runtime, client: KafkaClient, kept: KeptGroup) -> bool:
        """Fetch on a new connection. Return True if there was a response."""
        calls = GroupCalls(runtime, client, kept.group, timeout_ms=TIMEOUT_MS)
        try:
            return await self._look_at(calls, kept)
        finally:
            calls.close()

    async def _look_at(self, calls: GroupCalls, kept: KeptGroup) -> bool:
        """Fetch, and compare with the expected offset. Return True if there was a response."""
        floor = kept.sure
        try:
            code, found = await calls.fetch([self.place])
        except QuorumlogError as error:
            self.group_history.errors[type(error).__name__] += 1
            return False
        if code:
            return False
        self.group_history.counts["kept looks"] += 1
        seen, note = max(0, found[self.place].offset), found[self.place].note
        if seen < floor:
            self._found(
                f"LostOffset: {seen} is committed in {kept.group}, {floor} was stored before"
            )
        elif seen and kept.is_deleted:
            self._found(f"Resurrected: {seen} is committed in {kept.group}, which was deleted")
        elif seen > kept.sent or note != (f"k{seen}" if seen else ""):
            self._found(
                f"LostOffset: {seen} with {note!r} is committed in {kept.group}, where it"
                " was never sent"
            )
        kept.sure = max(kept.sure, seen)
        return True

    def _found(self, what: str) -> None:
        self.group_history.found.append(what)
