"""Topics with several replicas on three whole nodes, simulated."""

from quorumlog.clients import AsyncLog

from .whole_nodes import Cluster, produce, world


async def create(log: AsyncLog) -> None:
    await log.admin.create_topic("t", partitions=1, replication=3)


def test_every_replica_gets_what_the_leader_gets() -> None:
    with world() as sim:
        cluster = Cluster(sim)
        cluster.start()
        cluster.run(create)
        cluster.run(lambda log: produce(log, "t", [b"%d" % n for n in range(10)]))
        cluster.until(lambda: set(cluster.marks("t").values()) == {10})
        expected = [b"%d" % n for n in range(10)]
        assert [cluster.values(number, "t") for number in (1, 2, 3)] == [expected] * 3
        assert cluster.isr("t") == {1, 2, 3}


def test_another_replica_leads_when_the_leader_dies_and_the_old_one_rejoins() -> None:
    with world() as sim:
        cluster = Cluster(sim)
        cluster.start()
        cluster.run(create)
        cluster.run(lambda log: produce(log, "t", [b"before"]))
        old = cluster.leader("t")
        cluster.crash(old)
        cluster.until(lambda: cluster.leader("t") not in (0, old))
        cluster.run(lambda log: produce(log, "t", [b"after"]))
        cluster.start(old)
        cluster.until(lambda: cluster.isr("t") == {1, 2, 3})
        cluster.until(lambda: set(cluster.marks("t").values()) == {2})
        assert cluster.values(old, "t") == [b"before", b"after"]
