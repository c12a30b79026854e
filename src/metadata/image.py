"""The whole cluster state as one immutable value over persistent maps.

A snapshot is a reference, speculation a variable, roll-back an assignment. Only `replay` makes a
new image from an old one, on the active controller and on every other node alike (KIP-630's image,
ControllerResult's replay).

`immutables.Map` iterates in hash order. Code whose result depends on the order must sort first, as
the `sorted_` methods here do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from immutables import Map
from msgspec import Struct

from ..ids import NO_EPOCH, DirectoryId, Epoch, NodeId, Offset, TopicId
from .acls import AclTable
from .client_quotas import ClientQuotas
from .partition_set import NO_PARTITIONS, PartitionSet
from .scram_credentials import ScramCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A registered broker."""

    id: NodeId
    epoch: Offset  # offset of its registration record; fences earlier registrations
    incarnation_id: bytes  # 16 bytes, unique per process
    directory_id: DirectoryId
    grpc_address: str  # "host:port" for clients
    rack: str  # failure zone; empty: none
    boot_id: str
    fenced: bool
    stopping: bool  # controlled shutdown in progress
    internal_address: str = ""  # "host:port" for other nodes; empty: grpc_address
    features: tuple[tuple[str, int, int], ...] = ()  # name, lowest and highest level, by name
    kafka_listeners: tuple[tuple[str, str], ...] = ()  # name and "host:port", by name

    @property
    def node_address(self) -> str:
        """The "host:port" for other nodes."""
        return self.internal_address or self.grpc_address

    @property
    def is_active(self) -> bool:
        """True if the broker can lead and host new replicas."""
        return not self.fenced and not self.stopping

    def kafka_address(self, listener: str) -> str | None:
        """Return "host:port" of a Kafka listener, None if it does not exist. An empty host means
        that it listens on every interface and has no advertised address."""
        return next((address for name, address in self.kafka_listeners if name == listener), None)


class AlteredPartition(Struct, frozen=True, kw_only=True):
    """The leader and the ISR of a partition, with their epochs."""

    leader: NodeId  # NO_NODE: none
    leader_epoch: Epoch
    isr: tuple[NodeId, ...]
    partition_epoch: int


