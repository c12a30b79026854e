"""All or most controllers are unavailable: partitions with a leader stay available, and the cluster
converges afterwards.

A leader without controllers may have been replaced. So once its session has expired it acknowledges
only records that every member of the maximal ISR has: acks=all.
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
LAPSE_MS: Final = 4_000  # until a session has expired, with a margin


def without(stage: ScriptedCluster, how: str, nodes: list[ClusterNode]) -> Callable[[], None]:
    """Take controllers away; return the function that restores them."""
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
    """Send one record and wait for its acknowledgement. Raise the error of the last attempt."""
    producer = stage.client().producer(acks=acks, linger_ms=0, delivery_timeout_ms=timeout_ms)
    async with producer:
        await producer.send_and_wait("t", f"{acks} by the way".encode(), partition=0)


def refusal(stage: ScriptedCluster, acks: str) -> QuorumlogError:
    """Send one record that is rejected; return the error."""
    with pytest.raises(QuorumlogError) as caught:
        stage.do(lambda runtime: send(stage, acks))
    error = caught.value
    return error.__cause__ if isinstance(error.__cause__, QuorumlogError) else error


@pytest.mark.long
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
        assert stage.partition(PLACE).leader == before.leader, "the leader changed"
        assert [value for _, value in stage.finish()[PLACE]] == written


@pytest.mark.long
@pytest.mark.parametrize("acks", ["leader", "none"])
def test_an_expired_leader_acknowledges_no_record_that_only_it_has(acks: str) -> None:
    with started() as stage:
        stage.do(lambda runtime: send(stage, acks))
        bring_back = without(stage, "killed", stage.cluster.controllers)
        stage.run(LAPSE_MS)
        stored = stage.read(PLACE)
        if acks == "none":
            stage.do(lambda runtime: send(stage, acks))  # without an acknowledgement in any case
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
        stage.notes.is_clean = False  # the history lacks these records
        assert len(stage.finish()[PLACE]) == 2


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_an_expired_leader_with_permission_acknowledges_a_record_that_only_it_has(
    acks: str,
) -> None:
    with started(lapsed_leader_accepts_acks_one=True) as stage:
        bring_back = without(stage, "killed", stage.cluster.controllers)
        stage.run(LAPSE_MS)
        for _ in range(3):
            stage.do(lambda runtime: send(stage, acks))
        stage.run(1_000)
        assert len(stage.read(PLACE)) == 3
        bring_back()
        stage.notes.is_clean = False  # the history lacks these records
        assert len(stage.finish()[PLACE]) == 3


def test_a_follower_lost_without_controllers_stops_writes_until_one_is_back() -> None:
    """No controller can remove the follower from the ISR: pending writes fail with an error, and no
    acknowledged record is lost."""
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
        assert len(stage.read(PLACE)) == 3, "an uncommitted record was read"
        bring_back()
        stage.until(writing.done, "the others go on without it")
        writing.result()
        assert not in_sync(stage, lost)
        stage.bring_up(lost)
        stage.notes.is_clean = False  # the record of a failed write may be stored
        assert len(stage.finish()[PLACE]) in (5, 6)


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "stopped", "cut off"])
def test_a_minority_of_the_controllers_changes_nothing_and_returns_an_error(how: str) -> None:
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


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "stopped", "cut off"])
def test_the_loss_of_one_controller_of_three_interrupts_no_request(how: str) -> None:
    """Neither does a client with a pending request to that controller."""
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


def test_a_producer_can_start_without_controllers() -> None:
    """Its id comes from a block of its broker."""
    with started() as stage:
        stage.run(2_000)
        bring_back = without(stage, "killed", stage.cluster.controllers)
        stage.run(LAPSE_MS)
        begun_ms = stage.world.now_ms()
        written = stage.produce(PLACE, 2)
        assert stage.world.now_ms() - begun_ms < 2_000
        bring_back()
        assert [value for _, value in stage.finish()[PLACE]] == written
