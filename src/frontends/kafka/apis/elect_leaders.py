"""ElectLeaders: elect preferred leaders, or any live replica of partitions without a leader.

Version 0 has preferred elections alone (KIP-460) and no top-level error, which is therefore
repeated in each result. Without partitions, a preferred election covers those that it would change,
and an unclean one those without a leader.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from ....errors import InvalidRequest, QuorumlogError
from ....ids import NO_NODE
from ....proto import admin_pb2 as pb
from ...grpc.validation import check_partition
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import code_of, error_fields
from ..per_item import (
    Place,
    by_topic,
    check_count,
    error_of,
    outcome,
    place,
    split_valid,
    wait_applied,
    with_timeout,
)

PREFERRED: Final = 0
_KINDS: Final = {PREFERRED: pb.ELECTION_KIND_PREFERRED, 1: pb.ELECTION_KIND_UNCLEAN}

TOPICS_A_STEP: Final = 100  # between two turns of other tasks


async def elect_leaders(broker: BrokerContext, call: Call) -> Answer:
    """Forward the elections to the controller, and return each partition's result."""
    answer = await outcome(_elected(broker, call))
    if isinstance(answer, QuorumlogError):
        refused = {
            "error_code": code_of(answer),
            "replica_election_results": _each(call.body, answer),
        }
        return await encode_if_large(broker, call, refused, elements=_count(call.body))
    results = (
        (topic, {"partition_id": index, **error_fields(error)})
        for (topic, index), error in answer.items()
    )
    told = {
        "error_code": 0,
        "replica_election_results": by_topic(
            results, topic_as="topic", partitions_as="partition_result"
        ),
    }
    return await encode_if_large(broker, call, told, elements=len(answer))


async def _elected(broker: BrokerContext, call: Call) -> dict[Place, QuorumlogError | None]:
    body = call.body
    number = getattr(body, "election_type", PREFERRED)
    kind = _KINDS.get(number)
    if kind is None:
        raise InvalidRequest(f"election type {number}: unknown; give 0 (preferred) or 1 (unclean)")
    results: dict[Place, QuorumlogError | None] = {}
    request = pb.ElectLeadersRequest(kind=kind)
    if body.topic_partitions is not None:
        check_count(_count(body))
        good, refused = split_valid(_named(body), lambda part: check_partition(*place(part)))
        results.update(refused)
        request.partitions.extend(good)
    elif kind == pb.ELECTION_KIND_UNCLEAN:
        request.partitions.extend(await _leaderless(broker))
    if request.partitions or (body.topic_partitions is None and number == PREFERRED):
        context = with_timeout(call, body.timeout)
        answer = await broker.admin.partitions.elect_leaders(request, context)
        await wait_applied(broker, answer.metadata_offset, context)
        results.update((place(each), error_of(each)) for each in answer.results)
    return results


def _count(body: Any) -> int:
    return sum(len(each.partitions) for each in body.topic_partitions or ())


def _each(body: Any, error: QuorumlogError) -> Iterator[Fields]:
    """Return the same error for each partition of the request."""
    for each in body.topic_partitions or ():
        results = ({"partition_id": index, **error_fields(error)} for index in each.partitions)
        yield {"topic": each.topic, "partition_result": results}


def _named(body: Any) -> list[pb.TopicPartition]:
    return [
        pb.TopicPartition(topic=each.topic, partition=index)
        for each in body.topic_partitions
        for index in each.partitions
    ]


async def _leaderless(broker: BrokerContext) -> list[pb.TopicPartition]:
    found: list[pb.TopicPartition] = []
    for count, topic in enumerate(broker.image.sorted_topics(), 1):
        found.extend(
            pb.TopicPartition(topic=topic.name, partition=index)
            for index, partition in topic.sorted_partitions()
            if partition.leader == NO_NODE
        )
        if count % TOPICS_A_STEP == 0:
            await asyncio.sleep(0)
    return found


API: Final = KafkaApi(key=43, name="ElectLeaders", low=0, high=2, flexible=2, handle=elect_leaders)
