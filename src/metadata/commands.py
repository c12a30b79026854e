"""What the controller can be asked to decide, and what it answers. Frozen values.

They are structs: three dozen dataclasses would hold up every start.
"""

from typing import TypeAlias

from msgspec import Struct

from ..errors import QuorumlogError
from ..ids import DirectoryId, Epoch, NodeId, Offset, TopicId
from .image import PartitionImage, TopicImage


class RegisterBroker(Struct, frozen=True, kw_only=True):
    """A process announces itself; a repeat of the same incarnation changes nothing."""

    broker_id: NodeId
    incarnation_id: bytes  # 16 bytes
    directory_id: DirectoryId
    grpc_address: str
    rack: str = ""
    boot_id: str = ""
    clean_start: bool = False  # the life before ended with the clean marker
    replica_address: str = ""  # empty: grpc_address
    features: tuple[tuple[str, int, int], ...] = ()  # name, lowest and highest level
    kafka_listeners: tuple[tuple[str, str], ...] = ()  # name and "host:port"


class FenceBroker(Struct, frozen=True, kw_only=True):
    """A broker has been silent for too long, or ended."""

    broker_id: NodeId
    broker_epoch: Offset


class UnfenceBroker(Struct, frozen=True, kw_only=True):
    """A broker has caught up with the metadata up to its own registration."""

    broker_id: NodeId
    broker_epoch: Offset


class BrokerStopping(Struct, frozen=True, kw_only=True):
    """A broker wants to stop: its leaderships move away."""

    broker_id: NodeId
    broker_epoch: Offset


class CreateTopic(Struct, frozen=True, kw_only=True):
    """Create one topic."""

    name: str
    topic_id: TopicId  # 16 bytes drawn by who asks: a repeat with the same id is a success
    partitions: int = 0  # 0: the default
    replication_factor: int = 0  # 0: the default
    configs: tuple[tuple[str, str], ...] = ()
    validate_only: bool = False
    assignments: tuple[tuple[NodeId, ...], ...] = ()  # by partition; empty: to be placed


class DeleteTopic(Struct, frozen=True, kw_only=True):
    """Delete one topic, by name, by id, or by both if they belong together."""

    name: str = ""  # empty: by id alone
    topic_id: TopicId | None = None


class ListChange(Struct, frozen=True, kw_only=True):
    """What is added to a config that is a list, or taken out of it."""

    name: str
    parts: tuple[str, ...]
    is_removal: bool = False


class AlterConfigs(Struct, frozen=True, kw_only=True):
    """Set and delete configs of one topic, all of them or none; a repeat changes nothing."""

    topic: str
    changes: tuple[tuple[str, str | None], ...]  # name, new value; None: back to the default
    lists: tuple[ListChange, ...] = ()
    replace: bool = False  # what is set and not named goes back to its default
    validate_only: bool = False


class AllocateProducerIds(Struct, frozen=True, kw_only=True):
    """Give away the next block of producer ids; a repeat gets another one."""

    broker_id: NodeId  # NO_NODE: the asker is no broker
    broker_epoch: Offset  # of the asking broker's registration; without one it is not looked at


class UnregisterBroker(Struct, frozen=True, kw_only=True):
    """A broker is gone for good: take it out of the cluster."""

    broker_id: NodeId


class CreatePartitions(Struct, frozen=True, kw_only=True):
    """Give one topic more partitions; as many as it has already is a success."""

    topic: str
    count: int
    assignments: tuple[tuple[NodeId, ...], ...] = ()  # of the new ones; empty: to be placed
    validate_only: bool = False
    topic_id: TopicId | None = None  # None: not checked


class IsrChange(Struct, frozen=True, kw_only=True):
    """The ISR that one partition's leader asks for (KIP-497, KIP-903)."""

    topic_id: TopicId
    partition: int
    leader_epoch: Epoch
    partition_epoch: int  # what it is based on
    isr: tuple[tuple[NodeId, Offset], ...]  # all members with the broker epoch the leader knows
    recovered: bool = False


class AlterPartitions(Struct, frozen=True, kw_only=True):
    """A leader asks for other in-sync replicas; each partition stands for itself."""

    broker_id: NodeId
    broker_epoch: Offset
    changes: tuple[IsrChange, ...]


class Reassignment(Struct, frozen=True, kw_only=True):
    """Where one partition's replicas shall be."""

    topic: str
    partition: int
    replicas: tuple[NodeId, ...] | None  # the preferred leader first; None: cancel


