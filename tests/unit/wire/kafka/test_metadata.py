"""Metadata: brokers, topics and their leaders, in every version."""

from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.proto import admin_pb2
from quorumlog.runtime import Runtime
from quorumlog.services import ADMIN_CREATE_TOPIC

from ..served_node import WAIT_MS, Run
from .kafka_node import KafkaNode, serving_kafka

METADATA = 3
NODE = 1  # the one node's id
UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE = 3, 5
INVALID_TOPIC, INVALID_REPLICATION_FACTOR, INVALID_REQUEST, UNKNOWN_TOPIC_ID = 17, 38, 42, 100


async def created(kafka: KafkaNode, name: str, *, partitions: int = 1) -> bytes:
    request = admin_pb2.CreateTopicRequest(name=name, partitions=partitions)
    answer = await kafka.channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)
    assert answer.usable
    return bytes(answer.topic.topic_id)


async def asked(
    kafka: KafkaNode, *names: str, version: int = 13, may_create: bool = False, **fields: Any
) -> Any:
    topics = [{"name": name, "topic_id": bytes(16)} for name in names]
    return await kafka.client.ask(
        METADATA,
        version,
        **{
            "topics": topics,
            "allow_auto_topic_creation": may_create,
            **({"include_cluster_authorized_operations": False} if version in range(8, 11) else {}),
            "include_topic_authorized_operations": False,
            **fields,
        },
    )


@pytest.mark.parametrize("version", range(14))
def test_every_version_tells_brokers_and_leaders(run: Run, folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic_id = await created(kafka, "t", partitions=2)
            answer = await asked(kafka, "t", version=version)
            host, _, port = kafka.address.rpartition(":")
            (broker,) = answer.brokers
            assert (broker.node_id, broker.host, broker.port) == (NODE, host, int(port))
            (topic,) = answer.topics
            assert (topic.name, topic.error_code) == ("t", 0)
            assert [each.partition_index for each in topic.partitions] == [0, 1]
            assert {each.leader_id for each in topic.partitions} == {NODE}
            assert {(each.replica_nodes, each.isr_nodes) for each in topic.partitions} == {
                ((NODE,), (NODE,))
            }
            if version >= 1:
                assert answer.controller_id == NODE
            if version >= 2:
                assert len(answer.cluster_id) == 22
            if version >= 7:
                assert topic.partitions[0].leader_epoch == 0
            if version >= 10:
                assert topic.topic_id.bytes == topic_id

    run(main)
