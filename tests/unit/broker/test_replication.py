"""Topics with several replicas on three whole nodes, simulated."""

import pytest
from tests.kit.replica_cluster import Cluster, world

from quorumlog.broker import Acks
from quorumlog.errors import NotLeaderOrFollower
from quorumlog.simulation import SimWorld


def started(sim: SimWorld, **configs: str) -> Cluster:
    """Start three nodes that all have the topic "t" of one partition."""
    cluster = Cluster(sim)
    cluster.start()
    cluster.create(2, 3, 1, **configs)
    return cluster


def test_every_replica_gets_the_leaders_records() -> None:
    with world() as sim:
        cluster = started(sim)
        expected = [b"%d" % number for number in range(10)]
        cluster.send(*expected)
        assert cluster.everywhere() == expected


def test_another_replica_leads_when_the_leader_dies_and_the_old_one_rejoins() -> None:
    with world() as sim:
        cluster = started(sim)
        cluster.send(b"before")
        old = cluster.leader("t")
        cluster.crash(old)
        cluster.until(lambda: cluster.leader("t") not in (0, old))
        cluster.send(b"after")
        cluster.start(old)
        assert cluster.everywhere() == [b"before", b"after"]


def test_deposed_leader_truncates_its_own_records() -> None:
    """R2, R12: by the ends of epochs. Its appends in between were not acknowledged."""
    with world() as sim:
        cluster = started(sim)
        cluster.send(b"kept")
        old = cluster.leader("t")
        barrier = cluster.cut_off(old)
        alone = cluster.append(old, "t", b"lost", acks=Acks.ALL)
        cluster.until(lambda: cluster.leader_beside(old, "t") != 0)
        cluster.send(b"new")
        cluster.join_again(barrier)
        assert cluster.everywhere() == [b"kept", b"new"]
        sim.run_until(alone, virtual_ms=20_000)
        with pytest.raises(NotLeaderOrFollower):
            alone.result()


def test_leader_without_controllers_accepts_only_acks_all() -> None:
    """It may have been deposed, and would lose the records that it alone acknowledged."""
    with world() as sim:
        cluster = started(sim)
        cluster.send(b"kept")
        old = cluster.leader("t")
        cluster.cut_off(old)
        sim.run_for(4_000)
        alone = cluster.append(old, "t", b"refused", acks=Acks.LEADER)
        sim.run_until(alone, virtual_ms=1_000)
        with pytest.raises(NotLeaderOrFollower, match="lost the controllers"):
            alone.result()
        assert cluster.replica(old, "t").log.log_end_offset == 1


@pytest.mark.parametrize("policy", ["replicated", "fsync"])
def test_acknowledged_records_survive_a_power_cut_of_the_leader(policy: str) -> None:
    with world() as sim:
        cluster = started(sim, flush_policy=policy)
        cluster.send(b"a", b"b")
        old = cluster.leader("t")
        cluster.crash(old, power=True)
        cluster.until(lambda: cluster.leader("t") not in (0, old))
        cluster.send(b"c")
        cluster.start(old)
        assert cluster.everywhere() == [b"a", b"b", b"c"]


def test_records_acknowledged_with_fsync_survive_a_power_cut_of_all() -> None:
    with world() as sim:
        cluster = started(sim, flush_policy="fsync")
        cluster.send(*(b"%d" % number for number in range(20)))
        for number in (1, 2, 3):
            cluster.crash(number, power=True)
        cluster.start()
        cluster.until(lambda: cluster.leader("t") != 0)
        assert cluster.everywhere() == [b"%d" % number for number in range(20)]


def test_a_new_replica_of_an_emptied_log_leads_with_the_old_ones_in_sync() -> None:
    """Its log restarted at the leader's start without any epoch. The old replicas have the epochs
    of the deleted records, and must stay in sync before the next append."""
    with world() as sim:
        cluster = Cluster(sim)
        cluster.start()
        cluster.create(1, 2, min_insync_replicas="2")
        cluster.send(b"deleted")
        cluster.run(lambda log: log.admin.delete_records("t", before="latest"))
        cluster.until(lambda: cluster.replica(2, "t").log.log_start_offset == 1)
        cluster.run(lambda log: log.admin.reassign_partitions({("t", 0): [3, 2]}))
        cluster.until(lambda: cluster.leader("t") == 3 and cluster.isr("t") == {2, 3})
        sim.run_for(60_000)  # twice replica.lag.time.max.ms
        cluster.send(b"appended")
        assert cluster.everywhere(2, 3) == [b"appended"]
