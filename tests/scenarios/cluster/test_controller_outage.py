"""Controllers gone, all or most of them: what was led is served on, and everything converges after.

Whoever leads cannot know whether it was replaced meanwhile. So once its session has lapsed it
acknowledges only what every member of the maximal ISR has: acks=all.
"""

from collections.abc import Callable
from typing import Final

import pytest
from tests.scenarios.cluster.cluster_under_test import PLACE, asked, in_sync, started
from tests.simulation.cluster.nodes import ClusterNode
from tests.simulation.cluster.scripted import ScriptedCluster

from quorumlog.errors import NotLeaderOrFollower, QuorumlogError

pytestmark = pytest.mark.slow

OUTAGE_MS: Final = 30_000
LAPSE_MS: Final = 4_000  # of a session, with some room


def without(stage: ScriptedCluster, how: str, nodes: list[ClusterNode]) -> Callable[[], None]:
    """Take controllers away; returns what brings them back."""
    for node in nodes:
        match how:
            case "killed":
                stage.take_down(node)
            case "stopped":
                stage.cluster.pause(node)
            case _:
                stage.isolate(node)

    def bring_back() -> None:
        stage.mend()
        for node in nodes:
            if not node.sim.alive:
                stage.bring_up(node)

    return bring_back


async def send(stage: ScriptedCluster, acks: str, *, timeout_ms: int = 1_500) -> None:
    """Have one record acknowledged, or raise what the last attempt was refused with."""
    producer = stage.client().producer(acks=acks, linger_ms=0, delivery_timeout_ms=timeout_ms)
    async with producer:
        await producer.send_and_wait("t", f"{acks} by the way".encode(), partition=0)


def refusal(stage: ScriptedCluster, acks: str) -> QuorumlogError:
    """Send one record that is refused, and return why."""
    with pytest.raises(QuorumlogError) as caught:
        stage.do(lambda runtime: send(stage, acks))
    error = caught.value
    return error.__cause__ if isinstance(error.__cause__, QuorumlogError) else error


@pytest.mark.parametrize("how", ["killed", "stopped", "cut off"])
def test_all_controllers_gone_for_30_seconds_stop_no_write_with_all_and_no_read(how: str) -> None:
    with started() as stage:
        written = stage.produce(PLACE, 3)
        before = stage.partition(PLACE)
        bring_back = without(stage, how, stage.cluster.controllers)
        end_ms = stage.world.now_ms() + OUTAGE_MS
        while stage.world.now_ms() < end_ms:
            begun_ms = stage.world.now_ms()
            written += stage.produce(PLACE, 2)
            assert stage.world.now_ms() - begun_ms < 1_000, "no write waits for a controller"
            assert stage.read(PLACE) == written
            stage.run(2_000)
        bring_back()
        stage.until(lambda: len(stage.partition(PLACE).isr) == 3, "all are in sync")
        written += stage.produce(PLACE, 2)
        assert stage.partition(PLACE).leader == before.leader, "nobody was given up"
        assert [value for _, value in stage.finish()[PLACE]] == written


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_a_lapsed_leader_acknowledges_nothing_that_it_alone_has(acks: str) -> None:
    with started() as stage:
        stage.do(lambda runtime: send(stage, acks))
        bring_back = without(stage, "killed", stage.cluster.controllers)
        stage.run(LAPSE_MS)
        stored = stage.read(PLACE)
        if acks == "none":
            stage.do(lambda runtime: send(stage, acks))  # which is told nothing, whatever happens
        else:
            error = refusal(stage, acks)
            assert isinstance(error, NotLeaderOrFollower), repr(error)
            assert "acks=all" in error.message
        stage.run(1_000)
        assert stage.read(PLACE) == stored
        bring_back()
        stage.until(lambda: len(stage.partition(PLACE).isr) == 3, "all are in sync")
        stage.run(2_000)
        stage.do(lambda runtime: send(stage, acks))
        stage.notes.is_clean = False  # what was sent by the way is in no history
        assert len(stage.finish()[PLACE]) == 2


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_a_lapsed_leader_that_may_acknowledges_what_it_alone_has(acks: str) -> None:
    with started(lapsed_leader_accepts_acks_one=True) as stage:
        bring_back = without(stage, "killed", stage.cluster.controllers)
        stage.run(LAPSE_MS)
        for _ in range(3):
            stage.do(lambda runtime: send(stage, acks))
        stage.run(1_000)
        assert len(stage.read(PLACE)) == 3
        bring_back()
        stage.notes.is_clean = False  # what was sent by the way is in no history
        assert len(stage.finish()[PLACE]) == 3


