"""What the cluster is: brokers, topics, partitions, configs, and who may change them.

A state machine over a log of records: `decide` turns a command into records, `replay` alone turns
records into the next immutable image. It would work over any replicated log; `shell` hangs it on
the quorum's.
"""

from .commands import (
    AllocateProducerIds,
    AlterConfigs,
    BrokerStopping,
    Command,
    ConfigsAltered,
    CreateTopic,
    DeleteTopic,
    Done,
    FenceBroker,
    ProducerIdsAllocated,
    RegisterBroker,
    Reply,
    TopicCreated,
    TopicDeleted,
    UnfenceBroker,
)
from .controller import ControllerConfig, Decision, decide
from .delta import DeltaBuilder, ImageDelta, PartitionChange
from .image import (
    EMPTY_IMAGE,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    replay,
    replay_batch,
)
from .sessions import BrokerSessions
from .topic_configs import (
    TOPIC_CONFIGS,
    ConfigType,
    TopicConfig,
    check_config,
    effective_configs,
)
from .topic_names import check_topic_name
from .translation import describe_topic

__all__ = [
    "EMPTY_IMAGE",
    "TOPIC_CONFIGS",
    "AllocateProducerIds",
    "AlterConfigs",
    "BrokerImage",
    "BrokerSessions",
    "BrokerStopping",
    "Command",
    "ConfigType",
    "ConfigsAltered",
    "ControllerConfig",
    "CreateTopic",
    "Decision",
    "DeleteTopic",
    "DeltaBuilder",
    "Done",
    "FenceBroker",
    "ImageDelta",
    "MetadataImage",
    "PartitionChange",
    "PartitionImage",
    "ProducerIdsAllocated",
    "RegisterBroker",
    "Reply",
    "TopicConfig",
    "TopicCreated",
    "TopicDeleted",
    "TopicImage",
    "UnfenceBroker",
    "check_config",
    "check_topic_name",
    "decide",
    "describe_topic",
    "effective_configs",
    "replay",
    "replay_batch",
]
