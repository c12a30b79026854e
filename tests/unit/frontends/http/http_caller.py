"""An HTTP client over the runtime's byte connections that keeps every received byte."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import h11

from quorumlog.runtime import ByteConnection, Runtime

WAIT_S = 60


class Caller:
    """A `ByteProtocol` of a client."""

    def __init__(self, connection: ByteConnection) -> None:
        self.connection = connection
        self.is_closed = False
        self.answers: list[tuple[int, dict[str, str], bytes]] = []  # status, headers, body
        self.bytes = 0
        self._machine = h11.Connection(h11.CLIENT)
        self._methods: list[str] = []
        self._head: h11.Response | None = None
        self._body = b""
        self._buffer = bytearray(1000)
        self._changed = asyncio.Event()

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        """Parse the received bytes."""
        self.bytes += count
        self._machine.receive_data(bytes(self._buffer[:count]))
        self._parse()
        self._changed.set()

    def sent(self) -> None:
        """Do nothing: no caller waits for sent bytes."""

    def closed(self, error: Exception | None) -> None:
        """Record the end of the connection."""
        self.is_closed = True
        self._changed.set()

    async def get(
        self, path: str, *, method: str = "GET", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request and wait for the response."""
        lines = [f"{method} {path} HTTP/1.1"]
        headers = {"Host": "localhost"} | headers
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.connection.write(["\r\n".join([*lines, "", ""]).encode()])
        return await self.next_answer(method=method)

    async def next_answer(self, *, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """Return the oldest response to the bytes written to the connection."""
        self._machine.send(h11.Request(method=method, target="/", headers=[("Host", "here")]))
        self._machine.send(h11.EndOfMessage())
        self._parse()
        await self.wait(lambda: bool(self.answers))
        return self.answers.pop(0)

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Return when the condition is true."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def _parse(self) -> None:
        if self._machine.our_state is h11.IDLE:
            return  # a response without a request yet
        while True:
            event = self._machine.next_event()
            if isinstance(event, h11.Response):
                self._head, self._body = event, b""
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert self._head is not None
                headers = {n.decode(): v.decode() for n, v in self._head.headers}
                self.answers.append((self._head.status_code, headers, self._body))
                if self._machine.our_state is h11.DONE:
                    self._machine.start_next_cycle()
                return
            else:
                return


@asynccontextmanager
async def calling(runtime: Runtime, address: str) -> AsyncIterator[Caller]:
    """A connection to the address."""
    made: list[Caller] = []

    def make(connection: ByteConnection) -> Caller:
        made.append(Caller(connection))
        return made[0]

    connection = await runtime.network.connect_bytes(address, make)
    try:
        yield made[0]
    finally:
        connection.abort()
