"""A durable, partitioned commit log for Python and Spark.

```python
import quorumlog

with quorumlog.connect("127.0.0.1:9094") as log:
    log.admin.create_topic("flights", partitions=4, if_not_exists=True)
    with log.producer() as producer:
        producer.send("flights", key="UA", value="hello")
    for record in log.consumer("flights", until_end=True):
        print(record.offset, record.value)
```

Entry points:

- `connect(bootstrap)` returns a `Log`, the blocking client; `aio.connect(bootstrap)` returns an
  `aio.AsyncLog` with the same method names. A client has `producer()`, `consumer(topics)`,
  `group_consumer(group, topics)`, `admin`, `read_arrow()` and `list_offsets()`.
- For annotations: `Producer`, `Consumer`, `GroupConsumer`, `Admin`, `Delivery` and the values that
  they take and return, such as `TopicPartition`, `Position` and `Topic`; in `aio` the asyncio ones.
- `ClientConfig`, `ProducerConfig` and `ConsumerConfig` define the settings. Pass them as keyword
  arguments: `connect(..., connect_timeout_ms=500)`, `producer(linger_ms=20)`, `consumer(...,
  start="latest")`.
- Staged commits: the processes of a parallel job write, and one call makes all their records
  visible: `open_write()`, `staged_producer()` and `commit_write()` of a client.
- `processing` has read-process-write loops: `Processor` and `AsyncProcessor`.
- `errors` defines the exceptions, all subclasses of `QuorumlogError`. Each message names a remedy;
  a call that raised a `RetriableError` may succeed if it is repeated.
- `quorumlog.spark` has `session()` and `configure()` for PySpark.

Start a node for development with `quorumlog dev` on the command line.

Importing this package imports nothing else: each name is loaded at its first use.
"""

TYPE_CHECKING = False  # type checkers recognise the name; `typing` would take most of the import

if TYPE_CHECKING:
    from . import aio as aio
    from . import errors as errors
    from . import processing as processing
    from .clients.admin.configs import ClientQuotas as ClientQuotas
    from .clients.admin.configs import Config as Config
    from .clients.admin.configs import Feature as Feature
    from .clients.admin.configs import LogDir as LogDir
    from .clients.admin.configs import LogSize as LogSize
    from .clients.admin.configs import QuotaEntity as QuotaEntity
    from .clients.admin.descriptions import Broker as Broker
    from .clients.admin.descriptions import Cluster as Cluster
    from .clients.admin.descriptions import Partition as Partition
    from .clients.admin.descriptions import Topic as Topic
    from .clients.admin.descriptions import TopicListing as TopicListing
    from .clients.admin.fenced_brokers import FencingCause as FencingCause
    from .clients.admin.groups import Group as Group
    from .clients.admin.groups import GroupHold as GroupHold
    from .clients.admin.groups import GroupListing as GroupListing
    from .clients.admin.groups import GroupListings as GroupListings
    from .clients.admin.groups import GroupMember as GroupMember
    from .clients.admin.groups import GroupOffset as GroupOffset
    from .clients.admin.groups import OffsetReset as OffsetReset
    from .clients.admin.groups import Shift as Shift
    from .clients.admin.partitions import PartitionOutcome as PartitionOutcome
    from .clients.admin.partitions import PartitionReplicas as PartitionReplicas
    from .clients.admin.partitions import Reassignment as Reassignment
    from .clients.admin.partitions import Replica as Replica
    from .clients.admin.quorum import Quorum as Quorum
    from .clients.admin.quorum import QuorumReplica as QuorumReplica
    from .clients.admin.security import Acl as Acl
    from .clients.admin.security import AclFilter as AclFilter
    from .clients.admin.security import AuthorizationDecision as AuthorizationDecision
    from .clients.admin.security import User as User
    from .clients.admin.security import UserKeys as UserKeys
    from .clients.admin.staged_commits import CommitAttempt as CommitAttempt
    from .clients.admin.staged_commits import NamedCommits as NamedCommits
    from .clients.admin.transactions import OpenTransaction as OpenTransaction
    from .clients.admin.transactions import TransactionalId as TransactionalId
    from .clients.blocking import Admin as Admin
    from .clients.blocking import BulkDelivery as BulkDelivery
    from .clients.blocking import Consumer as Consumer
    from .clients.blocking import Delivery as Delivery
    from .clients.blocking import GroupConsumer as GroupConsumer
    from .clients.blocking import Log as Log
    from .clients.blocking import Producer as Producer
    from .clients.blocking import StagedProducer as StagedProducer
    from .clients.blocking import TransactionalProducer as TransactionalProducer
    from .clients.blocking import connect as connect
    from .clients.config import ClientConfig as ClientConfig
    from .clients.config import ConsumerConfig as ConsumerConfig
    from .clients.config import ProducerConfig as ProducerConfig
    from .clients.consumer.consumer import ConsumerStatistics as ConsumerStatistics
    from .clients.consumer.consumer import PartitionLag as PartitionLag
    from .clients.consumer.consumer import PartitionStatistics as PartitionStatistics
    from .clients.consumer.record import ConsumerRecord as ConsumerRecord
    from .clients.credentials import SCRAM as SCRAM
    from .clients.credentials import TLS as TLS
    from .clients.credentials import Token as Token
    from .clients.groups.coordinator import CommittedOffset as CommittedOffset
    from .clients.groups.membership import OnPartitions as OnPartitions
    from .clients.offsets import Position as Position
    from .clients.offsets import TimestampMs as TimestampMs
    from .clients.producer.batches import Delivered as Delivered
    from .clients.producer.batches import DeliveredRange as DeliveredRange
    from .clients.producer.batches import OnDelivery as OnDelivery
    from .clients.producer.partitioner import Partitioner as Partitioner
    from .clients.producer.producer import ProducerStatistics as ProducerStatistics
    from .clients.staged_commits import CommittedWrite as CommittedWrite
    from .clients.staged_commits import PartitionCount as PartitionCount
    from .clients.staged_commits import StagedWrite as StagedWrite
    from .clients.staged_commits import TaskResult as TaskResult
    from .errors import QuorumlogError as QuorumlogError
    from .ids import TopicPartition as TopicPartition
    from .records.record import Record as Record

