"""The real network: calls and streams over gRPC, byte connections over raw sockets."""

from collections.abc import Callable, Mapping

from .byte_network import ByteNetwork
from .grpc_network import GrpcNetwork
from .grpc_options import CONNECT_MS
from .ports import (
    ByteConnection,
    ByteProtocol,
    CallListener,
    Channel,
    Clock,
    Handler,
    Listener,
    Tasks,
)


class RealNetwork:
    """The Network port, composed of the two implementations."""

    def __init__(self, clock: Clock, tasks: Tasks, *, connect_ms: int = CONNECT_MS) -> None:
        self._bytes = ByteNetwork(tasks)
        self._calls = GrpcNetwork(clock, self._bytes.why_not_bindable, connect_ms=connect_ms)

    async def serve(
        self, address: str, handlers: Mapping[str, Handler], *, is_ready: bool = True
    ) -> CallListener:
        """Serve calls on an address by method path. Raise AddressInUse."""
        return await self._calls.serve(address, handlers, is_ready=is_ready)

    def channel(self, address: str) -> Channel:
        """Return a channel to the address. It connects at the first call."""
        return self._calls.channel(address)

    async def listen_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> Listener:
        """Accept byte connections. Raise AddressInUse."""
        return await self._bytes.listen_bytes(address, factory)

    async def connect_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> ByteConnection:
        """Connect. Raise NotSent if refused, otherwise Lost."""
        return await self._bytes.connect_bytes(address, factory)

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Return True if a connection to the address is refused within the timeout."""
        return await self._bytes.refuses(address, timeout_ms)

    async def close(self) -> None:
        """Close every open listener and channel at once."""
        await self._calls.close()
        await self._bytes.close()
