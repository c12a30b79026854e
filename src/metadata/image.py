"""The whole cluster state as one immutable value over persistent maps.

A snapshot of the state is a reference, speculation a variable, roll-back an assignment. Nothing
but `replay` makes a new image from an old one, equally on the active controller and on every node
that follows the log (KIP-630's image, ControllerResult's replay).

`immutables.Map` iterates in hash order: whoever decides or writes by iteration sorts first, as the
`sorted_` methods here do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

from immutables import Map

from ..errors import CorruptionError
from ..ids import NO_EPOCH, NO_NODE, DirectoryId, Epoch, NodeId, Offset, TopicId
from ..proto import metadata_records_pb2 as pb
from .partition_set import NO_PARTITIONS, PartitionSet
from .topic_names import collision_key


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A registered broker."""

    id: NodeId
    epoch: Offset  # offset of its registration record: fences its past lives
    incarnation_id: bytes  # 16 bytes, one a process life
    directory_id: DirectoryId
    grpc_address: str  # "host:port" for clients
    rack: str  # failure zone; empty: none
    boot_id: str
    fenced: bool
    stopping: bool  # controlled shutdown under way
    replica_address: str = ""  # "host:port" for followers; empty: grpc_address
    features: tuple[tuple[str, int, int], ...] = ()  # name, lowest and highest level, by name

    @property
    def is_active(self) -> bool:
        """Whether it may lead and take new replicas."""
        return not self.fenced and not self.stopping


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """A partition's place and leadership."""

    replicas: tuple[NodeId, ...]  # the preferred leader first
    isr: tuple[NodeId, ...]  # a subset of replicas; empty: nobody leads, see elr
    leader: NodeId  # a member of isr, NO_NODE: none
    leader_epoch: Epoch  # counts the leaderships
    partition_epoch: int  # counts the changes
    adding: tuple[NodeId, ...] = ()  # by a reassignment; a subset of replicas
    removing: tuple[NodeId, ...] = ()  # once the added ones are in sync; a subset of replicas
    elr: tuple[NodeId, ...] = ()  # outside the ISR, yet with everything below the frozen mark
    last_known_elr: tuple[NodeId, ...] = ()  # the last of both, while both are empty
    recovering: bool = False  # the leader was elected with possible loss

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def replication_factor(self) -> int:
        """Replicas without those that come or go, whichever is fewer: what min.insync.replicas
        may count on while a reassignment is under way."""
        return len(self.replicas) - max(len(self.adding), len(self.removing))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic with its partitions and what was configured for it."""

    id: TopicId
    name: str
    partitions: Map[int, PartitionImage]
    configs: Map[str, str]  # what was set, not the defaults

    def sorted_partitions(self) -> list[tuple[int, PartitionImage]]:
        """Partitions by ascending index."""
        return sorted(self.partitions.items(), key=itemgetter(0))

    @property
    def replication_factor(self) -> int:
        """Replicas of partition 0; every partition of a topic is created with as many."""
        first = self.partitions.get(0)
        return first.replication_factor if first is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """Everything the metadata log says up to `offset`."""

    offset: Offset  # of the last record replayed, -1: none
    epoch: Epoch  # leader epoch of that record's batch
    brokers: Map[NodeId, BrokerImage]
    topics_by_id: Map[TopicId, TopicImage]
    topics_by_name: Map[str, TopicId]
    # By collision key: names that differ only in '.' and '_' are one key.
    topics_by_key: Map[str, TopicId]
    next_producer_id: int = 0  # all ids below it are given away
    cluster_configs: Map[str, str] = field(default_factory=Map)  # what was set for the cluster
    features: Map[str, int] = field(default_factory=Map)  # finalized levels
    # Found from the partitions, so that what concerns few of them costs as little.
    placed: Map[NodeId, PartitionSet] = field(default_factory=Map)  # by each of its replicas
    moving: PartitionSet = NO_PARTITIONS  # under reassignment
    led_elsewhere: PartitionSet = NO_PARTITIONS  # not led by the first replica; by nobody counts

    def topic(self, name: str) -> TopicImage | None:
        """The topic of a name."""
        topic_id = self.topics_by_name.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def topic_of_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic of an id."""
        return self.topics_by_id.get(TopicId(topic_id))

    def partition(self, topic_id: TopicId, index: int) -> PartitionImage | None:
        """A partition of a topic."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def partitions_on(self, node_id: NodeId) -> Iterator[tuple[TopicId, int]]:
        """The partitions of which a node holds a replica, by ascending topic id and index; the
        first ones come without a walk over all."""
        return iter(self.placed.get(node_id, NO_PARTITIONS))

    def replica_count(self, node_id: NodeId) -> int:
        """How many replicas a node holds."""
        return len(self.placed.get(node_id, NO_PARTITIONS))

    def broker(self, node_id: int) -> BrokerImage | None:
        """The broker of a node id."""
        return self.brokers.get(NodeId(node_id))

    def sorted_brokers(self) -> list[BrokerImage]:
        """Brokers by ascending id."""
        return [broker for _, broker in sorted(self.brokers.items(), key=itemgetter(0))]

    def sorted_topics(self) -> list[TopicImage]:
        """Topics by ascending name."""
        names = sorted(self.topics_by_name.items(), key=itemgetter(0))
        return [self.topics_by_id[topic_id] for _, topic_id in names]


EMPTY_IMAGE: Final = MetadataImage(
    offset=Offset(-1),
    epoch=NO_EPOCH,
    brokers=Map(),
    topics_by_id=Map(),
    topics_by_name=Map(),
    topics_by_key=Map(),
)


_NODE_LISTS: Final = ("replicas", "isr", "adding", "removing", "elr", "last_known_elr")


def replay(
    image: MetadataImage, record: pb.MetadataRecord, *, offset: int, epoch: int
) -> MetadataImage:
    """Return the image after the record at `offset`, written in `epoch`.

    Raises CorruptionError when the record does not fit, which ends a node: a replica of the state
    with a gap must not go on (KAFKA-14275).
    """
    if offset <= image.offset or epoch < image.epoch:
        raise CorruptionError(
            f"metadata record {offset} of epoch {epoch} follows record {image.offset} of epoch"
            f" {image.epoch}"
        )
    after = _replay_one(image, record, Offset(offset))
    return replace(after, offset=Offset(offset), epoch=Epoch(epoch))


def replay_batch(
    image: MetadataImage, records: Iterable[pb.MetadataRecord], *, base_offset: int, epoch: int
) -> MetadataImage:
    """Return the image after records at consecutive offsets from `base_offset` on."""
    for offset, record in enumerate(records, base_offset):
        image = replay(image, record, offset=offset, epoch=epoch)
    return image


def replay_snapshot(image: MetadataImage, record: pb.MetadataRecord) -> MetadataImage:
    """Return the image after a record of a snapshot, which has no place in the log; raises as
    `replay`."""
    if record.WhichOneof("record") == "broker" and not record.broker.HasField("broker_epoch"):
        raise CorruptionError(f"broker {record.broker.id} of a snapshot has no epoch")
    return _replay_one(image, record, Offset(-1))


def _replay_one(image: MetadataImage, record: pb.MetadataRecord, offset: Offset) -> MetadataImage:
    kind = record.WhichOneof("record")
    if kind in _WITHOUT_EFFECT:
        return image
    if kind == "broker":
        return _replay_broker(image, record.broker, offset)
    step = _REPLAY.get(kind or "")
    if step is None:
        raise CorruptionError(
            f"metadata record {offset} is of a kind this version does not know: it was written"
            " by a newer one; upgrade this node"
        )
    return step(image, getattr(record, kind))


def _replay_broker(image: MetadataImage, record: pb.BrokerRecord, offset: Offset) -> MetadataImage:
    broker = BrokerImage(
        id=NodeId(record.id),
        epoch=Offset(record.broker_epoch) if record.HasField("broker_epoch") else offset,
        incarnation_id=record.incarnation_id,
        directory_id=DirectoryId(record.directory_id),
        grpc_address=record.grpc_address,
        rack=record.rack,
        boot_id=record.boot_id,
        fenced=record.fenced,
        stopping=record.stopping,
        replica_address=record.replica_address,
        features=tuple((each.name, each.level_min, each.level_max) for each in record.features),
    )
    return replace(image, brokers=image.brokers.set(broker.id, broker))


def _replay_unregister(image: MetadataImage, record: pb.UnregisterBrokerRecord) -> MetadataImage:
    broker = image.broker(record.id)
    if broker is None or broker.epoch != record.broker_epoch:
        raise CorruptionError(f"broker {record.id} has no registration {record.broker_epoch}")
    return replace(image, brokers=image.brokers.delete(broker.id))


def _replay_cluster_config(image: MetadataImage, record: pb.ClusterConfigRecord) -> MetadataImage:
    configs = image.cluster_configs
    if record.HasField("value"):
        configs = configs.set(record.name, record.value)
    elif record.name in configs:
        configs = configs.delete(record.name)
    return replace(image, cluster_configs=configs)


def _replay_feature_level(image: MetadataImage, record: pb.FeatureLevelRecord) -> MetadataImage:
    features = image.features
    if record.level:
        features = features.set(record.name, record.level)
    elif record.name in features:
        features = features.delete(record.name)
    return replace(image, features=features)


def _replay_broker_change(image: MetadataImage, record: pb.BrokerChangeRecord) -> MetadataImage:
    broker = image.broker(record.id)
    if broker is None or broker.epoch != record.broker_epoch:
        raise CorruptionError(f"broker {record.id} has no registration {record.broker_epoch}")
    broker = replace(
        broker,
        fenced=record.fenced if record.HasField("fenced") else broker.fenced,
        stopping=record.stopping if record.HasField("stopping") else broker.stopping,
    )
    return replace(image, brokers=image.brokers.set(broker.id, broker))


def _replay_topic(image: MetadataImage, record: pb.TopicRecord) -> MetadataImage:
    topic_id = TopicId(record.topic_id)
    if topic_id in image.topics_by_id or record.name in image.topics_by_name:
        raise CorruptionError(f"topic {record.name} is created twice")
    topic = TopicImage(id=topic_id, name=record.name, partitions=Map(), configs=Map())
    return replace(
        image,
        topics_by_id=image.topics_by_id.set(topic_id, topic),
        topics_by_name=image.topics_by_name.set(topic.name, topic_id),
        topics_by_key=image.topics_by_key.set(collision_key(topic.name), topic_id),
    )


def _replay_remove_topic(image: MetadataImage, record: pb.RemoveTopicRecord) -> MetadataImage:
    topic = _topic(image, record.topic_id)
    placed = image.placed
    for node in {node for each in topic.partitions.values() for node in each.replicas}:
        placed = _with_placed(placed, node, placed[node].discard_topic(topic.id))
    return replace(
        image,
        topics_by_id=image.topics_by_id.delete(topic.id),
        topics_by_name=image.topics_by_name.delete(topic.name),
        topics_by_key=image.topics_by_key.delete(collision_key(topic.name)),
        placed=placed,
        moving=image.moving.discard_topic(topic.id),
        led_elsewhere=image.led_elsewhere.discard_topic(topic.id),
    )


def _replay_partition(image: MetadataImage, record: pb.PartitionRecord) -> MetadataImage:
    topic = _topic(image, record.topic_id)
    if record.partition in topic.partitions:
        raise CorruptionError(f"partition {topic.name}-{record.partition} is created twice")
    partition = PartitionImage(
        replicas=_nodes(record.replicas),
        isr=_nodes(record.isr),
        leader=NodeId(record.leader),
        leader_epoch=Epoch(record.leader_epoch),
        partition_epoch=record.partition_epoch,
        adding=_nodes(record.adding),
        removing=_nodes(record.removing),
        elr=_nodes(record.elr),
        last_known_elr=_nodes(record.last_known_elr),
        recovering=record.recovering,
    )
    return _with_partition(image, topic, record.partition, partition)


def _replay_partition_change(
    image: MetadataImage, record: pb.PartitionChangeRecord
) -> MetadataImage:
    topic = _topic(image, record.topic_id)
    partition = topic.partitions.get(record.partition)
    if partition is None:
        raise CorruptionError(f"partition {topic.name}-{record.partition} does not exist")
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if record.HasField("leader"):
        leader, leader_epoch = NodeId(record.leader), Epoch(leader_epoch + 1)
    lists: dict[str, Any] = {
        name: _nodes(getattr(record, name).ids) for name in _NODE_LISTS if record.HasField(name)
    }
    changed = replace(
        partition,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        recovering=record.recovering if record.HasField("recovering") else partition.recovering,
        **lists,
    )
    return _with_partition(image, topic, record.partition, changed)


def _replay_topic_config(image: MetadataImage, record: pb.TopicConfigRecord) -> MetadataImage:
    topic = _topic(image, record.topic_id)
    if record.HasField("value"):
        configs = topic.configs.set(record.name, record.value)
    else:
        configs = (
            topic.configs.delete(record.name) if record.name in topic.configs else topic.configs
        )
    return _with_topic(image, replace(topic, configs=configs))


def _replay_producer_ids(image: MetadataImage, record: pb.ProducerIdsRecord) -> MetadataImage:
    if record.next_producer_id <= image.next_producer_id:
        raise CorruptionError(
            f"producer ids up to {record.next_producer_id} are given away twice: all below"
            f" {image.next_producer_id} were"
        )
    return replace(image, next_producer_id=record.next_producer_id)


def _nodes(ids: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(node) for node in ids)


def _topic(image: MetadataImage, topic_id: bytes) -> TopicImage:
    topic = image.topic_of_id(topic_id)
    if topic is None:
        raise CorruptionError(f"topic id {topic_id.hex()} does not exist")
    return topic


def _with_topic(image: MetadataImage, topic: TopicImage) -> MetadataImage:
    return replace(image, topics_by_id=image.topics_by_id.set(topic.id, topic))


def _with_partition(
    image: MetadataImage, topic: TopicImage, index: int, partition: PartitionImage
) -> MetadataImage:
    if not partition.replicas:
        raise CorruptionError(f"{topic.name}-{index} has no replica")
    if partition.leader != NO_NODE and partition.leader not in partition.isr:
        raise CorruptionError(f"{topic.name}-{index}: leader {partition.leader} is not in its ISR")
    for name in _NODE_LISTS:
        nodes = getattr(partition, name)
        if any(node not in partition.replicas for node in nodes):
            raise CorruptionError(
                f"{topic.name}-{index}: {name} {nodes} is not among replicas {partition.replicas}"
            )
    if set(partition.isr) & set(partition.elr):
        raise CorruptionError(
            f"{topic.name}-{index}: ISR {partition.isr} and ELR {partition.elr} overlap"
        )
    return replace(
        _with_topic(image, replace(topic, partitions=topic.partitions.set(index, partition))),
        placed=_placed_with(image, topic, index, partition),
        moving=_with_claim(image.moving, topic.id, index, partition.is_moving),
        led_elsewhere=_with_claim(
            image.led_elsewhere, topic.id, index, partition.leader != partition.replicas[0]
        ),
    )


def _placed_with(
    image: MetadataImage, topic: TopicImage, index: int, partition: PartitionImage
) -> Map[NodeId, PartitionSet]:
    """Return `placed` once the partition is as given."""
    placed, before = image.placed, topic.partitions.get(index)
    old = before.replicas if before is not None else ()
    if old == partition.replicas:
        return placed
    for node in old:
        if node not in partition.replicas:
            placed = _with_placed(placed, node, placed[node].discard(topic.id, index))
    for node in partition.replicas:
        placed = placed.set(node, placed.get(node, NO_PARTITIONS).add(topic.id, index))
    return placed


def _with_placed(
    placed: Map[NodeId, PartitionSet], node: NodeId, partitions: PartitionSet
) -> Map[NodeId, PartitionSet]:
    return placed.set(node, partitions) if partitions else placed.delete(node)


def _with_claim(
    partitions: PartitionSet, topic_id: TopicId, index: int, holds: bool
) -> PartitionSet:
    return partitions.add(topic_id, index) if holds else partitions.discard(topic_id, index)


_REPLAY: Final[Mapping[str, Callable[[MetadataImage, Any], MetadataImage]]] = {
    "broker_change": _replay_broker_change,
    "unregister_broker": _replay_unregister,
    "topic": _replay_topic,
    "remove_topic": _replay_remove_topic,
    "partition": _replay_partition,
    "partition_change": _replay_partition_change,
    "topic_config": _replay_topic_config,
    "cluster_config": _replay_cluster_config,
    "feature_level": _replay_feature_level,
    "producer_ids": _replay_producer_ids,
}
# Whoever follows the log keeps what was begun back until its end.
_WITHOUT_EFFECT: Final = frozenset(
    ("no_op", "begin_transaction", "end_transaction", "abort_transaction")
)
