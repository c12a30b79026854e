"""The controller's decisions: an image and a command in, records and a reply out.

Pure and total: `decide` raises a typed error or returns what to append; nothing but `replay` of
those records changes an image, on this node and on every other. Who appends them, when they are
committed and who has applied them is the shell's business.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..errors import (
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    StaleBrokerEpoch,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..ids import NO_NODE, NodeId, Offset, TopicId
from ..proto import metadata_records_pb2 as pb
from .commands import (
    AllocateProducerIds,
    AlterConfigs,
    BrokerStopping,
    Command,
    ConfigsAltered,
    CreateTopic,
    DeleteTopic,
    Done,
    FenceBroker,
    ProducerIdsAllocated,
    RegisterBroker,
    Reply,
    TopicCreated,
    TopicDeleted,
    UnfenceBroker,
)
from .elections import on_broker_back, on_broker_gone
from .image import BrokerImage, MetadataImage, TopicImage, replay, replay_batch
from .placement import place
from .topic_configs import check_changes, check_configs
from .topic_names import check_topic_name, collision_key

PRODUCER_IDS_IN_BLOCK: Final = 1_000
"""Ids that one allocation gives away, as in Kafka: one in a thousand new producers waits for the
quorum."""
PRODUCER_ID_END: Final = 2**63 - 1
"""Ids are below it: batches carry them in 63 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """What the controller assumes where a command does not say; equal on all controllers."""

    partitions_default: int = 1  # num.partitions
    replication_factor_default: int = 1  # default.replication.factor
    partitions_max: int = 10_000  # of one topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to append, atomically and in this order, and what to answer once it is committed."""

    records: tuple[pb.MetadataRecord, ...]
    reply: Reply
    # Brokers that must have applied it before the change is usable, ascending.
    brokers: tuple[NodeId, ...] = ()


def decide(image: MetadataImage, command: Command, config: ControllerConfig) -> Decision:
    """Decide one command on the newest image; raises a QuorumlogError that says why not."""
    match command:
        case RegisterBroker():
            return _register(image, command)
        case FenceBroker():
            return _fence(image, command)
        case UnfenceBroker():
            return _unfence(image, command)
        case BrokerStopping():
            return _stopping(image, command)
        case CreateTopic():
            return _create_topic(image, command, config)
        case DeleteTopic():
            return _delete_topic(image, command)
        case AlterConfigs():
            return _alter_configs(image, command)
        case AllocateProducerIds():
            return _allocate_producer_ids(image, command)


# --- brokers -----------------------------------------------------------------------------------


def _register(image: MetadataImage, command: RegisterBroker) -> Decision:
    """A new incarnation starts fenced and leads nothing: in every ISR with another member it is
    replaced, in one transaction with its registration."""
    if (
        command.broker_id < 0
        or len(command.incarnation_id) != 16
        or len(command.directory_id) != 16
    ):
        raise InvalidRequest("a broker registers with an id >= 0 and ids of 16 bytes")
    known = image.brokers.get(command.broker_id)
    if known is not None and known.incarnation_id == command.incarnation_id:
        return Decision(records=(), reply=Done())
    registration = pb.BrokerRecord(
        id=command.broker_id,
        incarnation_id=command.incarnation_id,
        directory_id=command.directory_id,
        grpc_address=command.grpc_address,
        rack=command.rack,
        boot_id=command.boot_id,
        fenced=True,
    )
    gone = on_broker_gone(image, command.broker_id)
    return Decision(records=(pb.MetadataRecord(broker=registration), *gone), reply=Done())


def _fence(image: MetadataImage, command: FenceBroker) -> Decision:
    broker = _registered(image, command.broker_id, command.broker_epoch)
    if broker.fenced:
        return Decision(records=(), reply=Done())
    change = pb.BrokerChangeRecord(id=broker.id, broker_epoch=broker.epoch, fenced=True)
    gone = on_broker_gone(image, broker.id)
    return Decision(records=(pb.MetadataRecord(broker_change=change), *gone), reply=Done())


