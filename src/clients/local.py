"""A client on a runtime of its own: the real one, of the running loop, closed with the client."""

from typing import Unpack

from ..runtime.real import close_runtime, real_runtime
from .config import ClientConfig, ClientSettings, config_of
from .log import AsyncLog


def local_log(bootstrap: str, **settings: Unpack[ClientSettings]) -> AsyncLog:
    """Return a client on the running loop; see `aio.connect`."""
    config = config_of(ClientConfig, settings)
    runtime = real_runtime("quorumlog-client", on_stop=_ignore)

    async def close() -> None:
        await close_runtime(runtime)

    return AsyncLog(runtime, bootstrap, config, on_close=close)


def _ignore(reason: str) -> None:
    """A client never ends its process."""
