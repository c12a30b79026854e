"""The scenarios of a replicated log, executed by nodes on simulated machines.

Invariants are checked at every step of every node. At the end all replicas are equal, no client has
lost, duplicated or unexpected records, and every directory is valid. Scenarios that a partition, a
controller or a log decides alone are tested there: see docs/failure_model.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from tests.simulation.cluster.options import TopicPlan
from tests.simulation.cluster.scripted import ScriptedCluster, options_of

from quorumlog.errors import QuorumlogError
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld

pytestmark = pytest.mark.slow

PLACE: Final = ("t", 0)


@contextmanager
def stage_of(
    *,
    replication: int = 3,
    min_isr: int = 2,
    flush_policy: str = "replicated",
    is_unclean: bool = False,
    is_combined: bool = True,
    seed: int = 1,
) -> Iterator[ScriptedCluster]:
    """Start a cluster of three nodes with one partition."""
    topic = TopicPlan(
        name="t",
        partitions=1,
        replication=replication,
        min_isr=min_isr,
        flush_policy=flush_policy,
        is_unclean=is_unclean,
    )
    with SimWorld(seed) as world:
        stage = ScriptedCluster(world, options_of(topic, is_combined=is_combined))
        stage.start()
        yield stage


def test_r01_a_follower_that_restarts_with_an_old_high_watermark_loses_nothing() -> None:
    """It has a record above its high watermark; it restarts, the leader fails, it leads."""
    with stage_of() as stage:
        stage.produce(PLACE, 5)
        follower = stage.bystander(PLACE)
        stage.produce(PLACE, 1)
        stage.cluster.kill(follower, power=False, down_ms=20)
        stage.until(lambda: follower.is_ready, "the follower is back")
        stage.until(lambda: follower.node_id in stage.partition(PLACE).isr, "it is in sync")
        stage.cluster.kill(stage.leader(PLACE), power=False, down_ms=5_000)
        stage.produce(PLACE, 1)
        stage.finish()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_r02_both_replicas_lose_power_and_become_equal_again(seed: int) -> None:
    """The shorter one is back first, leads with an operator's consent, and writes other records at
    the same offsets."""
    with stage_of(replication=2, min_isr=1, is_unclean=True, seed=seed) as stage:
        stage.produce(PLACE, 10)
        leader, (follower,) = stage.leader(PLACE), stage.followers(PLACE)
        stage.take_down(leader, power=True)
        stage.take_down(follower, power=True)
        stage.run(1_000)
        stage.bring_up(follower)
        stage.until(lambda: stage.partition(PLACE).leader == follower.node_id, "it leads")
        stage.produce(PLACE, 4)
        stage.bring_up(leader)
        stage.finish()


def test_r03_three_leaders_in_a_row_leave_no_fork() -> None:
    """Each has the beginning of an epoch that no other replica has."""
    with stage_of(min_isr=1, flush_policy="fsync") as stage:
        stage.produce(PLACE, 3)
        for _ in range(3):
            leader = stage.leader(PLACE)
            stage.isolate(leader, from_clients=False)
            stage.begin(lambda runtime: _send_and_forget(stage, runtime))
            stage.run(200)
            epoch = stage.partition(PLACE).leader_epoch
            stage.cluster.kill(leader, power=False, down_ms=100)
            stage.mend()
            stage.until(
                lambda epoch=epoch: (
                    stage.partition(PLACE).leader_epoch > epoch  # type: ignore[misc]
                    and stage.partition(PLACE).leader >= 0
                ),
                "another one leads",
            )
        stage.produce(PLACE, 3)
        stage.notes.is_clean = False  # additional records have no outcome
        stage.finish()


def test_r04_a_deposed_leader_returns_no_record_that_is_truncated_later() -> None:
    """It is isolated from all other nodes, but not from clients."""
    with stage_of() as stage:
        stage.produce(PLACE, 5)
        deposed = stage.leader(PLACE)
        stage.isolate(deposed, from_clients=False)
        writing = stage.begin_to_produce(PLACE, 5)
        stage.until(lambda: stage.partition(PLACE).leader not in (-1, deposed.node_id), "deposed")
        assert len(stage.read(PLACE)) >= 5
        stage.until(writing.done, "the others take what it could not commit")
        stage.mend()
        assert len(stage.finish()[PLACE]) == 10


def test_r05_the_last_in_sync_replica_that_lost_records_is_not_elected() -> None:
    with stage_of(is_combined=False) as stage:
        stage.produce(PLACE, 5)
        one, other = stage.followers(PLACE)
        last = stage.leader(PLACE)
        stage.take_down(one)
        stage.until(lambda: one.node_id not in stage.partition(PLACE).isr, "one has left")
        stage.produce(PLACE, 3)
        stage.take_down(other)
        stage.until(lambda: stage.partition(PLACE).isr == (last.node_id,), "one is in sync")
        assert stage.partition(PLACE).elr == (other.node_id,), "the high watermark is not frozen"
        stage.take_down(last, power=True)
        stage.until(lambda: stage.partition(PLACE).leader < 0, "no replica leads")
        stage.bring_up(last)
        stage.until(lambda: last.is_ready, "it is back without its tail")
        stage.run(3_000)
        assert stage.partition(PLACE).leader != last.node_id
        stage.bring_up(other)
        stage.until(lambda: stage.partition(PLACE).leader == other.node_id, "the other has it all")
        stage.bring_up(one)
        assert len(stage.finish()[PLACE]) == 8


def test_r06_a_broker_with_a_new_disk_joins_only_with_everything() -> None:
    with stage_of(is_combined=False) as stage:
        stage.produce(PLACE, 20)
        follower = stage.bystander(PLACE)
        stage.take_down(follower)
        stage.cluster.note_damage(follower)
        stage.cluster.wipe(follower)
        stage.produce(PLACE, 5)
        stage.bring_up(follower)
        stage.until(lambda: follower.node_id in stage.partition(PLACE).isr, "it is in sync again")
        stage.cluster.kill(stage.leader(PLACE), power=False, down_ms=2_000)
        stage.produce(PLACE, 1)
        stage.finish()


def test_r08_a_broker_that_stops_in_order_leaves_the_isr_before_it_goes() -> None:
    with stage_of(is_combined=False) as stage:
        leader = stage.leader(PLACE)
        writing = stage.begin_to_produce(PLACE, 40)
        stage.run(50)
        assert stage.cluster.stop_in_order(leader)
        stage.until(lambda: not leader.sim.alive, "it has stopped")
        assert leader.node_id not in stage.partition(PLACE).isr
        stage.until(writing.done, "everything is written")
        writing.result()
        stage.finish()


def test_r12_a_deposed_leader_truncates_before_it_applies_a_newer_high_watermark() -> None:
    with stage_of() as stage:
        stage.produce(PLACE, 5)
        deposed = stage.leader(PLACE)
        stage.isolate(deposed, from_clients=False)
        stage.begin(lambda runtime: _send_and_forget(stage, runtime))
        stage.until(lambda: stage.partition(PLACE).leader not in (-1, deposed.node_id), "deposed")
        stage.isolate(deposed)  # from the client as well, which uses the new leader
        stage.produce(PLACE, 8)
        stage.notes.is_clean = False  # records of the deposed leader only have no outcome
        stage.mend()
        stage.finish()


def test_r16_elections_without_a_record_leave_equal_logs() -> None:
    with stage_of(is_combined=False) as stage:
        for round_ in range(4):
            leader = stage.leader(PLACE)
            stage.cluster.kill(leader, power=False, down_ms=300)
            stage.until(
                lambda leader=leader: stage.partition(PLACE).leader not in (-1, leader.node_id),  # type: ignore[misc]
                "another one leads",
            )
            stage.until(lambda: len(stage.partition(PLACE).isr) == 3, "all are in sync")
            if round_ == 2:
                stage.produce(PLACE, 2)
        stage.finish()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_r22_a_retry_that_reaches_a_new_leader_is_stored_once(seed: int) -> None:
    """Five batches are in flight when the leader fails; the new one must detect those that it
    has."""
    with stage_of(seed=seed) as stage:
        stage.produce(PLACE, 2)
        leader = stage.leader(PLACE)
        writing = stage.begin_to_produce(PLACE, 60)
        stage.until(lambda: stage.watch.committed_end(*PLACE) > 10, "some are committed")
        assert not writing.done()
        stage.cluster.kill(leader, power=False, down_ms=2_000)
        stage.until(writing.done, "everything is written")
        writing.result()
        assert len(stage.finish()[PLACE]) == 62


def test_r26_a_follower_far_behind_the_start_of_the_log_can_lead_afterwards() -> None:
    with stage_of(is_combined=False) as stage:
        follower = stage.bystander(PLACE)
        stage.produce(PLACE, 10)
        stage.take_down(follower)
        stage.until(lambda: follower.node_id not in stage.partition(PLACE).isr, "it has left")
        stage.produce(PLACE, 20)
        stage.do(lambda runtime: stage.client().admin.delete_records("t", {0: 25}))
        stage.bring_up(follower)
        stage.until(lambda: follower.node_id in stage.partition(PLACE).isr, "it is in sync again")
        for node in stage.cluster.brokers:
            if node is not follower:
                stage.take_down(node)
        stage.until(lambda: stage.partition(PLACE).leader == follower.node_id, "it leads")
        for node in stage.cluster.brokers:
            if node is not follower:
                stage.bring_up(node)
        stage.produce(PLACE, 1)
        stage.notes.is_clean = False  # records were deleted on purpose
        stored = stage.finish()[PLACE]
        assert [offset for offset, _ in stored] == [25, 26, 27, 28, 29, 30]


def test_r27_a_write_that_waits_for_a_silent_follower_ends_when_that_leaves() -> None:
    with stage_of(is_combined=False) as stage:
        follower = stage.bystander(PLACE)
        stage.cluster.pause(follower)
        before = stage.world.now_ms()
        stage.produce(PLACE, 1)
        waited_ms = stage.world.now_ms() - before
        assert follower.node_id not in stage.partition(PLACE).isr
        assert waited_ms < 10_000, (
            "the follower left by its session or its lag, and the write continued"
        )
        stage.finish()


def test_r28_the_controller_changes_while_replicas_come_and_go() -> None:
    with stage_of(is_combined=False) as stage:
        for _ in range(3):
            follower = stage.bystander(PLACE)
            stage.cluster.kill(follower, power=False, down_ms=500)
            active = stage.cluster.leader()
            assert active is not None
            stage.cluster.kill(active, power=False, down_ms=1_000)
            stage.produce(PLACE, 3)
            stage.until(lambda: len(stage.partition(PLACE).isr) == 3, "all are in sync")
        stage.finish()


def test_r29_a_topic_recreated_while_a_broker_was_down_has_no_record_of_the_old_one() -> None:
    with stage_of(is_combined=False) as stage:
        stage.produce(PLACE, 10)
        follower = stage.bystander(PLACE)
        stage.take_down(follower)
        stage.until(lambda: follower.node_id not in stage.partition(PLACE).isr, "it has left")
        stage.do(lambda runtime: _make_anew(stage))
        stage.notes.history.sends.clear()
        stage.bring_up(follower)
        stage.until(lambda: follower.is_ready, "it is back")
        brokers = [int(node.node_id) for node in stage.cluster.brokers]
        stage.do(lambda runtime: stage.client().admin.reassign_partitions({PLACE: brokers}))
        stage.produce(PLACE, 3)
        stage.until(lambda: len(stage.partition(PLACE).isr) == 3, "all have it")
        assert len(stage.finish()[PLACE]) == 3


def test_r30_a_broker_with_a_broken_connection_keeps_its_epoch_and_its_isr() -> None:
    with stage_of(is_combined=False) as stage:
        leader, active = stage.leader(PLACE), stage.cluster.leader()
        assert active is not None
        epochs = [broker.epoch for broker in stage.cluster.newest_image.sorted_brokers()]
        partition_epoch = stage.partition(PLACE).partition_epoch
        for _ in range(3):
            stage.world.fabric.break_between(leader.name, active.name)
            stage.run(1_000)
        brokers = stage.cluster.newest_image.sorted_brokers()
        assert [broker.epoch for broker in brokers] == epochs
        assert stage.partition(PLACE).partition_epoch == partition_epoch
        stage.finish()


def test_r31_a_follower_continues_when_its_leader_has_a_newer_epoch() -> None:
    """Its stream, and the leader's state of it, belong to the previous epoch."""
    with stage_of(is_combined=False, min_isr=1, flush_policy="fsync") as stage:
        stage.produce(PLACE, 3)
        leader = stage.leader(PLACE)
        stage.isolate(leader)
        stage.until(lambda: stage.partition(PLACE).leader not in (-1, leader.node_id), "replaced")
        stage.mend()
        stage.until(lambda: len(stage.partition(PLACE).isr) == 3, "all are in sync")
        stage.do(lambda runtime: stage.client().admin.elect_leaders([PLACE]))
        stage.produce(PLACE, 3)
        stage.finish()


async def _send_and_forget(stage: ScriptedCluster, runtime: Runtime) -> None:
    """Send records that only the leader may store."""
    producer = stage.client().producer(acks="leader", linger_ms=0)
    for number in range(3):
        try:
            await producer.send("t", b"by the way %d" % number, partition=0)
        except QuorumlogError:
            return


async def _make_anew(stage: ScriptedCluster) -> None:
    admin = stage.client().admin
    await admin.delete_topic("t")
    plan = stage.options.topics[0]
    await admin.create_topic("t", partitions=1, replication=2, configs=plan.configs)
