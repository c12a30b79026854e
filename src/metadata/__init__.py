"""What the cluster is: brokers, topics, partitions, configs, and who may change them.

A state machine over a log of records: `decide` turns a command into records, `replay` alone turns
records into the next immutable image. It would work over any replicated log; `shell` hangs it on
the quorum's.
"""

from .cluster_configs import (
    CLUSTER_CONFIGS,
    cluster_number,
    cluster_switch,
    effective_cluster_configs,
)
from .commands import (
    AllocateProducerIds,
    AlterClusterConfigs,
    AlterConfigs,
    AlterPartitions,
    AlterReassignments,
    BalanceLeaders,
    BrokerStopping,
    ClusterConfigsAltered,
    Command,
    ConfigsAltered,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Done,
    ElectLeaders,
    FeaturesUpdated,
    FeatureUpdate,
    FenceBroker,
    IsrChange,
    PartitionOutcome,
    PartitionOutcomes,
    PartitionsAltered,
    PartitionsCreated,
    ProducerIdsAllocated,
    Reassignment,
    RegisterBroker,
    Reply,
    TopicCreated,
    TopicDeleted,
    UnfenceBroker,
    UnregisterBroker,
    UpdateFeatures,
)
from .controller import decide
from .decision import AnyDecision, ControllerConfig, Decision, LongDecision
from .decisions.features import FEATURES, OWN_FEATURES
from .decisions.reassignment import moving_partitions
from .delta import DeltaBuilder, ImageDelta, PartitionChange
from .image import (
    EMPTY_IMAGE,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from .replaying import replay, replay_batch
from .sessions import BrokerSessions
from .topic_configs import (
    TOPIC_CONFIGS,
    ConfigType,
    TopicConfig,
    check_config,
    effective_configs,
    effective_min_isr,
)
from .topic_names import check_topic_name
from .translation import describe_features, describe_partition, describe_topic

__all__ = [
    "AllocateProducerIds",
    "AlterClusterConfigs",
    "AlterConfigs",
    "AlterPartitions",
    "AlterReassignments",
    "AnyDecision",
    "BalanceLeaders",
    "BrokerImage",
    "BrokerSessions",
    "BrokerStopping",
    "CLUSTER_CONFIGS",
    "ClusterConfigsAltered",
    "Command",
    "ConfigType",
    "ConfigsAltered",
    "ControllerConfig",
    "CreatePartitions",
    "CreateTopic",
    "Decision",
    "DeleteTopic",
    "DeltaBuilder",
    "Done",
    "EMPTY_IMAGE",
    "ElectLeaders",
    "FEATURES",
    "FeatureUpdate",
    "FeaturesUpdated",
    "FenceBroker",
    "ImageDelta",
    "IsrChange",
    "LongDecision",
    "MetadataImage",
    "OWN_FEATURES",
    "PartitionChange",
    "PartitionImage",
    "PartitionOutcome",
    "PartitionOutcomes",
    "PartitionsAltered",
    "PartitionsCreated",
    "ProducerIdsAllocated",
    "Reassignment",
    "RegisterBroker",
    "Reply",
    "TOPIC_CONFIGS",
    "TopicConfig",
    "TopicCreated",
    "TopicDeleted",
    "TopicImage",
    "UnfenceBroker",
    "UnregisterBroker",
    "UpdateFeatures",
    "check_config",
    "check_topic_name",
    "cluster_number",
    "cluster_switch",
    "decide",
    "describe_features",
    "describe_partition",
    "describe_topic",
    "effective_cluster_configs",
    "effective_configs",
    "effective_min_isr",
    "moving_partitions",
    "replay",
    "replay_batch",
]
