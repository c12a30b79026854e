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
    """Composes the two halves into the Network port."""

    def __init__(self, clock: Clock, tasks: Tasks, *, connect_ms: int = CONNECT_MS) -> None:
        self._bytes = ByteNetwork(tasks)
        self._calls = GrpcNetwork(clock, self._bytes.why_not_bindable, connect_ms=connect_ms)

    async def serve(
        self, address: str, handlers: Mapping[str, Handler], *, is_ready: bool = True
    ) -> CallListener:
        """Answer calls on an address by method path; raises AddressInUse."""
        return await self._calls.serve(address, handlers, is_ready=is_ready)

    def channel(self, address: str) -> Channel:
        """Return a way to the address; connects at the first call."""
        return self._calls.channel(address)

    async def listen_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> Listener:
        """Accept byte connections; raises AddressInUse."""
        return await self._bytes.listen_bytes(address, factory)

    async def connect_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> ByteConnection:
        """Connect; raises NotSent when refused, Lost otherwise."""
        return await self._bytes.connect_bytes(address, factory)

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Whether a connection to the address is refused within the time."""
        return await self._bytes.refuses(address, timeout_ms)

    async def close(self) -> None:
        """Close every listener and channel that is still open, at once."""
        await self._calls.close()
        await self._bytes.close()