def test_a_follower_lost_while_no_controller_lives_stops_writes_until_one_is_back() -> None:
    """Nobody can take it out of the ISR: what waits for it is told so, and nothing is lost."""
    with started() as stage:
        stage.produce(PLACE, 3)
        bring_back = without(stage, "killed", stage.cluster.controllers)
        stage.run(LAPSE_MS)
        lost = stage.followers(PLACE)[0]
        stage.take_down(lost)
        error = refusal(stage, "all")
        assert isinstance(error, QuorumlogError)
        assert error.retriable
        writing = stage.begin_to_produce(PLACE, 2)
        stage.run(5_000)
        assert not writing.done()
        assert len(stage.read(PLACE)) == 3, "what is not committed is not read"
        bring_back()
        stage.until(writing.done, "the others go on without it")
        writing.result()
        assert not in_sync(stage, lost)
        stage.bring_up(lost)
        stage.notes.is_clean = False  # the one that was given up may be there
        assert len(stage.finish()[PLACE]) in (5, 6)


@pytest.mark.parametrize("how", ["killed", "stopped", "cut off"])
def test_a_minority_of_the_controllers_changes_nothing_and_says_so(how: str) -> None:
    with started() as stage:
        written = stage.produce(PLACE, 3)
        active = stage.cluster.leader()
        assert active is not None
        gone = [active, next(one for one in stage.cluster.controllers if one is not active)]
        bring_back = without(stage, how, gone)
        stage.run(LAPSE_MS)
        with pytest.raises(QuorumlogError) as caught:
            asked(stage, lambda admin: admin.create_topic("u", partitions=1))
        assert caught.value.retriable, repr(caught.value)
        assert "controller" in caught.value.message, caught.value.message
        assert [each.name for each in asked(stage, lambda a: a.list_topics())] == ["t"]
        written += stage.produce(PLACE, 2)
        assert stage.read(PLACE) == written
        bring_back()
        stage.until(lambda: stage.cluster.leader() is not None, "one leads")
        asked(stage, lambda admin: admin.create_topic("u", partitions=1, if_not_exists=True))
        written += stage.produce(PLACE, 2)
        assert [value for _, value in stage.finish()[PLACE]] == written


@pytest.mark.parametrize("how", ["killed", "stopped", "cut off"])
def test_one_controller_of_three_is_not_missed(how: str) -> None:
    """Also by who has just asked it for something, and waits."""
    with started() as stage:
        active = stage.cluster.leader()
        assert active is not None
        bring_back = without(stage, how, [active])
        begun_ms = stage.world.now_ms()
        asked(stage, lambda admin: admin.create_topic("u", partitions=3, replication=3))
        assert stage.world.now_ms() - begun_ms < 10_000
        written = stage.produce(PLACE, 2)
        dead = stage.leader(PLACE)
        stage.take_down(dead)
        written += stage.produce(PLACE, 2)
        bring_back()
        stage.bring_up(dead)
        assert [value for _, value in stage.finish()[PLACE]] == written


def test_a_producer_may_begin_while_no_controller_lives() -> None:
    """Its id comes from a block that its broker has."""
    with started() as stage:
        stage.run(2_000)
        bring_back = without(stage, "killed", stage.cluster.controllers)
        stage.run(LAPSE_MS)
        begun_ms = stage.world.now_ms()
        written = stage.produce(PLACE, 2)
        assert stage.world.now_ms() - begun_ms < 2_000
        bring_back()
        assert [value for _, value in stage.finish()[PLACE]] == written
