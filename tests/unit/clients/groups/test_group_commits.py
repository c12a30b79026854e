"""Queued, late and bounded commits: their order and validity."""

import asyncio
from typing import Any

import pytest

from quorumlog.clients.groups.coordinator import CommittedOffset, heartbeat
from quorumlog.clients.groups.group_consumer import AsyncGroupConsumer
from quorumlog.clients.groups.member import LEAVE_EPOCH, GroupHeartbeat
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import (
    InvalidRequest,
    Overloaded,
    QuorumlogError,
    StaleMemberEpoch,
    UnknownMember,
)
from quorumlog.ids import TopicPartition

from .group_topic import Callbacks, Place, play, read_all
from .partitioned_members import Stage, staged

ALL: list[Place] = [("t", number) for number in range(4)]


class SlowCommits:
    """A member with a slow link and queued commits, while another one joins."""

    def __init__(self, stage: Stage, *, commits: int) -> None:
        self.stage = stage
        self.commits = commits
        self.outcomes: list[QuorumlogError | None] = []
        self.is_ready = False
        self.ended_ms = self.joined_ms = -1
        self.stored: dict[Place, int] = {}
        stage.enter("one", self.play_first)
        stage.until(lambda: self.is_ready, "it reads")
        stage.enter("other", self.play_second)
        stage.until(lambda: len(self.outcomes) == commits and bool(self.stored), "all has ended")

    async def play_first(self, log: AsyncLog) -> None:
        consumer = log.group_consumer("g", "t", auto_commit=False)
        while len(await consumer.assignment()) < 4:
            await consumer.poll(timeout_ms=1_000)
        self.stage.world.fabric.barriers.clog([("one", "server")], by_ms=1_000)
        for _ in range(self.commits):
            consumer.commit_nowait(dict.fromkeys(ALL, 1), on_done=self.done)
        self.is_ready = True
        while True:
            await consumer.poll(timeout_ms=200)

    def done(self, error: QuorumlogError | None) -> None:
        self.outcomes.append(error)
        self.ended_ms = self.stage.world.now_ms()

    async def play_second(self, log: AsyncLog) -> None:
        consumer = log.group_consumer("g", "t", auto_commit=False)
        while not (theirs := await consumer.assignment()):
            await consumer.poll(timeout_ms=200)
        self.joined_ms = self.stage.world.now_ms()
        await consumer.commit(dict.fromkeys(theirs, 4))
        while len(self.outcomes) < self.commits:
            await consumer.poll(timeout_ms=200)
        found = await consumer.committed(theirs)
        self.stored = {place: each.offset for place, each in found.items() if each is not None}
        await asyncio.Event().wait()


def test_queued_commit_is_dropped_once_its_partition_is_revoked() -> None:
    """Another member has read further by then: its offset must not decrease."""
    with staged() as stage:
        slow = SlowCommits(stage, commits=40)
        assert set(slow.stored.values()) == {4}
        assert slow.outcomes[0] is None
        assert isinstance(slow.outcomes[-1], StaleMemberEpoch)
        assert "revoked" in slow.outcomes[-1].message


def test_revocation_waits_for_commits_in_flight() -> None:
    with staged() as stage:
        slow = SlowCommits(stage, commits=6)
        assert slow.outcomes == [None] * 6
        assert slow.joined_ms > slow.ended_ms > 0


class PartitionedMember:
    """A member that is partitioned off before its action."""

    def __init__(self, stage: Stage, **settings: Any) -> None:
        self.stage = stage
        self.settings = settings
        self.is_ready = False
        self.took_ms = -1
        self.go_on = asyncio.Event()
        stage.enter("one", self.play)

    async def play(self, log: AsyncLog) -> None:
        consumer = log.group_consumer("g", "t", auto_commit=False, **self.settings)
        await consumer.poll(timeout_ms=5_000)
        self.is_ready = True
        await self.go_on.wait()
        began_ms = self.stage.world.now_ms()
        await self.act(consumer)
        self.took_ms = self.stage.world.now_ms() - began_ms
        await asyncio.Event().wait()

    async def act(self, consumer: AsyncGroupConsumer) -> None:
        raise NotImplementedError

    def run(self) -> None:
        self.stage.until(lambda: self.is_ready, "it reads")
        self.stage.cut("one")
        self.go_on.set()
        self.stage.until(lambda: self.took_ms >= 0, "it is done")


def test_commit_obeys_its_timeout_behind_another_commit() -> None:
    class Commits(PartitionedMember):
        async def act(self, consumer: AsyncGroupConsumer) -> None:
            consumer.commit_nowait()
            await asyncio.sleep(0)
            with pytest.raises(QuorumlogError):
                await consumer.commit(timeout_ms=1_000)

    with staged() as stage:
        member = Commits(stage)
        member.run()
        assert 500 <= member.took_ms <= 1_500


