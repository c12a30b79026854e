"""The asyncio client: `async with quorumlog.aio.connect("host:port") as log`."""

from typing import Unpack

from .clients.config import ClientSettings
from .clients.log import AsyncLog

__all__ = ["AsyncLog", "connect"]


def connect(bootstrap: str = "127.0.0.1:9094", **settings: Unpack[ClientSettings]) -> AsyncLog:
    """Return a client on the running loop; enter it with `async with`, or await it.

    ```python
    async with quorumlog.aio.connect("127.0.0.1:9094") as log:
        print([topic.name for topic in await log.admin.list_topics()])
    ```
    `bootstrap` is "host:port", or several separated by commas. `settings` are the fields of
    `ClientConfig`, see `quorumlog.connect`. Entering raises Lost if no broker answers within
    `connect_timeout_ms`; a malformed address raises InvalidConfig.
    """
    from .clients.local import local_log

    return local_log(bootstrap, **settings)
