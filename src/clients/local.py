"""A client with its own real runtime, on the running loop; closing the client closes the
runtime."""

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
    """Ignore the request to stop: a client does not end its process."""
