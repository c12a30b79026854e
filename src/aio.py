"""The asyncio face of the clients: `async with quorumlog.aio.connect("host:port") as log`."""

from typing import Unpack

from .clients.config import ClientSettings
from .clients.log import AsyncLog

__all__ = ["AsyncLog", "connect"]


def connect(bootstrap: str = "127.0.0.1:9094", **settings: Unpack[ClientSettings]) -> AsyncLog:
    """Return a client on the running loop, to be entered with `async with` or awaited.

    `bootstrap` is "host:port", or several separated by commas; `settings` are the fields of
    `quorumlog.clients.ClientConfig`. Entering raises Lost when no broker answers.
    """
    from .clients.local import local_log

    return local_log(bootstrap, **settings)
