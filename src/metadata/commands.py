"""Commands to the controller and their replies. Frozen values.

They are msgspec structs, because three dozen dataclasses would slow down every start. `codec`
translates them to messages and back.
"""

from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from msgspec import Struct

from ..errors import QuorumlogError
from ..ids import NO_NODE, DirectoryId, Epoch, NodeId, Offset, TopicId
from .acls import Acl, AclFilter
from .client_quotas import QuotaEntity
from .image import AlteredPartition, TopicImage
from .scram_credentials import ScramCredential, ScramKey

# --- replies -------------------------------------------------------------------------------------


class Done(Struct, frozen=True, kw_only=True):
    """The reply of commands without a result."""


class TopicCreated(Struct, frozen=True, kw_only=True):
    """The topic after the command (with validate_only: after it would have run)."""

    topic: TopicImage


class TopicDeleted(Struct, frozen=True, kw_only=True):
    """The id of the deleted topic."""

    topic_id: TopicId


class PartitionsCreated(Struct, frozen=True, kw_only=True):
    """The topic after the command (with validate_only: after it would have run)."""

    topic: TopicImage


class ConfigsAltered(Struct, frozen=True, kw_only=True):
    """The configs that are set for the topic after the command (with validate_only: after it would
    have run), by ascending name."""

    configs: tuple[tuple[str, str], ...]


class ClusterConfigsAltered(Struct, frozen=True, kw_only=True):
    """The cluster configs that are set after the command, by ascending name."""

    configs: tuple[tuple[str, str], ...]


class GroupConfigsAltered(Struct, frozen=True, kw_only=True):
    """The configs that are set for the group after the command, by ascending name."""

    configs: tuple[tuple[str, str], ...]


class PartitionsAltered(Struct, frozen=True, kw_only=True):
    """The result of each change, in the order of the command: the state after it, or the error."""

    results: tuple[AlteredPartition | QuorumlogError, ...]


class PartitionOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one partition's reassignment or election."""

    topic: str
    partition: int
    error: QuorumlogError | None = None


class PartitionOutcomes(Struct, frozen=True, kw_only=True):
    """The outcomes of the partitions of the command, in its order, or of those that changed."""

    outcomes: tuple[PartitionOutcome, ...]


class FeaturesUpdated(Struct, frozen=True, kw_only=True):
    """Feature levels after the command, by ascending name: the finalized level, and the lowest and
    highest level that every broker supports."""

    levels: tuple[tuple[str, int, int, int], ...]


class QuotaOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of the alteration of one entity's quotas."""

    entity: QuotaEntity  # parts in the order of the command
    error: QuorumlogError | None = None


class ClientQuotasAltered(Struct, frozen=True, kw_only=True):
    """The outcome of each alteration, in the order of the command."""

    outcomes: tuple[QuotaOutcome, ...]


class AclsCreated(Struct, frozen=True, kw_only=True):
    """The outcome of each ACL, in the order of the command: None, or the error."""

    errors: tuple[QuorumlogError | None, ...]


class AclDeletion(Struct, frozen=True, kw_only=True):
    """The outcome of one filter."""

    acls: tuple[Acl, ...] = ()  # deleted, by ascending principal; also by an earlier filter
    error: QuorumlogError | None = None


class AclsDeleted(Struct, frozen=True, kw_only=True):
    """The outcome of each filter, in the order of the command."""

    deletions: tuple[AclDeletion, ...]


class ScramOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of the changes of one user's credentials."""

    user: str
    error: QuorumlogError | None = None


class ScramCredentialsAltered(Struct, frozen=True, kw_only=True):
    """The outcome of each user, in the order of the first change."""

    outcomes: tuple[ScramOutcome, ...]


class ProducerIdsAllocated(Struct, frozen=True, kw_only=True):
    """The allocated block of producer ids, [start, start + count)."""

    start: int
    count: int


Reply: TypeAlias = (
    Done
    | TopicCreated
    | TopicDeleted
    | PartitionsCreated
    | ConfigsAltered
    | ClusterConfigsAltered
    | GroupConfigsAltered
    | PartitionsAltered
    | PartitionOutcomes
    | FeaturesUpdated
    | ClientQuotasAltered
    | AclsCreated
    | AclsDeleted
    | ScramCredentialsAltered
    | ProducerIdsAllocated
)


_R = TypeVar("_R")


class Submitted(Struct, Generic[_R], frozen=True, kw_only=True):
    """The result of a relayed command."""

    reply: _R
    offset: Offset = Offset(-1)  # of the metadata record; -1: the response has none
    applied: bool = False  # the brokers concerned have applied it; False also if it is unknown


