"""CreatePartitions: add partitions to topics, each topic with its own result.

Without assignments the controller places the new partitions. A count equal to the present one is an
error, as in Kafka.
"""

from itertools import chain
from typing import Any, Final

from ....errors import InvalidPartitions, InvalidReplicaAssignment, InvalidRequest, QuorumlogError
from ....ids import NodeId
from ....metadata import CreatePartitions
from ....metadata.acls import AclOperation, AclResourceType
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import check_count, outcomes, repeated, wait_applied, with_timeout
from ..request_limits import ELEMENTS_MAX_OF_LISTS


async def create_partitions(broker: BrokerContext, call: Call) -> Answer:
    """Raise the partition count of each topic that is named once."""
    body = call.body
    context = with_timeout(call, body.timeout)
    twice = repeated(topic.name for topic in body.topics)
    topics = [topic for topic in body.topics if topic.name not in twice]

    async def grow(topic: Any) -> None:
        # before the count is compared: the answer must not depend on the topic
        broker.api.authorizer.check(
            context.client, AclOperation.ALTER, AclResourceType.TOPIC, topic.name
        )
        command = _command(broker, topic, validate_only=body.validate_only)
        submitted = await broker.api.topics.create_partitions(command, context)
        await wait_applied(broker, submitted.offset, context)

    results = await outcomes(broker, topics, grow, context=context)
    refusal = InvalidRequest("topic: named twice in the request; name each topic once")
    topic_results = chain(
        (_result(topic.name, of) for topic, of in zip(topics, results, strict=True)),
        (_result(name, refusal) for name in twice),
    )
    return await encode_if_large(
        broker, call, {"results": topic_results}, elements=len(topics) + len(twice)
    )


def _command(broker: BrokerContext, topic: Any, *, validate_only: bool) -> CreatePartitions:
    present = broker.image.topic(topic.name)
    if present is not None and len(present.partitions) == topic.count:
        raise InvalidPartitions(
            f"count: the topic has {topic.count} partitions already; give more", topic=topic.name
        )
    if topic.assignments is not None and not topic.assignments:
        raise InvalidReplicaAssignment(
            "assignments: empty; assign each new partition, or give null to have them placed",
            topic=topic.name,
        )
    assignments = topic.assignments or ()
    check_count(len(assignments))
    return CreatePartitions(
        topic=topic.name,
        count=topic.count,
        assignments=tuple(tuple(map(NodeId, each.broker_ids)) for each in assignments),
        validate_only=validate_only,
    )


def _result(name: str, outcome: QuorumlogError | None) -> Fields:
    return {"name": name, **error_fields(outcome)}


API: Final = KafkaApi(
    key=37,
    name="CreatePartitions",
    low=0,
    high=3,
    flexible=2,
    handle=create_partitions,
    elements_max=ELEMENTS_MAX_OF_LISTS,
)
