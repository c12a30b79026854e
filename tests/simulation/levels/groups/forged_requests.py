"""A client that forges requests of members, with wrong epochs, generations and ids. All must be
rejected without an effect on the members."""

import asyncio
from typing import Any

from quorumlog.errors import QuorumlogError

from .classic_member import PROTOCOLS
from .history import Life
from .member_reader import Reading, Setting
from .plan import Kind

AHEAD = 1_000_003
"""The distance of a forged epoch from the true one; no group of a run reaches it."""


class Liar:
    """Sends forged requests to the coordinator of one group."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._reading = Reading.of(setting)

    async def run(self) -> None:
        """Send forged requests until stopped."""
        reading, chronicle = self._reading, self._setting.chronicle
        await reading.look()
        while not self._setting.stop.is_set():
            pause_ms = reading.entropy.uniform(*self._setting.behaviour.lie_ms)
            await asyncio.sleep(pause_ms / 1000)
            lives = [
                life
                for life in chronicle.lives
                if life.group == reading.life.group and life.epoch > 0 and life.member_id
            ]
            if not lives:
                continue
            chronicle.counts["lies"] += 1
            await self._lie(lives[reading.entropy.below(len(lives))])
        reading.life.ends()
        reading.close()

    async def _lie(self, life: Life) -> None:
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

    async def _sync(self, life: Life) -> None:
        answer: Any = await self._reading.calls.sync(
            life.member_id,
            life.instance_id,
            life.epoch + AHEAD,
            {},
            protocol=PROTOCOLS.get(self._setting.plan.kind, ""),
            rebalance_ms=0,
        )
        self._check(int(answer.error_code), f"a sync of {life.name} with a wrong generation")

    async def _beat(self, life: Life) -> None:
        if self._setting.plan.kind in (Kind.EAGER, Kind.COOPERATIVE):
            loads = self._setting.chronicle.loads
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
            self._setting.chronicle.found.append(f"LieTaken: {what} was accepted")
        self._reading.note(code)
