"""DescribeTopicPartitions: return topics page by page, with the eligible leader replicas
(KIP-966)."""

from collections.abc import Iterator
from typing import Any, Final

from ....errors import InvalidRequest
from ....metadata import INTERNAL_TOPICS
from ....runtime.steps import step_counter
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..authorized_operations import describe_denial, topic_operations
from ..endpoints import endpoints
from ..item_results import PARTS_A_STEP
from ..topic_fields import missing_code, no_topic, place_fields

PARTITIONS_MAX: Final = 2_000
"""The limit of one response, whatever the request asks for."""

NO_ID: Final = bytes(16)


async def describe_topic_partitions(broker: BrokerContext, call: Call) -> Answer:
    """Describe topics by ascending name, up to the requested number of partitions, with a cursor
    for the next page."""
    body = call.body
    named = {each.name for each in body.topics}
    if not _is_sound(body.cursor, named):
        return {
            "topics": [
                no_topic(InvalidRequest.code, name=name, topic_id=NO_ID) for name in sorted(named)
            ]
        }
    if named:
        names = named
    else:
        describable, _ = await broker.api.topics.list_topics(call.context)
        names = {topic.name for topic in describable}
    image = broker.image
    alive = endpoints(image, call.client, asked=broker.hosted.node_id)
    room = max(1, min(body.response_partition_limit, PARTITIONS_MAX))
    topics: list[Fields] = []
    take_turn = step_counter(PARTS_A_STEP)
    for name, begin in _from(body.cursor, names):
        if room == 0:
            return _page(topics, next_at=(name, begin))
        await take_turn()
        denial = describe_denial(broker, call, name)
        if denial is not None:
            topics.append(no_topic(denial.code, name=name, topic_id=NO_ID))
            continue
        topic = image.topic(name)
        if topic is None:
            topics.append(no_topic(missing_code(name), name=name, topic_id=NO_ID))
            continue
        entries = topic.sorted_partitions()[begin:]
        topics.append(
            {
                "error_code": 0,
                "name": name,
                "topic_id": topic.id,
                "is_internal": name in INTERNAL_TOPICS,
                "topic_authorized_operations": topic_operations(broker, call, name),
                "partitions": [
                    {
                        **place_fields(index, partition, alive=alive),
                        "eligible_leader_replicas": partition.elr,
                        "last_known_elr": partition.last_known_elr,
                    }
                    for index, partition in entries[:room]
                ],
            }
        )
        if len(entries) > room:
            return _page(topics, next_at=(name, begin + room))
        room -= len(entries)
    return _page(topics, next_at=None)


def _is_sound(cursor: Any, named: set[str]) -> bool:
    """Return True if an earlier response to the same request could contain the cursor."""
    if cursor is None:
        return True
    return cursor.partition_index >= 0 and (not named or cursor.topic_name in named)


def _from(cursor: Any, names: set[str]) -> Iterator[tuple[str, int]]:
    """Yield the names from the cursor on, with the first partition of each."""
    for name in sorted(names):
        if cursor is None or name > cursor.topic_name:
            yield name, 0
        elif name == cursor.topic_name:
            yield name, cursor.partition_index


def _page(topics: list[Fields], *, next_at: tuple[str, int] | None) -> Fields:
    cursor = None
    if next_at is not None:
        cursor = {"topic_name": next_at[0], "partition_index": next_at[1]}
    return {"topics": topics, "next_cursor": cursor}


API: Final = KafkaApi(
    key=75,
    name="DescribeTopicPartitions",
    low=0,
    high=0,
    flexible=0,
    handle=describe_topic_partitions,
)
