"""Offsets with a retention time: they stay for that time after each commit, and while a member of
the group subscribes to the topic, on any coordinator.

One program sends one request at a time, and uses another group after an unknown outcome. A group
without members commits repeatedly, around the expiry of its last commit. A group with one member,
of either protocol, that only sends heartbeats keeps its offsets.
"""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from quorumlog.broker.groups.consumer_protocol import (
    ConsumerSubscription,
    encode_subscription,
)
from quorumlog.errors import QuorumlogError
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.testing.checkers import Place

from ..kafka.client import KafkaClient
from . import calls
from .calls import GroupCalls
from .history import CLOCK_ERROR, NS_PER_MS, GroupHistory

TIMEOUT_MS: Final = 2_000
PAUSE_S: Final = 0.3
ROUNDS: Final = 3  # of one group
ALONE_MS: Final = (4_000, 8_000)  # retention time of a group without members
WITH_MEMBER_MS: Final = (500, 2_000)
LATEST: Final = 1.6  # the next commit comes after at most that fraction of the time
STAYS_MS: Final = (3_000, 9_000)  # lifetime of a member
APART: Final = 0.04
"""The fraction of elapsed time by which the clocks of two machines may differ."""
NOTHING: Final = (-1, "")


@dataclass(frozen=True, slots=True)
class _StoredOffset:
    """A stored commit."""

    offset: int
    note: str
    asked_ns: int


