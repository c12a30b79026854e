"""ElectLeaders: elect preferred leaders, or any live replica of partitions without a leader.

Version 0 has preferred elections alone (KIP-460) and no top-level error, which is therefore
repeated in each result. Without partitions, a preferred election covers those that it would change,
and an unclean one those without a leader.
"""

from collections.abc import Iterator
from typing import Any, Final

from ....api.validation import check_partition
from ....errors import InvalidRequest, QuorumlogError
from ....metadata import ElectLeaders
from ....metadata.acls import AclOperation, AclResourceType
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import code_of, error_fields
from ..item_results import (
    Place,
    by_topic,
    check_count,
    outcome,
    place,
    split_valid,
    wait_applied,
    with_timeout,
)

PREFERRED, UNCLEAN = 0, 1


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
    body = {
        "error_code": 0,
        "replica_election_results": by_topic(
            results, topic_as="topic", partitions_as="partition_result"
        ),
    }
    return await encode_if_large(broker, call, body, elements=len(answer))


async def _elected(broker: BrokerContext, call: Call) -> dict[Place, QuorumlogError | None]:
    body = call.body
    # here too: the partitions without a leader are collected before the operation checks it
    broker.api.authorizer.check(call.client.identity, AclOperation.ALTER, AclResourceType.CLUSTER)
    kind = getattr(body, "election_type", PREFERRED)
    if kind not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"election type {kind}: unknown; give 0 (preferred) or 1 (unclean)")
    results: dict[Place, QuorumlogError | None] = {}
    partitions: list[Place] = []
    if body.topic_partitions is not None:
        check_count(_count(body))
        partitions, refused = split_valid(
            _named(body), lambda at: check_partition(*at), at=lambda at: at
        )
        results.update(refused)
    elif kind == UNCLEAN:
        partitions = await broker.api.partitions.without_leader()
    if partitions or (body.topic_partitions is None and kind == PREFERRED):
        context = with_timeout(call, body.timeout)
        command = ElectLeaders(unclean=kind == UNCLEAN, partitions=tuple(partitions))
        submitted = await broker.api.partitions.elect_leaders(command, context)
        await wait_applied(broker, submitted.offset, context)
        results.update((place(each), each.error) for each in submitted.reply.outcomes)
    return results


def _count(body: Any) -> int:
    return sum(len(each.partitions) for each in body.topic_partitions or ())


def _each(body: Any, error: QuorumlogError) -> Iterator[Fields]:
    """Return the same error for each partition of the request."""
    for each in body.topic_partitions or ():
        results = ({"partition_id": index, **error_fields(error)} for index in each.partitions)
        yield {"topic": each.topic, "partition_result": results}


def _named(body: Any) -> list[Place]:
    return [(each.topic, index) for each in body.topic_partitions for index in each.partitions]


API: Final = KafkaApi(key=43, name="ElectLeaders", low=0, high=2, flexible=2, handle=elect_leaders)
