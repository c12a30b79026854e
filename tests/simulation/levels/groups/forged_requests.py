"""A client that forges requests of members, with wrong epochs, generations and ids. All must be
rejected without an effect on the members."""

import asyncio
from typing import Any

from quorumlog.errors import QuorumlogError

from .classic_member import PROTOCOLS
from .history import MemberIncarnation
from .member_reader import MemberContext, MemberReader
from .plan import MemberKind

AHEAD = 1_000_003
"""The distance of a forged epoch from the true one; no group of a run reaches it."""


class RequestForger:
    """Sends forged requests to the coordinator of one group."""

    def __init__(self, setting: MemberContext) -> None:
        self._setting = setting
        self._reading = MemberReader.of(setting)

    async def run(self) -> None:
        """Send forged requests until stopped."""
        reading, group_history = self._reading, self._setting.group_history
        await reading.look()
        while not self._setting.stop.is_set():
            pause_ms = reading.entropy.uniform(*self._setting.behaviour.lie_ms)
            await asyncio.sleep(pause_ms / 1000)
            incarnations = [
                life
                for life in group_history.incarnations
                if life.group == reading.life.group and life.epoch > 0 and life.member_id
            ]
            if not incarnations:
                continue
            group_history.counts["lies"] += 1
            await self._lie(incarnations[reading.entropy.below(len(incarnations))])
        reading.life.ends()
        reading.close()

    async def _lie(self, life: MemberIncarnation) -> None:
        kind = self._reading.entropy.below(5)
        try:
            if kind == 0:
                await self._reading.commit_late(life.member_id, life.epoch + AHEAD)
            elif kind == 1:
                await self._reading.commit_late(f"{life.member_id}-not", life.epoch)
            elif kind == 2:
                await self._sync(life)
            elif kind == 3:
                await self._beat(life)
            else:
                code = await self._reading.calls.leave(f"{life.member_id}-not", "")
                self._check(code, "a leave of an unknown member")
        except QuorumlogError as error:
            self._reading.note(error)

    async def _sync(self, life: MemberIncarnation) -> None:
        answer: Any = await self._reading.calls.sync(
            life.member_id,
            life.instance_id,
            life.epoch + AHEAD,
            {},
            protocol=PROTOCOLS.get(self._setting.plan.kind, ""),
            rebalance_ms=0,
        )
        self._check(int(answer.error_code), f"a sync of {life.name} with a wrong generation")

    async def _beat(self, life: MemberIncarnation) -> None:
        if self._setting.plan.kind in (MemberKind.EAGER, MemberKind.COOPERATIVE):
            loads = self._setting.group_history.loads
            before = loads()
            code = await self._reading.calls.heartbeat(
                life.member_id, life.instance_id, life.epoch + AHEAD
            )
            if before is None or before != loads():
                return  # a coordinator that loads its state accepts every heartbeat
        else:
            answer = await self._reading.calls.beat(
                life.member_id, life.epoch + AHEAD, life.instance_id
            )
            code = int(answer.error_code)
        self._check(code, f"a heartbeat of {life.name} with a wrong epoch")

    def _check(self, code: int, what: str) -> None:
        if not code:
            self._setting.group_history.found.append(f"LieTaken: {what} was accepted")
        self._reading.note(code)