# --- commands ------------------------------------------------------------------------------------


class RelayedCommand(Struct, Generic[_R], frozen=True, kw_only=True):
    """A command that any broker relays to the active controller. Its reply has the type `_R`."""

    # True if the command may be sent again when the outcome of the first attempt is unknown.
    is_repeatable: ClassVar[bool] = True


_C = TypeVar("_C", bound=RelayedCommand[Any])


class RegisterBroker(Struct, frozen=True, kw_only=True):
    """Register a broker process. Repeating it for the same incarnation changes nothing."""

    broker_id: NodeId
    incarnation_id: bytes  # 16 bytes
    directory_id: DirectoryId
    grpc_address: str
    rack: str = ""
    boot_id: str = ""
    clean_start: bool = False  # the previous process stopped cleanly
    internal_address: str = ""  # empty: grpc_address
    features: tuple[tuple[str, int, int], ...] = ()  # name, lowest and highest level
    kafka_listeners: tuple[tuple[str, str], ...] = ()  # name and "host:port"


class FenceBroker(Struct, frozen=True, kw_only=True):
    """Fence a broker whose session expired or whose process ended."""

    broker_id: NodeId
    broker_epoch: Offset


class UnfenceBroker(Struct, frozen=True, kw_only=True):
    """Unfence a broker that has applied the metadata up to its own registration."""

    broker_id: NodeId
    broker_epoch: Offset


class BrokerStopping(Struct, frozen=True, kw_only=True):
    """Begin the controlled shutdown of a broker: move its leaderships."""

    broker_id: NodeId
    broker_epoch: Offset


class CreateTopic(RelayedCommand[TopicCreated], frozen=True, kw_only=True):
    """Create one topic."""

    name: str
    # 16 random bytes: a repeat with the same id succeeds. Empty: the submitting broker draws them.
    topic_id: TopicId = TopicId(b"")
    partitions: int = 0  # 0: the default
    replication_factor: int = 0  # 0: the default
    configs: tuple[tuple[str, str], ...] = ()
    validate_only: bool = False
    assignments: tuple[
        tuple[NodeId, ...], ...
    ] = ()  # by partition; empty: the controller places replicas


class DeleteTopic(RelayedCommand[TopicDeleted], frozen=True, kw_only=True):
    """Delete one topic by name, by id, or by both, which must match."""

    is_repeatable: ClassVar[bool] = False  # a repeat could delete a newer topic of the same name

    name: str = ""  # empty: by id
    topic_id: TopicId | None = None


class ListChange(Struct, frozen=True, kw_only=True):
    """Elements to add to a list config, or to remove from it."""

    name: str
    parts: tuple[str, ...]
    is_removal: bool = False


class AlterConfigs(RelayedCommand[ConfigsAltered], frozen=True, kw_only=True):
    """Set and delete configs of one topic atomically. A repeat changes nothing.

    Repeated if the outcome is unknown: the change may take effect any time before the reply, also
    after a concurrent change.
    """

    topic: str
    changes: tuple[tuple[str, str | None], ...]  # name, new value; None: reset to the default
    lists: tuple[ListChange, ...] = ()
    replace: bool = False  # reset configs that are not named
    validate_only: bool = False


class AllocateProducerIds(RelayedCommand[ProducerIdsAllocated], frozen=True, kw_only=True):
    """Allocate the next block of producer ids. A repeat allocates another block; the block of a
    lost reply is never used."""

    broker_id: NodeId = NO_NODE  # NO_NODE: the caller is not a broker
    broker_epoch: Offset  # of the caller's registration; ignored if it is not a broker
    count: int = 0  # ids in the block; 0: `PRODUCER_IDS_IN_BLOCK`, which is also the maximum


class UnregisterBroker(RelayedCommand[Done], frozen=True, kw_only=True):
    """Remove the registration of a broker that does not come back."""

    broker_id: NodeId


class CreatePartitions(RelayedCommand[PartitionsCreated], frozen=True, kw_only=True):
    """Add partitions to one topic. The present count is a success without change."""

    topic: str
    count: int
    assignments: tuple[
        tuple[NodeId, ...], ...
    ] = ()  # of the new partitions; empty: the controller places replicas
    validate_only: bool = False
    topic_id: TopicId | None = None  # None: not checked


class IsrChange(Struct, frozen=True, kw_only=True):
    """A change of one partition's ISR, requested by its leader (KIP-497, KIP-903)."""

    topic_id: TopicId
    partition: int
    leader_epoch: Epoch
    partition_epoch: int  # the partition epoch that the change is based on
    isr: tuple[tuple[NodeId, Offset], ...]  # all members, with their broker epochs at the leader
    recovered: bool = False