class AlterReassignments(Struct, frozen=True, kw_only=True):
    """Begin or cancel moves of partitions; each stands for itself."""

    reassignments: tuple[Reassignment, ...]
    keep_replication_factor: bool = False  # other numbers of replicas are refused (KIP-860)


class ElectLeaders(Struct, frozen=True, kw_only=True):
    """Make preferred replicas lead, or (unclean) whoever is alive where nobody can lead."""

    unclean: bool = False
    partitions: tuple[tuple[str, int], ...] = ()  # empty: all that need it (preferred only)


class BalanceLeaders(Struct, frozen=True, kw_only=True):
    """The controller's own round: leaderships go back to preferred replicas where the share of
    others is above the bound (leader.imbalance.per.broker.percentage)."""


class AlterClusterConfigs(Struct, frozen=True, kw_only=True):
    """Set and delete configs of the cluster, all of them or none."""

    changes: tuple[tuple[str, str | None], ...]
    lists: tuple[ListChange, ...] = ()
    replace: bool = False  # as of AlterConfigs
    validate_only: bool = False


class FeatureUpdate(Struct, frozen=True, kw_only=True):
    """The level that one feature shall have."""

    name: str
    level: int
    allow_downgrade: bool = False


class UpdateFeatures(Struct, frozen=True, kw_only=True):
    """Change finalized levels, all of them or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


class QuotaAlteration(Struct, frozen=True, kw_only=True):
    """What one entity's quotas shall be; parts and keys as they were asked for, in any order."""

    entity: tuple[tuple[str, str | None], ...]
    changes: tuple[tuple[str, float | None], ...]  # key, new value; None: no quota


class AlterClientQuotas(Struct, frozen=True, kw_only=True):
    """Set and clear quotas of clients; each alteration stands for itself, a repeat changes
    nothing."""

    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


Command: TypeAlias = (
    RegisterBroker
    | FenceBroker
    | UnfenceBroker
    | BrokerStopping
    | UnregisterBroker
    | CreateTopic
    | DeleteTopic
    | CreatePartitions
    | AlterConfigs
    | AlterClusterConfigs
    | AlterPartitions
    | AlterReassignments
    | ElectLeaders
    | BalanceLeaders
    | UpdateFeatures
    | AlterClientQuotas
    | AllocateProducerIds
)


class Done(Struct, frozen=True, kw_only=True):
    """Nothing more to say."""


class TopicCreated(Struct, frozen=True, kw_only=True):
    """The topic as it is now (or would be)."""

    topic: TopicImage


class TopicDeleted(Struct, frozen=True, kw_only=True):
    """The topic as it was."""

    topic: TopicImage


class PartitionsCreated(Struct, frozen=True, kw_only=True):
    """The topic as it is now (or would be)."""

    topic: TopicImage


class ConfigsAltered(Struct, frozen=True, kw_only=True):
    """The topic as it is now (or would be)."""

    topic: TopicImage


class ClusterConfigsAltered(Struct, frozen=True, kw_only=True):
    """What is set now (or would be), by ascending name."""

    configs: tuple[tuple[str, str], ...]


class PartitionsAltered(Struct, frozen=True, kw_only=True):
    """What became of each change, in the order of the command: the partition as it is now, or why
    it was refused."""

    results: tuple[PartitionImage | QuorumlogError, ...]


class PartitionOutcome(Struct, frozen=True, kw_only=True):
    """What became of one partition's reassignment or election."""

    topic: str
    partition: int
    error: QuorumlogError | None = None


class PartitionOutcomes(Struct, frozen=True, kw_only=True):
    """One outcome a partition, in the order of the command, or of those that changed."""

    outcomes: tuple[PartitionOutcome, ...]


class FeaturesUpdated(Struct, frozen=True, kw_only=True):
    """Levels as they are now (or would be), by ascending name: the one in force, the lowest and the
    highest that every broker works with."""

    levels: tuple[tuple[str, int, int, int], ...]


class ClientQuotasAltered(Struct, frozen=True, kw_only=True):
    """Why each alteration was refused, in the order of the command; None: it was not."""

    errors: tuple[QuorumlogError | None, ...]


class ProducerIdsAllocated(Struct, frozen=True, kw_only=True):
    """The ids [start, start + count) belong to the asker alone."""

    start: int
    count: int


Reply: TypeAlias = (
    Done
    | TopicCreated
    | TopicDeleted
    | PartitionsCreated
    | ConfigsAltered
    | ClusterConfigsAltered
    | PartitionsAltered
    | PartitionOutcomes
    | FeaturesUpdated
    | ClientQuotasAltered
    | ProducerIdsAllocated
)
