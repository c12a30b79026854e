"""Client library: producer, consumer and admin for asyncio, and blocking clients on top of them.

Clients depend on the protocol and the record batch format, on no server package. `log.AsyncLog`
takes a `Runtime`, so it runs on the real and on the simulated one. Producers are idempotent by
default: a retry after an unknown outcome stores a record once.
"""

from ..ids import TopicPartition
from .admin.admin import AsyncAdmin
from .admin.configs import ClientQuotas, Config, Feature, LogDir, LogSize, QuotaEntity
from .admin.descriptions import Broker, Cluster, Partition, Topic, TopicListing
from .admin.groups import (
    Group,
    GroupHold,
    GroupListing,
    GroupMember,
    GroupOffset,
    OffsetReset,
    Shift,
)
from .admin.partitions import PartitionOutcome, PartitionReplicas, Reassignment, Replica
from .admin.quorum import Quorum, QuorumReplica
from .config import ClientConfig, ConsumerConfig, ProducerConfig
from .consumer.consumer import AsyncConsumer, ConsumerStatistics, PartitionLag, PartitionStatistics
from .consumer.record import ConsumerRecord
from .groups.coordinator import CommittedOffset
from .groups.group_consumer import AsyncGroupConsumer
from .groups.membership import OnPartitions
from .log import AsyncLog, make_log
from .offsets import Position, TimestampMs
from .producer.batches import Delivered, DeliveredRange, Delivery, OnDelivery
from .producer.bulk import AsyncBulkDelivery
from .producer.partitioner import Partitioner
from .producer.producer import AsyncProducer, ProducerStatistics

__all__ = [
    "AsyncLog",
    "make_log",
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
    "OnPartitions",
    "AsyncBulkDelivery",
    "Partitioner",
    "ProducerStatistics",
    "DeliveredRange",
    "Position",
    "TimestampMs",
    "TopicPartition",
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
