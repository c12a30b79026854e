"""What the controller can be asked to decide, and what it answers. Frozen values."""

from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import QuorumlogError
from ..ids import DirectoryId, Epoch, NodeId, Offset, TopicId
from .image import PartitionImage, TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBroker:
    """A broker has been silent for too long, or ended."""

    broker_id: NodeId
    broker_epoch: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBroker:
    """A broker has caught up with the metadata up to its own registration."""

    broker_id: NodeId
    broker_epoch: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStopping:
    """A broker wants to stop: its leaderships move away."""

    broker_id: NodeId
    broker_epoch: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Create one topic."""

    name: str
    topic_id: TopicId  # 16 bytes drawn by who asks: a repeat with the same id is a success
    partitions: int = 0  # 0: the default
    replication_factor: int = 0  # 0: the default
    configs: tuple[tuple[str, str], ...] = field(default=())
    validate_only: bool = False
    assignments: tuple[tuple[NodeId, ...], ...] = ()  # by partition; empty: to be placed


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Delete one topic, by name, by id, or by both if they belong together."""

    name: str = ""  # empty: by id alone
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListChange:
    """What is added to a config that is a list, or taken out of it."""

    name: str
    parts: tuple[str, ...]
    is_removal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    """Set and delete configs of one topic, all of them or none; a repeat changes nothing."""

    topic: str
    changes: tuple[tuple[str, str | None], ...]  # name, new value; None: back to the default
    lists: tuple[ListChange, ...] = ()
    replace: bool = False  # what is set and not named goes back to its default
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """Give away the next block of producer ids; a repeat gets another one."""

    broker_id: NodeId  # NO_NODE: the asker is no broker
    broker_epoch: Offset  # of the asking broker's registration; without one it is not looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker:
    """A broker is gone for good: take it out of the cluster."""

    broker_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions:
    """Give one topic more partitions; as many as it has already is a success."""

    topic: str
    count: int
    assignments: tuple[tuple[NodeId, ...], ...] = ()  # of the new ones; empty: to be placed
    validate_only: bool = False
    topic_id: TopicId | None = None  # None: not checked


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """The ISR that one partition's leader asks for (KIP-497, KIP-903)."""

    topic_id: TopicId
    partition: int
    leader_epoch: Epoch
    partition_epoch: int  # what it is based on
    isr: tuple[tuple[NodeId, Offset], ...]  # all members with the broker epoch the leader knows
    recovered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitions:
    """A leader asks for other in-sync replicas; each partition stands for itself."""

    broker_id: NodeId
    broker_epoch: Offset
    changes: tuple[IsrChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """Where one partition's replicas shall be."""

    topic: str
    partition: int
    replicas: tuple[NodeId, ...] | None  # the preferred leader first; None: cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReassignments:
    """Begin or cancel moves of partitions; each stands for itself."""

    reassignments: tuple[Reassignment, ...]
    keep_replication_factor: bool = False  # other numbers of replicas are refused (KIP-860)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Make preferred replicas lead, or (unclean) whoever is alive where nobody can lead."""

    unclean: bool = False
    partitions: tuple[tuple[str, int], ...] = ()  # empty: all that need it (preferred only)


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceLeaders:
    """The controller's own round: leaderships go back to preferred replicas where the share of
    others is above the bound (leader.imbalance.per.broker.percentage)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClusterConfigs:
    """Set and delete configs of the cluster, all of them or none."""

    changes: tuple[tuple[str, str | None], ...]
    lists: tuple[ListChange, ...] = ()
    replace: bool = False  # as of AlterConfigs
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """The level that one feature shall have."""

    name: str
    level: int
    allow_downgrade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatures:
    """Change finalized levels, all of them or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAlteration:
    """What one entity's quotas shall be; parts and keys as they were asked for, in any order."""

    entity: tuple[tuple[str, str | None], ...]
    changes: tuple[tuple[str, float | None], ...]  # key, new value; None: no quota


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotas:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Nothing more to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """The topic as it is now (or would be)."""

    topic: TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """The topic as it was."""

    topic: TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsCreated:
    """The topic as it is now (or would be)."""

    topic: TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsAltered:
    """The topic as it is now (or would be)."""

    topic: TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfigsAltered:
    """What is set now (or would be), by ascending name."""

    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAltered:
    """What became of each change, in the order of the command: the partition as it is now, or why
    it was refused."""

    results: tuple[PartitionImage | QuorumlogError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """What became of one partition's reassignment or election."""

    topic: str
    partition: int
    error: QuorumlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcomes:
    """One outcome a partition, in the order of the command, or of those that changed."""

    outcomes: tuple[PartitionOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesUpdated:
    """Levels as they are now (or would be), by ascending name: the one in force, the lowest and the
    highest that every broker works with."""

    levels: tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotasAltered:
    """Why each alteration was refused, in the order of the command; None: it was not."""

    errors: tuple[QuorumlogError | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsAllocated:
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
