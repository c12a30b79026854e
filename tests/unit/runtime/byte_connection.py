"""Both ends of a byte connection, for tests on either runtime."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.kit.waits import AMPLE_S

from quorumlog.runtime import ByteConnection, File, Listener, Runtime

WAIT_S = AMPLE_S


class Peer:
    """A protocol that stores the received bytes. Its small buffer splits reads."""

    def __init__(self, connection: ByteConnection, *, buffer_size: int = 1000) -> None:
        self.connection = connection
        self.got = bytearray()
        self.errors: list[Exception | None] = []  # the arguments of closed(): one at the end
        self.most_at_once = 0
        self.sent_calls = 0
        self._buffer = bytearray(buffer_size)
        self._changed = asyncio.Event()

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        assert size_hint > 0
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        """Store the bytes."""
        assert 0 < count <= len(self._buffer)
        self.got += self._buffer[:count]
        self.most_at_once = max(self.most_at_once, count)
        self._changed.set()

    def sent(self) -> None:
        """Count the calls."""
        self.sent_calls += 1
        self._changed.set()

    def closed(self, error: Exception | None) -> None:
        """Record the end of the connection."""
        self.errors.append(error)
        self._changed.set()

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Return when the condition is true. A TimeoutError reports the progress."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def connected(
    runtime: Runtime, *, buffer_size: int = 1000
) -> AsyncIterator[tuple[Peer, Peer, Listener]]:
    """Return both ends of a new connection: the caller's and the server's."""
    accepted: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()

    def accept(connection: ByteConnection) -> Peer:
        peer = Peer(connection, buffer_size=buffer_size)
        if not accepted.done():
            accepted.set_result(peer)
        return peer

    listener = await runtime.network.listen_bytes("127.0.0.1:0", accept)
    callers: list[Peer] = []

    def call(connection: ByteConnection) -> Peer:
        callers.append(Peer(connection, buffer_size=buffer_size))
        return callers[0]

    connection = await runtime.network.connect_bytes(listener.address, call)
    caller = callers[0]
    assert connection is caller.connection
    server = await accepted
    try:
        yield caller, server, listener
    finally:
        caller.connection.abort()
        await listener.close(0)


def filled_file(runtime: Runtime, path: str, data: bytes) -> File:
    """Create a file of these bytes."""
    file = runtime.files.open(path, create=True)
    rest, position = memoryview(data), 0
    while rest:
        written = file.write(position, [rest])
        position += written
        rest = rest[written:]
    return file
