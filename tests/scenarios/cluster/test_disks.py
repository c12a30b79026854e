"""Disks that come back empty, are full, or fail: the affected replica stops with a reason, the
others continue, and no acknowledged record is lost."""

import errno
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
from tests.simulation.cluster.machines import DATA
from tests.simulation.cluster.nodes import ClusterNode
from tests.simulation.cluster.scripted import ScriptedCluster

pytestmark = pytest.mark.slow

ROOM: Final = 400  # bytes left on an almost full disk


def fill(node: ClusterNode) -> None:
    """Leave almost no free space on a node's disk."""
    disk = node.sim.device.disk
    disk.capacity_bytes = disk.used_bytes() + ROOM


def spoil(stage: ScriptedCluster, node: ClusterNode, operation: str) -> None:
    """Make every operation of a kind on a node's partitions fail."""
    stage.cluster.note_damage(node)
    node.excuse = "sync"
    node.sim.device.fail(operation, errno.EIO, path_part=f"{DATA}/t-", times=1 << 30)


def repair(stage: ScriptedCluster, node: ClusterNode) -> None:
    """Replace the disk of a node."""
    node.sim.device.faults.clear()
    if node.sim.alive:
        stage.take_down(node)
    node.excuse = ""
    stage.cluster.wipe(node)
    stage.bring_up(node)


# --- empty ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_leader_that_restarts_at_once_with_an_empty_disk_leads_no_partition_and_is_refilled(
    seed: int,
) -> None:
    """It restarts before its session expires, under a new directory id."""
    with started(seed=seed, broker_session_timeout_ms=20_000) as stage:
        written = stage.produce(PLACE, 20)
        writing = stage.begin_to_produce(PLACE, 20)
        stage.run(30)
        wiped = stage.leader(PLACE)
        stage.take_down(wiped)
        stage.cluster.note_damage(wiped)
        stage.cluster.wipe(wiped)
        stage.bring_up(wiped)
        stage.run(2_000)
        steps = stage.watch.steps
        stage.run(1_000)
        assert stage.watch.steps - steps < 3_000, "its followers reconnect without a pause"
        stage.until(lambda: stage.partition(PLACE).leader not in (-1, wiped.node_id), "replaced")
        stage.until(writing.done, "the others go on")
        written += writing.result()
        stage.until(lambda: in_sync(stage, wiped), "it is refilled")
        assert [value for _, value in stage.finish()[PLACE]] == written
        assert len(stage.logs(PLACE)[wiped.name]) > 0


def test_two_brokers_lose_their_disks_one_after_the_other_and_nothing_is_lost() -> None:
    with started(is_combined=False) as stage:
        written = stage.produce(PLACE, 20)
        for _ in range(2):
            wiped = stage.leader(PLACE)
            stage.take_down(wiped)
            stage.cluster.note_damage(wiped)
            stage.cluster.wipe(wiped)
            stage.bring_up(wiped)
            stage.until(lambda: not in_sync(stage, wiped), "it is out")  # noqa: B023
            written += stage.produce(PLACE, 3)
            stage.until(lambda: len(stage.partition(PLACE).isr) == 3, "it is refilled")
        assert [value for _, value in stage.finish()[PLACE]] == written


@pytest.mark.long
def test_the_only_replica_with_a_record_does_not_lead_after_the_loss_of_its_disk() -> None:
    """All others have left the ISR: the partition has no leader until a broker with the records is
    back."""
    with started(plan(replication=2, min_isr=1, flush_policy="fsync"), brokers=3) as stage:
        written = stage.produce(PLACE, 5)
        (other,) = stage.followers(PLACE)
        stage.take_down(other)
        stage.until(lambda: not in_sync(stage, other), "it has left")
        stage.produce(PLACE, 1)  # a record that only one broker has
        wiped = stage.leader(PLACE)
        stage.take_down(wiped)
        stage.cluster.note_damage(wiped)
        stage.cluster.wipe(wiped)
        stage.bring_up(wiped)
        stage.until(lambda: wiped.is_ready, "it is back with nothing")
        stage.run(5_000)
        assert stage.partition(PLACE).leader < 0
        stage.bring_up(other)
        stage.until(lambda: other.is_ready, "the other one is back")
        stage.run(5_000)
        assert stage.partition(PLACE).leader < 0, "a replica leads without an operator"
        assert written


