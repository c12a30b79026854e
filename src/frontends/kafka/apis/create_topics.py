"""CreateTopics: create topics, each with its own result.

-1 partitions or replicas mean the cluster's defaults. Since version 5 the response describes the
created topic, since 7 with its id (KIP-525, KIP-516).
"""

from collections.abc import Iterator
from typing import Any, Final

from ....api.configs import describe_topic_configs
from ....errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    QuorumlogError,
    TopicAuthorizationFailed,
)
from ....ids import NodeId
from ....metadata import TOPIC_CONFIGS, CreateTopic, MetadataImage, TopicImage
from ....metadata.acls import AclOperation, AclResourceType
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..config_resources import created_configs
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import check_count, outcomes, repeated, wait_applied, with_timeout
from ..request_limits import ELEMENTS_MAX_OF_LISTS

DEFAULT: Final = -1
FIRST_WITH_CONFIGS: Final = 5
_NO_CONFIGS: Final = {
    "topic_config_error_code": TopicAuthorizationFailed.code,
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": (),
}
"""For a client that may not describe the topic's configs (KIP-525)."""


async def create_topics(broker: BrokerContext, call: Call) -> Answer:
    """Create each topic that is named once."""
    body = call.body
    twice = repeated(topic.name for topic in body.topics)
    topics = [topic for topic in body.topics if topic.name not in twice]
    context = with_timeout(call, body.timeout)

    async def create(topic: Any) -> TopicImage:
        command = _command(topic, validate_only=body.validate_only)
        submitted = await broker.api.topics.create(command, context)
        await wait_applied(broker, submitted.offset, context)
        return submitted.reply.topic

    results = await outcomes(broker, topics, create, context=context)
    refusal = InvalidRequest("topic: named twice in the request; name each topic once")
    image = broker.image
    with_configs = call.version >= FIRST_WITH_CONFIGS

    def topic_fields() -> Iterator[Fields]:
        for topic, made in zip(topics, results, strict=True):
            if isinstance(made, QuorumlogError):
                yield _refused(topic.name, made)
            elif with_configs and not _describes_configs(broker, call, made.name):
                yield _created(made, is_there=not body.validate_only) | _NO_CONFIGS
            else:
                configs = _configs(image, made) if with_configs else ()
                created = _created(made, is_there=not body.validate_only)
                yield {**created, "configs": configs}
        for name in twice:
            yield _refused(name, refusal)

    each = 1 + (len(TOPIC_CONFIGS) if with_configs else 0)
    return await encode_if_large(
        broker, call, {"topics": topic_fields()}, elements=(len(topics) + len(twice)) * each
    )


def _command(topic: Any, *, validate_only: bool) -> CreateTopic:
    check_count(len(topic.configs) + len(topic.assignments))
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"{config.name}: no value; leave it out for its default")
    assignments: tuple[tuple[NodeId, ...], ...] = ()
    partitions = replication_factor = 0
    if topic.assignments:
        assignments = _assignments(topic)
    elif topic.num_partitions == 0:
        raise InvalidPartitions("partitions: 0; give 1 or more, or -1 for the default")
    elif topic.replication_factor == 0:
        raise InvalidReplicationFactor(
            "replication factor: 0; give 1 or more, or -1 for the default"
        )
    else:
        partitions = _number(topic.num_partitions)
        replication_factor = _number(topic.replication_factor)
    return CreateTopic(
        name=topic.name,
        partitions=partitions,
        replication_factor=replication_factor,
        configs=tuple((config.name, config.value) for config in topic.configs),
        validate_only=validate_only,
        assignments=assignments,
    )


def _assignments(topic: Any) -> tuple[tuple[NodeId, ...], ...]:
    if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
        raise InvalidRequest("assignments: counts are given too; give -1 for both of them")
    replicas = {each.partition_index: each.broker_ids for each in topic.assignments}
    if sorted(replicas) != list(range(len(topic.assignments))):
        raise InvalidReplicaAssignment(
            "assignments: not partitions 0, 1, 2 and so on; assign each partition once"
        )
    return tuple(tuple(map(NodeId, replicas[index])) for index in range(len(replicas)))


def _number(value: int) -> int:
    """Return the command's value of a count, in which 0 is the default."""
    return 0 if value == DEFAULT else value


def _refused(name: str, error: QuorumlogError) -> Fields:
    return {"name": name, **error_fields(error), "configs": ()}


def _describes_configs(broker: BrokerContext, call: Call, topic: str) -> bool:
    return broker.api.authorizer.allows(
        call.client.identity, AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, topic
    )


def _created(topic: TopicImage, *, is_there: bool) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.id if is_there else b"",
        **error_fields(None),
        "num_partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
    }


def _configs(image: MetadataImage, topic: TopicImage) -> list[Fields]:
    described = describe_topic_configs(
        topic.configs, image.cluster_configs, replication_factor=topic.replication_factor
    )
    return created_configs(described)


API: Final = KafkaApi(
    key=19,
    name="CreateTopics",
    low=2,
    high=7,
    flexible=5,
    handle=create_topics,
    elements_max=ELEMENTS_MAX_OF_LISTS,
)
