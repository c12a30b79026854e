"""Client library: producer, consumer and admin for asyncio, and blocking clients on top of them.

Clients depend on the protocol and the record batch format, on no server package. `log.AsyncLog`
takes a `Runtime`, so it runs on the real and on the simulated one. Producers are idempotent by
default: a retry after an unknown outcome stores a record once.
"""

from .administration.admin import AsyncAdmin
from .administration.configs import Config, LogDir, LogSize
from .administration.descriptions import Broker, Cluster, Partition, Topic, TopicListing
from .administration.features import Feature
from .administration.groups import (
    Group,
    GroupHold,
    GroupListing,
    GroupMember,
    GroupOffset,
    OffsetReset,
    Shift,
)
from .administration.placement import PartitionOutcome, Reassignment
from .administration.quorum import Quorum, QuorumReplica
from .administration.quotas import ClientQuotas, QuotaEntity
from .administration.replicas import PartitionReplicas, Replica
from .config import ClientConfig, ConsumerConfig, ProducerConfig
from .consuming.consumer import AsyncConsumer
from .consuming.grouping.calls import CommittedOffset
from .consuming.grouping.group_consumer import AsyncGroupConsumer
from .consuming.record import ConsumerRecord
from .consuming.statistics import ConsumerStatistics, PartitionLag, PartitionStatistics
from .log import AsyncLog
from .offsets import Position, TimestampMs
from .producing.batches import Delivered, DeliveredRange, Delivery, OnDelivery
from .producing.bulk import AsyncSent
from .producing.partitioner import Partitioner
from .producing.producer import AsyncProducer, ProducerStatistics

__all__ = [
    "AsyncLog",
    "AsyncProducer",
    "AsyncConsumer",
    "AsyncGroupConsumer",
    "CommittedOffset",
    "Group",
    "GroupHold",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "OffsetReset",
    "Shift",
    "AsyncAdmin",
    "ClientConfig",
    "ProducerConfig",
    "ConsumerConfig",
    "ConsumerRecord",
    "Delivered",
    "Delivery",
    "OnDelivery",
    "AsyncSent",
    "Partitioner",
    "ProducerStatistics",
    "DeliveredRange",
    "Position",
    "TimestampMs",
    "ConsumerStatistics",
    "PartitionLag",
    "PartitionStatistics",
    "Broker",
    "Cluster",
    "Config",
    "LogDir",
    "LogSize",
    "Quorum",
    "QuorumReplica",
    "ClientQuotas",
    "QuotaEntity",
    "Topic",
    "TopicListing",
    "Partition",
    "PartitionOutcome",
    "PartitionReplicas",
    "Reassignment",
    "Replica",
    "Feature",
]
