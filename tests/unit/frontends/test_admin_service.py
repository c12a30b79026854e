"""The gRPC service `Admin` of a whole node, by raw calls, on the real and the simulated runtime."""

from pathlib import Path
from typing import Any

import pytest
from tests.kit.node import WAIT_MS, Run, serving

from quorumlog import simulation
from quorumlog.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    NotImplementedHere,
    QuorumlogError,
    StaleMetadata,
    TimedOut,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Channel, Method, Runtime, real
from quorumlog.services import (
    ADMIN_ALTER_CONFIGS,
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_RECORDS,
    ADMIN_DELETE_TOPIC,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_CONFIGS,
    ADMIN_DESCRIBE_LOG_DIRS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    LOG_FETCH,
    LOG_PRODUCE,
)


async def create(channel: Channel, **fields: Any) -> admin_pb2.CreateTopicResponse:
    return await channel.call(
        ADMIN_CREATE_TOPIC, admin_pb2.CreateTopicRequest(**fields), timeout_ms=WAIT_MS
    )


async def delete(channel: Channel, **fields: Any) -> admin_pb2.DeleteTopicResponse:
    return await channel.call(
        ADMIN_DELETE_TOPIC, admin_pb2.DeleteTopicRequest(**fields), timeout_ms=WAIT_MS
    )


async def names(channel: Channel) -> list[str]:
    response = await channel.call(
        ADMIN_LIST_TOPICS, admin_pb2.ListTopicsRequest(), timeout_ms=WAIT_MS
    )
    return [topic.name for topic in response.topics]


async def produce(channel: Channel, topic: str, value: bytes) -> log_pb2.ProduceResult:
    stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
    request = log_pb2.ProduceRequest()
    records = encode_batch([Record(0, 1, None, value)])
    request.partitions.add(topic=topic, partition=0, records=records)
    await stream.send(request)
    await stream.finish()
    response = await stream.receive()
    assert response is not None
    assert await stream.receive() is None
    return response.results[0]


async def fetch(channel: Channel, topic: str) -> log_pb2.FetchResult:
    request = log_pb2.FetchRequest()
    request.partitions.add(topic=topic, partition=0, offset=0)
    return (await channel.call(LOG_FETCH, request, timeout_ms=WAIT_MS)).results[0]


def test_the_cluster_names_its_only_node(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder, node_id=5, node_rack="r1") as channel:
            response = await channel.call(
                ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest(), timeout_ms=WAIT_MS
            )
            assert len(response.cluster_id) == 22
            assert response.controller_id == 5
            (broker,) = response.brokers
            assert (broker.id, broker.rack, broker.fenced) == (5, "r1", False)
            assert broker.broker_epoch <= response.metadata_offset
            direct = runtime.network.channel(broker.grpc_address)
            assert await names(direct) == []
            await direct.close()

    run(main)