class AlterPartitions(Struct, frozen=True, kw_only=True):
    """Change ISRs of partitions that a broker leads; they succeed or fail independently."""

    broker_id: NodeId
    broker_epoch: Offset
    changes: tuple[IsrChange, ...]


class Reassignment(Struct, frozen=True, kw_only=True):
    """The new replicas of one partition."""

    topic: str
    partition: int
    replicas: tuple[NodeId, ...] | None  # the preferred leader first; None: cancel


class AlterReassignments(RelayedCommand[PartitionOutcomes], frozen=True, kw_only=True):
    """Start or cancel reassignments. Partitions succeed or fail independently."""

    reassignments: tuple[Reassignment, ...]
    keep_replication_factor: bool = False  # reject another number of replicas (KIP-860)


class ElectLeaders(RelayedCommand[PartitionOutcomes], frozen=True, kw_only=True):
    """Elect preferred leaders, or (unclean) any live replica of partitions without a leader."""

    unclean: bool = False
    partitions: tuple[tuple[str, int], ...] = ()  # empty: all that need it (preferred only)


class BalanceLeaders(Struct, frozen=True, kw_only=True):
    """Elect preferred leaders of brokers whose imbalance exceeds
    leader.imbalance.per.broker.percentage. The controller submits it periodically."""


class AlterClusterConfigs(RelayedCommand[ClusterConfigsAltered], frozen=True, kw_only=True):
    """Set and delete configs of the cluster atomically."""

    changes: tuple[tuple[str, str | None], ...]
    lists: tuple[ListChange, ...] = ()
    replace: bool = False  # reset configs that are not named
    validate_only: bool = False


class AlterGroupConfigs(RelayedCommand[GroupConfigsAltered], frozen=True, kw_only=True):
    """Set and delete configs of a consumer group atomically; the group need not exist."""

    group: str
    changes: tuple[tuple[str, str | None], ...]
    lists: tuple[ListChange, ...] = ()
    replace: bool = False  # reset configs that are not named
    validate_only: bool = False


class FeatureUpdate(Struct, frozen=True, kw_only=True):
    """The new level of one feature."""

    name: str
    level: int
    allow_downgrade: bool = False


class UpdateFeatures(RelayedCommand[FeaturesUpdated], frozen=True, kw_only=True):
    """Change finalized feature levels atomically."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


class QuotaAlteration(Struct, frozen=True, kw_only=True):
    """Changes of one entity's quotas; parts and keys are in the order of the request."""

    entity: QuotaEntity
    changes: tuple[tuple[str, float | None], ...]  # key, new value; None: delete


class AlterClientQuotas(RelayedCommand[ClientQuotasAltered], frozen=True, kw_only=True):
    """Set and delete client quotas. Entities succeed or fail independently; a repeat changes
    nothing."""

    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


class CreateAcls(RelayedCommand[AclsCreated], frozen=True, kw_only=True):
    """Create ACLs. They succeed or fail independently; one that exists is a success."""

    acls: tuple[Acl, ...]


class DeleteAcls(RelayedCommand[AclsDeleted], frozen=True, kw_only=True):
    """Delete the ACLs that match filters, which succeed or fail independently."""

    is_repeatable: ClassVar[bool] = False  # a repeat's reply would lack the deleted ACLs

    filters: tuple[AclFilter, ...]


class AlterScramCredentials(RelayedCommand[ScramCredentialsAltered], frozen=True, kw_only=True):
    """Set and delete SCRAM credentials. Users succeed or fail independently; all changes of one
    user are made, or none."""

    is_repeatable: ClassVar[bool] = False  # a repeated deletion would fail

    deletions: tuple[ScramKey, ...] = ()
    upsertions: tuple[tuple[ScramKey, ScramCredential], ...] = ()


Relayed: TypeAlias = (
    CreateTopic
    | DeleteTopic
    | CreatePartitions
    | AlterConfigs
    | AlterReassignments
    | ElectLeaders
    | AlterClusterConfigs
    | AlterGroupConfigs
    | UpdateFeatures
    | AlterClientQuotas
    | CreateAcls
    | DeleteAcls
    | AlterScramCredentials
    | UnregisterBroker
    | AllocateProducerIds
)

Command: TypeAlias = (
    RegisterBroker
    | FenceBroker
    | UnfenceBroker
    | BrokerStopping
    | AlterPartitions
    | BalanceLeaders
    | Relayed
)
