"""Topics are created and deleted. Decisions, pure."""

from collections.abc import Iterable

from ..errors import (
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..ids import NodeId, TopicId
from ..proto import metadata_records_pb2 as pb
from .commands import CreateTopic, DeleteTopic, TopicCreated, TopicDeleted
from .decision import ControllerConfig, Decision
from .image import MetadataImage, TopicImage, replay_batch
from .placement import place
from .topic_configs import check_configs
from .topic_names import check_topic_name, collision_key


def create_topic(image: MetadataImage, command: CreateTopic, config: ControllerConfig) -> Decision:
    check_topic_name(command.name)
    if len(command.topic_id) != 16 or not any(command.topic_id):
        raise InvalidRequest("a topic id has 16 bytes that are not all zero")
    existing = image.topics_by_id.get(command.topic_id)
    if existing is not None:
        return _repeated_create(existing, command)
    _check_name_is_free(image, command.name)
    partitions = command.partitions or config.partitions_default
    if not 1 <= partitions <= config.partitions_max:
        raise InvalidPartitions(
            f"a topic has 1 to {config.partitions_max} partitions, not {partitions}",
            topic=command.name,
        )
    active = [broker.id for broker in image.sorted_brokers() if broker.is_active]
    placement = place(
        active,
        partitions=partitions,
        replication_factor=command.replication_factor or config.replication_factor_default,
        start=int.from_bytes(command.topic_id[:4]),
    )
    configs = check_configs(command.configs, replication_factor=len(placement[0]))
    records = _topic_records(command, placement, configs)
    topic = topic_after(image, command.topic_id, records)
    return Decision(
        records=() if command.validate_only else records,
        reply=TopicCreated(topic=topic),
        brokers=() if command.validate_only else replicas_of(topic),
    )


def _repeated_create(existing: TopicImage, command: CreateTopic) -> Decision:
    """The same id again is the same request again: its first answer may have been lost."""
    if existing.name != command.name:
        raise InvalidRequest(
            f"topic id {command.topic_id.hex()} belongs to topic {existing.name!r}: draw a new one"
        )
    return Decision(records=(), reply=TopicCreated(topic=existing), brokers=replicas_of(existing))


def _check_name_is_free(image: MetadataImage, name: str) -> None:
    if name in image.topics_by_name:
        raise TopicAlreadyExists("the topic exists", topic=name)
    twin = image.topics_by_key.get(collision_key(name))
    if twin is not None:
        raise InvalidTopic(
            f"topic name {name!r} differs from {image.topics_by_id[twin].name!r} only in '.' and"
            " '_': choose another"
        )


def _topic_records(
    command: CreateTopic,
    placement: Iterable[tuple[NodeId, ...]],
    configs: Iterable[tuple[str, str]],
) -> tuple[pb.MetadataRecord, ...]:
    topic_id = command.topic_id
    records = [pb.MetadataRecord(topic=pb.TopicRecord(topic_id=topic_id, name=command.name))]
    for name, value in configs:
        record = pb.TopicConfigRecord(topic_id=topic_id, name=name, value=value)
        records.append(pb.MetadataRecord(topic_config=record))
    for index, replicas in enumerate(placement):
        partition = pb.PartitionRecord(
            topic_id=topic_id,
            partition=index,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        records.append(pb.MetadataRecord(partition=partition))
    return tuple(records)


def topic_after(
    image: MetadataImage, topic_id: TopicId, records: Iterable[pb.MetadataRecord]
) -> TopicImage:
    """The topic as it will be: the records replayed on a copy, so that nothing is said twice."""
    after = replay_batch(image, records, base_offset=image.offset + 1, epoch=image.epoch)
    return after.topics_by_id[topic_id]


def delete_topic(image: MetadataImage, command: DeleteTopic) -> Decision:
    topic = _topic_to_delete(image, command)
    record = pb.RemoveTopicRecord(topic_id=topic.id)
    return Decision(
        records=(pb.MetadataRecord(remove_topic=record),),
        reply=TopicDeleted(topic=topic),
        brokers=replicas_of(topic),
    )


def _topic_to_delete(image: MetadataImage, command: DeleteTopic) -> TopicImage:
    if command.topic_id is not None:
        topic = image.topics_by_id.get(command.topic_id)
        if topic is None or (command.name and topic.name != command.name):
            raise UnknownTopicId(
                f"there is no topic with id {command.topic_id.hex()}"
                + (f" and name {command.name!r}" if command.name else "")
            )
        return topic
    if not command.name:
        raise InvalidRequest("name the topic to delete, or give its id")
    named = image.topic(command.name)
    if named is None:
        raise UnknownTopicOrPartition("there is no such topic", topic=command.name)
    return named


def replicas_of(topic: TopicImage) -> tuple[NodeId, ...]:
    """The brokers that hold replicas of the topic, ascending."""
    nodes = {node for partition in topic.partitions.values() for node in partition.replicas}
    return tuple(sorted(nodes))
