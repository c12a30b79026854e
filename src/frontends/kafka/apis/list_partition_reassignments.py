"""ListPartitionReassignments: list the reassignments in progress, of all or of named partitions
(KIP-455). Named partitions without one are left out, known or not."""

from typing import Any, Final

from ....errors import QuorumlogError
from ....metadata import PartitionImage
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import by_topic, outcome, with_timeout


async def list_partition_reassignments(broker: BrokerContext, call: Call) -> Answer:
    """List the replicas of each moving partition, with those being added and removed."""
    body = call.body
    context = with_timeout(call, body.timeout)
    listed = await outcome(broker.api.partitions.list_reassignments((), context))
    if isinstance(listed, QuorumlogError):
        return error_fields(listed)
    moving, _ = listed
    wanted = _wanted(body)
    moves = (
        (topic.name, _fields(index, partition))
        for topic, index, partition in moving
        if wanted is None or (topic.name, index) in wanted
    )
    topics = by_topic(moves, topic_as="name", partitions_as="partitions")
    response = {**error_fields(None), "topics": topics}
    return await encode_if_large(broker, call, response, elements=len(moving))


def _wanted(body: Any) -> set[tuple[str, int]] | None:
    if body.topics is None:
        return None
    return {(topic.name, index) for topic in body.topics for index in topic.partition_indexes}


def _fields(index: int, partition: PartitionImage) -> Fields:
    return {
        "partition_index": index,
        "replicas": partition.replicas,
        "adding_replicas": partition.adding,
        "removing_replicas": partition.removing,
    }


API: Final = KafkaApi(
    key=46,
    name="ListPartitionReassignments",
    low=0,
    high=0,
    flexible=0,
    handle=list_partition_reassignments,
)
