"""Requests of group members with plain fields in any version.

They are retried until the coordinator is ready.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tests.kit.kafka_client import RawClient
from tests.kit.kafka_node import KafkaNode, serving_kafka

from quorumlog import simulation
from quorumlog.runtime import Runtime

from .admin_calls import create_topic

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT = 8, 9, 10, 11, 12
LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 13, 14, 15, 16, 42
OFFSET_DELETE, CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 47, 68, 69

NOT_READY: Final = (14, 15, 16)  # loading, no coordinator, another broker: retry
GROUP: Final = "g"
TRIES: Final = 100


def subscription(*topics: str) -> bytes:
    """Return the subscription of a classic consumer."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def assignment(topic: str, *partitions: int) -> bytes:
    """Return the assignment of a classic consumer."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    indexes = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + name + indexes + struct.pack(">i", -1)


async def ready(client: RawClient, group: str = GROUP) -> None:
    """Wait until the group has a coordinator that has loaded its state."""
    for _ in range(TRIES):
        found = await client.ask(FIND_COORDINATOR, 6, key_type=0, coordinator_keys=(group,))
        if not found.coordinators[0].error_code:
            asked = {"group_id": group, "member_id": None, "topics": ()}
            stored = await client.ask(OFFSET_FETCH, 8, groups=[asked], require_stable=False)
            if int(stored.groups[0].error_code) not in NOT_READY:
                assert not stored.groups[0].error_code
                return
        await asyncio.sleep(0.1)
    raise AssertionError(f"group {group} has no coordinator")


def join_fields(version: int = 9, **others: Any) -> dict[str, Any]:
    """Return the fields of a join. `others` have their schema names."""
    fields = {
        "group_id": GROUP,
        "session_timeout": 10_000,
        "rebalance_timeout": 20_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("t")}],
        "reason": None,
        **others,
    }
    return {name: fields[name] for name in fields if name != "rebalance_timeout" or version}


async def joined(client: RawClient, version: int = 9, **others: Any) -> Any:
    """Join with the member id that the coordinator generates, if the version requires one."""
    answer = await client.ask(JOIN_GROUP, version, **join_fields(version, **others))
    if int(answer.error_code) == 79:
        others["member_id"] = answer.member_id
        answer = await client.ask(JOIN_GROUP, version, **join_fields(version, **others))
    assert not answer.error_code
    return answer


async def synced(
    client: RawClient, joined: Any, parts: Mapping[str, bytes], version: int = 5
) -> Any:
    """Sync. The leader sends `parts`, the assignments by member id."""
    return await client.ask(
        SYNC_GROUP,
        version,
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": name, "assignment": part} for name, part in parts.items()],
    )


async def alone(client: RawClient) -> Any:
    """Join as the only member of a classic group that reads partition 0 of `t`. Return the
    response."""
    await ready(client)
    member = await joined(client)
    answer = await synced(client, member, {member.member_id: assignment("t", 0)})
    assert not answer.error_code
    return member


def commit_fields(version: int, topic_id: bytes, *offsets: tuple[int, int]) -> dict[str, Any]:
    """Return the fields of a commit of partitions and offsets of topic `t`."""
    named = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
    parts = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            **({"committed_leader_epoch": 3} if version >= 6 else {}),
            "committed_metadata": "note",
        }
        for partition, offset in offsets
    ]
    retention = {"retention_time": -1} if version < 5 else {}
    return {"topics": [{**named, "partitions": parts}], **retention}


async def committed(
    client: RawClient,
    version: int,
    topic_id: bytes,
    *offsets: tuple[int, int],
    **member_fields: Any,
) -> list[tuple[int, int]]:
    """Commit. Return partitions and error codes."""
    answer = await client.ask(
        OFFSET_COMMIT,
        version,
        **{
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            **member_fields,
        },
        **commit_fields(version, topic_id, *offsets),
    )
    (topic,) = answer.topics
    assert (topic.topic_id.bytes if version >= 10 else topic.name) in (topic_id, "t")
    return [(part.partition_index, int(part.error_code)) for part in topic.partitions]


Main = Callable[[KafkaNode, bytes], Awaitable[None]]


def on_a_node(folder: str, main: Main, **settings: Any) -> None:
    """Run with a node that has topic `t` of two partitions, and the topic's id."""

    async def serve(runtime: Runtime) -> None:
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        async with serving_kafka(runtime, folder, **settings) as kafka:
            await main(kafka, await create_topic(kafka.channel, "t", partitions=2))

    simulation.run(serve)
