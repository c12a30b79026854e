"""Slow followers delay no write, and clocks that jump affect only the timestamps of records and
their retention."""

from typing import Final

import pytest
from tests.scenarios.cluster.cluster_under_test import (
    PLACE,
    asked,
    in_sync,
    is_fenced,
    plan,
    started,
)
from tests.simulation.cluster.nodes import ClusterNode
from tests.simulation.cluster.scripted import CLIENT, ScriptedCluster

from quorumlog.errors import InvalidTimestamp
from quorumlog.simulation.links import between

pytestmark = pytest.mark.slow

LAG_MS: Final = 3_000  # replica.lag.time.max.ms of a stage
DAY_MS: Final = 24 * 3_600_000


# --- slow -------------------------------------------------------------------------------------


def clog(stage: ScriptedCluster, node: ClusterNode, by_ms: int) -> None:
    """Delay all traffic from other brokers to a node, or end the delay."""
    others = [one.name for one in stage.cluster.brokers if one is not node]
    stage.world.fabric.barriers.clog(between(others, [node.name]), by_ms)


@pytest.mark.long
@pytest.mark.parametrize("how", ["its disk", "its wire"])
def test_a_slow_follower_leaves_the_isr_delays_no_write_and_rejoins(how: str) -> None:
    with started(plan(flush_policy="fsync")) as stage:
        written = stage.produce(PLACE, 3)
        slow = stage.followers(PLACE)[0]
        if how == "its disk":
            slow.sim.machine.device_slow_ms = 4_000
        else:
            clog(stage, slow, 4_000)
        writing = stage.begin_to_produce(PLACE, 200)
        stage.until(lambda: not in_sync(stage, slow), "it has left", virtual_ms=6 * LAG_MS)
        assert not is_fenced(stage, slow), "it is available and keeps its leaderships"
        stage.until(writing.done, "all is written")
        written += writing.result()
        begun_ms = stage.world.now_ms()
        written += stage.produce(PLACE, 5)
        assert stage.world.now_ms() - begun_ms < 1_000, "writes wait for it"
        slow.sim.machine.device_slow_ms = 0
        clog(stage, slow, 0)
        stage.until(lambda: in_sync(stage, slow), "it is back")
        assert [value for _, value in stage.finish()[PLACE]] == written


@pytest.mark.long
def test_a_follower_that_always_lags_a_little_stays_in_sync() -> None:
    """It repeatedly reaches the leader's end of a moment ago."""
    with started() as stage:
        late = stage.followers(PLACE)[0]
        clog(stage, late, 300)
        epoch = stage.partition(PLACE).partition_epoch
        written = []
        for _ in range(30):
            written += stage.produce(PLACE, 1)
        assert stage.partition(PLACE).partition_epoch == epoch, "the ISR has not changed"
        assert [value for _, value in stage.finish()[PLACE]] == written


# --- clocks -----------------------------------------------------------------------------------


def jump(stage: ScriptedCluster, by_ms: int, *, client: bool) -> None:
    """Move the clocks of all nodes and of the client."""
    for node in stage.cluster.nodes:
        node.sim.jump_wall_ms(by_ms)
    if client:
        stage.world.node(CLIENT).jump_wall_ms(by_ms)


@pytest.mark.long
@pytest.mark.parametrize("by_ms", [-50 * 60_000, -60_000, 60_000, 10 * DAY_MS])
def test_clocks_that_jump_move_no_lease_no_leader_and_no_isr(by_ms: int) -> None:
    """The clocks of one controller, the leader and a follower jump in turn, then all at once."""
    with started(plan(partitions=3)) as stage:
        written = stage.produce(PLACE, 3)
        before = [stage.partition(("t", index)) for index in range(3)]
        active = stage.cluster.leader()
        assert active is not None
        epoch = stage.cluster.raft_of(active).status().epoch  # type: ignore[union-attr]
        for node in (active, stage.leader(PLACE), stage.followers(PLACE)[0]):
            node.sim.jump_wall_ms(by_ms)
            written += stage.produce(PLACE, 3)
            stage.run(4_000)
        jump(stage, by_ms // 10, client=False)
        stage.run(4_000)
        written += stage.produce(PLACE, 3)
        assert [stage.partition(("t", index)) for index in range(3)] == before
        assert stage.cluster.leader() is active
        assert stage.cluster.raft_of(active).status().epoch == epoch  # type: ignore[union-attr]
        assert not any(is_fenced(stage, broker) for broker in stage.cluster.brokers)
        assert [value for _, value in stage.finish()[PLACE]] == written


def test_a_leader_with_a_late_clock_rejects_records_of_its_future_with_the_reason() -> None:
    """Its clock differs by more than the topic permits; other nodes are not affected."""
    with started() as stage:
        written = stage.produce(PLACE, 3)
        before = stage.partition(PLACE)
        leader = stage.leader(PLACE)
        leader.sim.jump_wall_ms(-10 * DAY_MS)
        with pytest.raises(InvalidTimestamp) as caught:
            stage.produce(PLACE, 1)
        assert "ahead of the broker's clock" in caught.value.message
        assert "message.timestamp.after.max.ms" in caught.value.message
        stage.run(5_000)
        assert stage.partition(PLACE) == before
        assert stage.read(PLACE) == written
        leader.sim.jump_wall_ms(10 * DAY_MS)
        written += stage.produce(PLACE, 1)
        assert [value for _, value in stage.finish()[PLACE]] == written


async def times(stage: ScriptedCluster) -> list[int]:
    """Return the timestamps of all records, in order of their offsets."""
    async with stage.client().consumer({"t": [0]}, until_end=True) as consumer:
        return [record.timestamp_ms async for record in consumer]


def test_records_keep_the_producers_time_independent_of_the_brokers_clocks() -> None:
    with started() as stage:
        began = stage.world.node(CLIENT).machine.wall_ms
        stage.produce(PLACE, 1)
        jump(stage, 30 * 60_000, client=False)
        stage.produce(PLACE, 1)
        jump(stage, -60 * 60_000, client=False)
        stage.produce(PLACE, 1)
        found = stage.do(lambda runtime: times(stage))
        assert found == sorted(found)
        assert all(0 <= at - began < 60_000 for at in found), found
        stage.finish()


@pytest.mark.long
def test_retention_deletes_exactly_the_expired_records_on_every_replica() -> None:
    """After a jump back by ten days no record is expired; after one ahead all are, and new ones
    stay."""
    with started(retention_check_interval_ms=1_000) as stage:
        asked(
            stage,
            lambda a: a.alter_configs("t", {"retention.ms": str(DAY_MS), "segment.ms": "1000"}),
        )
        kept = stage.produce(PLACE, 5)
        jump(stage, -10 * DAY_MS, client=False)
        stage.run(5_000)
        assert stage.read(PLACE) == kept
        jump(stage, 10 * DAY_MS, client=False)
        stage.run(5_000)
        assert stage.read(PLACE) == kept
        jump(stage, 10 * DAY_MS, client=True)
        stage.until(lambda: stage.read(PLACE) == [], "all is too old", virtual_ms=30_000)
        later = stage.produce(PLACE, 5)
        stage.run(5_000)
        assert stage.read(PLACE) == later
        stage.notes.is_clean = False  # retention deleted records
        assert [value for _, value in stage.finish()[PLACE]] == later
