"""A whole node, and a channel to its public listener."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from tests.kit.node_settings import with_settings

from quorumlog.runtime import Channel, Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
WAIT_MS = 60_000


@asynccontextmanager
async def serving(runtime: Runtime, folder: str, **settings: Any) -> AsyncIterator[Channel]:
    """Run a new node of `settings` in `folder`; yield a channel to it."""
    config = with_settings(
        NodeConfig(
            data_dir=folder,
            grpc_listener="127.0.0.1:0",
            controller_listener="127.0.0.1:0",
        ),
        **settings,
    )
    await format_directory(runtime, config)
    async with Node(runtime, config) as node:
        assert node.addresses.grpc is not None
        channel = runtime.network.channel(node.addresses.grpc)
        try:
            yield channel
        finally:
            await channel.close()