# --- full -------------------------------------------------------------------------------------


def test_a_follower_with_a_full_disk_leaves_the_isr_and_rejoins_once_there_is_space() -> None:
    with started() as stage:
        written = stage.produce(PLACE, 3)
        full = stage.followers(PLACE)[0]
        full.excuse = "full"
        fill(full)
        written += stage.produce(PLACE, 20)
        assert not in_sync(stage, full)
        written += stage.produce(PLACE, 5)
        assert full.sim.alive, full.ends
        full.sim.device.disk.capacity_bytes = None
        stage.until(lambda: in_sync(stage, full), "it is in sync again")
        assert [value for _, value in stage.finish()[PLACE]] == written


@pytest.mark.long
def test_a_leader_with_a_full_disk_returns_an_error_and_continues_once_there_is_space() -> None:
    with started() as stage:
        written = stage.produce(PLACE, 3)
        full = stage.leader(PLACE)
        full.excuse = "full"
        fill(full)
        writing = stage.begin_to_produce(PLACE, 20)
        stage.run(10_000)
        assert stage.read(PLACE)[:3] == written
        full.sim.device.disk.capacity_bytes = None
        stage.until(writing.done, "it is written")
        written += writing.result()
        assert [value for _, value in stage.finish()[PLACE]] == written


# --- broken -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_broker_with_a_failed_disk_of_partitions_exits_and_the_others_take_over(
    operation: str, role: str
) -> None:
    policy = "fsync" if operation == "sync" else "replicated"
    with started(plan(partitions=3, flush_policy=policy)) as stage:
        written = stage.produce(PLACE, 5)
        broken = stage.leader(PLACE) if role == "leader" else stage.followers(PLACE)[0]
        spoil(stage, broken, operation)
        begun_ms = stage.world.now_ms()
        written += stage.produce(PLACE, 5)
        assert stage.world.now_ms() - begun_ms < 15_000
        stage.until(lambda: bool(broken.ends), "it has ended")
        assert broken.ends["stopped"] >= 1, broken.ends
        for index in range(3):
            stage.produce(("t", index), 2)
        repair(stage, broken)
        stage.until(lambda: in_sync(stage, broken), "another disk is filled")
        stored = stage.finish()[PLACE]
        assert [value for _, value in stored][:10] == written


def test_a_leader_with_a_failed_directory_exits_and_the_others_take_over() -> None:
    """Including the metadata log."""
    with started() as stage:
        written = stage.produce(PLACE, 5)
        broken = stage.leader(PLACE)
        stage.cluster.note_damage(broken)
        broken.excuse = "sync"
        for operation in ("write", "sync"):
            broken.sim.device.fail(operation, errno.EIO, path_part=DATA, times=1 << 30)
        written += stage.produce(PLACE, 5)
        stage.until(lambda: bool(broken.ends), "it has ended")
        repair(stage, broken)
        stage.until(lambda: in_sync(stage, broken), "another disk is filled")
        assert [value for _, value in stage.finish()[PLACE]] == written


def test_a_failed_disk_stops_the_only_replica_of_a_partition() -> None:
    """The node keeps its other partitions: no other broker could take over."""
    with started(plan(partitions=3, replication=1, min_isr=1, flush_policy="fsync")) as stage:
        for index in range(3):
            stage.produce(("t", index), 2)
        broken = stage.leader(PLACE)
        broken.excuse = "sync"
        broken.sim.device.fail("sync", errno.EIO, path_part=f"{DATA}/t-0", times=1 << 30)

        async def once() -> None:
            async with stage.client().producer(linger_ms=0, delivery_timeout_ms=2_000) as producer:
                await producer.send_and_wait("t", b"x", partition=0)

        with pytest.raises(Exception, match="t-0") as caught:
            stage.do(lambda runtime: once())
        assert type(caught.value).__name__ in ("DiskFailed", "TimedOut"), repr(caught.value)
        assert broken.sim.alive
        asked(stage, lambda admin: admin.describe_topic("t"))
        assert not is_fenced(stage, broken)
        for index in (1, 2):
            stage.produce(("t", index), 2)
            assert len(stage.read(("t", index))) == 4
