"""Broker addresses for Kafka clients while brokers fail and return."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.kit.kafka_client import connected
from tests.kit.simulated_cluster import LONG_MS, Play, cluster

from quorumlog.proto import admin_pb2
from quorumlog.runtime import Runtime
from quorumlog.services import ADMIN_CREATE_TOPIC

METADATA, DESCRIBE_CLUSTER = 3, 60
LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE = 5, 9


@pytest.fixture
def play() -> Iterator[Play]:
    with cluster(
        brokers=3,
        combined=True,
        racks="abc",
        kafka=("{}:9092", "INNER://{}:9192"),
    ) as play:
        yield play


def created(play: Play, name: str, *replicas: int) -> None:
    """Create a topic whose only partition has these replicas, the leader first."""

    async def main(runtime: Runtime) -> bool:
        channel = runtime.network.channel("n1:9094")
        request = admin_pb2.CreateTopicRequest(
            name=name, assignments=[admin_pb2.ReplicaAssignment(replicas=replicas)]
        )
        answer = await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=LONG_MS)
        await channel.close()
        return bool(answer.usable)

    assert play.ask(main)


def asked(play: Play, key: int, version: int, *, at: str = "n1:9092", **fields: Any) -> Any:
    async def main(runtime: Runtime) -> Any:
        async with connected(runtime, at) as client:
            return await client.ask(key, version, **fields)

    return play.ask(main)


def metadata(play: Play, *names: str, version: int = 8, at: str = "n1:9092") -> Any:
    fields: dict[str, Any] = {"topics": [{"name": name} for name in names]}
    if version >= 8:
        fields["include_cluster_authorized_operations"] = False
        fields["include_topic_authorized_operations"] = False
    return asked(play, METADATA, version, at=at, **fields)


def test_every_broker_returns_the_addresses_and_racks_of_all(play: Play) -> None:
    for asked_one in ("n1", "n2", "n3"):
        answer = metadata(play, at=f"{asked_one}:9092")
        brokers = {(each.node_id, each.host, each.port, each.rack) for each in answer.brokers}
        assert brokers == {(1, "n1", 9092, "a"), (2, "n2", 9092, "b"), (3, "n3", 9092, "c")}
    inner = metadata(play, at="n3:9192")
    assert {(each.host, each.port) for each in inner.brokers} == {
        ("n1", 9192),
        ("n2", 9192),
        ("n3", 9192),
    }


def test_a_broker_that_died_is_left_out_and_its_replicas_are_offline(play: Play) -> None:
    created(play, "safe", 2, 1)
    created(play, "alone", 2)
    play[2].sim.crash()
    play.until(lambda: play.is_fenced(2))
    answer = metadata(play, "safe", "alone")
    assert [each.node_id for each in answer.brokers] == [1, 3]
    safe, alone = (topic.partitions[0] for topic in answer.topics)
    assert (safe.error_code, safe.leader_id, safe.isr_nodes) == (0, 1, (1,))
    assert (safe.replica_nodes, safe.offline_replicas) == ((2, 1), (2,))
    assert (alone.error_code, alone.leader_id) == (LEADER_NOT_AVAILABLE, -1)
    assert alone.offline_replicas == (2,)


def test_version_0_returns_only_replicas_of_listed_brokers(play: Play) -> None:
    created(play, "safe", 2, 1)
    play[2].sim.crash()
    play.until(lambda: play.is_fenced(2))
    (topic,) = metadata(play, "safe", version=0).topics
    (safe,) = topic.partitions
    assert (safe.error_code, safe.leader_id) == (REPLICA_NOT_AVAILABLE, 1)
    assert (safe.replica_nodes, safe.isr_nodes) == ((1,), (1,))


def test_fenced_brokers_are_described_on_request(play: Play) -> None:
    play[2].sim.crash()
    play.until(lambda: play.is_fenced(2))
    for with_fenced, expected in (
        (False, {1: False, 3: False}),
        (True, {1: False, 2: True, 3: False}),
    ):
        answer = asked(
            play,
            DESCRIBE_CLUSTER,
            2,
            include_cluster_authorized_operations=False,
            include_fenced_brokers=with_fenced,
        )
        assert {each.broker_id: each.is_fenced for each in answer.brokers} == expected
