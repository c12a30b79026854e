"""Replicas on three simulated nodes: creation, deletion, failure and restart."""

import errno

import pytest
from tests.kit.replica_cluster import Cluster, world

from quorumlog.broker import Acks
from quorumlog.clients.log import AsyncLog
from quorumlog.simulation import SimWorld


def started(sim: SimWorld, *replicas: int, **configs: str) -> Cluster:
    """Start four nodes with the topic "t" on some of them."""
    cluster = Cluster(sim, (1, 2, 3, 4))
    cluster.start()
    cluster.create(*replicas, **configs)
    return cluster


def values(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def move(cluster: Cluster, *replicas: int) -> None:
    async def ask(log: AsyncLog) -> None:
        (outcome,) = await log.admin.reassign_partitions({("t", 0): list(replicas)})
        assert outcome.error is None, outcome

    cluster.run(ask)


def has_folder(cluster: Cluster, number: int) -> bool:
    return cluster.machine(number).device.disk.exists("/var/quorumlog/t-0")


def test_a_partition_moves_with_all_its_records_and_leaves_nothing_behind() -> None:
    with world() as sim:
        cluster = started(sim, 1, 2)
        cluster.send(*values(*range(20)))
        move(cluster, 3, 4)
        cluster.until(lambda: cluster.isr("t") == {3, 4})
        cluster.send(*values(20))
        assert cluster.everywhere(3, 4) == values(*range(21))
        cluster.until(lambda: not has_folder(cluster, 1) and not has_folder(cluster, 2))
        assert has_folder(cluster, 3)


def test_partition_that_moved_while_the_node_was_down_is_deleted() -> None:
    """R29: a folder that the image does not assign to this node is no replica."""
    with world() as sim:
        cluster = started(sim, 1, 2)
        cluster.send(*values(1))
        cluster.until(lambda: has_folder(cluster, 2))
        cluster.crash(2)
        move(cluster, 1, 3)
        cluster.until(lambda: cluster.isr("t") == {1, 3})
        cluster.start(2)
        cluster.until(lambda: not has_folder(cluster, 2))
        assert cluster.held(2, "t") is None


def test_partition_that_returns_to_a_node_starts_empty() -> None:
    """R11: reports of the old replica do not count, and its log is deleted."""
    with world() as sim:
        cluster = started(sim, 1, 2)
        cluster.send(*values(1, 2))
        move(cluster, 1, 3)
        cluster.until(lambda: cluster.isr("t") == {1, 3})
        move(cluster, 1, 2)
        cluster.until(lambda: cluster.isr("t") == {1, 2})
        cluster.send(*values(3))
        assert cluster.everywhere(1, 2) == values(1, 2, 3)


def test_recreated_topic_has_no_records_of_the_old_one_on_any_replica() -> None:
    with world() as sim:
        cluster = started(sim, 1, 2, 3)
        cluster.send(*values(1, 2))
        cluster.crash(3)

        async def delete(log: AsyncLog) -> None:
            await log.admin.delete_topic("t")

        cluster.run(delete)
        cluster.create(1, 2, 3)
        cluster.send(*values(7))
        cluster.start(3)
        assert cluster.everywhere(1, 2, 3) == values(7)


def test_records_deleted_at_the_leader_are_deleted_at_its_followers() -> None:
    with world() as sim:
        cluster = started(sim, 1, 2, 3)
        cluster.send(*values(*range(10)))

        async def delete(log: AsyncLog) -> None:
            await log.admin.delete_records("t", {0: 5})

        cluster.run(delete)
        cluster.until(
            lambda: {replica.log.log_start_offset for _, replica in cluster.all_held("t")} == {5}
        )
        cluster.crash(1)
        cluster.until(lambda: cluster.leader("t") == 2)
        assert cluster.replica(2, "t").log.log_start_offset == 5


def test_new_replica_starts_inside_a_batch_like_the_leaders_log() -> None:
    with world() as sim:
        cluster = started(sim, 1, 2)

        async def delete(log: AsyncLog) -> None:
            await log.admin.delete_records("t", {0: 5})

        batch = cluster.append(1, "t", *values(*range(10)), acks=Acks.ALL)
        sim.run_until(batch, virtual_ms=1_000)
        cluster.run(delete)
        move(cluster, 1, 3)
        cluster.until(lambda: cluster.replica(3, "t").is_open)
        log = cluster.replica(3, "t").log
        cluster.until(lambda: (log.log_start_offset, log.log_end_offset) == (5, 10))
        assert cluster.everywhere(1, 3) == values(*range(5, 10))
        assert log.segment_bases == [0], "the whole batch was fetched"


def test_follower_below_the_leaders_start_is_reset_to_it() -> None:
    """R26: log start, log end and high watermark move together."""
    with world() as sim:
        cluster = started(sim, 1, 2, 3)
        cluster.send(*values(1, 2))
        cluster.until(lambda: cluster.marks("t")[3] == 2)
        cluster.crash(3)
        cluster.until(lambda: cluster.isr("t") == {1, 2})
        for value in values(3, 4, 5, 6):  # one batch each
            cluster.send(value)

        async def delete(log: AsyncLog) -> None:
            await log.admin.delete_records("t", {0: 5})

        cluster.run(delete)
        cluster.start(3)
        cluster.until(lambda: cluster.isr("t") == {1, 2, 3})
        log = cluster.replica(3, "t").log
        assert (log.log_start_offset, log.log_end_offset) == (5, 6)
        cluster.until(lambda: cluster.marks("t")[3] == 6)
        assert cluster.values(3, "t") == values(6)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_broker_whose_disk_failed_ends_and_another_leads(operation: str) -> None:
    with world() as sim:
        cluster = started(sim, 1, 2, 3, flush_policy="fsync")
        cluster.send(*values(1))
        machine = cluster.machine(1)
        machine.device.fail(operation, errno.EIO, path_part="/t-0/", times=10)
        cluster.append(1, "t", b"2")
        cluster.until(lambda: bool(machine.stops) or not machine.alive)
        assert any("t-0" in reason for reason in machine.stops), machine.stops
        cluster.nodes.pop(1)
        cluster.until(lambda: cluster.leader("t") not in (0, 1))
        cluster.send(*values(3))


def test_follower_with_a_full_disk_leaves_the_isr_until_there_is_space() -> None:
    with world() as sim:
        cluster = started(sim, 1, 2, 3)
        cluster.send(*values(1))
        device = cluster.machine(3).device
        device.fail("write", errno.ENOSPC, path_part="/t-0/", times=5)
        cluster.send(*values(2, 3))
        assert cluster.everywhere(1, 2, 3) == values(1, 2, 3)
        assert cluster.machine(3).alive


def test_reassignment_is_throttled_and_in_sync_replicas_are_not() -> None:
    with world() as sim:
        cluster = started(sim, 1, 2)
        for _ in range(100):  # one batch each, fetched whole
            cluster.append(1, "t", b"x" * 2_000)

        async def pace(log: AsyncLog) -> None:
            await log.admin.alter_cluster_configs({"replication.throttled.rate": "20000"})

        cluster.run(pace)
        move(cluster, 1, 2, 3)
        begun_ms = sim.now_ms()
        cluster.until(lambda: cluster.isr("t") == {1, 2, 3})
        assert 8_000 < sim.now_ms() - begun_ms < 13_000, "200 kB at 20 kB/s"
        begun_ms = sim.now_ms()
        for _ in range(100):
            cluster.append(1, "t", b"x" * 2_000)
        cluster.everywhere(1, 2, 3)
        assert sim.now_ms() - begun_ms < 5_000


@pytest.mark.parametrize("rate", ["20000", "-1"])
def test_replica_that_joined_the_isr_is_not_delayed_by_its_throttle_debt(rate: str) -> None:
    """The same holds for a replica whose throttle was removed."""
    with world() as sim:
        cluster = started(sim, 1, 2)
        sim.run_until(cluster.append(1, "t", b"x" * 400_000), virtual_ms=10_000)

        async def pace(log: AsyncLog, rate: str) -> None:
            await log.admin.alter_cluster_configs({"replication.throttled.rate": rate})

        cluster.run(lambda log: pace(log, "20000"))
        move(cluster, 1, 2, 3)
        cluster.until(lambda: cluster.ends("t").get(3) == 1, virtual_ms=5_000)
        if rate == "-1":
            cluster.append(1, "t", b"x")
            cluster.run(lambda log: pace(log, rate))
        begun_ms = sim.now_ms()
        cluster.until(lambda: cluster.isr("t") == {1, 2, 3})
        task = cluster.append(1, "t", b"y", acks=Acks.ALL)
        cluster.until(task.done)
        task.result()
        assert sim.now_ms() - begun_ms < 2_000, "its debt is 20 s"


def is_aside(cluster: Cluster, number: int) -> bool:
    folders = cluster.machine(number).device.disk.folder("/var/quorumlog").entries
    return any(name.startswith("t-0.") and name.endswith("-damaged") for name in folders)


def damage(cluster: Cluster, number: int) -> None:
    """Cut the last batches from a flushed log while its node is down."""
    body = cluster.machine(number).device.disk.file("/var/quorumlog/t-0/00000000000000000000.log")
    del body.content[len(body.content) // 2 :]
    del body.durable[len(body.content) :]
    body.unsynced.clear()


def test_damaged_log_of_a_follower_is_set_aside_and_fetched_again() -> None:
    with world() as sim:
        cluster = started(sim, 1, 2, 3)
        cluster.send(*values(*range(20)))
        sim.run_for(3_000)  # a checkpoint has the flushed end
        cluster.crash(3)
        damage(cluster, 3)
        cluster.send(*values(20))
        cluster.start(3)
        assert cluster.everywhere(1, 2, 3) == values(*range(21))
        assert cluster.machine(3).alive
        assert is_aside(cluster, 3), "the damaged log is kept for inspection"


def test_a_damaged_log_that_may_be_needed_is_left_as_it_is() -> None:
    """The other replicas are too few without it: a replica in the ELR must not start empty."""
    with world() as sim:
        cluster = started(sim, 1, 2, min_insync_replicas="2")
        cluster.send(*values(*range(20)))
        sim.run_for(3_000)
        cluster.crash(2)
        damage(cluster, 2)
        cluster.until(lambda: cluster.isr("t") == {1})
        cluster.start(2)
        sim.run_for(5_000)
        assert not is_aside(cluster, 2)
        assert cluster.isr("t") == {1}
        assert cluster.machine(2).alive, "its other partitions are served"


def test_leader_reopens_its_log_for_followers_after_a_temporary_failure() -> None:
    """No client requests it."""
    with world() as sim:
        cluster = started(sim, 1, 2, flush_policy="fsync")
        cluster.send(*values(1))
        for number in cluster.numbers:
            cluster.crash(number)
        sim.run_for(1_000)
        cluster.machine(1).device.fail("open", errno.EMFILE, path_part="/t-0/", times=1)
        cluster.start()
        cluster.until(lambda: cluster.isr("t") == {1, 2})