__version__ = "0.1.0"

_HOMES = {
    "Acl": ".clients.admin.security",
    "AclFilter": ".clients.admin.security",
    "Admin": ".clients.blocking",
    "AuthorizationDecision": ".clients.admin.security",
    "Broker": ".clients.admin.descriptions",
    "BulkDelivery": ".clients.blocking",
    "ClientConfig": ".clients.config",
    "ClientQuotas": ".clients.admin.configs",
    "Cluster": ".clients.admin.descriptions",
    "CommitAttempt": ".clients.admin.staged_commits",
    "CommittedOffset": ".clients.groups.coordinator",
    "CommittedWrite": ".clients.staged_commits",
    "Config": ".clients.admin.configs",
    "Consumer": ".clients.blocking",
    "ConsumerConfig": ".clients.config",
    "ConsumerRecord": ".clients.consumer.record",
    "ConsumerStatistics": ".clients.consumer.consumer",
    "Delivered": ".clients.producer.batches",
    "DeliveredRange": ".clients.producer.batches",
    "Delivery": ".clients.blocking",
    "Feature": ".clients.admin.configs",
    "FencingCause": ".clients.admin.fenced_brokers",
    "Group": ".clients.admin.groups",
    "GroupConsumer": ".clients.blocking",
    "GroupHold": ".clients.admin.groups",
    "GroupListing": ".clients.admin.groups",
    "GroupListings": ".clients.admin.groups",
    "GroupMember": ".clients.admin.groups",
    "GroupOffset": ".clients.admin.groups",
    "Log": ".clients.blocking",
    "LogDir": ".clients.admin.configs",
    "LogSize": ".clients.admin.configs",
    "NamedCommits": ".clients.admin.staged_commits",
    "OffsetReset": ".clients.admin.groups",
    "OnDelivery": ".clients.producer.batches",
    "OnPartitions": ".clients.groups.membership",
    "OpenTransaction": ".clients.admin.transactions",
    "Partition": ".clients.admin.descriptions",
    "PartitionCount": ".clients.staged_commits",
    "PartitionLag": ".clients.consumer.consumer",
    "PartitionOutcome": ".clients.admin.partitions",
    "PartitionReplicas": ".clients.admin.partitions",
    "PartitionStatistics": ".clients.consumer.consumer",
    "Partitioner": ".clients.producer.partitioner",
    "Position": ".clients.offsets",
    "Producer": ".clients.blocking",
    "ProducerConfig": ".clients.config",
    "ProducerStatistics": ".clients.producer.producer",
    "Quorum": ".clients.admin.quorum",
    "QuorumReplica": ".clients.admin.quorum",
    "QuorumlogError": ".errors",
    "QuotaEntity": ".clients.admin.configs",
    "Reassignment": ".clients.admin.partitions",
    "Record": ".records.record",
    "Replica": ".clients.admin.partitions",
    "SCRAM": ".clients.credentials",
    "Shift": ".clients.admin.groups",
    "StagedProducer": ".clients.blocking",
    "StagedWrite": ".clients.staged_commits",
    "TLS": ".clients.credentials",
    "TaskResult": ".clients.staged_commits",
    "TimestampMs": ".clients.offsets",
    "Token": ".clients.credentials",
    "Topic": ".clients.admin.descriptions",
    "TopicListing": ".clients.admin.descriptions",
    "TopicPartition": ".ids",
    "TransactionalId": ".clients.admin.transactions",
    "TransactionalProducer": ".clients.blocking",
    "User": ".clients.admin.security",
    "UserKeys": ".clients.admin.security",
    "connect": ".clients.blocking",
}
_MODULES = ("aio", "errors", "processing")

__all__ = [*_HOMES, *_MODULES]


if not TYPE_CHECKING:  # with __getattr__ visible, a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Load a public name at its first use (PEP 562)."""
        from importlib import import_module

        if name in _MODULES:
            return import_module(f".{name}", __name__)
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home, __name__), name)
        return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted([*globals(), *__all__])
