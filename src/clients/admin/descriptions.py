"""Brokers, topics and partitions: admin types, and their conversion from messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...proto import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker."""

    id: int
    grpc_address: str  # "host:port" for clients
    rack: str  # empty if none is configured
    fenced: bool  # a fenced broker leads no partition
    broker_epoch: int  # increases with each registration
    stopping: bool  # in controlled shutdown: transfers its leaderships, then stops
    # "host:port" for Kafka clients, by listener name; an empty host means every interface.
    kafka_listeners: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster according to one broker's metadata."""

    cluster_id: str
    controller_id: int | None  # None during an election
    brokers: tuple[Broker, ...]  # by ascending id
    time_ms: int  # UTC clock of the broker that answered, milliseconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """A topic in the result of `list_topics`."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    is_internal: bool = False  # only brokers create it and write to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of a topic."""

    partition: int
    leader: int | None  # node id; None if there is none
    leader_epoch: int
    partition_epoch: int  # increases with every change of the partition
    replicas: tuple[int, ...]  # node ids, the preferred leader first
    isr: tuple[int, ...]  # in-sync replicas
    min_isr: int  # effective min.insync.replicas: with fewer, acks=all is refused
    elr: tuple[int, ...]  # eligible leader replicas: not in the ISR, with all acknowledged records
    last_known_elr: tuple[int, ...]  # last members of ISR and ELR, if both are empty
    adding: tuple[int, ...]  # replicas that a reassignment adds
    removing: tuple[int, ...]  # replicas that a reassignment removes at its end
    recovering: bool  # its leader was elected uncleanly and has not recovered yet

    @property
    def is_under_replicated(self) -> bool:
        """True if a replica is not in sync, except those that a reassignment adds."""
        return not set(self.replicas) - set(self.adding) <= set(self.isr)

    @property
    def is_under_min_isr(self) -> bool:
        """True if acks=all is refused because too few replicas are in sync."""
        return len(self.isr) < self.min_isr

    @property
    def is_moving(self) -> bool:
        """True if a reassignment is in progress."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its partitions."""

    name: str
    topic_id: bytes  # 16 bytes
    partitions: tuple[Partition, ...]  # by index
    configs: Mapping[str, str]  # configs set for this topic, without defaults


def decode_cluster(answer: admin_pb2.DescribeClusterResponse) -> Cluster:
    """Return a cluster from its description."""
    return Cluster(
        cluster_id=answer.cluster_id,
        controller_id=node_or_none(answer.controller_id),
        brokers=tuple(
            Broker(
                id=broker.id,
                grpc_address=broker.grpc_address,
                rack=broker.rack,
                fenced=broker.fenced,
                broker_epoch=broker.broker_epoch,
                stopping=broker.stopping,
                kafka_listeners={each.name: each.address for each in broker.kafka_listeners},
            )
            for broker in answer.brokers
        ),
        time_ms=answer.time_ms,
    )


def decode_listing(topic: admin_pb2.TopicListing) -> TopicListing:
    """Return a topic listing from its message."""
    return TopicListing(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        is_internal=topic.is_internal,
    )


def decode_topic(topic: admin_pb2.TopicDescription) -> Topic:
    """Return a topic from its description."""
    return Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(decode_partition(entry) for entry in topic.partitions),
        configs={entry.name: entry.value for entry in topic.configs},
    )


def decode_partition(entry: admin_pb2.PartitionDescription) -> Partition:
    """Return a partition from its description."""
    return Partition(
        partition=entry.partition,
        leader=node_or_none(entry.leader),
        leader_epoch=entry.leader_epoch,
        partition_epoch=entry.partition_epoch,
        replicas=tuple(entry.replicas),
        isr=tuple(entry.isr),
        min_isr=entry.min_isr,
        elr=tuple(entry.elr),
        last_known_elr=tuple(entry.last_known_elr),
        adding=tuple(entry.adding),
        removing=tuple(entry.removing),
        recovering=entry.recovering,
    )


def node_or_none(node_id: int) -> int | None:
    """Return a node id, or None for a negative number."""
    return None if node_id < 0 else node_id
