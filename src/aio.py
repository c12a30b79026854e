"""The asyncio client: `async with quorumlog.aio.connect("host:port") as log`."""

from typing import Unpack

from .clients.admin.admin import AsyncAdmin
from .clients.config import ClientConfig, ClientSettings, make_config
from .clients.consumer.arrow_reader import ArrowScan
from .clients.consumer.consumer import AsyncConsumer
from .clients.consumer.record import AsyncRecords
from .clients.groups.group_consumer import AsyncGroupConsumer
from .clients.log import AsyncLog
from .clients.producer.batches import Delivery
from .clients.producer.bulk import AsyncBulkDelivery
from .clients.producer.producer import AsyncProducer
from .clients.producer.staged_producer import AsyncStagedProducer
from .clients.producer.transactional_producer import AsyncTransactionalProducer

__all__ = [
    "ArrowScan",
    "AsyncAdmin",
    "AsyncBulkDelivery",
    "AsyncConsumer",
    "AsyncGroupConsumer",
    "AsyncLog",
    "AsyncProducer",
    "AsyncRecords",
    "AsyncStagedProducer",
    "AsyncTransactionalProducer",
    "Delivery",
    "connect",
]


def connect(bootstrap: str = "127.0.0.1:9094", **settings: Unpack[ClientSettings]) -> AsyncLog:
    """Return a client on the running loop; enter it with `async with`, or await it.

    ```python
    async with quorumlog.aio.connect("127.0.0.1:9094") as log:
        print([topic.name for topic in await log.admin.list_topics()])
    ```
    `bootstrap` is "host:port", or several separated by commas. `settings` are the fields of
    `ClientConfig`, see `quorumlog.connect`. Entering raises ConnectionFailed if no broker answers
    within `connect_timeout_ms`; a malformed address raises InvalidConfig.
    """
    from .runtime.real import close_runtime, real_runtime  # only if a client is created

    config = make_config(ClientConfig, settings)
    runtime = real_runtime("quorumlog-client", on_stop=_ignore)

    async def close() -> None:
        await close_runtime(runtime)

    return AsyncLog(runtime, bootstrap, config, on_close=close)


def _ignore(reason: str) -> None:
    """Ignore the request to stop: a client does not end its process."""
