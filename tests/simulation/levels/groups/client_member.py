"""A member that runs the Python client; its state changes go into the history."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from quorumlog.clients.groups.coordinator import CommittedOffset
from quorumlog.clients.groups.group_consumer import AsyncGroupConsumer
from quorumlog.clients.groups.member import GroupHeartbeat, GroupSubscription, MemberStateMachine
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import (
    FencedInstance,
    OffsetOutOfRange,
    QuorumlogError,
    UnknownMember,
    UnknownServerError,
)
from quorumlog.ids import TopicPartition
from quorumlog.testing.checkers import Place

from .history import GroupHistory, MemberIncarnation
from .member_reader import RETRY_S, MemberContext
from .transactional_commits import PLAIN, ClientCommits

POLL_MS: Final = 300
NEVER: Final = (UnknownServerError, OffsetOutOfRange)  # no fault explains these


class _RecordedMembership(MemberStateMachine):
    """The client's membership, with a record of the responses."""

    life: MemberIncarnation
    group_history: GroupHistory
    asked_ns: int = -1

    def beat(self, now_ms: int) -> GroupHeartbeat | None:
        """Return the next heartbeat, and record its time; a leave ends the proofs."""
        beat = super().beat(now_ms)
        if beat is not None:
            self.asked_ns = self.group_history.now_ns()
            if beat.is_leave:
                self.life.leaves()
        return beat

    def answered(
        self,
        beat: GroupHeartbeat,
        *,
        epoch: int,
        assignment: Mapping[Place, bytes] | None,
        **said: Any,
    ) -> None:
        """Apply a response, and record it."""
        super().answered(beat, epoch=epoch, assignment=assignment, **said)
        if beat.is_leave:
            return
        self.life.set_epoch(epoch)
        target = self._reconciler.target or {}  # unchanged without an assignment in the response
        is_settled = all(place in target for place in self.life.claims)
        self.life.answered(self.asked_ns, is_settled=is_settled)

    def refused(self, beat: GroupHeartbeat, error: QuorumlogError, now_ms: int) -> None:
        """Apply an error, and record it."""
        if isinstance(error, UnknownMember) and beat.epoch > 0:
            self.life.evicted()
        super().refused(beat, error, now_ms)