def _unfence(image: MetadataImage, command: UnfenceBroker) -> Decision:
    broker = _registered(image, command.broker_id, command.broker_epoch)
    if not broker.fenced or broker.stopping:
        return Decision(records=(), reply=Done())
    change = pb.MetadataRecord(
        broker_change=pb.BrokerChangeRecord(id=broker.id, broker_epoch=broker.epoch, fenced=False)
    )
    unfenced = replay(image, change, offset=image.offset + 1, epoch=image.epoch)
    back = on_broker_back(unfenced, broker.id)
    return Decision(records=(change, *back), reply=Done())


def _stopping(image: MetadataImage, command: BrokerStopping) -> Decision:
    """Controlled shutdown: it leads nothing from here on, so that no produce is cut short."""
    broker = _registered(image, command.broker_id, command.broker_epoch)
    if broker.stopping:
        return Decision(records=(), reply=Done())
    change = pb.BrokerChangeRecord(id=broker.id, broker_epoch=broker.epoch, stopping=True)
    gone = on_broker_gone(image, broker.id)
    return Decision(records=(pb.MetadataRecord(broker_change=change), *gone), reply=Done())


def _registered(image: MetadataImage, broker_id: NodeId, broker_epoch: Offset) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        present = "none" if broker is None else str(broker.epoch)
        raise StaleBrokerEpoch(
            f"broker {broker_id} is not registered with epoch {broker_epoch}: the present one is"
            f" {present}"
        )
    return broker


# --- topics ------------------------------------------------------------------------------------


def _create_topic(image: MetadataImage, command: CreateTopic, config: ControllerConfig) -> Decision:
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
    topic = _topic_after(image, command.topic_id, records)
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


def _topic_after(
    image: MetadataImage, topic_id: TopicId, records: Iterable[pb.MetadataRecord]
) -> TopicImage:
    """The topic as it will be: the records replayed on a copy, so that nothing is said twice."""
    after = replay_batch(image, records, base_offset=image.offset + 1, epoch=image.epoch)
    return after.topics_by_id[topic_id]


def _delete_topic(image: MetadataImage, command: DeleteTopic) -> Decision:
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


def _alter_configs(image: MetadataImage, command: AlterConfigs) -> Decision:
    """Records for what really changes; one decision, hence one atomic batch."""
    topic = image.topic(command.topic)
    if topic is None:
        raise UnknownTopicOrPartition("there is no such topic", topic=command.topic)
    if not command.changes:
        raise InvalidRequest("name a config to set or to delete", topic=topic.name)
    changes = check_changes(
        command.changes, topic.configs, replication_factor=topic.replication_factor
    )
    records = tuple(
        pb.MetadataRecord(
            topic_config=pb.TopicConfigRecord(topic_id=topic.id, name=name, value=value)
        )
        for name, value in changes.items()
        if topic.configs.get(name) != value
    )
    after = _topic_after(image, topic.id, records)
    return Decision(
        records=() if command.validate_only else records,
        reply=ConfigsAltered(topic=after),
        brokers=() if command.validate_only else replicas_of(after),
    )


def replicas_of(topic: TopicImage) -> tuple[NodeId, ...]:
    """The brokers that hold replicas of the topic, ascending."""
    nodes = {node for partition in topic.partitions.values() for node in partition.replicas}
    return tuple(sorted(nodes))


# --- producer ids ------------------------------------------------------------------------------


def _allocate_producer_ids(image: MetadataImage, command: AllocateProducerIds) -> Decision:
    """The counter never goes back: a block whose answer was lost is lost with it."""
    if command.broker_id != NO_NODE:
        _registered(image, command.broker_id, command.broker_epoch)
    start, end = image.next_producer_id, image.next_producer_id + PRODUCER_IDS_IN_BLOCK
    if end > PRODUCER_ID_END:
        raise UnknownServerError(f"all producer ids up to {start} are given away: none is left")
    record = pb.ProducerIdsRecord(
        broker_id=command.broker_id, broker_epoch=command.broker_epoch, next_producer_id=end
    )
    return Decision(
        records=(pb.MetadataRecord(producer_ids=record),),
        reply=ProducerIdsAllocated(start=start, count=PRODUCER_IDS_IN_BLOCK),
    )
