"""A member of KIP-848 without a client: heartbeats with its partitions, reconciliation."""

import asyncio
import uuid
from typing import Any, Final

from quorumlog.errors import QuorumlogError
from quorumlog.testing.checkers import Place

from . import calls
from .member_reader import MemberContext, MemberFenced, MemberReader

LEAVE_TRIES: Final = 3
OLD_EPOCH: Final = 0.3  # fraction of late commits that follow an epoch


class ConsumerMember:
    """One process of a member."""

    def __init__(self, setting: MemberContext) -> None:
        self._setting = setting
        self._reading = MemberReader.of(setting)
        self._life = self._reading.life
        self._member_id = str(uuid.UUID(bytes=setting.runtime.entropy.token(16)))
        self._epoch = 0
        self._said: tuple[Place, ...] | None = None  # reported partitions; None: unknown
        self._beat_ns = 0
        self._commit_ns = 0

    async def run(self) -> None:
        """Run until a request to leave, or until it is fenced."""
        await self._reading.look()
        try:
            while not self._setting.stop.is_set():
                await self._turn()
            await self._leave()
        except MemberFenced:
            self._setting.group_history.counts["ended"] += 1
        finally:
            self._life.ends()
            self._reading.close()

    async def _turn(self) -> None:
        reading = self._reading
        if reading.now_ns() >= self._beat_ns or self._owned() != self._said:
            await self._beat()
        if not self._epoch:
            return
        await reading.locate(self._epoch)
        await reading.work()
        if reading.now_ns() >= self._commit_ns:
            pause_ms = reading.entropy.uniform(*self._setting.behaviour.commit_ms)
            self._commit_ns = reading.now_ns() + int(pause_ms * 1e6)
            code = await reading.commit(self._epoch)
            if code in (calls.UNKNOWN_MEMBER, calls.STALE_EPOCH):
                self._beat_ns = 0

    def _owned(self) -> tuple[Place, ...]:
        return tuple(sorted(self._life.claims))

    async def _beat(self) -> None:
        """Send one heartbeat, and apply the response."""
        reading, life, group = self._reading, self._life, self._setting.group
        owned = self._owned()
        said: dict[str, Any] = {}
        if not self._epoch or self._said is None:
            said["rebalance_timeout"] = group.rebalance_ms
            said["subscribed_topic_names"] = list(group.topics)
        if not self._epoch or self._said != owned:
            said["topic_partitions"] = self._by_id(owned)
        asked_ns = reading.now_ns()
        self._beat_ns = asked_ns + group.beat_ms * 1_000_000
        try:
            answer = await reading.calls.beat(
                self._member_id, self._epoch, life.instance_id, **said
            )
        except QuorumlogError as error:
            reading.note(error)
            self._said = None
            await reading.pause()
            return
        code = int(answer.error_code)
        if code:
            self._said = None
            await self._refused(code)
            return
        self._said = owned
        before, self._epoch = self._epoch, int(answer.member_epoch)
        life.set_epoch(self._epoch, self._member_id)
        target = await self._target(answer.assignment)
        given = [] if target is None else [place for place in life.claims if place not in target]
        life.answered(asked_ns, is_settled=not given)
        if target is not None:
            await self._reconcile(target, given)
        is_old = 0 < before < self._epoch and reading.entropy.uniform(0, 1) < OLD_EPOCH
        if is_old and reading.is_late():
            await reading.commit_late(self._member_id, before)

    async def _target(self, assignment: Any) -> set[Place] | None:
        """Return the assigned partitions by topic name; None: unchanged, or not resolvable yet."""
        if assignment is None:
            return None
        names = {topic_id: name for name, topic_id in self._reading.client.topic_ids.items()}
        if any(part.topic_id.bytes not in names for part in assignment.topic_partitions):
            await self._reading.look()
            self._said = None  # request the complete assignment again
            return None
        return {
            (names[part.topic_id.bytes], int(index))
            for part in assignment.topic_partitions
            for index in part.partitions
        }

    async def _reconcile(self, target: set[Place], given: list[Place]) -> None:
        """Revoke partitions, to be reported by the next heartbeat; take the new ones."""
        reading = self._reading
        if given:
            await reading.finish_work()
            await reading.commit(self._epoch, given)
            reading.revoke(given)
        reading.assign(place for place in target if place not in self._life.claims)

    def _by_id(self, owned: tuple[Place, ...]) -> list[dict[str, Any]]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in owned:
            by_topic.setdefault(topic, []).append(index)
        ids = self._reading.client.topic_ids
        return [{"topic_id": ids[name], "partitions": some} for name, some in by_topic.items()]

    async def _refused(self, code: int) -> None:
        reading = self._reading
        reading.note(code)
        if code == calls.FENCED_INSTANCE:
            reading.revoke_all()
            raise MemberFenced
        if code in (calls.UNKNOWN_MEMBER, calls.FENCED_EPOCH):
            reading.revoke_all()
            before, self._epoch = self._epoch, 0
            self._beat_ns = 0
            if code == calls.UNKNOWN_MEMBER and before > 0:
                self._life.evicted()
            if before > 0 and reading.is_late():
                await reading.commit_late(self._member_id, before)
        await reading.pause()

    async def _leave(self) -> None:
        """Commit, revoke all partitions, leave; a static member leaves temporarily."""
        reading, life = self._reading, self._life
        if self._epoch <= 0:
            return
        await reading.commit(self._epoch)
        reading.revoke_all()
        goes_with = -2 if life.instance_id else -1
        for _ in range(LEAVE_TRIES):
            try:
                answer = await reading.calls.beat(self._member_id, goes_with, life.instance_id)
            except QuorumlogError as error:
                reading.note(error)
                await asyncio.sleep(0.1)
                continue
            code = int(answer.error_code)
            if not code and reading.is_late():
                await reading.commit_late(self._member_id, self._epoch)
            if code not in calls.PASSING:
                return
