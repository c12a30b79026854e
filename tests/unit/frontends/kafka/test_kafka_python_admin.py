"""kafka-python's admin client works with a node."""

import asyncio
import warnings
from collections.abc import Callable

import pytest
from tests.kit.kafka_node import serving_kafka

from quorumlog.runtime import Runtime, real

from .admin_calls import NODE

with warnings.catch_warnings():  # it reads its own version in a way that Python deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition
    from kafka.admin import (
        ConfigResource,
        ConfigResourceType,
        KafkaAdminClient,
        NewPartitions,
        NewTopic,
    )
    from kafka.errors import (
        InvalidReplicationAssignmentError,
        NoReassignmentInProgressError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )

pytestmark = pytest.mark.slow  # a client with its own threads


@pytest.fixture
def with_admin(folder: str) -> Callable[[Callable[[KafkaAdminClient], None]], None]:
    """Return a function that runs a function with a client of a new node."""

    def run(work: Callable[[KafkaAdminClient], None]) -> None:
        def connected(address: str) -> None:
            admin = KafkaAdminClient(bootstrap_servers=address)
            try:
                work(admin)
            finally:
                admin.close()

        async def main(runtime: Runtime) -> None:
            async with serving_kafka(runtime, folder) as kafka:
                await asyncio.to_thread(connected, kafka.address)

        real.run(main)

    return run


WithAdmin = Callable[[Callable[[KafkaAdminClient], None]], None]


def topic(name: str, **configs: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name, configs=configs)


def test_topics_are_made_grown_and_deleted(with_admin: WithAdmin) -> None:
    def work(admin: KafkaAdminClient) -> None:
        made = admin.create_topics(
            [NewTopic("t", 3, 1, topic_configs={"retention.ms": "7"}), NewTopic("u", -1, -1)]
        )
        assert [(each["name"], each["error_code"]) for each in made["topics"]] == [
            ("t", 0),
            ("u", 0),
        ]
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic("t", 3, 1)])
        admin.create_partitions({"t": NewPartitions(5)})
        (described,) = admin.describe_topics(["t"])
        assert len(described["partitions"]) == 5
        admin.delete_topics(["t"])
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics(["t"])
        assert sorted(admin.list_topics()) == ["u"]

    with_admin(work)


def test_configs_are_altered_and_read_back(with_admin: WithAdmin) -> None:
    def work(admin: KafkaAdminClient) -> None:
        admin.create_topics([NewTopic("t", 1, 1, topic_configs={"retention.ms": "7"})])
        assert admin.alter_configs([topic("t", **{"segment.bytes": "65536"})]) == {
            "topic": {"t": "OK"}
        }
        configs = admin.describe_configs([topic("t")], config_filter="all")["topic"]["t"]
        assert configs["segment.bytes"]["value"] == "65536"
        assert configs["segment.bytes"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        broker = ConfigResource(ConfigResourceType.BROKER, str(NODE))
        settings = admin.describe_configs([broker], config_filter="all")["broker"][str(NODE)]
        assert settings["node.id"]["value"] == str(NODE)

    with_admin(work)


def test_the_cluster_is_described_and_partitions_are_changed(with_admin: WithAdmin) -> None:
    def work(admin: KafkaAdminClient) -> None:
        admin.create_topics([NewTopic("t", 3, 1)])
        first, second, third = (TopicPartition("t", index) for index in range(3))
        assert admin.alter_partition_reassignments(
            {first: [NODE], second: [NODE + 1], third: None}
        ) == {
            first: None,
            second: InvalidReplicationAssignmentError,
            third: NoReassignmentInProgressError,
        }
        assert admin.list_partition_reassignments() == {}
        deleted = admin.delete_records({first: -1})
        assert deleted[first]["low_watermark"] == 0
        (directories,) = admin.describe_log_dirs()
        (directory,) = directories["log_dirs"]
        assert [each["name"] for each in directory["topics"]] == ["t"]
        (quorum,) = admin.describe_metadata_quorum()["topics"]
        assert quorum["partitions"][0]["leader_id"] == NODE
        assert admin.describe_features()["metadata.version"]["finalized"] == (1, 1)

    with_admin(work)
