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

- `connect(bootstrap)` returns a blocking client; `aio.connect(bootstrap)` returns an asyncio
  client with the same method names. A client has `producer()`, `consumer()`, `admin`,
  `read_arrow()` and `list_offsets()`.
- `ClientConfig`, `ProducerConfig` and `ConsumerConfig` define the settings. Pass them as keyword
  arguments: `connect(..., connect_timeout_ms=500)`, `producer(linger_ms=20)`, `consumer(...,
  start="latest")`.
- `errors` defines the exceptions, all subclasses of `QuorumlogError`. Each message names a remedy;
  `retriable` is true if a retry may succeed.
- `quorumlog.spark` has `session()` and `configure()` for PySpark.

Start a node for development with `quorumlog dev` on the command line.

Importing this package imports nothing else: each name is loaded at its first use.
"""

TYPE_CHECKING = False  # type checkers recognise the name; `typing` would take most of the import

if TYPE_CHECKING:
    from . import aio as aio
    from . import errors as errors
    from .clients import ClientConfig as ClientConfig
    from .clients import CommittedOffset as CommittedOffset
    from .clients import ConsumerConfig as ConsumerConfig
    from .clients import ConsumerRecord as ConsumerRecord
    from .clients import Delivered as Delivered
    from .clients import DeliveredRange as DeliveredRange
    from .clients import ProducerConfig as ProducerConfig
    from .clients import Shift as Shift
    from .clients import TimestampMs as TimestampMs
    from .clients import TopicPartition as TopicPartition
    from .clients.blocking import Log as Log
    from .clients.blocking import connect as connect
    from .errors import QuorumlogError as QuorumlogError
    from .records.record import Record as Record

__version__ = "0.1.0"

_HOMES = {
    "ClientConfig": ".clients",
    "CommittedOffset": ".clients",
    "ConsumerConfig": ".clients",
    "ConsumerRecord": ".clients",
    "Delivered": ".clients",
    "DeliveredRange": ".clients",
    "Log": ".clients.blocking",
    "ProducerConfig": ".clients",
    "QuorumlogError": ".errors",
    "Record": ".records.record",
    "Shift": ".clients",
    "TimestampMs": ".clients",
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
