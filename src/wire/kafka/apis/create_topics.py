"""CreateTopics: makes topics; each stands for itself.

-1 partitions or replicas mean the cluster's defaults. Since version 5 an answer tells the topic as
it is made, since 7 its id (KIP-525, KIP-516).
"""

from collections.abc import Sequence
from typing import Any, Final

from ....errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    QuorumlogError,
)
from ....proto import admin_pb2 as pb
from ...grpc.configs import describe_topic_configs
from ..api import Answer, Api, Call, Door, Fields
from ..config_entries import created_configs
from ..large_answers import encoded
from ..messages import error_fields
from ..parts import applied, outcomes, repeated, within

DEFAULT: Final = -1


async def create_topics(door: Door, call: Call) -> Answer:
    """Create each topic that is named once."""
    body = call.body
    twice = repeated(topic.name for topic in body.topics)
    topics = [topic for topic in body.topics if topic.name not in twice]
    context = within(call, body.timeout)

    async def create(topic: Any) -> pb.CreateTopicResponse:
        request = _request(topic, validate_only=body.validate_only)
        response = await door.admin.create_topic(request, context)
        await applied(door, response.metadata_offset, context)
        return response

    results = await outcomes(door, topics, create)
    refusal = InvalidRequest("the request names this topic twice; name each once")
    told = [
        *(
            _result(door, topic.name, of, is_there=not body.validate_only)
            for topic, of in zip(topics, results, strict=True)
        ),
        *({"name": name, **error_fields(refusal)} for name in twice),
    ]
    configs = sum(len(result.get("configs", ())) for result in told)
    return await encoded(door, call, {"topics": told}, elements=len(told) + configs)


def _request(topic: Any, *, validate_only: bool) -> pb.CreateTopicRequest:
    request = pb.CreateTopicRequest(name=topic.name, validate_only=validate_only)
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"{config.name} has no value; leave it out for its default")
        request.configs.add(name=config.name, value=config.value)
    if topic.assignments:
        _assign(request, topic)
    elif topic.num_partitions == 0:
        raise InvalidPartitions("a topic has 1 or more partitions; give -1 for the default")
    elif topic.replication_factor == 0:
        raise InvalidReplicationFactor("a topic has 1 or more replicas; give -1 for the default")
    else:
        request.partitions = _number(topic.num_partitions)
        request.replication_factor = _number(topic.replication_factor)
    return request


def _assign(request: pb.CreateTopicRequest, topic: Any) -> None:
    if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
        raise InvalidRequest("brokers are assigned to partitions: give -1 for both numbers")
    replicas = {each.partition_index: each.broker_ids for each in topic.assignments}
    if sorted(replicas) != list(range(len(topic.assignments))):
        raise InvalidReplicaAssignment(
            "assign brokers to partitions 0, 1, 2 and so on, each once and none left out"
        )
    for index in range(len(replicas)):
        request.assignments.add(replicas=replicas[index])


def _number(value: int) -> int:
    """What the call has for a number: 0 is its default."""
    return 0 if value == DEFAULT else value


def _result(
    door: Door, name: str, outcome: pb.CreateTopicResponse | QuorumlogError, *, is_there: bool
) -> Fields:
    if isinstance(outcome, QuorumlogError):
        return {"name": name, **error_fields(outcome), "configs": ()}
    topic = outcome.topic
    return {
        "name": name,
        "topic_id": topic.topic_id if is_there else b"",
        **error_fields(None),
        "num_partitions": len(topic.partitions),
        "replication_factor": _replication_factor(topic.partitions),
        "configs": created_configs(
            describe_topic_configs(
                {config.name: config.value for config in topic.configs},
                door.image.cluster_configs,
                replication_factor=_replication_factor(topic.partitions),
            )
        ),
    }


def _replication_factor(partitions: Sequence[pb.PartitionDescription]) -> int:
    return len(partitions[0].replicas)


API: Final = Api(key=19, name="CreateTopics", low=2, high=7, flexible=5, handle=create_topics)
