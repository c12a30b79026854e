"""A member without a response for a session delivers no record and commits nothing.

Other members may own its partitions then (KIP-848). librdkafka revokes in the same way: "session
timed out ... revoking assignment and rejoining".
"""

import asyncio
from typing import Any

import pytest

from quorumlog.clients.groups.group_consumer import AsyncGroupConsumer
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import PollTooLate, UnknownMember

from .group_topic import HEARTBEAT_MS, SESSION_MS, Callbacks, Place
from .partitioned_members import Stage, staged

ALL: list[Place] = [("t", number) for number in range(4)]
ROUND_MS = 500


class Reader:
    """A group member that reads one record each `ROUND_MS`."""

    def __init__(self, stage: Stage, name: str, **settings: Any) -> None:
        self.stage = stage
        self.calls = Callbacks()
        self.got: list[tuple[int, Place, int]] = []  # time, partition, offset
        self.consumer: AsyncGroupConsumer | None = None
        self.settings = {"auto_commit_interval_ms": 200, **settings}
        stage.enter(name, self.play)

    async def play(self, log: AsyncLog) -> None:
        self.consumer = log.group_consumer("g", "t", **self.calls.callbacks(), **self.settings)
        while True:
            await self.read(self.consumer)
            await asyncio.sleep(ROUND_MS / 1000)

    async def read(self, consumer: AsyncGroupConsumer) -> None:
        record = await consumer.next(timeout_ms=ROUND_MS)
        if record is not None:
            place = (record.topic, record.partition)
            self.got.append((self.stage.world.now_ms(), place, record.offset))

    def events(self, what: str) -> list[Place]:
        return sorted(
            place for kind, places in self.calls.events if kind == what for place in places
        )


class Iterating(Reader):
    """The same with `async for`, which makes no waiting call while records are buffered."""

    async def read(self, consumer: AsyncGroupConsumer) -> None:
        async for record in consumer:
            place = (record.topic, record.partition)
            self.got.append((self.stage.world.now_ms(), place, record.offset))
            await asyncio.sleep(ROUND_MS / 1000)


@pytest.mark.parametrize("kind", [Reader, Iterating])
def test_a_member_without_responses_for_a_session_delivers_nothing_more(
    kind: type[Reader], caplog: pytest.LogCaptureFixture
) -> None:
    with staged(records=100) as stage:
        reader = kind(stage, "one")
        stage.until(lambda: len(reader.got) > 5, "it reads")
        stage.cut("one")
        cut_ms = stage.world.now_ms()
        stage.run(3 * SESSION_MS)
        last_ms = reader.got[-1][0]
        assert cut_ms + SESSION_MS // 2 < last_ms <= cut_ms + SESSION_MS
        assert reader.events("lost") == ALL
        assert reader.consumer is not None
        assert reader.consumer.positions() == {}
    (logged,) = [each for each in caplog.messages if "group.partitions_lost" in each]
    assert "reason=no heartbeat was answered for " in logged


def test_other_member_gets_all_partitions_without_duplicates_after_the_reassignment() -> None:
    with staged(records=100) as stage:
        reader = Reader(stage, "one")
        stage.until(lambda: len(reader.got) > 5, "it reads")
        stage.cut("one")
        heir = Reader(stage, "other")
        stage.until(lambda: heir.events("assigned") == ALL, "the other one has everything")
        before = len(reader.got)
        given_ms = stage.world.now_ms()
        stage.run(SESSION_MS)
        assert len(reader.got) == before
        stage.heal("one")
        stage.until(lambda: len(reader.got) > before, "it reads again")
        assert reader.got[before][0] > given_ms
        shared = len(reader.events("assigned")) - len(ALL)
        assert shared == len(ALL) // 2
        assert reader.consumer is not None
        late = {place for when, place, _ in heir.got if when > reader.got[before][0]}
        assert not late & {place for _, place, _ in reader.got[before:]}


