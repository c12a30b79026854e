"""Requests of a client that loses a right during a wait before their effect.

The removal of the right is committed before the request, but the broker applies it while the
request waits for its first step.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS
from tests.kit.users import UNCHECKED

from quorumlog import simulation
from quorumlog.errors import TopicAuthorizationFailed
from quorumlog.frontends.kafka.item_results import PARTS_A_REQUEST
from quorumlog.ids import ProducerIdentity
from quorumlog.metadata import DeleteAcls, ImageDelta
from quorumlog.metadata.acls import AclFilter, AclOperation, AclResourceType
from quorumlog.metadata.authorization import AuthorizerConfig
from quorumlog.proto import groups_pb2
from quorumlog.runtime import Runtime
from quorumlog.services import GROUPS_COMMIT_OFFSETS, GROUPS_DELETE_OFFSETS

from ..acl_changes import allow
from .admin_calls import create_topic
from .group_calls import OFFSET_DELETE, committed, ready
from .produce_fetch import produced
from .transaction_calls import new_producer, offsets_sent, transactional_batch

NAME: Final = "t"
"""Of the topic, the group and the transactional id."""
PARTITIONS: Final = PARTS_A_REQUEST + 1
TURNS_MAX: Final = 100_000
TURN_S: Final = 1e-6  # virtual
DENIED: Final = TopicAuthorizationFailed.code

_TOPIC, _GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
_ID, _CLUSTER = AclResourceType.TRANSACTIONAL_ID, AclResourceType.CLUSTER
RIGHTS: Final = (
    (AclOperation.CREATE, _CLUSTER),
    (AclOperation.ALL, _GROUP),
    (AclOperation.ALL, _ID),
    (AclOperation.ALL, _TOPIC),
)

Request = Callable[[KafkaNode, ProducerIdentity], Awaitable[list[int]]]
"""Returns the error code of each partition."""


async def commit_by_kafka(kafka: KafkaNode, producer: ProducerIdentity) -> list[int]:
    offsets = [(index, 1) for index in range(PARTITIONS)]
    return [code for _, code in await committed(kafka.client, 9, b"", *offsets, group_id=NAME)]


async def delete_by_kafka(kafka: KafkaNode, producer: ProducerIdentity) -> list[int]:
    parts = [{"partition_index": index} for index in range(PARTITIONS)]
    topics = [{"name": NAME, "partitions": parts}]
    answer = await kafka.client.ask(OFFSET_DELETE, 0, group_id=NAME, topics=topics)
    return [int(answer.error_code)]


async def commit_by_grpc(kafka: KafkaNode, producer: ProducerIdentity) -> list[int]:
    request = groups_pb2.CommitOffsetsRequest(group=NAME)
    for index in range(PARTITIONS):
        request.offsets.add(topic=NAME, partition=index, offset=1)
    try:
        await kafka.channel.call(GROUPS_COMMIT_OFFSETS, request, timeout_ms=WAIT_MS)
    except TopicAuthorizationFailed as error:
        return [error.code]
    return [0]


async def delete_by_grpc(kafka: KafkaNode, producer: ProducerIdentity) -> list[int]:
    request = groups_pb2.DeleteOffsetsRequest(group=NAME)
    for index in range(PARTITIONS):
        request.partitions.add(topic=NAME, partition=index)
    try:
        await kafka.channel.call(GROUPS_DELETE_OFFSETS, request, timeout_ms=WAIT_MS)
    except TopicAuthorizationFailed as error:
        return [error.code]
    return [0]


async def commit_in_transaction(kafka: KafkaNode, producer: ProducerIdentity) -> list[int]:
    names = {"transactional_id": NAME, "group_id": NAME}
    return await offsets_sent(kafka.client, producer, (0, 1), version=5, **names)


async def produce_in_transaction(kafka: KafkaNode, producer: ProducerIdentity) -> list[int]:
    batch = transactional_batch(producer, 0, b"late")
    (result,) = await produced(kafka.client, (0, batch), version=12, transactional_id=NAME)
    return [int(result.error_code)]


def is_waiting(kafka: KafkaNode) -> bool:
    """Return True if a coordinator is storing a step of the request."""
    parts = kafka.node.parts
    assert parts.groups is not None
    assert parts.transactions is not None
    return any(shard._waiting for shard in parts.groups._shards.values()) or any(
        shard._waiting for shard in parts.transactions._shards.values()
    )


async def lose_right_during(
    kafka: KafkaNode, request: Request, producer: ProducerIdentity
) -> list[int]:
    """Return the response to a request whose client loses its rights on the topic during its first
    wait."""
    session, publisher = kafka.node.parts.session, kafka.node.parts.publisher
    assert session is not None
    assert publisher is not None
    proceed = asyncio.Event()

    async def hold(delta: ImageDelta) -> None:
        await proceed.wait()

    publisher.subscribe(hold)
    command = DeleteAcls(filters=(AclFilter(resource_type=_TOPIC),))
    done = await session.submit(command, timeout_ms=WAIT_MS, authorized_offset=UNCHECKED)
    assert publisher.applied_offset < done.offset
    assert not is_waiting(kafka)
    answer = asyncio.ensure_future(request(kafka, producer))
    for _ in range(TURNS_MAX):
        if is_waiting(kafka):
            break
        await asyncio.sleep(TURN_S)
    assert is_waiting(kafka), "the request has no wait"
    proceed.set()
    return await answer


@pytest.mark.long
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (commit_by_kafka, [0] * PARTS_A_REQUEST + [DENIED]),
        (delete_by_kafka, [DENIED]),
        (commit_by_grpc, [DENIED]),
        (delete_by_grpc, [DENIED]),
        (commit_in_transaction, [DENIED]),
        (produce_in_transaction, [DENIED]),
    ],
)
def test_rights_are_checked_again_after_a_wait(
    request_: Request, expected: list[int], folder: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder, authorizer=AuthorizerConfig()) as kafka:
            await allow(kafka.node, RIGHTS, name=NAME)
            await create_topic(kafka.channel, NAME, partitions=PARTITIONS)
            await ready(kafka.client, NAME)
            assert set(await commit_by_kafka(kafka, ProducerIdentity(-1, -1))) == {0}
            producer = await new_producer(kafka.client, NAME)
            assert await lose_right_during(kafka, request_, producer) == expected
            replicas = kafka.node.parts.replicas
            assert replicas is not None
            replica = replicas.hosted.local_replica(NAME, 0)
            await replica.opened()
            assert replica.log.log_end_offset == 0

    simulation.run(main)
