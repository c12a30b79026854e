"""Metrics of replication on three simulated nodes."""

from tests.kit.replica_cluster import Cluster, world

from quorumlog.broker.shell.replication.replication import ReplicationManager
from quorumlog.ids import NodeId
from quorumlog.simulation import SimWorld


def started(sim: SimWorld) -> Cluster:
    cluster = Cluster(sim)
    cluster.start()
    cluster.create(1, 2, 3)
    return cluster


def replication(cluster: Cluster, number: int) -> ReplicationManager:
    manager = cluster.nodes[number].parts.replicas
    assert manager is not None
    return manager.replication


def lags(cluster: Cluster, number: int) -> dict[NodeId, int]:
    found: dict[NodeId, int] = {}
    for _ in replication(cluster, number).lags(found):
        pass
    return found


def test_followers_count_fetched_bytes_and_leaders_the_lag() -> None:
    with world() as sim:
        cluster = started(sim)
        cluster.send(*[b"v" * 100] * 10)
        cluster.everywhere()

        written = replication(cluster, 2).figures.replicated_bytes
        assert written >= 1_000
        assert replication(cluster, 3).figures.replicated_bytes == written
        assert replication(cluster, 1).figures.replicated_bytes == 0
        cluster.until(lambda: lags(cluster, 1) == {2: 0, 3: 0})
        assert lags(cluster, 2) == {}


def test_metrics_show_a_follower_that_lags_leaves_and_rejoins() -> None:
    with world() as sim:
        cluster = started(sim)
        cluster.send(b"before")
        cluster.everywhere()
        cluster.crash(3)
        cluster.send(b"after")
        cluster.until(lambda: cluster.isr("t") == {1, 2})
        figures = replication(cluster, 1).figures
        assert (figures.isr_shrunk, figures.isr_grown) == (1, 0)
        assert lags(cluster, 1)[NodeId(3)] == 1
        cluster.start(3)
        cluster.everywhere()
        assert (figures.isr_shrunk, figures.isr_grown) == (1, 1)