def test_created_topic_is_usable_after_the_response(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            for number in range(5):
                name = f"t{number}"
                response = await create(channel, name=name, partitions=3)
                assert response.usable
                assert (await produce(channel, name, b"v")).base_offset == 0
                assert len(response.topic.topic_id) == 16
                assert [p.partition for p in response.topic.partitions] == [0, 1, 2]
                assert {p.leader for p in response.topic.partitions} == {1}
            assert await names(channel) == ["t0", "t1", "t2", "t3", "t4"]

    run(main)


def test_topics_are_described_in_request_order(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            configs = [{"name": "max.message.bytes", "value": "5000"}]
            created = await create(channel, name="b", partitions=2, configs=configs)
            await create(channel, name="a")
            request = admin_pb2.DescribeTopicsRequest(
                names=["b", "nope", "a"], min_metadata_offset=created.metadata_offset
            )
            response = await channel.call(ADMIN_DESCRIBE_TOPICS, request, timeout_ms=WAIT_MS)
            b, nope, a = response.results
            assert b.topic == created.topic
            assert [(c.name, c.value) for c in b.topic.configs] == [("max.message.bytes", "5000")]
            assert nope.error.name == "UNKNOWN_TOPIC_OR_PARTITION"
            assert a.topic.partitions[0].replicas == [1]
            assert [broker.id for broker in response.brokers] == [1]

    run(main)


def test_a_repeat_with_the_same_topic_id_is_success(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            first = await create(channel, name="t", topic_id=bytes(range(16)))
            again = await create(channel, name="t", topic_id=bytes(range(16)))
            assert first.topic == again.topic
            with pytest.raises(TopicAlreadyExists):
                await create(channel, name="t", topic_id=bytes(15) + b"x")

    run(main)


def test_validate_only_changes_nothing(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, name="t", validate_only=True)
            assert await names(channel) == []

    simulation.run(main)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"name": "a b"}, InvalidTopic, "illegal"),
        ({"name": ""}, InvalidTopic, "empty"),
        ({"name": ".."}, InvalidTopic, "named"),
        ({"name": "x" * 250}, InvalidTopic, "249"),
        ({"name": "t", "topic_id": b"short"}, InvalidRequest, "topic_id: 5 bytes"),
        ({"name": "t", "partitions": -1}, InvalidPartitions, "-1"),
        ({"name": "t", "partitions": 10_001}, InvalidPartitions, "10001|10,001"),
        ({"name": "t", "replication_factor": 2}, InvalidReplicationFactor, "2"),
        ({"name": "t", "configs": [{"name": "x.y", "value": "1"}]}, InvalidConfig, r"x\.y"),
        (
            {"name": "t", "configs": [{"name": "flush.policy", "value": "maybe"}]},
            InvalidConfig,
            "maybe",
        ),
    ],
)
def test_refused_creation_has_a_reason_and_changes_nothing(
    run: Run, folder: str, fields: dict[str, Any], error: type[QuorumlogError], message: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            with pytest.raises(error, match=message):
                await create(channel, **fields)
            assert await names(channel) == []

    run(main)


def test_deleted_topic_is_removed_and_its_name_can_be_reused(run: Run, folder: str) -> None:
    """R29: a recreated topic has no records of the deleted one."""

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            for number in range(3):
                created = await create(channel, name="t")
                result = await produce(channel, "t", b"life %d" % number)
                assert result.base_offset == 0
                deleted = await delete(channel, name="t")
                assert deleted.topic_id == created.topic.topic_id
                assert deleted.applied
                refused = await produce(channel, "t", b"late")
                assert refused.error.name == "UNKNOWN_TOPIC_OR_PARTITION"
                assert (await fetch(channel, "t")).error.name == "UNKNOWN_TOPIC_OR_PARTITION"

    run(main)


def test_folder_of_a_deleted_topic_is_removed(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, str(tmp_path / "data")) as channel:
            await create(channel, name="t")
            await produce(channel, "t", b"v")
            assert (tmp_path / "data" / "t-0").is_dir()
            await delete(channel, name="t")

    real.run(main)
    assert not [path.name for path in (tmp_path / "data").iterdir() if path.name.startswith("t-0")]


def test_deletion_of_an_unknown_topic_is_an_error(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            with pytest.raises(UnknownTopicOrPartition):
                await delete(channel, name="t")
            with pytest.raises(UnknownTopicId):
                await delete(channel, topic_id=bytes(15) + b"x")
            with pytest.raises(InvalidRequest, match="both are empty"):
                await delete(channel)
            created = await create(channel, name="t")
            with pytest.raises(QuorumlogError):
                await delete(channel, name="t", topic_id=bytes(15) + b"x")
            await delete(channel, topic_id=created.topic.topic_id)
            assert await names(channel) == []

    run(main)


def test_request_waits_for_its_metadata_offset_and_then_times_out(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            request = admin_pb2.ListTopicsRequest(min_metadata_offset=10_000)
            with pytest.raises((StaleMetadata, TimedOut)):
                await channel.call(ADMIN_LIST_TOPICS, request, timeout_ms=300)

    simulation.run(main)


def test_unknown_method_is_unimplemented(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            method = Method(
                "/quorumlog.v1.Admin/Nothing",
                admin_pb2.ListTopicsRequest,
                admin_pb2.ListTopicsResponse,
            )
            with pytest.raises(NotImplementedHere):
                await channel.call(method, admin_pb2.ListTopicsRequest(), timeout_ms=WAIT_MS)

    run(main)


# --- configs and log directories ---------------------------------------------------------------


def test_each_config_resource_has_a_result_or_an_error_in_its_place(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, name="t")
            resources = [
                admin_pb2.ConfigResource(topic="none"),
                admin_pb2.ConfigResource(broker=1),
                admin_pb2.ConfigResource(topic="t"),
                admin_pb2.ConfigResource(broker=2),
            ]
            request = admin_pb2.DescribeConfigsRequest(resources=resources)
            answer = await channel.call(ADMIN_DESCRIBE_CONFIGS, request, timeout_ms=WAIT_MS)
            assert [result.resource for result in answer.results] == resources
            none, broker, topic, other = answer.results
            assert none.error.topic == "none"
            assert "data.dir" in [entry.name for entry in broker.configs]
            assert "flush.policy" in [entry.name for entry in topic.configs]
            assert "ask broker 2" in other.error.message
            assert not none.configs
            assert not other.configs

    run(main)


def test_altered_config_is_visible_at_the_metadata_offset_of_the_response(
    run: Run, folder: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, name="t")
            altered = await channel.call(
                ADMIN_ALTER_CONFIGS,
                admin_pb2.AlterConfigsRequest(
                    topic="t", changes=[{"name": "segment.bytes", "value": "64KiB"}]
                ),
                timeout_ms=WAIT_MS,
            )
            assert altered.applied
            request = admin_pb2.DescribeConfigsRequest(
                resources=[admin_pb2.ConfigResource(topic="t")],
                min_metadata_offset=altered.metadata_offset,
            )
            answer = await channel.call(ADMIN_DESCRIBE_CONFIGS, request, timeout_ms=WAIT_MS)
            by_name = {entry.name: entry for entry in answer.results[0].configs}
            assert by_name["segment.bytes"].value == "65536"
            assert by_name["segment.bytes"].source == admin_pb2.CONFIG_SOURCE_TOPIC
            assert answer.metadata_offset >= altered.metadata_offset

    run(main)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "request_", "kind", "words"),
    [
        (ADMIN_DESCRIBE_CONFIGS, admin_pb2.DescribeConfigsRequest(), InvalidRequest, "0 entries"),
        (
            ADMIN_DESCRIBE_CONFIGS,
            admin_pb2.DescribeConfigsRequest(resources=[admin_pb2.ConfigResource()]),
            InvalidRequest,
            "names no topic, broker or cluster",
        ),
        (
            ADMIN_DESCRIBE_CONFIGS,
            admin_pb2.DescribeConfigsRequest(resources=[{"broker": 1}] * 1_001),
            InvalidRequest,
            "1001 entries",
        ),
        (
            ADMIN_DESCRIBE_CONFIGS,
            admin_pb2.DescribeConfigsRequest(resources=[{"broker": 1}] * 2),
            InvalidRequest,
            "resources: broker 1 is given 2 times; give each once",
        ),
        (
            ADMIN_DESCRIBE_TOPICS,
            admin_pb2.DescribeTopicsRequest(names=["a", "b", "a"]),
            InvalidRequest,
            "names: a is given 2 times",
        ),
        (
            ADMIN_DESCRIBE_CONFIGS,
            admin_pb2.DescribeConfigsRequest(resources=[{"topic": "a/b"}]),
            InvalidTopic,
            "a/b",
        ),
        (
            ADMIN_ALTER_CONFIGS,
            admin_pb2.AlterConfigsRequest(topic="t"),
            InvalidRequest,
            "changes: 0 entries",
        ),
        (
            ADMIN_ALTER_CONFIGS,
            admin_pb2.AlterConfigsRequest(topic="", changes=[{"name": "retention.ms"}]),
            InvalidTopic,
            "topic name",
        ),
        (
            ADMIN_ALTER_CONFIGS,
            admin_pb2.AlterConfigsRequest(topic="none", changes=[{"name": "retention.ms"}]),
            UnknownTopicOrPartition,
            "does not exist",
        ),
        (
            ADMIN_DESCRIBE_LOG_DIRS,
            admin_pb2.DescribeLogDirsRequest(topics=["none"]),
            UnknownTopicOrPartition,
            "does not exist",
        ),
    ],
)
def test_invalid_request_for_configs_is_refused(
    run: Run,
    folder: str,
    method: Method[Any, Any],
    request_: Any,
    kind: type[QuorumlogError],
    words: str,
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            with pytest.raises(kind, match=words):
                await channel.call(method, request_, timeout_ms=WAIT_MS)

    run(main)


def test_log_directories_report_unreadable_partitions(run: Run, folder: str) -> None:
    """A damaged partition has an error in its place, and the others have their results."""

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, name="good")
            await create(channel, name="bad")
            for topic in ("good", "bad"):
                assert (await produce(channel, topic, b"x" * 200)).base_offset == 0
        files = runtime.files
        name = f"{folder}/bad-0/{0:020}.log"
        files.remove(f"{folder}/.kafka_cleanshutdown")
        file = files.open(name)
        file.write(8, [bytes(4)])  # the length of the batch
        file.close()
        async with serving(runtime, folder) as channel:
            answer = await channel.call(
                ADMIN_DESCRIBE_LOG_DIRS, admin_pb2.DescribeLogDirsRequest(), timeout_ms=WAIT_MS
            )
            assert (answer.broker, [each.path for each in answer.directories]) == (1, [folder])
            bad, good = answer.directories[0].logs
            assert (good.topic, good.log_end_offset, good.HasField("error")) == ("good", 1, False)
            assert (bad.topic, bad.error.topic) == ("bad", "bad")

    run(main)


async def delete_records(
    channel: Channel, *parts: tuple[str, int, int], topic_id: bytes = b""
) -> list[admin_pb2.DeleteRecordsResult]:
    request = admin_pb2.DeleteRecordsRequest()
    for topic, partition, before in parts:
        request.partitions.add(
            topic=topic, partition=partition, before_offset=before, topic_id=topic_id
        )
    response = await channel.call(ADMIN_DELETE_RECORDS, request, timeout_ms=WAIT_MS)
    assert response.metadata_offset > 0
    return list(response.results)


def test_each_partition_has_its_own_result_of_a_deletion_of_records(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, name="t", topic_id=b"t" * 16, partitions=2)
            for _ in range(3):
                await produce(channel, "t", b"v")
            parts = [("t", 0, 2), ("t", 1, 1), ("t", 9, 0), ("nope", 0, 0)]
            (below,) = await delete_records(channel, ("t", 0, -2))
            assert below.error.name == "OFFSET_OUT_OF_RANGE"
            results = await delete_records(channel, *parts)
            assert [(result.topic, result.partition) for result in results] == [
                part[:2] for part in parts
            ]
            assert [result.log_start_offset for result in results] == [2, -1, -1, -1]
            assert [result.error.name for result in results] == [
                "",
                "OFFSET_OUT_OF_RANGE",
                "UNKNOWN_TOPIC_OR_PARTITION",
                "UNKNOWN_TOPIC_OR_PARTITION",
            ]
            assert (results[1].error.topic, results[1].error.partition) == ("t", 1)
            assert (await fetch(channel, "t")).error.name == "OFFSET_OUT_OF_RANGE"
            (again,) = await delete_records(channel, ("t", 0, -1))
            assert again.log_start_offset == 3
            (other,) = await delete_records(channel, ("t", 0, -1), topic_id=b"u" * 16)
            assert other.error.name == "UNKNOWN_TOPIC_ID"
        async with serving(runtime, folder) as channel:
            (again,) = await delete_records(channel, ("t", 0, 0))
            assert again.log_start_offset == 3, "also after a restart"

    run(main)


def test_invalid_deletion_of_records_is_refused(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            for parts in ([], [("t", 0, 1), ("t", 0, 2)], [("t", -1, 0)]):
                with pytest.raises(InvalidRequest):
                    await delete_records(channel, *parts)
            with pytest.raises(InvalidRequest, match="topic_id"):
                await delete_records(channel, ("t", 0, 0), topic_id=b"short")

    run(main)