def test_it_rejoins_at_the_committed_offsets() -> None:
    with staged(records=10) as stage:
        reader = Reader(stage, "one")
        stage.until(lambda: len(reader.got) > 5, "it reads")
        stage.cut("one")
        stage.run(2 * SESSION_MS)
        stage.heal("one")
        stage.until(lambda: len({each[1:] for each in reader.got}) == 40, "it has read everything")
        assert reader.events("assigned") == sorted(ALL + ALL)


def test_partition_shorter_than_the_session_has_no_effect() -> None:
    with staged(records=100) as stage:
        reader = Reader(stage, "one")
        stage.until(lambda: len(reader.got) > 5, "it reads")
        for _ in range(3):
            stage.cut("one")
            stage.run(SESSION_MS // 2)
            stage.heal("one")
            stage.run(4 * HEARTBEAT_MS)
        assert reader.events("lost") == []
        assert reader.events("assigned") == ALL


@pytest.mark.parametrize("kind", [Reader, Iterating])
def test_a_member_stopped_beyond_a_session_delivers_nothing_before_a_response(
    kind: type[Reader],
) -> None:
    with staged(records=100) as stage:
        reader = kind(stage, "one")
        stage.until(lambda: len(reader.got) > 5, "it reads")
        before = list(reader.got)
        stage.cut("one")  # so that it receives nothing afterwards
        stage.stop("one", SESSION_MS + HEARTBEAT_MS)
        stage.run(SESSION_MS)
        assert reader.got == before
        assert reader.events("lost") == ALL
        stage.heal("one")
        stage.until(lambda: len(reader.got) > len(before), "it reads again")


def test_a_stopped_member_commits_nothing_of_lost_partitions() -> None:
    outcomes: list[str] = []

    async def play(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", auto_commit=False) as consumer:
            await consumer.poll(timeout_ms=1_000)
            is_ready.append(consumer)
            await go_on.wait()
            try:
                await consumer.commit(dict.fromkeys(ALL, 3), timeout_ms=1_000)
            except UnknownMember as error:
                outcomes.append(error.message)
            await asyncio.Event().wait()

    go_on = asyncio.Event()
    is_ready: list[AsyncGroupConsumer] = []
    with staged() as stage:
        stage.enter("one", play)
        stage.until(lambda: bool(is_ready), "it has read")
        stage.world.node("one").pause()
        go_on.set()
        stage.run(SESSION_MS + HEARTBEAT_MS)
        stage.world.node("one").resume()
        stage.until(lambda: bool(outcomes), "the commit has ended")
        assert "nothing is committed" in outcomes[0]


def test_late_revocation_drops_all_partitions() -> None:
    """The coordinator removes a member that does not revoke within the rebalance timeout (KIP-848)
    and reassigns its partitions, so the member drops them before."""
    rebalance_ms = 6_000

    class Stuck(Reader):
        errors: list[str]

        async def play(self, log: AsyncLog) -> None:
            self.errors = []

            async def on_revoked(places: list[Place]) -> None:
                self.calls.events.append(("revoked", places))
                await asyncio.sleep(60)

            callbacks = self.calls.callbacks() | {"on_revoked": on_revoked}
            self.consumer = log.group_consumer("g", "t", **callbacks, **self.settings)
            while True:
                try:
                    await self.read(self.consumer)
                except PollTooLate as error:
                    self.errors.append(error.message)

    with staged(records=200) as stage:
        stuck = Stuck(stage, "one", max_poll_interval_ms=rebalance_ms)
        stage.until(lambda: len(stuck.got) > 5, "it reads")
        heir = Reader(stage, "other")
        stage.until(lambda: bool(stuck.events("revoked")), "it is to give back")
        stage.until(lambda: heir.events("assigned") == ALL, "the other one has everything")
        has_all_ms = stage.world.now_ms()
        stage.run(2_000)
        assert stuck.got[-1][0] < has_all_ms
        stage.until(lambda: bool(stuck.errors), "it is told")
        assert "max_poll_interval_ms" in stuck.errors[0]