def test_close_waits_for_background_commits_within_their_time_limit() -> None:
    class Closes(PartitionedMember):
        async def act(self, consumer: AsyncGroupConsumer) -> None:
            consumer.commit_nowait()
            await consumer.close()

    with staged() as stage:
        member = Closes(stage)
        member.run()
        assert member.took_ms <= 15_000


def test_automatic_commits_do_not_lower_the_offsets_of_the_application() -> None:
    """Also if the program ends with an error."""

    async def main(log: AsyncLog) -> None:
        async def committed() -> list[int]:
            found = await consumer.committed(ALL)
            return [-1 if each is None else each.offset for each in found.values()]

        async def work() -> None:
            async with consumer:
                count = 0
                while count < 20:
                    count += len(await consumer.poll(max_records=20 - count))
                await consumer.commit({ALL[-1]: CommittedOffset(3)})
                await asyncio.sleep(1)
                assert (await committed())[-1] == 3
                await consumer.commit()
                await asyncio.sleep(1)
                assert await committed() == [5, 5, 5, 5]
                raise ZeroDivisionError

        consumer = log.group_consumer("g", "t", auto_commit_interval_ms=100)
        with pytest.raises(ZeroDivisionError):
            await work()
        offsets = (await log.admin.describe_group("g")).offsets
        assert [each.committed for each in offsets] == [5, 5, 5, 5]

    play(main)


def test_background_commits_are_bounded() -> None:
    class Floods(PartitionedMember):
        taken = 0
        error = ""

        async def act(self, consumer: AsyncGroupConsumer) -> None:
            try:
                for _ in range(100_000):
                    consumer.commit_nowait({("t", 0): 1})
                    self.taken += 1
            except Overloaded as error:
                self.error = error.message

    with staged() as stage:
        member = Floods(stage)
        member.run()
        assert 100 <= member.taken <= 10_000
        assert "commit less often" in member.error


def test_commits_without_a_wait_are_stored_in_their_order() -> None:
    async def main(log: AsyncLog) -> None:
        outcomes: list[tuple[int, QuorumlogError | None]] = []
        async with log.group_consumer("g", "t", auto_commit=False) as consumer:
            await read_all(consumer, for_ms=1_000)
            for number in range(50):

                def on_done(error: QuorumlogError | None, number: int = number) -> None:
                    outcomes.append((number, error))

                consumer.commit_nowait({("t", 0): number % 6}, on_done=on_done)
            await consumer.commit({("t", 1): 2})
            stored = await consumer.committed([("t", 0)])
        assert outcomes == [(number, None) for number in range(50)]
        found = stored[TopicPartition("t", 0)]
        assert found is not None
        assert found.offset == 49 % 6

    play(main)


def test_refused_commit_triggers_a_heartbeat_at_once() -> None:
    """Otherwise it would use partitions of other members until its next heartbeat."""

    async def main(log: AsyncLog) -> None:
        calls = Callbacks()
        settings: dict[str, Any] = {"auto_commit": False, **calls.callbacks()}
        async with log.group_consumer("g", "t", **settings) as consumer:
            await read_all(consumer, for_ms=1_000)
            joining, leave = consumer.membership.joining, GroupHeartbeat(epoch=LEAVE_EPOCH)
            await consumer.membership._beats.wait()  # the next heartbeat is a second away
            await heartbeat(consumer._connection, joining, leave, retry=leave)
            with pytest.raises(UnknownMember):
                await consumer.commit()
            await asyncio.sleep(0.2)
            assert calls.events[1] == ("lost", ALL)

    play(main)


@pytest.mark.parametrize(
    ("place", "what"),
    [
        (("t", "0"), 5),
        (("t", -1), 5),
        (("t", 2**31), 5),
        (("t", 0), CommittedOffset(5, note=7)),  # type: ignore[arg-type]
        (("t", 0), CommittedOffset(5, note="\udc80")),
        (("t", 0), CommittedOffset(5, leader_epoch=2**31)),
        (("t", 0), CommittedOffset(5, topic_id="t")),  # type: ignore[arg-type]
    ],
)
def test_invalid_commit_is_refused_at_once_and_affects_no_other(place: Any, what: Any) -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", auto_commit=False) as consumer:
            with pytest.raises(InvalidRequest):
                await consumer.commit({place: what})
            with pytest.raises(InvalidRequest):
                consumer.commit_nowait({place: what})
            await consumer.commit({("t", 0): 1})
            assert (await consumer.committed(("t", 0)))[TopicPartition("t", 0)] is not None

    play(main)
