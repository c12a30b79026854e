"""Reassignments, elections and replica states on three whole nodes, through an admin client."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.kit.replica_cluster import Cluster, world

from quorumlog.clients.admin.descriptions import Partition
from quorumlog.clients.admin.partitions import PartitionReplicas
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import BrokerIdNotRegistered, ElectionNotNeeded, NoReassignmentInProgress

T = TypeVar("T")
PLACE = ("t", 0)


def started(cluster: Cluster, *replicas: int) -> None:
    cluster.start()
    cluster.create(*replicas)
    cluster.send(b"a", b"b", b"c")


def described(cluster: Cluster) -> Partition:
    async def ask(log: AsyncLog) -> Partition:
        (topic,) = await log.admin.describe_topics(["t"])
        return topic.partitions[0]

    return cluster.run(ask)


def until(cluster: Cluster, condition: Callable[[Partition], bool]) -> Partition:
    """Describe the partition until the condition is true."""
    for _ in range(300):
        partition = described(cluster)
        if condition(partition):
            return partition
        cluster.world.run_for(100)
    raise AssertionError(f"still {described(cluster)}")


def replicas_of(cluster: Cluster) -> PartitionReplicas:
    async def ask(log: AsyncLog) -> PartitionReplicas:
        (found,) = await log.admin.describe_replicas([PLACE])
        return found

    return cluster.run(ask)


def ask(cluster: Cluster, work: Callable[[AsyncLog], Awaitable[T]]) -> T:
    return cluster.run(work)


def test_a_partition_moves_to_other_brokers_with_all_its_records() -> None:
    with world() as sim:
        cluster = Cluster(sim)
        started(cluster, 1, 2)
        (outcome,) = ask(cluster, lambda log: log.admin.reassign_partitions({PLACE: [3, 2]}))
        assert outcome.error is None
        moved = until(cluster, lambda partition: not partition.is_moving)
        assert (moved.replicas, set(moved.isr)) == ((3, 2), {2, 3})
        assert cluster.values(3, "t") == [b"a", b"b", b"c"]
        assert ask(cluster, lambda log: log.admin.list_reassignments()) == []


def test_reassignment_that_cannot_complete_is_listed_and_cancelled() -> None:
    with world() as sim:
        cluster = Cluster(sim)
        started(cluster, 1, 2)
        cluster.crash(3)
        sim.run_for(5_000)
        (outcome,) = ask(cluster, lambda log: log.admin.reassign_partitions({PLACE: [2, 3]}))
        assert outcome.error is None
        (move,) = ask(cluster, lambda log: log.admin.list_reassignments(["t"]))
        assert (move.topic, move.partition, move.target) == ("t", 0, (2, 3))
        assert (move.state.adding, move.state.removing) == ((3,), (1,))
        assert not move.state.is_under_replicated, "added replicas do not count yet"
        (outcome,) = ask(cluster, lambda log: log.admin.cancel_reassignments([PLACE]))
        assert outcome.error is None
        assert set(described(cluster).replicas) == {1, 2}
        (outcome,) = ask(cluster, lambda log: log.admin.cancel_reassignments([PLACE]))
        assert isinstance(outcome.error, NoReassignmentInProgress)


def test_preferred_replica_election_moves_the_leadership_back() -> None:
    with world() as sim:
        cluster = Cluster(sim)
        started(cluster, 2, 3, 1)
        cluster.crash(2)
        until(cluster, lambda partition: partition.leader not in (None, 2))
        cluster.start(2)
        until(cluster, lambda partition: set(partition.isr) == {1, 2, 3})
        (outcome,) = ask(cluster, lambda log: log.admin.elect_leaders())
        assert (outcome.topic, outcome.partition, outcome.error) == ("t", 0, None)
        assert described(cluster).leader == 2
        (outcome,) = ask(cluster, lambda log: log.admin.elect_leaders([PLACE]))
        assert isinstance(outcome.error, ElectionNotNeeded)


def test_leader_reports_the_lag_of_each_replica_and_the_reason() -> None:
    with world() as sim:
        cluster = Cluster(sim)
        started(cluster, 1, 2, 3)
        assert len(cluster.everywhere()) == 3
        found = replicas_of(cluster)
        assert (found.leader, found.high_watermark, found.min_isr) == (1, 3, 2)
        assert [(each.broker, each.log_end_offset) for each in found.replicas] == [
            (1, 3),
            (2, 3),
            (3, 3),
        ]
        assert all(each.in_sync and not each.reason for each in found.replicas)
        cluster.crash(3)
        until(cluster, lambda partition: partition.isr == (1, 2))
        lagging = replicas_of(cluster).replicas[2]
        assert (lagging.broker, lagging.in_sync) == (3, False)
        assert "fenced" in lagging.reason


def test_partition_with_a_silent_leader_has_its_own_error() -> None:
    with world() as sim:
        cluster = Cluster(sim)
        cluster.start()
        ask(cluster, lambda log: log.admin.create_topic("t", assignments=[[1]]))
        found = replicas_of(cluster)
        assert [each.in_sync for each in found.replicas] == [True], "no client has used it yet"
        cluster.crash(1)
        found = replicas_of(cluster)
        assert found.error is not None
        assert found.replicas == ()
        until(cluster, lambda partition: partition.leader is None)
        assert replicas_of(cluster).leader is None


def test_broker_that_is_down_can_be_unregistered() -> None:
    with world() as sim:
        cluster = Cluster(sim)
        started(cluster, 1, 2)
        cluster.crash(3)

        async def unregister(log: AsyncLog) -> list[int]:
            for _ in range(2):
                try:
                    await log.admin.unregister_broker(3)
                except BrokerIdNotRegistered:
                    break
            else:
                raise AssertionError("the broker was unregistered twice")
            return [broker.id for broker in (await log.admin.describe_cluster()).brokers]

        until(cluster, lambda partition: True)
        sim.run_for(5_000)
        assert ask(cluster, unregister) == [1, 2]
