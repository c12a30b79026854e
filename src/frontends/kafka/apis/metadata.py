"""Metadata: return the brokers, and topics with the leaders of their partitions.

An unknown topic requested by name is created if the configuration and the request allow it, and is
usable when the response arrives. Fenced brokers lead nothing and are left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....errors import (
    InvalidRequest,
    QuorumlogError,
    TopicAlreadyExists,
    UnknownTopicId,
)
from ....ids import NodeId
from ....metadata import INTERNAL_TOPICS, CreateTopic, MetadataImage, PartitionImage, TopicImage
from ....runtime.steps import step_counter
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..authorized_operations import (
    cluster_operations,
    describe_denial,
    describes,
    topic_operations,
)
from ..encoding_offload import encode_if_large
from ..endpoints import BrokerEndpoint, controller_of, endpoints
from ..error_codes import LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND, REPLICA_NOT_AVAILABLE, code_of
from ..item_results import PARTS_A_STEP, in_steps, outcomes
from ..topic_fields import missing_code, no_topic, place_fields

CREATION_MS_MAX: Final = 5_000
"""The longest wait for the creation of a topic; clients retry then."""

PARTITIONS_A_STEP: Final = 500
"""Partitions described between two turns of other tasks: a few milliseconds."""

NO_ID: Final = bytes(16)

# the first version with topic ids; 10 and 11 have the field without a meaning
_KNOWS_IDS: Final = 12
_TELL_OF_CLUSTER_RIGHTS: Final = range(8, 11)  # later, DescribeCluster has them
_KNOWS_LISTENERS: Final = 6  # the first version with LISTENER_NOT_FOUND
_KNOWS_ONLY_LISTS: Final = 0  # an empty list of topics asks for all
_TELLS_ONLY_THE_LIVING: Final = 0  # clients of this version expect every replica among the brokers


async def metadata(broker: BrokerContext, call: Call) -> Answer:
    """Return the brokers and the requested topics."""
    cluster = await broker.api.cluster.describe(call.context)
    wanted, creations = _wanted(call), {}
    if wanted is not None:
        creations = await _create_unknown(broker, call, [name for name, _ in wanted if name])
    image = broker.image
    alive = endpoints(image, call.client, asked=broker.hosted.node_id)
    view = _View(broker=broker, call=call, image=image, alive=alive, creations=creations)
    if wanted is None:
        describable, _ = await broker.api.topics.list_topics(call.context)
        topics = await _collect(map(view.topic, describable))
    else:
        topics = await _collect(view.wanted(*each) for each in wanted)
    answer: dict[str, Any] = {
        "brokers": _broker_fields(alive.values()),
        "cluster_id": cluster.cluster_id,
        "controller_id": controller_of(alive, cluster.controller_id, broker.hosted.node_id),
        "topics": topics,
    }
    if call.version in _TELL_OF_CLUSTER_RIGHTS:
        is_asked = call.body.include_cluster_authorized_operations
        operations = cluster_operations(broker, call, is_asked=is_asked)
        answer["cluster_authorized_operations"] = operations
    partitions = sum(len(topic["partitions"]) for topic in topics)
    return await encode_if_large(broker, call, answer, elements=len(topics) + partitions)


async def _collect(topics: Iterable[Fields]) -> list[Fields]:
    """Collect the topics; other tasks run after every PARTITIONS_A_STEP partitions."""
    return await in_steps(
        topics, step=PARTITIONS_A_STEP, weight=lambda topic: 1 + len(topic["partitions"])
    )


def _broker_fields(brokers: Iterable[BrokerEndpoint]) -> list[Fields]:
    return [
        {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
        for each in brokers
    ]


# --- the request --------------------------------------------------------------------------------


def _wanted(call: Call) -> list[tuple[str | None, bytes]] | None:
    """Return name and id of each requested topic once, or None for all topics. A name beside an
    id is ignored, as in Kafka."""
    topics = call.body.topics
    if topics is None or (call.version == _KNOWS_ONLY_LISTS and not topics):
        return None
    if call.version < _KNOWS_IDS:
        return list(
            dict.fromkeys((each.name, _raw(getattr(each, "topic_id", None))) for each in topics)
        )
    named = ((each.name, _raw(each.topic_id)) for each in topics)
    return list(dict.fromkeys((None if raw != NO_ID else name, raw) for name, raw in named))


def _raw(topic_id: Any) -> bytes:
    return NO_ID if topic_id is None else topic_id.bytes


async def _create_unknown(
    broker: BrokerContext, call: Call, names: Sequence[str]
) -> dict[str, int]:
    """Create the unknown topics if that is allowed. Return the error code of each, 0 if created."""
    if not broker.settings.auto_create_topics:
        return {}
    if not getattr(call.body, "allow_auto_topic_creation", True):
        return {}
    take_turn, unknown = step_counter(PARTS_A_STEP), list[str]()
    for name in names:
        await take_turn()
        is_unknown = broker.image.topic(name) is None and name not in INTERNAL_TOPICS
        if is_unknown and describes(broker, call, name):
            unknown.append(name)
    if not unknown:
        return {}
    context = call.context_until(call.began_ms + CREATION_MS_MAX)

    async def create(name: str) -> None:
        await broker.api.topics.create(CreateTopic(name=name), context)

    results = await outcomes(broker, unknown, create, context=context)
    return dict(zip(unknown, map(_outcome_code, results), strict=True))


def _outcome_code(error: QuorumlogError | None) -> int:
    """Return the error code of a topic that is still unknown here after its creation."""
    if error is None or isinstance(error, TopicAlreadyExists) or error.retriable:
        return LEADER_NOT_AVAILABLE  # created, or possibly created: retriable
    return code_of(error)


# --- the response -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The topics of an image as one version of the response represents them."""

    broker: BrokerContext
    call: Call
    image: MetadataImage
    alive: Mapping[NodeId, BrokerEndpoint]
    creations: Mapping[str, int]  # by name: the error code, 0 if created

    def wanted(self, name: str | None, topic_id: bytes) -> Fields:
        """Return a requested topic, or its error."""
        if self.call.version < _KNOWS_IDS and (name is None or topic_id != NO_ID):
            return no_topic(InvalidRequest.code, name=name or "", topic_id=topic_id)
        if topic_id != NO_ID:
            topic = self.image.topic_of_id(topic_id)
            if topic is None:
                return no_topic(UnknownTopicId.code, name=None, topic_id=topic_id)
            denial = describe_denial(self.broker, self.call, topic.name)
            if denial is not None:
                return no_topic(denial.code, name=None, topic_id=topic_id)
            return self.topic(topic)
        if name is None:
            return no_topic(InvalidRequest.code, name=None, topic_id=topic_id)
        denial = describe_denial(self.broker, self.call, name)
        if denial is not None:
            return no_topic(denial.code, name=name, topic_id=topic_id)
        topic = self.image.topic(name)
        if topic is not None:
            return self.topic(topic)
        return no_topic(
            self.creations.get(name) or missing_code(name), name=name, topic_id=topic_id
        )

    def topic(self, topic: TopicImage) -> Fields:
        """Return a topic with its partitions."""
        return {
            "error_code": 0,
            "name": topic.name,
            "topic_id": topic.id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": [self._partition(*each) for each in topic.sorted_partitions()],
            "topic_authorized_operations": topic_operations(
                self.broker,
                self.call,
                topic.name,
                is_asked=getattr(self.call.body, "include_topic_authorized_operations", False),
            ),
        }

    def _partition(self, index: int, partition: PartitionImage) -> Fields:
        fields = place_fields(index, partition, alive=self.alive)
        down = fields["offline_replicas"]
        if self.call.version == _TELLS_ONLY_THE_LIVING and down:
            for name in ("replica_nodes", "isr_nodes"):
                fields = {**fields, name: [node for node in fields[name] if node not in down]}
        return {**fields, "error_code": self._error_code(partition, is_whole=not down)}

    def _error_code(self, partition: PartitionImage, *, is_whole: bool) -> int:
        if partition.leader in self.alive:
            is_told = is_whole or self.call.version > _TELLS_ONLY_THE_LIVING
            return 0 if is_told else REPLICA_NOT_AVAILABLE
        leader = self.image.broker(partition.leader)
        if leader is None or leader.fenced or self.call.version < _KNOWS_LISTENERS:
            return LEADER_NOT_AVAILABLE
        return LISTENER_NOT_FOUND


API: Final = KafkaApi(key=3, name="Metadata", low=0, high=13, flexible=9, handle=metadata)
