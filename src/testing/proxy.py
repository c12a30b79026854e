"""A TCP proxy that misbehaves on demand: between a client and a server that are both healthy.

It knows nothing of what it forwards. It lives in a thread of its own with a loop of its own, so
that blocking tests, asyncio tests and other processes can stand on either side; every method may be
called from any thread, and has taken effect when it returns.

A broker tells its clients where it is: for them to stay with the proxy, `advertised.grpc` of the
broker must be the proxy's address.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Final, TypeVar

T = TypeVar("T")

CHUNK_BYTES: Final = 64 * 1024
START_S: Final = 10.0
HOST: Final = "127.0.0.1"


class Direction(StrEnum):
    """Which way bytes go."""

    TO_SERVER = "to server"
    TO_CLIENT = "to client"


@dataclass(slots=True)
class _Line:
    """The faults of one direction, over all connections."""

    corrupt_chunks: int = 0  # one bit of each of the next ones is flipped
    cut_after_bytes: int | None = None  # then the connection that carries them is aborted
    passed_bytes: int = 0

    def take(self, chunk: bytes) -> tuple[bytes, bool]:
        """Return what passes of a chunk, and whether the connection ends behind it."""
        if self.corrupt_chunks:
            self.corrupt_chunks -= 1
            middle = len(chunk) // 2
            chunk = chunk[:middle] + bytes([chunk[middle] ^ 0x10]) + chunk[middle + 1 :]
        is_cut = False
        if self.cut_after_bytes is not None:
            chunk = chunk[: self.cut_after_bytes]
            self.cut_after_bytes -= len(chunk)
            is_cut = self.cut_after_bytes == 0
            if is_cut:
                self.cut_after_bytes = None
        self.passed_bytes += len(chunk)
        return chunk, is_cut


class ForwardingProxy:
    """Forwards every connection to `target`, "host:port".

    ```python
    with ForwardingProxy("127.0.0.1:9094") as proxy:
        with quorumlog.connect(proxy.address) as log: ...
        proxy.cut()
    ```
    """

    def __init__(self, target: str, *, port: int = 0) -> None:
        self.target = target  # of connections to come
        self.delay_s = 0.0  # each chunk waits so long, in both directions
        self._port = port  # 0: any that is free
        self._lines = {direction: _Line() for direction in Direction}
        self._transports: dict[asyncio.BaseTransport, None] = {}
        self._connections: dict[asyncio.Task[None], None] = {}
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="forwarding-proxy", daemon=True)

    # --- life --------------------------------------------------------------------------------

    def __enter__(self) -> "ForwardingProxy":
        self._thread.start()
        self._ready.result(START_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    @property
    def address(self) -> str:
        """Where it listens, "host:port"."""
        return f"{HOST}:{self._port}"

    @property
    def connections(self) -> int:
        """How many connections it carries now."""
        return self._on_loop(lambda: len(self._connections))

    def passed_bytes(self, direction: Direction) -> int:
        """How many bytes it has forwarded in a direction."""
        return self._on_loop(lambda: self._lines[direction].passed_bytes)

    # --- faults ------------------------------------------------------------------------------

    def cut(self) -> None:
        """Abort every connection; new ones are taken."""
        self._on_loop(self._abort_all)

    def hold(self, *directions: Direction) -> None:
        """Let nothing through in some directions, none given: in both, until `release`: connections
        live, and are silent."""

        def change() -> None:
            for direction in directions or tuple(Direction):
                self._flowing[direction].clear()

        self._on_loop(change)

    def release(self) -> None:
        """Let what was held through, in order."""

        def change() -> None:
            for flowing in self._flowing.values():
                flowing.set()

        self._on_loop(change)

    def refuse(self) -> None:
        """Refuse new connections until `admit`."""
        asyncio.run_coroutine_threadsafe(self._unlisten(), self._loop).result(START_S)

    def admit(self) -> None:
        """Take connections again, at the same address."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(START_S)

    def corrupt(self, direction: Direction, *, chunks: int = 1) -> None:
        """Flip one bit of each of the next `chunks` pieces that go in a direction."""

        def change() -> None:
            self._lines[direction].corrupt_chunks = chunks

        self._on_loop(change)

    def cut_after(self, direction: Direction, count: int) -> None:
        """Abort the connection that carries the byte `count` (1 or more) from now in a direction,
        behind that byte: what it was part of arrives torn."""
        assert count >= 1, f"{count} bytes cannot end a connection"

        def change() -> None:
            self._lines[direction].cut_after_bytes = count

        self._on_loop(change)

    # --- within ------------------------------------------------------------------------------

    def _on_loop(self, change: Callable[[], T]) -> T:
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(change()))
        return done.result(START_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._flowing = {direction: asyncio.Event() for direction in Direction}
        for flowing in self._flowing.values():
            flowing.set()
        self._server: asyncio.Server | None = None
        await self._listen()
        self._ready.set_result(None)
        await self._end.wait()
        await self._unlisten()
        self._abort_all()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def _unlisten(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._forward(reader, writer))
        self._connections[task] = None
        task.add_done_callback(self._connections.pop)

    def _abort_all(self) -> None:
        for transport in list(self._transports):
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        host, _, port = self.target.rpartition(":")
        self._transports[writer.transport] = None
        ends = [writer]
        try:
            there, back = await asyncio.open_connection(host, int(port))
            ends.append(back)
            self._transports[back.transport] = None
            pumps = [
                self._loop.create_task(self._pump(reader, back, Direction.TO_SERVER)),
                self._loop.create_task(self._pump(there, writer, Direction.TO_CLIENT)),
            ]
            try:
                await asyncio.gather(*pumps)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # nobody listens there: the caller's connection ends
        finally:
            for end in ends:
                self._transports.pop(end.transport, None)
                end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Pass bytes on until their source ends; raises ConnectionError when it was cut."""
        while chunk := await reader.read(CHUNK_BYTES):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._flowing[direction].wait()
            passed, is_cut = self._lines[direction].take(chunk)
            writer.write(passed)
            await writer.drain()
            if is_cut:
                raise ConnectionAbortedError("cut on demand")
        with suppress(OSError):
            writer.write_eof()
