"""A node's network whose ways to some addresses lead elsewhere: to the relays that a test can cut.

The node knows itself and the others by their true addresses all the same, and so do its clients.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..runtime import (
    ByteConnection,
    ByteProtocol,
    CallListener,
    Channel,
    Handler,
    Listener,
    Network,
    Runtime,
)


def routed(runtime: Runtime, routes: Mapping[str, str]) -> Runtime:
    """Return the runtime with a network on which who asks for an address of `routes` gets to the
    one that is written beside it."""
    return replace(runtime, network=RoutedNetwork(runtime.network, routes))


class RoutedNetwork:
    """The Network port, another one below it."""

    def __init__(self, below: Network, routes: Mapping[str, str]) -> None:
        self._below = below
        self._routes = dict(routes)  # "host:port" to "host:port"

    async def serve(
        self, address: str, handlers: Mapping[str, Handler], *, is_ready: bool = True
    ) -> CallListener:
        """Answer calls on an address by method path; raises AddressInUse."""
        return await self._below.serve(address, handlers, is_ready=is_ready)

    def channel(self, address: str) -> Channel:
        """Return a way to the address; never fails."""
        return self._below.channel(self._routes.get(address, address))

    async def listen_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> Listener:
        """Accept byte connections; raises AddressInUse."""
        return await self._below.listen_bytes(address, factory)

    async def connect_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> ByteConnection:
        """Connect; raises NotSent when refused, Lost otherwise. At the other end of a route a
        connection that the address refuses is made, and ends at once."""
        return await self._below.connect_bytes(self._routes.get(address, address), factory)

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Whether the address itself refuses a connection: a relay never does."""
        return await self._below.refuses(address, timeout_ms)
