"""Client library: producer, consumer and admin for asyncio, and blocking clients on top of them.

Clients depend on the protocol and the record batch format, on no server package. `log.AsyncLog`
takes a `Runtime`, so it runs on the real and on the simulated one. Producers are idempotent by
default: a retry after an unknown outcome stores a record once.
"""

from .admin.admin import AsyncAdmin
from .admin.configs import Config, LogDir, LogSize
from .admin.descriptions import Broker, Cluster, Partition, Topic, TopicListing
from .admin.features import Feature
from .admin.groups import (
    Group,
    GroupHold,
    GroupListing,
    GroupMember,
    GroupOffset,
    OffsetReset,
    Shift,
)
from .admin.placement import PartitionOutcome, Reassignment
from .admin.quorum import Quorum, QuorumReplica
from .admin.quotas import ClientQuotas, QuotaEntity
from .admin.replicas import PartitionReplicas, Replica
from .config import ClientConfig, ConsumerConfig, ProducerConfig
from .consumer.consumer import AsyncConsumer
from .consumer.record import ConsumerRecord
from .consumer.statistics import ConsumerStatistics, PartitionLag, PartitionStatistics
from .groups.calls import CommittedOffset
from .groups.group_consumer import AsyncGroupConsumer
from .log import AsyncLog
from .offsets import Position, TimestampMs
from .producer.batches import Delivered, DeliveredRange, Delivery, OnDelivery
from .producer.bulk import AsyncSent
from .producer.partitioner import Partitioner
from .producer.producer import AsyncProducer, ProducerStatistics

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
