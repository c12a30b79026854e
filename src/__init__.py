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
    from .clients import Broker as Broker
    from .clients import ClientConfig as ClientConfig
    from .clients import ClientQuotas as ClientQuotas
    from .clients import Cluster as Cluster
    from .clients import CommittedOffset as CommittedOffset
    from .clients import Config as Config
    from .clients import ConsumerConfig as ConsumerConfig
    from .clients import ConsumerRecord as ConsumerRecord
    from .clients import ConsumerStatistics as ConsumerStatistics
    from .clients import Delivered as Delivered
    from .clients import DeliveredRange as DeliveredRange
    from .clients import Feature as Feature
    from .clients import Group as Group
    from .clients import GroupHold as GroupHold
    from .clients import GroupListing as GroupListing
    from .clients import GroupMember as GroupMember
    from .clients import GroupOffset as GroupOffset
    from .clients import LogDir as LogDir
    from .clients import LogSize as LogSize
    from .clients import OffsetReset as OffsetReset
    from .clients import OnDelivery as OnDelivery
    from .clients import OnPartitions as OnPartitions
    from .clients import Partition as Partition
    from .clients import Partitioner as Partitioner
    from .clients import PartitionLag as PartitionLag
    from .clients import PartitionOutcome as PartitionOutcome
    from .clients import PartitionReplicas as PartitionReplicas
    from .clients import PartitionStatistics as PartitionStatistics
    from .clients import Position as Position
    from .clients import ProducerConfig as ProducerConfig
    from .clients import ProducerStatistics as ProducerStatistics
    from .clients import Quorum as Quorum
    from .clients import QuorumReplica as QuorumReplica
    from .clients import QuotaEntity as QuotaEntity
    from .clients import Reassignment as Reassignment
    from .clients import Replica as Replica
    from .clients import Shift as Shift
    from .clients import TimestampMs as TimestampMs
    from .clients import Topic as Topic
    from .clients import TopicListing as TopicListing
    from .clients import TopicPartition as TopicPartition
    from .clients.blocking import Admin as Admin
    from .clients.blocking import BulkDelivery as BulkDelivery
    from .clients.blocking import Consumer as Consumer
    from .clients.blocking import Delivery as Delivery
    from .clients.blocking import GroupConsumer as GroupConsumer
    from .clients.blocking import Log as Log
    from .clients.blocking import Producer as Producer
    from .clients.blocking import connect as connect
    from .errors import QuorumlogError as QuorumlogError
    from .records.record import Record as Record

__version__ = "0.1.0"

_HOMES = {
    "Admin": ".clients.blocking",
    "Broker": ".clients",
    "BulkDelivery": ".clients.blocking",
    "ClientConfig": ".clients",
    "ClientQuotas": ".clients",
    "Cluster": ".clients",
    "CommittedOffset": ".clients",
    "Config": ".clients",
    "Consumer": ".clients.blocking",
    "ConsumerConfig": ".clients",
    "ConsumerRecord": ".clients",
    "ConsumerStatistics": ".clients",
    "Delivered": ".clients",
    "DeliveredRange": ".clients",
    "Delivery": ".clients.blocking",
    "Feature": ".clients",
    "Group": ".clients",
    "GroupConsumer": ".clients.blocking",
    "GroupHold": ".clients",
    "GroupListing": ".clients",
    "GroupMember": ".clients",
    "GroupOffset": ".clients",
    "Log": ".clients.blocking",
    "LogDir": ".clients",
    "LogSize": ".clients",
    "OffsetReset": ".clients",
    "OnDelivery": ".clients",
    "OnPartitions": ".clients",
    "Partition": ".clients",
    "PartitionLag": ".clients",
    "PartitionOutcome": ".clients",
    "PartitionReplicas": ".clients",
    "PartitionStatistics": ".clients",
    "Partitioner": ".clients",
    "Position": ".clients",
    "Producer": ".clients.blocking",
    "ProducerConfig": ".clients",
    "ProducerStatistics": ".clients",
    "Quorum": ".clients",
    "QuorumReplica": ".clients",
    "QuorumlogError": ".errors",
    "QuotaEntity": ".clients",
    "Reassignment": ".clients",
    "Record": ".records.record",
    "Replica": ".clients",
    "Shift": ".clients",
    "TimestampMs": ".clients",
    "Topic": ".clients",
    "TopicListing": ".clients",
    "TopicPartition": ".clients",
    "connect": ".clients.blocking",
}
_MODULES = ("aio", "errors")

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
