"""Topics are created, grown and deleted. Decisions, pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

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
    Reply,
    TopicCreated,
    TopicDeleted,
)
from ..decision import AnyDecision, ControllerConfig, Decision, LongDecision
from ..image import MetadataImage, TopicImage
from ..replaying import replay_batch
from ..topic_configs import check_configs
from ..topic_names import (
    INTERNAL_TOPICS,
    check_not_internal,
    check_topic_name,
    collision_key,
)
from .placement import Placer, check_replication_factor

PARTITIONS_A_STEP: Final = 200
"""Partitions that are placed in one step, a few milliseconds of work; more take a LongDecision."""

_Item = TypeVar("_Item")


def create_topic(
    image: MetadataImage, command: CreateTopic, config: ControllerConfig
) -> AnyDecision:
    check_topic_name(command.name)
    if len(command.topic_id) != 16 or not any(command.topic_id):
        raise InvalidRequest("a topic id has 16 bytes that are not all zero")
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
    """The partitions that are there stay as they are; as many as there are already is a repeat."""
    topic = named_topic(image, command.topic, command.topic_id)
    present = len(topic.partitions)
    if command.count == present:
        return Decision(
            records=(), reply=PartitionsCreated(topic=topic), brokers=replicas_of(topic)
        )
    if not present < command.count <= config.partitions_max:
        raise InvalidPartitions(
            f"the topic has {present} partitions and may have up to {config.partitions_max}, not"
            f" {command.count}: partitions are added, never taken away",
            topic=topic.name,
        )
    if topic.name in INTERNAL_TOPICS:
        raise InvalidPartitions(
            f"brokers find what they keep in this topic by the number of its partitions, {present}:"
            " it cannot change",
            topic=topic.name,
        )
    added = command.count - present
    if command.assignments:
        _check_assignments(image, command.assignments, count=added, name=topic.name)
        factor = len(command.assignments[0])
        if factor != topic.replication_factor:
            raise InvalidReplicaAssignment(
                f"the topic's partitions have {topic.replication_factor} replicas: give as many"
                f" brokers for each new one, not {factor}",
                topic=topic.name,
            )
    else:
        check_replication_factor(topic.replication_factor, len(_active(image)))
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


def _checked_numbers(
    image: MetadataImage, command: CreateTopic, config: ControllerConfig
) -> tuple[int, int]:
    """Return how many partitions of how many replicas are asked for."""
    if command.assignments:
        count, factor = len(command.assignments), len(command.assignments[0])
        if command.partitions not in (0, count):
            raise InvalidPartitions(
                f"{count} partitions are assigned, and {command.partitions} are asked for: leave"
                " the number out",
                topic=command.name,
            )
        _check_assignments(image, command.assignments, count=count, name=command.name)
        if command.replication_factor not in (0, factor):
            raise InvalidReplicationFactor(
                f"{factor} brokers are named for a partition, and {command.replication_factor}"
                " replicas are asked for: leave the number out",
                topic=command.name,
            )
    else:
        count = command.partitions or config.partitions_default
        factor = command.replication_factor or config.replication_factor_default
        check_replication_factor(factor, len(_active(image)))
    if not 1 <= count <= config.partitions_max:
        raise InvalidPartitions(
            f"a topic has 1 to {config.partitions_max} partitions, not {count}", topic=command.name
        )
    return count, factor


def _check_assignments(
    image: MetadataImage, assignments: Sequence[Sequence[NodeId]], *, count: int, name: str
) -> None:
    """Every partition has as many brokers as the first one, and one of them at least can lead."""
    if len(assignments) != count:
        raise InvalidReplicaAssignment(
            f"{len(assignments)} partitions are assigned, and {count} are created: assign each",
            topic=name,
        )
    factor = len(assignments[0])
    for replicas in assignments:
        check_replicas(image, replicas, name=name)
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"the first partition has {factor} replicas, another one {len(replicas)}: give"
                " each as many",
                topic=name,
            )
        if not _in_sync(image, replicas):
            raise InvalidReplicaAssignment(
                f"none of the brokers {list(replicas)} is usable now: name one that is for each"
                " partition",
                topic=name,
            )


def check_replicas(image: MetadataImage, replicas: Sequence[NodeId], *, name: str) -> None:
    """Raise InvalidReplicaAssignment unless these can be a partition's replicas."""
    if not replicas:
        raise InvalidReplicaAssignment("a partition needs at least one broker", topic=name)
    for node in replicas:
        if node not in image.brokers:
            raise InvalidReplicaAssignment(f"there is no broker {node}", topic=name)
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignment(
            f"brokers {list(replicas)}: name each once, it holds one replica", topic=name
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
    """Yield the replicas of `count` new partitions, as they are asked for or placed."""
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
    """Yield new partitions from index `first` on; who is not usable now joins the ISR later."""
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


def _active(image: MetadataImage) -> list[NodeId]:
    return [node for node, broker in image.brokers.items() if broker.is_active]


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
    """A decision that makes a topic what it is after the records."""
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
    would_be = image  # of a decision that only looks

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
    """The topic as it will be: the records replayed on a copy, so that nothing is said twice."""
    after = replay_batch(image, records, base_offset=image.offset + 1, epoch=image.epoch)
    return after.topics_by_id[topic_id]


def delete_topic(image: MetadataImage, command: DeleteTopic) -> Decision:
    topic = _topic_to_delete(image, command)
    check_not_internal(topic.name)
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
    return named_topic(image, command.name)


def named_topic(image: MetadataImage, name: str, topic_id: TopicId | None = None) -> TopicImage:
    """The topic of a name; raises UnknownTopicOrPartition, UnknownTopicId if it is another one
    than was meant."""
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition("there is no such topic", topic=name)
    if topic_id is not None and topic.id != topic_id:
        raise UnknownTopicId(
            f"topic {name!r} has another id than {topic_id.hex()}: it was made anew since",
            topic=name,
        )
    return topic


def replicas_of(topic: TopicImage) -> tuple[NodeId, ...]:
    """The brokers that hold replicas of the topic, ascending."""
    nodes = {node for partition in topic.partitions.values() for node in partition.replicas}
    return tuple(sorted(nodes))
