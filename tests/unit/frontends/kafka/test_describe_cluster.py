"""DescribeCluster and DescribeTopicPartitions in every version."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, run_on_kafka_node
from tests.kit.node import WAIT_MS

from quorumlog.proto import admin_pb2
from quorumlog.services import ADMIN_CREATE_TOPIC

DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 60, 75
NODE = 1  # the id of the only node
UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, INVALID_REQUEST = 3, 17, 42
MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE = 114, 115
NOT_ASKED = -(2**31)


async def cluster(kafka: KafkaNode, version: int, **fields: Any) -> Any:
    wanted = {"include_cluster_authorized_operations": False, **fields}
    if version >= 2:
        wanted.setdefault("include_fenced_brokers", False)
    return await kafka.client.ask(DESCRIBE_CLUSTER, version, **wanted)


@pytest.mark.parametrize("version", range(3))
def test_every_version_describes_the_cluster_and_its_brokers(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode) -> None:
        answer = await cluster(kafka, version)
        host, _, port = kafka.address.rpartition(":")
        (broker,) = answer.brokers
        assert (broker.broker_id, broker.host, broker.port) == (NODE, host, int(port))
        assert (answer.error_code, answer.controller_id, len(answer.cluster_id)) == (0, NODE, 22)
        assert answer.cluster_authorized_operations == NOT_ASKED
        if version >= 2:
            assert broker.is_fenced is False

    run_on_kafka_node(main, folder)


@pytest.mark.parametrize(
    ("kind", "code"), [(2, MISMATCHED_ENDPOINT_TYPE), (3, UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_broker_returns_no_controllers(folder: str, kind: int, code: int) -> None:
    async def main(kafka: KafkaNode) -> None:
        answer = await cluster(kafka, 2, endpoint_type=kind)
        assert (answer.error_code, answer.brokers) == (code, ())
        assert "not served by brokers" in answer.error_message

    run_on_kafka_node(main, folder)


# --- topics in pages -----------------------------------------------------------------------------


async def with_topics(kafka: KafkaNode, **sizes: int) -> None:
    for name, partitions in sizes.items():
        request = admin_pb2.CreateTopicRequest(name=name, partitions=partitions)
        assert (await kafka.channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)).usable


async def page(
    kafka: KafkaNode, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """Return names, errors and partitions of a page, and the cursor of the next one."""
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    answer = await kafka.client.ask(
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=at,
    )
    following = answer.next_cursor
    return (
        [
            (each.name, int(each.error_code), [part.partition_index for part in each.partitions])
            for each in answer.topics
        ],
        None if following is None else (following.topic_name, following.partition_index),
    )


def test_topics_are_described_by_name_with_all_fields(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await with_topics(kafka, b=2, a=1)
        assert await page(kafka, "b", "a", "b") == ([("a", 0, [0]), ("b", 0, [0, 1])], None)
        answer = await kafka.client.ask(
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=({"name": "a"},),
            response_partition_limit=9,
            cursor=None,
        )
        (part,) = answer.topics[0].partitions
        assert (part.leader_id, part.replica_nodes, part.isr_nodes) == (NODE, (NODE,), (NODE,))
        assert (part.eligible_leader_replicas, part.last_known_elr) == ((), ())
        assert (part.offline_replicas, part.leader_epoch) == ((), 0)

    run_on_kafka_node(main, folder)


def test_request_without_topics_returns_all(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await with_topics(kafka, b=1, a=1)
        assert await page(kafka) == ([("a", 0, [0]), ("b", 0, [0])], None)

    run_on_kafka_node(main, folder)


def test_pages_return_every_partition_once(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await with_topics(kafka, a=3, b=2, c=4)
        listed, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            topics, cursor = await page(kafka, limit=2, cursor=cursor)
            listed += [(name, index) for name, _, indexes in topics for index in indexes]
            pages += 1
        assert listed == [(name, i) for name, n in (("a", 3), ("b", 2), ("c", 4)) for i in range(n)]
        assert pages == 5

    run_on_kafka_node(main, folder)


def test_a_page_that_ends_with_a_topic_begins_the_next_one_at_the_following(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await with_topics(kafka, a=2, b=1)
        assert await page(kafka, limit=2) == ([("a", 0, [0, 1])], ("b", 0))

    run_on_kafka_node(main, folder)


def test_limit_below_one_still_returns_a_partition(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await with_topics(kafka, a=2)
        assert await page(kafka, limit=0) == ([("a", 0, [0])], ("a", 1))

    run_on_kafka_node(main, folder)


def test_unknown_topic_has_an_error_in_its_place(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await with_topics(kafka, a=1)
        topics, cursor = await page(kafka, "a", "gone", "not/legal")
        assert [each[:2] for each in topics] == [
            ("a", 0),
            ("gone", UNKNOWN_TOPIC_OR_PARTITION),
            ("not/legal", INVALID_TOPIC),
        ]
        assert cursor is None

    run_on_kafka_node(main, folder)


def test_next_page_continues_after_its_topic_was_deleted(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await with_topics(kafka, a=1, c=1)
        assert await page(kafka, cursor=("b", 7)) == ([("c", 0, [0])], None)

    run_on_kafka_node(main, folder)


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0)])
def test_a_cursor_that_no_answer_had_is_refused(folder: str, cursor: tuple[str, int]) -> None:
    async def main(kafka: KafkaNode) -> None:
        await with_topics(kafka, a=1, b=1)
        assert await page(kafka, "a", cursor=cursor) == ([("a", INVALID_REQUEST, [])], None)

    run_on_kafka_node(main, folder)
