"""The whole cluster state as one immutable value over persistent maps.

A snapshot of the state is a reference, speculation a variable, roll-back an assignment. Nothing
but `replaying` makes a new image from an old one, equally on the active controller and on every
node that follows the log (KIP-630's image, ControllerResult's replay).

`immutables.Map` iterates in hash order: whoever decides or writes by iteration sorts first, as the
`sorted_` methods here do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from immutables import Map
from msgspec import Struct

from ..ids import NO_EPOCH, DirectoryId, Epoch, NodeId, Offset, TopicId
from .client_quotas import ClientQuotas
from .partition_set import NO_PARTITIONS, PartitionSet


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
    kafka_listeners: tuple[tuple[str, str], ...] = ()  # name and "host:port", by name

    @property
    def is_active(self) -> bool:
        """Whether it may lead and take new replicas."""
        return not self.fenced and not self.stopping

    def kafka_address(self, listener: str) -> str | None:
        """The "host:port" of the Kafka listener of a name, None: it has none. An empty host means
        that it listens on every interface and nobody has said how it is reached."""
        return next((address for name, address in self.kafka_listeners if name == listener), None)


class PartitionImage(Struct, frozen=True, kw_only=True, gc=False):
    """A partition's place and leadership.

    There are millions of them, which can be part of no cycle: the collector of cycles passes over.
    """

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


class TopicImage(Struct, frozen=True, kw_only=True, gc=False):
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
    client_quotas: ClientQuotas = field(default_factory=Map)  # of entities that have any
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
