"""AlterPartitionReassignments: start or cancel reassignments, each partition with its own result.

Null replicas cancel a reassignment (KIP-455). Version 1 can require an unchanged replication factor
(KIP-860).
"""

from typing import Any, Final

from ....api.validation import check_assignments, check_partition
from ....errors import QuorumlogError
from ....ids import NodeId
from ....metadata import AlterReassignments, Reassignment
from ..api import Answer, BrokerContext, Call, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
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
from ..request_limits import ELEMENTS_MAX_OF_LISTS


async def alter_partition_reassignments(broker: BrokerContext, call: Call) -> Answer:
    """Forward the valid reassignments to the controller, and return each partition's result."""
    asked = {"allow_replication_factor_change": _may_change_number(call.body)}
    results = await outcome(_altered(broker, call))
    if isinstance(results, QuorumlogError):
        return {**asked, **error_fields(results)}
    responses = (
        (topic, {"partition_index": index, **error_fields(error)})
        for (topic, index), error in results.items()
    )
    body = {
        **asked,
        **error_fields(None),
        "responses": by_topic(responses, topic_as="name", partitions_as="partitions"),
    }
    return await encode_if_large(broker, call, body, elements=len(results))


async def _altered(broker: BrokerContext, call: Call) -> dict[Place, QuorumlogError | None]:
    body = call.body
    check_count(sum(len(topic.partitions) for topic in body.topics))
    good, refused = split_valid(_named(body), _check, at=place)
    results: dict[Place, QuorumlogError | None] = dict(refused)
    if good:
        command = AlterReassignments(
            reassignments=tuple(good), keep_replication_factor=not _may_change_number(body)
        )
        context = with_timeout(call, body.timeout)
        submitted = await broker.api.partitions.alter_reassignments(command, context)
        await wait_applied(broker, submitted.offset, context)
        results.update((place(each), each.error) for each in submitted.reply.outcomes)
    return results


def _may_change_number(body: Any) -> bool:
    """Return True if a reassignment may change the replication factor; the response repeats it."""
    may: bool = getattr(body, "allow_replication_factor_change", True)
    return may


def _named(body: Any) -> list[Reassignment]:
    return [
        Reassignment(
            topic=topic.name,
            partition=part.partition_index,
            replicas=None if part.replicas is None else tuple(map(NodeId, part.replicas)),
        )
        for topic in body.topics
        for part in topic.partitions
    ]


def _check(move: Reassignment) -> None:
    check_partition(*place(move))
    if move.replicas is not None:
        check_assignments([move.replicas])


API: Final = KafkaApi(
    key=45,
    name="AlterPartitionReassignments",
    low=0,
    high=1,
    flexible=0,
    handle=alter_partition_reassignments,
    elements_max=ELEMENTS_MAX_OF_LISTS,
)
