"""One address for connections with TLS and without, while a running cluster changes from one to the
other.

The first byte of a connection distinguishes them: TLS begins with 0x16, which is neither the first
byte of an HTTP/2 connection nor that of a frame of a permitted size.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from ..errors import QuorumlogError
from .ports import (
    ByteConnection,
    ByteProtocol,
    CallListener,
    CallSecurity,
    Handler,
    Listener,
    Network,
)

ProtocolFactory: TypeAlias = Callable[[ByteConnection], ByteProtocol]

TLS_HANDSHAKE: Final = 0x16
FIRST_BYTE_S: Final = 5.0  # then a silent connection is reset
RECEIVE_BYTES: Final = 64 << 10
UNSENT_MAX: Final = 1 << 20  # bytes that wait for the slower side of a relayed connection


class FirstByte:
    """The protocol of a connection: one for TLS or one without, by the first byte."""

    def __init__(
        self, connection: ByteConnection, *, plain: ProtocolFactory, secure: ProtocolFactory
    ) -> None:
        self._connection = connection
        self._plain, self._secure = plain, secure
        self._first = memoryview(bytearray(1))
        self._protocol: ByteProtocol | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(FIRST_BYTE_S, connection.abort)

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""
        return self._first if self._protocol is None else self._protocol.buffer(size_hint)

    def received(self, count: int) -> None:
        """Create the protocol with the first byte, then pass the bytes on."""
        if self._protocol is None:
            self._timer.cancel()
            is_tls = self._first[0] == TLS_HANDSHAKE
            self._protocol = (self._secure if is_tls else self._plain)(self._connection)
            self._protocol.buffer(1)[:1] = self._first
        self._protocol.received(count)

    def sent(self) -> None:
        """Send more."""
        if self._protocol is not None:
            self._protocol.sent()

    def closed(self, error: Exception | None) -> None:
        """Report the end."""
        self._timer.cancel()
        if self._protocol is not None:
            self._protocol.closed(error)


async def serve_both(
    network: Network,
    address: str,
    handlers: Mapping[str, Handler],
    *,
    is_ready: bool,
    plain: CallSecurity,
    secure: CallSecurity,
) -> CallListener:
    """Serve calls with both kinds of security on one address. Raise AddressInUse.

    gRPC cannot do so itself: two servers listen on loopback, and connections are relayed to them.
    """
    inner = "127.0.0.1:0"
    without_tls = await network.serve(inner, handlers, is_ready=is_ready, security=plain)
    with_tls = await network.serve(inner, handlers, is_ready=is_ready, security=secure)

    def relay(address: str) -> ProtocolFactory:
        return lambda connection: _RelayEnd.accepted(network, connection, address)

    try:
        front = await network.listen_bytes(
            address,
            lambda connection: FirstByte(
                connection, plain=relay(without_tls.address), secure=relay(with_tls.address)
            ),
        )
    except BaseException:
        await without_tls.close(0)
        await with_tls.close(0)
        raise
    return _BothListener(front, (without_tls, with_tls))


class _BothListener:
    """The `CallListener` of both servers and of their common address."""

    def __init__(self, front: Listener, servers: Sequence[CallListener]) -> None:
        self._front = front
        self._servers = servers

    @property
    def address(self) -> str:
        """The common address."""
        return self._front.address

    def announce(self, *, is_ready: bool, service: str = "") -> None:
        """Set the status for health checks."""
        for server in self._servers:
            server.announce(is_ready=is_ready, service=service)

    async def close(self, grace_ms: int) -> None:
        """Close the servers, which end their connections, then the address."""
        await asyncio.gather(*(server.close(grace_ms) for server in self._servers))
        await self._front.close(0)


class _RelayEnd:
    """The protocol of one of two connected connections: its bytes are sent on the other one."""

    def __init__(self, connection: ByteConnection) -> None:
        self._connection = connection
        self._other: _RelayEnd | None = None  # None: not connected yet
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._early: list[bytes] = []  # received before the other connection was open
        self._has_ended = False
        self._connecting: asyncio.Task[None] | None = None

    @classmethod
    def accepted(cls, network: Network, connection: ByteConnection, address: str) -> "_RelayEnd":
        """Return the protocol of an accepted connection, and connect to the address."""
        made = cls(connection)
        loop = asyncio.get_running_loop()
        made._connecting = loop.create_task(made._connect(network, address))
        return made

    async def _connect(self, network: Network, address: str) -> None:
        self._connection.pause_reading()
        try:
            connection = await network.connect_bytes(address, self._joined)
        except QuorumlogError:
            self._connection.abort()
            return
        if self._has_ended:
            connection.abort()
        elif self._early:
            connection.write(self._early)
            self._early = []
        self._connection.resume_reading()

    def _joined(self, connection: ByteConnection) -> "_RelayEnd":
        self._other = _RelayEnd(connection)
        self._other._other = self
        return self._other

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""
        return self._buffer

    def received(self, count: int) -> None:
        """Send the bytes on the other connection, and stop reading if that is slower."""
        received = bytes(self._buffer[:count])
        if self._other is None:
            self._early.append(received)
            return
        target = self._other._connection
        target.write((received,), now=True)
        if target.unsent_bytes() > UNSENT_MAX:
            self._connection.pause_reading()

    def sent(self) -> None:
        """Let the other side read again."""
        if self._other is not None and self._connection.unsent_bytes() <= UNSENT_MAX // 2:
            self._other._connection.resume_reading()

    def closed(self, error: Exception | None) -> None:
        """End the other connection in the same way."""
        self._has_ended = True
        if self._other is None:
            return
        if error is None:
            self._other._connection.close()
        else:
            self._other._connection.abort()
