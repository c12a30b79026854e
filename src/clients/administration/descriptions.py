"""Brokers, topics and partitions as a broker's metadata describes them: typed answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...proto import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker."""

    id: int
    grpc_address: str  # "host:port" for clients
    rack: str  # empty when none is configured
    fenced: bool  # leads nothing while true
    broker_epoch: int  # counts up with each registration: another one is another life
    stopping: bool  # hands over what it leads, and stops then
    # "host:port" for clients of the Kafka protocol, by name; without a host it is every interface.
    kafka_listeners: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster as one broker's metadata has it."""

    cluster_id: str
    controller_id: int | None  # None while none is elected
    brokers: tuple[Broker, ...]  # by ascending id


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """A topic in a list."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    is_internal: bool = False  # the brokers make and write it, and nobody else


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of a topic."""

    partition: int
    leader: int | None  # node id; None while there is none
    leader_epoch: int
    partition_epoch: int  # counts all changes of it
    replicas: tuple[int, ...]  # node ids, the preferred leader first
    isr: tuple[int, ...]  # those in sync
    min_isr: int  # in-sync replicas without which acks=all is refused
    elr: tuple[int, ...]  # outside the ISR, yet with everything that was acknowledged
    last_known_elr: tuple[int, ...]  # who was last in ISR or ELR, while both are empty
    adding: tuple[int, ...]  # replicas that a reassignment adds
    removing: tuple[int, ...]  # replicas that it takes away in the end
    recovering: bool  # its leader was elected with possible loss, and is not in order yet

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync, other than those that a reassignment adds."""
        return not set(self.replicas) - set(self.adding) <= set(self.isr)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is refused for want of replicas in sync."""
        return len(self.isr) < self.min_isr

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its partitions."""

    name: str
    topic_id: bytes  # 16 bytes
    partitions: tuple[Partition, ...]  # by index
    configs: Mapping[str, str]  # what was set for this topic, not the defaults


def cluster_of_answer(answer: admin_pb2.DescribeClusterResponse) -> Cluster:
    """Return the described cluster."""
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
    )


def listing_of_answer(topic: admin_pb2.TopicListing) -> TopicListing:
    """Return a topic of a list."""
    return TopicListing(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        is_internal=topic.is_internal,
    )


def topic_of_answer(topic: admin_pb2.TopicDescription) -> Topic:
    """Return a described topic."""
    return Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(partition_of_answer(entry) for entry in topic.partitions),
        configs={entry.name: entry.value for entry in topic.configs},
    )


def partition_of_answer(entry: admin_pb2.PartitionDescription) -> Partition:
    """Return a described partition."""
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
    """Return a node id, None for what stands for none."""
    return None if node_id < 0 else node_id
