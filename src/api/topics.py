"""Topics: list, describe, create, delete, add partitions."""

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..errors import (
    InvalidRequest,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..ids import NodeId, Offset, TopicId
from ..metadata import (
    BrokerImage,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    PartitionsCreated,
    Submitted,
    TopicCreated,
    TopicDeleted,
    TopicImage,
    check_not_internal,
    check_topic_name,
)
from ..metadata.acls import AclOperation, AclResourceType
from ..runtime.steps import step_counter
from .authorizer import Authorizer
from .metadata_access import MetadataAccess, existing_topic
from .request_context import RequestContext
from .validation import NAMES_MAX, check_assignments, check_distinct, check_topic_id

TOPICS_A_STEP: Final = 500  # decided between two turns of other tasks
PARTITIONS_A_STEP: Final = 2_000  # described between two turns of other tasks


class DescribedTopics(Struct, frozen=True, kw_only=True):
    """The requested topics in order, an error for an unknown or unauthorized one."""

    topics: tuple[TopicImage | UnknownTopicOrPartition | TopicAuthorizationFailed, ...]
    brokers: tuple[BrokerImage, ...]  # with replicas of these topics, by ascending id
    offset: Offset


class TopicAdmin:
    """The operations on topics."""

    def __init__(self, metadata: MetadataAccess, authorizer: Authorizer) -> None:
        self._metadata = metadata
        self._authorizer = authorizer

    async def list_topics(self, context: RequestContext) -> tuple[list[TopicImage], Offset]:
        """Return the topics that the client may describe, by ascending name, and the offset of the
        metadata. Other tasks run in between."""
        image = await self._metadata.reach(context)
        topics = image.sorted_topics()
        if not self._authorizer.is_enabled:
            return topics, image.offset
        found, take_turn = list[TopicImage](), step_counter(TOPICS_A_STEP)
        for topic in topics:
            if self._describes(topic.name, context):
                found.append(topic)
            await take_turn()
        return found, image.offset

    async def describe(self, names: Sequence[str], context: RequestContext) -> DescribedTopics:
        """Describe the requested topics."""
        if not 1 <= len(names) <= NAMES_MAX:
            raise InvalidRequest(f"names: {len(names)} entries; give 1..{NAMES_MAX}")
        check_distinct("names", names)
        image = await self._metadata.reach(context)
        topics: list[TopicImage | UnknownTopicOrPartition | TopicAuthorizationFailed] = []
        nodes: set[NodeId] = set()
        take_turn = step_counter(PARTITIONS_A_STEP)
        for name in names:
            check_topic_name(name)
            try:
                self._check(AclOperation.DESCRIBE, name, context)
                topic = existing_topic(image, name)
            except (UnknownTopicOrPartition, TopicAuthorizationFailed) as error:
                topics.append(error)
                continue
            topics.append(topic)
            for partition in topic.partitions.values():
                nodes.update(partition.replicas)
            await take_turn(len(topic.partitions))
        found = (image.broker(node_id) for node_id in sorted(nodes))
        return DescribedTopics(
            topics=tuple(topics),
            brokers=tuple(broker for broker in found if broker is not None),
            offset=image.offset,
        )

    async def create(
        self, command: CreateTopic, context: RequestContext
    ) -> Submitted[TopicCreated]:
        """Create a topic; `applied` in the result means that produce and fetch work at once. Needs
        Create on the cluster or on the topic.

        With an authorizer, the id of the topic is a digest of the given one, the client and the
        name: a repeat has the same id, but no client can choose the id of another or of a deleted
        topic, by which other clients may still read and write.
        """
        authorize = partial(self._check_create, command.name, context)
        authorize()
        check_topic_name(command.name)
        check_not_internal(command.name)
        check_topic_id(command.topic_id)
        check_assignments(command.assignments)
        if self._authorizer.is_enabled and command.topic_id and not context.client.is_node:
            parts = (context.client.principal.encode(), command.name.encode(), command.topic_id)
            digest = sha256(b"".join(sha256(part).digest() for part in parts)).digest()
            command = replace(command, topic_id=TopicId(digest[: len(command.topic_id)]))
        return await self._metadata.submit(command, context, authorize)

    async def delete(
        self, command: DeleteTopic, context: RequestContext
    ) -> Submitted[TopicDeleted]:
        """Delete a topic with all its records. The answer to a client without Describe is the same
        whether or not the topic exists."""
        check_topic_id(command.topic_id or b"")
        if command.name:
            check_topic_name(command.name)
        elif not command.topic_id:
            raise InvalidRequest("name and topic_id: both are empty; give one of them")
        if not command.name and self._authorizer.is_enabled:
            await self._metadata.reach(context)
        authorize = partial(self._check_delete, command, context)
        return await self._metadata.submit(command, context, authorize)

    async def create_partitions(
        self, command: CreatePartitions, context: RequestContext
    ) -> Submitted[PartitionsCreated]:
        """Raise the partition count of a topic; an unchanged count succeeds."""
        check_topic_name(command.topic)
        check_topic_id(command.topic_id or b"")
        if command.count < 1:
            raise InvalidRequest(f"count: {command.count}; give 1 or more", topic=command.topic)
        check_assignments(command.assignments)
        authorize = partial(self._check, AclOperation.ALTER, command.topic, context)
        return await self._metadata.submit(command, context, authorize)

    def _describes(self, name: str, context: RequestContext) -> bool:
        return self._authorizer.allows(
            context.client, AclOperation.DESCRIBE, AclResourceType.TOPIC, name
        )

    def _check(self, operation: AclOperation, name: str, context: RequestContext) -> None:
        self._authorizer.check(context.client, operation, AclResourceType.TOPIC, name)

    def _check_create(self, name: str, context: RequestContext) -> None:
        create = AclOperation.CREATE
        if not self._authorizer.allows(context.client, create, AclResourceType.CLUSTER):
            self._check(create, name, context)

    def _check_delete(self, command: DeleteTopic, context: RequestContext) -> None:
        """Raise the denial. An id that this broker does not have is refused too, as the controller
        may have it already and does not authorize clients."""
        if command.name:
            self._check(AclOperation.DELETE, command.name, context)
            return
        if not self._authorizer.is_enabled:
            return
        topic_id = command.topic_id or b""
        topic = self._metadata.image.topic_of_id(topic_id)
        if topic is None:
            raise UnknownTopicId(
                f"topic id {topic_id.hex()} does not exist at this broker; retry if the topic was"
                " just created"
            )
        describe, kind = AclOperation.DESCRIBE, AclResourceType.TOPIC
        if self._authorizer.denial(context.client, describe, kind, topic.name) is not None:
            raise TopicAuthorizationFailed(  # the client has no right to learn the name
                f"{context.client.principal} is not authorized: Delete the topic of this id; ask an"
                " administrator for an ACL"
            )
        self._check(AclOperation.DELETE, topic.name, context)
