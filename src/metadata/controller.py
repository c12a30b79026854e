"""Dispatch of the controller's decisions: from an image and a command to records and a reply.

Pure. `decide` raises a typed error or returns the records to append. Only `replay` of those records
changes an image, on every node alike. The shell appends them and waits for commits.
"""

from ..errors import AuthorizationOutdated
from .commands import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterConfigs,
    AlterGroupConfigs,
    AlterPartitions,
    AlterReassignments,
    AlterScramCredentials,
    BalanceLeaders,
    BrokerStopping,
    Command,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    ElectLeaders,
    FenceBroker,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
    UpdateFeatures,
)
from .config import ControllerConfig
from .decision import AnyDecision
from .decisions import (
    alter_partitions,
    balance,
    brokers,
    configs,
    features,
    producer_ids,
    quotas,
    reassignment,
    topics,
)
from .image import MetadataImage
from .topic_names import INTERNAL_TOPICS


def check_authorized(image: MetadataImage, command: Command, authorized_offset: int) -> None:
    """Raise AuthorizationOutdated if ACLs or credentials changed after the offset of the metadata
    on which a broker authorized the client of a relayed command. No client has allocations of
    producer ids and internal topics: brokers send them for themselves."""
    if image.security_offset <= authorized_offset or isinstance(command, AllocateProducerIds):
        return
    if isinstance(command, CreateTopic) and command.name in INTERNAL_TOPICS:
        return
    raise AuthorizationOutdated(
        f"the client was authorized on the metadata at offset {authorized_offset}; ACLs or"
        f" credentials changed at {image.security_offset}; authorize it again",
        metadata_offset=image.security_offset,
    )


def decide(  # noqa: C901, PLR0912 (a dispatch)
    image: MetadataImage, command: Command, config: ControllerConfig
) -> AnyDecision:
    """Decide one command on the newest image; raise a QuorumlogError if it is rejected."""
    match command:
        case RegisterBroker():
            return brokers.register(image, command)
        case FenceBroker():
            return brokers.fence(image, command)
        case UnfenceBroker():
            return brokers.unfence(image, command)
        case BrokerStopping():
            return brokers.stopping(image, command)
        case UnregisterBroker():
            return brokers.unregister(image, command)
        case AlterPartitions():
            return alter_partitions.alter_partitions(image, command)
        case ElectLeaders():
            return balance.elect_leaders(image, command)
        case BalanceLeaders():
            return balance.balance_leaders(image)
        case CreateTopic():
            return topics.create_topic(image, command, config)
        case DeleteTopic():
            return topics.delete_topic(image, command)
        case AlterConfigs():
            return configs.alter_configs(image, command)
        case AllocateProducerIds():
            return producer_ids.allocate_producer_ids(image, command)
        case CreatePartitions():
            return topics.create_partitions(image, command, config)
        case AlterReassignments():
            return reassignment.alter_reassignments(image, command)
        case AlterClusterConfigs():
            return configs.alter_cluster_configs(image, command)
        case AlterGroupConfigs():
            return configs.alter_group_configs(image, command)
        case UpdateFeatures():
            return features.update_features(image, command)
        case AlterClientQuotas():
            return quotas.alter_client_quotas(image, command)
        case CreateAcls() | DeleteAcls() | AlterScramCredentials():
            return _decide_security(image, command)


def _decide_security(
    image: MetadataImage, command: CreateAcls | DeleteAcls | AlterScramCredentials
) -> AnyDecision:
    """Import the decisions at the first command, so that a start without it is faster."""
    from .decisions import acls, scram_credentials

    match command:
        case CreateAcls():
            return acls.create_acls(image, command)
        case DeleteAcls():
            return acls.delete_acls(image, command)
        case AlterScramCredentials():
            return scram_credentials.alter_scram_credentials(image, command)