class PartitionImage(Struct, frozen=True, kw_only=True, gc=False):
    """The assignment and leadership of a partition.

    gc=False: there can be millions of them, and they cannot be part of a reference cycle.
    """

    replicas: tuple[NodeId, ...]  # the preferred leader first
    isr: tuple[NodeId, ...]  # a subset of replicas; empty: no leader, see elr
    leader: NodeId  # a member of isr; NO_NODE: none
    leader_epoch: Epoch  # number of leadership changes
    partition_epoch: int  # number of changes
    adding: tuple[NodeId, ...] = ()  # by a reassignment; a subset of replicas
    removing: tuple[NodeId, ...] = ()  # when the added replicas are in sync; a subset of replicas
    elr: tuple[NodeId, ...] = ()  # outside the ISR, with all records below the high watermark
    last_known_elr: tuple[NodeId, ...] = ()  # last members of ISR and ELR, while both are empty
    recovering: bool = False  # the leader was elected uncleanly and may have lost records

    @property
    def as_altered(self) -> AlteredPartition:
        """The leader and the ISR, for the reply to an ISR change."""
        return AlteredPartition(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=self.isr,
            partition_epoch=self.partition_epoch,
        )

    @property
    def is_moving(self) -> bool:
        """True while a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def replication_factor(self) -> int:
        """The smaller of the replica counts before and after a reassignment in progress; the bound
        of min.insync.replicas."""
        return len(self.replicas) - max(len(self.adding), len(self.removing))


class TopicImage(Struct, frozen=True, kw_only=True, gc=False):
    """A topic with its partitions and configs."""

    id: TopicId
    name: str
    partitions: Map[int, PartitionImage]
    configs: Map[str, str]  # without defaults

    def sorted_partitions(self) -> list[tuple[int, PartitionImage]]:
        """Return (index, partition) by ascending index."""
        return sorted(self.partitions.items(), key=itemgetter(0))

    @property
    def replication_factor(self) -> int:
        """The replica count of partition 0; all partitions are created with the same count."""
        first = self.partitions.get(0)
        return first.replication_factor if first is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """The cluster state after the metadata record at `offset`."""

    offset: Offset  # of the last replayed record; -1: none
    epoch: Epoch  # leader epoch of that record's batch
    brokers: Map[NodeId, BrokerImage]
    topics_by_id: Map[TopicId, TopicImage]
    topics_by_name: Map[str, TopicId]
    # By collision key: names that differ only in '.' and '_' have the same key.
    topics_by_key: Map[str, TopicId]
    next_producer_id: int = 0  # all ids below it are allocated
    cluster_configs: Map[str, str] = field(default_factory=Map)  # without defaults
    # Of consumer groups, without defaults; no group has an empty map.
    group_configs: Map[str, Map[str, str]] = field(default_factory=Map)
    features: Map[str, int] = field(default_factory=Map)  # finalized levels
    client_quotas: ClientQuotas = field(default_factory=Map)
    acls: AclTable = field(default_factory=AclTable)
    scram_credentials: ScramCredentials = field(default_factory=Map)
    # Of the newest change of ACLs or credentials, -1: none; after a snapshot an upper bound.
    security_offset: Offset = field(default=Offset(-1), compare=False)
    # Indexes over the partitions, so that a decision about few partitions costs little.
    placed: Map[NodeId, PartitionSet] = field(default_factory=Map)  # by node with a replica
    moving: PartitionSet = NO_PARTITIONS  # with a reassignment in progress
    led_elsewhere: PartitionSet = NO_PARTITIONS  # without a leader, or not the preferred one

    def topic(self, name: str) -> TopicImage | None:
        """Return the topic of a name, None if it does not exist."""
        topic_id = self.topics_by_name.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def topic_of_id(self, topic_id: bytes) -> TopicImage | None:
        """Return the topic of an id, None if it does not exist."""
        return self.topics_by_id.get(TopicId(topic_id))

    def partition(self, topic_id: TopicId, index: int) -> PartitionImage | None:
        """Return a partition, None if it does not exist."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def partitions_on(self, node_id: NodeId) -> Iterator[tuple[TopicId, int]]:
        """Yield the partitions with a replica on a node, by ascending topic id and index. The first
        ones are found without a walk over all."""
        return iter(self.placed.get(node_id, NO_PARTITIONS))

    def replica_count(self, node_id: NodeId) -> int:
        """Return the number of replicas on a node."""
        return len(self.placed.get(node_id, NO_PARTITIONS))

    def broker(self, node_id: int) -> BrokerImage | None:
        """Return the broker of a node id, None if it is not registered."""
        return self.brokers.get(NodeId(node_id))

    def sorted_brokers(self) -> list[BrokerImage]:
        """Return the brokers by ascending id."""
        return [broker for _, broker in sorted(self.brokers.items(), key=itemgetter(0))]

    def unfenced_ids(self) -> tuple[NodeId, ...]:
        """Return the ids of the brokers that are not fenced, ascending."""
        return tuple(broker.id for broker in self.sorted_brokers() if not broker.fenced)

    def sorted_topics(self) -> list[TopicImage]:
        """Return the topics by ascending name."""
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

IDS_A_STEP: Final = 5_000
"""The number of ids that one step distributes to buckets."""


def sorted_in_steps(topic_ids: Iterable[TopicId]) -> Iterator[TopicId | None]:
    """Yield the ids in ascending order, and None at the end of a step: sorting a hundred thousand
    ids at once would delay heartbeats.

    Ids are random, so that buckets by the first byte have similar sizes. Each bucket is sorted when
    it is reached.
    """
    buckets: list[list[TopicId]] = [[] for _ in range(256)]
    for count, topic_id in enumerate(topic_ids, 1):
        buckets[topic_id[0]].append(topic_id)
        if count % IDS_A_STEP == 0:
            yield None
    for bucket in buckets:
        bucket.sort()
        yield from bucket
