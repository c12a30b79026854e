"""A test cluster whose nodes are killed, paused and partitioned.

All tests here share one cluster and undo their changes.
"""

import asyncio
import time
from collections.abc import Iterator

import pytest

import quorumlog
from quorumlog.errors import InvalidRequest, QuorumlogError, TimedOut, UnknownTopicOrPartition
from quorumlog.testing import Cluster

pytestmark = pytest.mark.slow

QUICK = {
    "broker.session.timeout.ms": 2_000,  # until a silent node times out
    "replica.lag.time.max.ms": 2_000,
}
NODES = {1, 2, 3}


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(settings=QUICK, racks=("a", "b")) as running:
        yield running


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.restore()


@pytest.fixture
def log(cluster: Cluster) -> Iterator[quorumlog.Log]:
    with cluster.connect(request_timeout_ms=2_000) as connected:  # of a partitioned leader
        yield connected


def send(log: quorumlog.Log, topic: str, value: str) -> int:
    """Send a record with acks=all and return its offset."""
    with log.producer() as producer:
        return producer.send(topic, value=value).result(timeout_ms=60_000).offset


def test_nodes_form_one_cluster_with_their_own_addresses(
    cluster: Cluster, log: quorumlog.Log
) -> None:
    assert set(cluster.nodes) == NODES
    cluster.wait_healthy()  # without any topic
    described = log.admin.describe_cluster()
    assert [(each.id, each.grpc_address, each.rack) for each in described.brokers] == [
        (1, cluster.nodes[1].grpc, "a"),
        (2, cluster.nodes[2].grpc, "b"),
        (3, cluster.nodes[3].grpc, "a"),
    ]
    assert [dict(each.kafka_listeners) for each in described.brokers] == [
        {"PLAINTEXT": node.kafka} for node in cluster.nodes.values()
    ]
    assert len(set(cluster.kafka.split(",")) | set(cluster.grpc.split(","))) == 6
    topic = log.admin.describe_topic(cluster.create_topic(partitions=2))
    assert [set(each.replicas) for each in topic.partitions] == [NODES, NODES]
    assert cluster.controller() == described.controller_id


def test_killed_leader_is_replaced_and_catches_up(cluster: Cluster, log: quorumlog.Log) -> None:
    topic = cluster.create_topic()
    leader = cluster.leader(topic)
    send(log, topic, "before")
    cluster.kill(leader)
    assert not cluster.is_up(leader)
    assert send(log, topic, "after") == 1
    assert cluster.leader(topic) in NODES - {leader}
    with pytest.raises(InvalidRequest, match=f"node {leader} is down or paused"):
        cluster.wait_healthy()
    cluster.start(leader)
    cluster.wait_healthy()
    assert cluster.log(leader).count("node.ready") >= 2
    (partition,) = log.admin.describe_topic(topic).partitions
    assert set(partition.isr) == NODES


@pytest.mark.long
def test_partitioned_leader_is_replaced_and_acknowledges_nothing(
    cluster: Cluster, log: quorumlog.Log
) -> None:
    topic = cluster.create_topic()
    leader = cluster.leader(topic)
    send(log, topic, "before")
    cluster.partition({leader})
    with pytest.raises(InvalidRequest, match="nodes are partitioned"):
        cluster.wait_healthy()
    assert send(log, topic, "meanwhile") == 1
    assert cluster.leader(topic) in NODES - {leader}
    assert cluster.controller(other_than=leader) in NODES - {leader}
    address = cluster.nodes[leader].grpc
    with (
        quorumlog.connect(address, call_timeout_ms=1_500) as alone,
        pytest.raises(QuorumlogError),
    ):
        alone.admin.create_topic("by-a-minority")
    cluster.heal()
    cluster.wait_healthy()
    values = [record.value for record in log.consumer(topic, until_end=True)]
    assert values == [b"before", b"meanwhile"]


def test_paused_leader_is_replaced_and_returns(cluster: Cluster, log: quorumlog.Log) -> None:
    topic = cluster.create_topic()
    leader = cluster.leader(topic)
    cluster.pause(leader)
    assert cluster.leader(topic) in NODES - {leader}
    assert send(log, topic, "meanwhile") == 0
    assert cluster.controller() in NODES - {leader}
    cluster.resume()
    cluster.wait_healthy()


def test_one_way_partition_removes_a_follower_from_the_isr(
    cluster: Cluster, log: quorumlog.Log
) -> None:
    topic = cluster.create_topic()
    leader = cluster.leader(topic)
    follower = min(NODES - {leader, cluster.controller()})
    cluster.cut(follower, leader)
    assert send(log, topic, "without it") == 0
    deadline = time.monotonic() + 60
    while follower in log.admin.describe_topic(topic).partitions[0].isr:
        # The leader has the new ISR a moment before the broker that is queried here.
        assert time.monotonic() < deadline, f"{follower} is still in sync"


@pytest.mark.long
def test_nodes_are_stopped_and_restarted_in_order(cluster: Cluster, log: quorumlog.Log) -> None:
    topic = cluster.create_topic()
    send(log, topic, "a")
    first = cluster.leader(topic)
    cluster.stop(first)
    assert cluster.leader(topic) != first
    cluster.start(first)
    before = {number: cluster.pid(number) for number in NODES}
    cluster.restart()
    assert all(cluster.pid(number) != before[number] for number in NODES)
    assert send(log, topic, "b") == 1


def test_calls_to_unknown_nodes_are_refused(cluster: Cluster) -> None:
    for refused in (
        lambda: cluster.kill(4),
        lambda: cluster.partition({1, 4}),
        lambda: cluster.cut(1, 4),
        lambda: cluster.log(0),
    ):
        with pytest.raises(InvalidRequest, match="no node"):
            refused()
    with pytest.raises(InvalidRequest, match="node 2 is in two groups"):
        cluster.partition({1, 2}, {2, 3})
    with pytest.raises(UnknownTopicOrPartition):
        cluster.leader("no-such-topic")


def test_separate_controllers_and_asyncio() -> None:
    async def main() -> None:
        async with Cluster(brokers=1, controllers=1) as cluster:
            assert [node.roles for node in cluster.nodes.values()] == [("broker",), ("controller",)]
            assert cluster.controller() == 2
            topic = await asyncio.to_thread(cluster.create_topic)
            async with quorumlog.aio.connect(cluster.grpc) as log:
                assert [each.name for each in await log.admin.list_topics()] == [topic]

    asyncio.run(main())


def test_start_without_a_majority_is_reported_and_leaves_nothing() -> None:
    cluster = Cluster(brokers=3, timeout_ms=3_000)
    folder = cluster.nodes[1].data_dir.parent
    with pytest.raises(TimedOut, match="node 1 does not serve within 3 s"):
        cluster.start(1)
    assert not cluster.is_up(1)
    cluster.close()
    assert not folder.exists()
    with pytest.raises(InvalidRequest, match="at least 1 broker"):
        Cluster(brokers=0)
