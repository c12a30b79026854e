"""Requests of administrators with plain fields, for the tests of many API keys."""

from collections.abc import Mapping
from typing import Any

from tests.kit.kafka_client import RawClient
from tests.kit.node import WAIT_MS

from quorumlog.proto import admin_pb2
from quorumlog.runtime import Channel
from quorumlog.services import ADMIN_CREATE_TOPIC, ADMIN_DESCRIBE_TOPICS

TIMEOUT_MS = 60_000
NODE = 1  # the id of the only node


async def create_topic(
    channel: Channel,
    name: str,
    *,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    assignments: tuple[tuple[int, ...], ...] = (),
) -> bytes:
    """Create a topic by gRPC. Return its id."""
    request = admin_pb2.CreateTopicRequest(
        name=name,
        partitions=0 if assignments else partitions,
        configs=[
            admin_pb2.ConfigEntry(name=key, value=value) for key, value in (configs or {}).items()
        ],
        assignments=[admin_pb2.ReplicaAssignment(replicas=nodes) for nodes in assignments],
    )
    answer = await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)
    return answer.topic.topic_id


async def described(channel: Channel, name: str) -> admin_pb2.DescribeTopicResult:
    """Return the gRPC description of a topic."""
    request = admin_pb2.DescribeTopicsRequest(names=[name])
    answer = await channel.call(ADMIN_DESCRIBE_TOPICS, request, timeout_ms=WAIT_MS)
    return answer.results[0]


def codes(results: Any) -> list[tuple[str, int]]:
    """Return name and error code of each result."""
    return [(each.name, each.error_code) for each in results]


async def timed(client: RawClient, key: int, version: int, /, **fields: Any) -> Any:
    """Send a request with a sufficient timeout."""
    return await client.ask(key, version, timeout=TIMEOUT_MS, **fields)