@dataclass(slots=True)
class OffsetExpiry:
    """The program."""

    group_history: GroupHistory
    bootstrap: str
    place: Place
    session_ms: int  # of members
    clocks_jumped: Callable[[], bool]  # UTC clocks, which determine the expiry
    is_over: bool = False
    _number: int = 0  # of the group
    _offset: int = 0

    async def run(self, runtime: Runtime) -> None:
        """Run until the run is over."""
        client = KafkaClient(
            runtime,
            self.bootstrap.split(","),
            name="fading",
            timeout_ms=TIMEOUT_MS,
            codec=Codec.NONE,
        )
        while not self.is_over:
            self._number += 1
            asking = GroupCalls(runtime, client, f"fading-{self._number}", timeout_ms=TIMEOUT_MS)
            low, high = calls.WITH_RETENTION
            asking.versions[calls.OFFSET_COMMIT] = low + runtime.entropy.below(high - low + 1)
            try:
                if runtime.entropy.below(2):
                    await self._alone(asking, runtime)
                else:
                    await self._with_member(asking, runtime)
            except QuorumlogError as error:
                self.group_history.errors[type(error).__name__] += 1
            asking.close()
            await asyncio.sleep(PAUSE_S)
        client.close()

    # --- without members --------------------------------------------------------------------------

    async def _alone(self, asking: GroupCalls, runtime: Runtime) -> None:
        """Commit, fetch, and commit again before or after the expiry."""
        for _ in range(ROUNDS):
            kept_ms = runtime.entropy.uniform(*ALONE_MS)
            stored = await self._commit(asking, ("", -1), int(kept_ms))
            if stored is None:
                return
            sure_ns = stored.asked_ns * (1 - APART) + kept_ms * CLOCK_ERROR * NS_PER_MS
            end_ns = stored.asked_ns + runtime.entropy.uniform(0, LATEST) * kept_ms * NS_PER_MS
            while self.group_history.now_ns() < end_ns and not self.is_over:
                await self._look(asking, stored, 0 if self.clocks_jumped() else sure_ns)
                await asyncio.sleep(PAUSE_S)

    # --- with one ---------------------------------------------------------------------------------

    async def _with_member(self, asking: GroupCalls, runtime: Runtime) -> None:
        """Join, commit with a short retention, and stay: while the member certainly is one, its
        offset must be there."""
        is_classic = bool(runtime.entropy.below(2))
        asked_ns = self.group_history.now_ns()
        member = await (self._join if is_classic else self._beat_first)(asking, runtime)
        if member is None:
            return
        stored = await self._commit(asking, member, int(runtime.entropy.uniform(*WITH_MEMBER_MS)))
        if stored is None:
            return
        self.group_history.counts["faders"] += 1
        end_ns = stored.asked_ns + runtime.entropy.uniform(*STAYS_MS) * NS_PER_MS
        while self.group_history.now_ns() < end_ns and not self.is_over:
            await self._look(asking, stored, asked_ns + self.session_ms * CLOCK_ERROR * NS_PER_MS)
            await asyncio.sleep(PAUSE_S)
            before, loads = self.group_history.now_ns(), self.group_history.loads()
            if not await self._lives(asking, member, is_classic=is_classic):
                return
            if loads is not None and loads == self.group_history.loads():
                # otherwise the coordinator is loading, and accepts every heartbeat
                asked_ns = before

    async def _join(self, asking: GroupCalls, runtime: Runtime) -> tuple[str, int] | None:
        """Join a classic group as its only member; return id and generation."""
        data = encode_subscription(
            ConsumerSubscription(version=0, topics=(self.place[0],), owned={}, generation=-1)
        )
        joined: Any = None
        member_id = ""
        for _ in range(2):
            joined = await asking.join(
                member_id,
                "",
                session_ms=self.session_ms,
                rebalance_ms=self.session_ms,
                protocols=[("range", data)],
            )
            member_id = joined.member_id
            if joined.error_code != calls.MEMBER_ID_REQUIRED:
                break
        if joined.error_code:
            return None
        generation = int(joined.generation_id)
        synced = await asking.sync(
            member_id, "", generation, {}, protocol="range", rebalance_ms=self.session_ms
        )
        return None if synced.error_code else (member_id, generation)

    async def _beat_first(self, asking: GroupCalls, runtime: Runtime) -> tuple[str, int] | None:
        """Join a group of KIP-848 as its only member; return id and epoch."""
        answer = await asking.beat(
            str(uuid.UUID(bytes=runtime.entropy.token(16))),
            0,
            rebalance_timeout=self.session_ms,
            subscribed_topic_names=[self.place[0]],
            topic_partitions=[],
        )
        return None if answer.error_code else (answer.member_id, int(answer.member_epoch))

    async def _lives(
        self, asking: GroupCalls, member: tuple[str, int], *, is_classic: bool
    ) -> bool:
        """Send a heartbeat. Return True if it was accepted."""
        if is_classic:
            return not await asking.heartbeat(member[0], "", member[1])
        return not (await asking.beat(*member)).error_code

    # --- both -------------------------------------------------------------------------------------

    async def _commit(
        self, asking: GroupCalls, member: tuple[str, int], kept_ms: int
    ) -> _StoredOffset | None:
        """Commit a new offset; None: rejected. Raises QuorumlogError for an unknown outcome."""
        self._offset += 1
        stored = _StoredOffset(self._offset, f"f{self._offset}", self.group_history.now_ns())
        codes = await asking.commit(
            member[0],
            "",
            member[1],
            {self.place: (stored.offset, stored.note)},
            retention_ms=kept_ms,
        )
        return None if codes.get(self.place) else stored

    async def _look(self, asking: GroupCalls, stored: _StoredOffset, sure_ns: float) -> None:
        """Fetch the offset; it must be there until `sure_ns`."""
        code, found = await asking.fetch([self.place])
        if code:
            return
        self.group_history.counts["fading looks"] += 1
        now_ns = self.group_history.now_ns()
        seen = (found[self.place].offset, found[self.place].note)
        if seen == (stored.offset, stored.note) or (seen == NOTHING and now_ns >= sure_ns):
            return
        self.group_history.found.append(
            f"Faded: {seen} is committed in fading-{self._number} at {now_ns / 1e6:.3f} ms, "
            f"{stored} must be until {sure_ns / 1e6:.3f}"
        )