class ClientMember:
    """One process of a member."""

    def __init__(self, setting: MemberContext) -> None:
        self._setting = setting
        self._group_history = setting.group_history
        self._life = setting.life()
        self._entropy = setting.runtime.entropy.stream("member")
        self._done: dict[Place, int] = {}  # the offsets after the processed records
        self._stored: dict[Place, int] = {}
        self._commit_ns = 0
        self._transactions: ClientCommits | None = None

    async def run(self) -> None:
        """Run until a request to leave, or until it is fenced."""
        log = await self._connect()
        consumer = self._consumer(log)
        if self._setting.observed is not None:
            self._transactions = ClientCommits(
                log,
                self._setting.runtime.entropy.stream("transactional commits"),
                transactional_id=self._setting.plan.name,
                timeout_ms=self._setting.behaviour.request_timeout_ms,
            )
        try:
            while not self._setting.stop.is_set():
                try:
                    await self._turn(consumer)
                except FencedInstance:
                    self._group_history.counts["ended"] += 1
                    break
                except QuorumlogError as error:
                    self._note(error)
                    await asyncio.sleep(RETRY_S)
            await self._commit(consumer, list(self._done))
        finally:
            await consumer.close()
            self._life.ends()
            await log.close()

    async def _connect(self) -> AsyncLog:
        while True:
            log = make_log(
                self._setting.runtime,
                self._setting.grpc_bootstrap,
                request_timeout_ms=self._setting.behaviour.request_timeout_ms,
            )
            try:
                await log.start()
            except QuorumlogError as error:
                self._note(error)
                await asyncio.sleep(RETRY_S)
            else:
                return log

    def _consumer(self, log: AsyncLog) -> AsyncGroupConsumer:
        group, plan = self._setting.group, self._setting.plan
        consumer: AsyncGroupConsumer = log.group_consumer(
            group.name,
            list(group.topics),
            instance_id=plan.instance_id or None,
            on_assigned=self._on_assigned,
            on_revoked=lambda places: self._on_revoked(consumer, places),
            on_lost=self._on_lost,
            auto_commit=group.auto_commit,
            auto_commit_interval_ms=max(1, int(self._setting.behaviour.commit_ms[1])),
            max_poll_interval_ms=group.rebalance_ms,
        )
        membership = consumer.membership
        noted = _RecordedMembership(
            GroupSubscription(tuple(sorted(group.topics))),
            membership.reconciler,
            is_static=bool(plan.instance_id),
            poll_interval_ms=group.rebalance_ms,
            backoff_ms=membership._connection.backoff.wait_ms,
            now_ms=self._setting.runtime.clock.now_ms(),
        )
        noted.life, noted.group_history = self._life, self._group_history
        membership.member = noted
        self._life.member_id = consumer.member_id
        return consumer

    # --- callbacks ---

    def _on_assigned(self, places: list[TopicPartition]) -> None:
        self._life.assign(places)

    async def _on_revoked(self, consumer: AsyncGroupConsumer, places: list[TopicPartition]) -> None:
        longest_ms = 2 * self._setting.behaviour.work_ms[1]  # pending work takes a while
        await asyncio.sleep(self._entropy.uniform(0, longest_ms) / 1000)
        await self._commit(consumer, places)
        self._on_lost(places)

    def _on_lost(self, places: list[TopicPartition]) -> None:
        self._life.revoke(places)
        for place in places:
            self._done.pop(place, None)
            self._stored.pop(place, None)

    # --- main loop ---

    async def _turn(self, consumer: AsyncGroupConsumer) -> None:
        behaviour = self._setting.behaviour
        records = await consumer.poll(timeout_ms=POLL_MS, max_records=behaviour.records_max)
        found: dict[Place, list[tuple[int, bytes]]] = {}
        for record in records:
            place = (record.topic, record.partition)
            found.setdefault(place, []).append((record.offset, record.value or b""))
        for place, some in found.items():
            claim = self._life.claims.get(place)
            if claim is None:
                self._group_history.found.append(
                    f"NotOwned: {self._life.name} gets records of {place} after its revocation"
                )
                continue
            # The client stops in time by itself: records that it returns belong to it.
            claim.proven_ns = max(claim.proven_ns, self._group_history.now_ns())
            reader = f"{self._life.name}@{claim.began_ns}"
            self._setting.history.poll(reader, place, some, at=self._group_history.now_ns())
        if records:
            await asyncio.sleep(self._entropy.uniform(*behaviour.work_ms) / 1000)
        for place, some in found.items():
            self._group_history.processed(self._life, place, some[0][0], some[-1][0] + 1)
            if place in self._life.claims:
                self._done[place] = some[-1][0] + 1
        now_ns = self._group_history.now_ns()
        if now_ns >= self._commit_ns:
            pause_ms = self._entropy.uniform(*behaviour.commit_ms)
            self._commit_ns = now_ns + int(pause_ms * 1e6)
            await self._commit(consumer, list(self._done))

    async def _commit(self, consumer: AsyncGroupConsumer, places: Iterable[Place]) -> None:
        """Commit the processed offsets, unless the client does; no retries."""
        if self._setting.group.auto_commit:
            return
        news = {
            place: self._done[place]
            for place in places
            if place in self._done and self._stored.get(place) != self._done[place]
        }
        numbers: list[int] = []
        offsets: dict[Place, CommittedOffset] = {}
        for place, offset in news.items():
            number, note = self._group_history.send_commit(
                self._life.group, self._life.name, place, offset
            )
            numbers.append(number)
            offsets[place] = CommittedOffset(offset, note)
        if not news:
            return
        if not await self._store(consumer, offsets, numbers):
            return
        for number in numbers:
            self._group_history.committed(number)
        for place, offset in news.items():
            if place in self._life.claims:
                self._stored[place] = offset

    async def _store(
        self,
        consumer: AsyncGroupConsumer,
        offsets: Mapping[Place, CommittedOffset],
        numbers: list[int],
    ) -> bool:
        """Send a commit, mostly in a transaction. Return True if it is certainly stored."""
        if self._transactions is not None and self._entropy.uniform(0, 1) >= PLAIN:
            result = await self._transactions.commit(consumer, offsets)
            if result.is_stored is False:
                for number in numbers:
                    self._group_history.refused(number)
            return bool(result.is_stored)
        timeout_ms = self._setting.behaviour.request_timeout_ms
        try:
            await consumer.commit(offsets, timeout_ms=timeout_ms)
        except QuorumlogError as error:
            self._note(error)
            return False
        return True

    def _note(self, error: QuorumlogError) -> None:
        self._group_history.errors[type(error).__name__] += 1
        if isinstance(error, NEVER):
            self._group_history.found.append(f"NoFault: no fault explains {error!r}")
