"""Queries of stable offsets while a transaction has a pending one, by both front ends."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode

from quorumlog.broker.groups.requests import CommitTransactionalOffsets, OffsetToCommit
from quorumlog.errors import InvalidProducerEpoch, UnstableOffsetCommit
from quorumlog.ids import ProducerIdentity
from quorumlog.proto import groups_pb2 as pb
from quorumlog.records.control import TransactionMarker
from quorumlog.services import GROUPS_FETCH_OFFSETS

from .kafka import group_calls as calls
from .kafka.group_calls import GROUP, committed, on_a_node, ready

PRODUCER = ProducerIdentity(7, 0)
WAIT_MS = 20_000


def coordinator(kafka: KafkaNode) -> Any:
    return kafka.node.parts.groups


async def stage(kafka: KafkaNode, partition: int, offset: int) -> None:
    """Commit an offset in a transaction that counts as verified."""
    groups = coordinator(kafka)
    shard = groups._shards[groups.partition_of(GROUP)]
    request = CommitTransactionalOffsets(
        group=GROUP,
        transactional_id="x",
        producer=PRODUCER,
        guard=shard.loaded_state().verification_guard(PRODUCER, "x"),
        offsets=(OffsetToCommit(topic="t", partition=partition, offset=offset),),
    )
    deadline_ms = kafka.runtime.clock.now_ms() + WAIT_MS
    outcome = await groups.ask(request, deadline_ms=deadline_ms)
    assert outcome.errors == (None,)


async def end(kafka: KafkaNode) -> None:
    """Commit the transaction."""
    groups = coordinator(kafka)
    marker = TransactionMarker(ProducerIdentity(7, 1), 0, True, 2)
    deadline_ms = kafka.runtime.clock.now_ms() + WAIT_MS
    assert await groups.write_marker(groups.partition_of(GROUP), marker, deadline_ms) is None
    again = marker._replace(producer=PRODUCER)
    error = await groups.write_marker(groups.partition_of(GROUP), again, deadline_ms)
    assert isinstance(error, InvalidProducerEpoch)


async def fetched(
    kafka: KafkaNode, version: int, topic_id: bytes, *, is_stable: bool, partitions: Any = (0, 1)
) -> list[tuple[int, int, int]]:
    """Return partition, offset and error code of each partition."""
    named = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
    topics = None if partitions is None else [{**named, "partition_indexes": partitions}]
    group: dict[str, Any] = {"group_id": GROUP, "topics": topics}
    if version >= 9:
        group |= {"member_id": None, "member_epoch": -1}
    if version >= 8:
        answer = await kafka.client.ask(
            calls.OFFSET_FETCH, version, groups=[group], require_stable=is_stable
        )
        (result,) = answer.groups
    else:
        result = await kafka.client.ask(
            calls.OFFSET_FETCH, version, **group, require_stable=is_stable
        )
    assert not result.error_code
    return [
        (part.partition_index, part.committed_offset, int(part.error_code))
        for topic in result.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_kafka_clients_get_the_error_of_each_partition(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await ready(kafka.client)
        assert await committed(kafka.client, 9, topic_id, (0, 3), (1, 4)) == [(0, 0), (1, 0)]
        await stage(kafka, 1, 9)
        unstable = UnstableOffsetCommit.code
        for partitions in ((0, 1), None):
            found = await fetched(kafka, version, topic_id, is_stable=True, partitions=partitions)
            assert found == [(0, 3, 0), (1, -1, unstable)]
            found = await fetched(kafka, version, topic_id, is_stable=False, partitions=partitions)
            assert found == [(0, 3, 0), (1, 4, 0)]
        await end(kafka)
        found = await fetched(kafka, version, topic_id, is_stable=True)
        assert found == [(0, 3, 0), (1, 9, 0)]

    on_a_node(folder, main)


def test_grpc_clients_get_the_error_of_each_partition(folder: str) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await ready(kafka.client)
        assert await committed(kafka.client, 9, topic_id, (0, 3), (1, 4)) == [(0, 0), (1, 0)]
        await stage(kafka, 1, 9)

        async def found(**fields: Any) -> list[tuple[int, int, str]]:
            request = pb.FetchOffsetsRequest(group=GROUP, **fields)
            answer = await kafka.channel.call(GROUPS_FETCH_OFFSETS, request, timeout_ms=WAIT_MS)
            return [
                (each.offset.partition, each.offset.offset, each.error.name)
                for each in answer.results
            ]

        assert await found() == [(0, 3, ""), (1, 4, "")]
        unstable = [(0, 3, ""), (1, -1, "UNSTABLE_OFFSET_COMMIT")]
        assert await found(require_stable=True) == unstable
        parts = [pb.GroupPartition(topic="t", partition=each) for each in (0, 1)]
        assert await found(require_stable=True, partitions=parts) == unstable
        await end(kafka)
        assert await found(require_stable=True) == [(0, 3, ""), (1, 9, "")]

    on_a_node(folder, main)
