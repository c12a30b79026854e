"""Creation, growth and deletion of topics. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from ...errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...ids import NO_NODE, NodeId, TopicId
from ...proto import metadata_records_pb2 as pb
from ..commands import (
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    PartitionsCreated,
    RelayedCommand,
    Reply,
    TopicCreated,
    TopicDeleted,
)
from ..config import ControllerConfig
from ..decision import AnyDecision, Decision, LongDecision
from ..image import MetadataImage, TopicImage
from ..replay import replay_batch
from ..topic_configs import check_configs
from ..topic_names import (
    INTERNAL_TOPICS,
    check_not_internal,
    check_topic_name,
    collision_key,
)
from .placement import Placer, check_replication_factor

if TYPE_CHECKING:
    from ...runtime import Entropy

PARTITIONS_A_STEP: Final = 200
"""Partitions placed per step, a few milliseconds of work; more need a LongDecision."""

_Item = TypeVar("_Item")
_Command = TypeVar("_Command", bound=RelayedCommand[Any])


def with_topic_id(command: _Command, entropy: "Entropy") -> _Command:
    """Return the command; a new topic without an id gets a random one, so that a repeat is
    harmless."""
    if isinstance(command, CreateTopic) and not command.topic_id:
        return replace(command, topic_id=TopicId(entropy.token(16)))
    return command


def create_topic(
    image: MetadataImage, command: CreateTopic, config: ControllerConfig
) -> AnyDecision:
    check_topic_name(command.name)
    if len(command.topic_id) != 16 or not any(command.topic_id):
        raise InvalidRequest("the topic id must have 16 bytes that are not all zero")
    existing = image.topics_by_id.get(command.topic_id)
    if existing is not None:
        return _repeated_create(existing, command)
    _check_name_is_free(image, command.name)
    count, replicas_each = _checked_numbers(image, command, config)
    configs = check_configs(command.configs, replication_factor=replicas_each)
    topic_id = command.topic_id
    head = [pb.MetadataRecord(topic=pb.TopicRecord(topic_id=topic_id, name=command.name))]
    for name, value in configs:
        record = pb.TopicConfigRecord(topic_id=topic_id, name=name, value=value)
        head.append(pb.MetadataRecord(topic_config=record))
    placement = _placement(
        image, topic_id, command.assignments, count=count, replication_factor=replicas_each
    )
    return _topic_decision(
        image,
        topic_id,
        records=_then(head, _partition_records(image, topic_id, 0, placement)),
        partitions=count,
        validate_only=command.validate_only,
        name=f"create topic {command.name}",
        reply=lambda topic: TopicCreated(topic=topic),
    )


def create_partitions(
    image: MetadataImage, command: CreatePartitions, config: ControllerConfig
) -> AnyDecision:
    """Decide added partitions; existing ones stay unchanged. The present count is a repeat."""
    topic = named_topic(image, command.topic, command.topic_id)
    present = len(topic.partitions)
    if command.count == present:
        return Decision(
            records=(), reply=PartitionsCreated(topic=topic), brokers=replicas_of(topic)
        )
    if not present < command.count <= config.partitions_max:
        raise InvalidPartitions(
            f"the topic has {present} partitions, {command.count} are requested; the count can only"
            f" grow, up to {config.partitions_max}",
            topic=topic.name,
        )
    if topic.name in INTERNAL_TOPICS:
        raise InvalidPartitions(
            f"internal topic: brokers locate its records by its {present} partitions, which cannot"
            " change",
            topic=topic.name,
        )
    added = command.count - present
    if command.assignments:
        _check_assignments(image, command.assignments, count=added, name=topic.name)
        factor = len(command.assignments[0])
        if factor != topic.replication_factor:
            raise InvalidReplicaAssignment(
                f"new partitions have {factor} replicas; the topic's partitions have"
                f" {topic.replication_factor}; assign as many",
                topic=topic.name,
            )
    else:
        check_replication_factor(topic.replication_factor, image.brokers.values())
    placement = _placement(
        image,
        topic.id,
        command.assignments,
        count=added,
        replication_factor=topic.replication_factor,
        present=[partition.replicas for _, partition in topic.sorted_partitions()],
    )
    return _topic_decision(
        image,
        topic.id,
        records=_partition_records(image, topic.id, present, placement),
        partitions=added,
        validate_only=command.validate_only,
        name=f"add partitions to topic {topic.name}",
        reply=lambda topic: PartitionsCreated(topic=topic),
    )


def _repeated_create(existing: TopicImage, command: CreateTopic) -> Decision:
    """Decide the repeat of a creation with the same topic id, whose first response may be lost."""
    if existing.name != command.name:
        raise InvalidRequest(
            f"topic id {command.topic_id.hex()} belongs to another topic; use a new id"
        )
    return Decision(records=(), reply=TopicCreated(topic=existing), brokers=replicas_of(existing))


def _check_name_is_free(image: MetadataImage, name: str) -> None:
    if name in image.topics_by_name:
        raise TopicAlreadyExists("the topic exists", topic=name)
    if collision_key(name) in image.topics_by_key:
        raise InvalidTopic(
            f"topic name {name!r} differs from that of another topic only in '.' and '_'; choose"
            " another name"
        )


def _checked_numbers(
    image: MetadataImage, command: CreateTopic, config: ControllerConfig
) -> tuple[int, int]:
    """Return the partition count and the replication factor of a new topic."""
    if command.assignments:
        count, factor = len(command.assignments), len(command.assignments[0])
        if command.partitions not in (0, count):
            raise InvalidPartitions(
                f"{count} partitions are assigned, {command.partitions} are requested; omit the"
                " number of partitions",
                topic=command.name,
            )
        _check_assignments(image, command.assignments, count=count, name=command.name)
        if command.replication_factor not in (0, factor):
            raise InvalidReplicationFactor(
                f"{factor} replicas are assigned, {command.replication_factor} are requested; omit"
                " the replication factor",
                topic=command.name,
            )
    else:
        count = command.partitions or config.partitions_default
        factor = command.replication_factor or config.replication_factor_default
        check_replication_factor(factor, image.brokers.values())
    if not 1 <= count <= config.partitions_max:
        raise InvalidPartitions(
            f"{count} partitions are requested; the limits are 1 and {config.partitions_max}",
            topic=command.name,
        )
    return count, factor


def _check_assignments(
    image: MetadataImage, assignments: Sequence[Sequence[NodeId]], *, count: int, name: str
) -> None:
    """Raise InvalidReplicaAssignment unless all partitions have equally many replicas, at least one
    of them active."""
    if len(assignments) != count:
        raise InvalidReplicaAssignment(
            f"{len(assignments)} of {count} new partitions are assigned; assign each of them",
            topic=name,
        )
    factor = len(assignments[0])
    for replicas in assignments:
        check_replicas(image, replicas, name=name)
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"partitions have {factor} and {len(replicas)} replicas; assign equally many to"
                " each",
                topic=name,
            )
        if not _in_sync(image, replicas):
            raise InvalidReplicaAssignment(
                f"none of the brokers {list(replicas)} is active; assign an active one to each"
                " partition",
                topic=name,
            )


def check_replicas(image: MetadataImage, replicas: Sequence[NodeId], *, name: str) -> None:
    """Raise InvalidReplicaAssignment unless the replicas are registered brokers, each once."""
    if not replicas:
        raise InvalidReplicaAssignment("a partition needs at least one broker", topic=name)
    for node in replicas:
        if node not in image.brokers:
            raise InvalidReplicaAssignment(f"broker {node} is not registered", topic=name)
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignment(
            f"replicas {list(replicas)} repeat a broker; give each broker once", topic=name
        )


def _placement(
    image: MetadataImage,
    topic_id: TopicId,
    assignments: Sequence[tuple[NodeId, ...]],
    *,
    count: int,
    replication_factor: int,
    present: Iterable[Sequence[NodeId]] = (),
) -> Iterator[tuple[NodeId, ...]]:
    """Yield the replicas of `count` new partitions, assigned by the request or placed."""
    if assignments:
        yield from assignments
        return
    active = [broker for broker in image.sorted_brokers() if broker.is_active]
    placer = Placer(active, seed=int.from_bytes(topic_id[:8]), present=present)
    for _ in range(count):
        yield placer.place(replication_factor)


def _partition_records(
    image: MetadataImage, topic_id: TopicId, first: int, placement: Iterable[tuple[NodeId, ...]]
) -> Iterator[pb.MetadataRecord]:
    """Yield the records of new partitions from index `first`; inactive replicas are not in sync."""
    for index, replicas in enumerate(placement, first):
        isr = _in_sync(image, replicas)
        partition = pb.PartitionRecord(
            topic_id=topic_id,
            partition=index,
            replicas=replicas,
            isr=isr,
            leader=isr[0] if isr else NO_NODE,
            leader_epoch=0,
            partition_epoch=0,
        )
        yield pb.MetadataRecord(partition=partition)


def _in_sync(image: MetadataImage, replicas: Iterable[NodeId]) -> list[NodeId]:
    brokers = image.brokers
    return [node for node in replicas if brokers[node].is_active]


def _topic_decision(
    image: MetadataImage,
    topic_id: TopicId,
    *,
    records: Iterator[pb.MetadataRecord],
    partitions: int,
    validate_only: bool,
    name: str,
    reply: Callable[[TopicImage], Reply],
) -> AnyDecision:
    """Return the decision with these records and the resulting topic as reply."""
    if partitions > PARTITIONS_A_STEP:
        return _long_topic_decision(image, topic_id, records, validate_only, name, reply)
    made = tuple(records)
    topic = topic_after(image, topic_id, made)
    return Decision(
        records=() if validate_only else made,
        reply=reply(topic),
        brokers=() if validate_only else replicas_of(topic),
    )


def _long_topic_decision(
    image: MetadataImage,
    topic_id: TopicId,
    records: Iterator[pb.MetadataRecord],
    validate_only: bool,
    name: str,
    reply: Callable[[TopicImage], Reply],
) -> LongDecision:
    would_be = image  # with validate_only: the image after the records so far

    def slices() -> Iterator[tuple[pb.MetadataRecord, ...]]:
        nonlocal would_be
        for step in _in_steps(records, PARTITIONS_A_STEP):
            if validate_only:
                offset = would_be.offset + 1
                would_be = replay_batch(would_be, step, base_offset=offset, epoch=image.epoch)
            yield () if validate_only else step

    def finish(after: MetadataImage) -> tuple[Reply, tuple[NodeId, ...]]:
        topic = (would_be if validate_only else after).topics_by_id[topic_id]
        return reply(topic), () if validate_only else replicas_of(topic)

    return LongDecision(name=name, slices=slices(), finish=finish)


def _then(head: Iterable[_Item], tail: Iterable[_Item]) -> Iterator[_Item]:
    yield from head
    yield from tail


def _in_steps(items: Iterator[_Item], size: int) -> Iterator[tuple[_Item, ...]]:
    while step := tuple(islice(items, size)):
        yield step


def topic_after(
    image: MetadataImage, topic_id: TopicId, records: Iterable[pb.MetadataRecord]
) -> TopicImage:
    """Return the topic after these records, by replaying them on a copy of the image."""
    after = replay_batch(image, records, base_offset=image.offset + 1, epoch=image.epoch)
    return after.topics_by_id[topic_id]


def delete_topic(image: MetadataImage, command: DeleteTopic) -> Decision:
    topic = _topic_to_delete(image, command)
    check_not_internal(topic.name)
    record = pb.RemoveTopicRecord(topic_id=topic.id)
    return Decision(
        records=(pb.MetadataRecord(remove_topic=record),),
        reply=TopicDeleted(topic_id=topic.id),
        brokers=replicas_of(topic),
    )


def _topic_to_delete(image: MetadataImage, command: DeleteTopic) -> TopicImage:
    if command.topic_id is not None:
        topic = image.topics_by_id.get(command.topic_id)
        if topic is None or (command.name and topic.name != command.name):
            raise UnknownTopicId(
                f"topic id {command.topic_id.hex()} does not exist"
                + (f" with name {command.name!r}" if command.name else "")
            )
        return topic
    if not command.name:
        raise InvalidRequest("no topic to delete; give its name or its id")
    return named_topic(image, command.name)


def named_topic(image: MetadataImage, name: str, topic_id: TopicId | None = None) -> TopicImage:
    """Return the topic of a name; raise UnknownTopicOrPartition, or UnknownTopicId if its id
    differs."""
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition("the topic does not exist", topic=name)
    if topic_id is not None and topic.id != topic_id:
        raise UnknownTopicId(
            f"topic {name!r} has another id than {topic_id.hex()}; it was deleted and recreated",
            topic=name,
        )
    return topic


def replicas_of(topic: TopicImage) -> tuple[NodeId, ...]:
    """Return the brokers with replicas of the topic, ascending."""
    nodes = {node for partition in topic.partitions.values() for node in partition.replicas}
    return tuple(sorted(nodes))
