"""Byte connections over the fabric: a pipe that splits its data at drawn points.

The simulated kernel has a send buffer and a receive buffer, each of the run's window size. That
many bytes are in flight until the receiving protocol consumes them; the rest waits in the sender's
queue. As in TCP, the receiver reports consumed bytes by halves of the buffers, not one by one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..errors import StreamBroken
from ..runtime import (
    ANONYMOUS_CLIENT,
    Buffer,
    ByteConnection,
    ByteProtocol,
    ClientIdentity,
    File,
    Lease,
    PeerCertificate,
)
from .entropy import SimEntropy
from .events import digest
from .links import CONNECT_TIMEOUT_MS, BoundAddress, Fabric, LinkEnd
from .process import Process

RECEIVE_HINT: Final = 65_536
CONNECT_TOTAL_MS: Final = 4 * CONNECT_TIMEOUT_MS

Factory: TypeAlias = Callable[[ByteConnection], ByteProtocol]


@dataclass(frozen=True, slots=True)
class BytesFrame:
    """A part of the byte stream."""

    data: bytes

    def describe(self) -> str:
        """Size and digest."""
        return f"bytes {len(self.data)} {digest(self.data)}"


@dataclass(frozen=True, slots=True)
class ConsumedFrame:
    """The receiving protocol consumed this many bytes since the last such frame."""

    size: int

    def describe(self) -> str:
        """The size."""
        return f"taken {self.size}"


@dataclass(frozen=True, slots=True)
class EndFrame:
    """The end of the byte stream."""

    def describe(self) -> str:
        """Its kind."""
        return "end"


@dataclass(slots=True)
class _Range:
    """Bytes of a file that wait to be sent."""

    file: File
    lease: Lease
    position: int
    size: int


class SimConnection:
    """`runtime.ports.ByteConnection`. Ends once: by the peer, close(), abort() or an error."""

    def __init__(self, end: LinkEnd, *, peer: str, local: str, entropy: SimEntropy) -> None:
        self._end = end
        self._peer = peer
        self._local = local
        self._entropy = entropy
        self._loop = end.link.fabric.loop
        self._protocol: ByteProtocol | None = None
        self._queue: deque[memoryview | _Range] = deque()
        self._unsent = 0
        self._kernel_bytes = 2 * end.link.fabric.faults.options.window_bytes  # both buffers
        self._under_way = 0  # bytes sent and not yet reported as consumed by the other side
        self._consumed = 0  # bytes consumed here and not yet reported to the other side
        self._arrived: deque[memoryview] = deque()  # not yet read by the protocol
        self._peer_ended = False
        self._paused = False
        self._flush_is_due = False
        self._closing = False
        self._ended = False
        self._notified: asyncio.Future[None] = self._loop.create_future()
        self.client: ClientIdentity = ANONYMOUS_CLIENT
        end.on_frame = self._on_frame
        end.on_broken = self._on_broken

    def start(self, factory: Factory) -> None:
        """Create the protocol; an error of the factory resets the connection."""
        try:
            self._protocol = factory(self)
        except Exception:
            self.abort()
            raise

    @property
    def peer(self) -> str:
        """ "host:port" of the other side."""
        return self._peer

    @property
    def local(self) -> str:
        """ "host:port" of this side."""
        return "" if self._ended else self._local

    @property
    def certificate(self) -> PeerCertificate | None:
        """The certificate of the other side's machine."""
        return self._end.other.process.machine.certificate

    def write(self, buffers: Sequence[Buffer], *, more: bool = False, now: bool = False) -> None:
        """Queue bytes (copied: the caller may reuse its buffers)."""
        self._end.process.check()
        for buffer in buffers:
            self._enqueue(memoryview(bytes(buffer)), len(buffer))

    def send_range(self, file: File, position: int, size: int) -> None:
        """Queue [position, position + size) of a file, under a lease."""
        self._end.process.check()
        assert size >= 0, f"size {size}"
        if size and not (self._closing or self._ended):
            self._enqueue(_Range(file, file.lease(), position, size), size)

    def unsent_bytes(self) -> int:
        """Return the bytes queued and not in flight."""
        return self._unsent

    def pause_reading(self) -> None:
        """Stop delivering received bytes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Resume delivering received bytes."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._feed, context=self._end.process.context())

    def close(self) -> None:
        """Send the queue, then close."""
        self._end.process.check()
        if not (self._closing or self._ended):
            self._closing = True
            self._flush_soon()

    def abort(self) -> None:
        """Close at once with a reset."""
        self._end.process.check()
        if not self._ended:
            self._end.shut("connection reset by peer")
            self._finish(StreamBroken(f"connection to {self._peer} was aborted here"))

    async def wait_ended(self) -> None:
        """Return when the connection has ended and the protocol was notified."""
        await asyncio.shield(self._notified)

    def lose_sent(self) -> None:
        """Drop the bytes that the peer has not received."""
        self._end.other.lose_in_flight()

    def check_reset(self) -> None:
        """End the connection if the peer ended it before the callbacks were set."""
        if self._end.is_closed:
            self._on_broken("connection reset by peer")

    # --- sending ---

    def _enqueue(self, item: memoryview | _Range, size: int) -> None:
        if size and not (self._closing or self._ended):
            self._queue.append(item)
            self._unsent += size
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush, context=self._end.process.context())

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._ended:
            return
        before = self._unsent
        while self._queue and self._under_way < self._kernel_bytes:
            data = self._take(1 + self._entropy.below(self._kernel_bytes - self._under_way))
            self._unsent -= len(data)
            self._under_way += len(data)
            self._end.send(BytesFrame(data))
        if self._unsent < before and self._protocol is not None:
            self._protocol.sent()
        if self._closing and not self._queue and not self._ended:
            self._end.send(EndFrame())
            self._end.shut("closed by peer")
            self._finish(None)

    def _take(self, size: int) -> bytes:
        """Return up to `size` bytes of the queue's first buffers, or of its first range."""
        taken: list[memoryview] = []
        while size and self._queue:
            front = self._queue[0]
            if not isinstance(front, memoryview):
                break
            taken.append(front[:size])
            if size < front.nbytes:
                self._queue[0] = front[size:]
            else:
                self._queue.popleft()
            size -= taken[-1].nbytes
        part = self._queue[0] if self._queue else None
        if taken or not isinstance(part, _Range):
            return b"".join(taken)
        data = part.file.read(part.position, min(size, part.size))
        assert data, f"{part.file.path} ends before position {part.position}"
        part.position += len(data)
        part.size -= len(data)
        if not part.size:
            self._queue.popleft()
            part.lease.release()
        return data

    # --- receiving ---

    def _on_frame(self, frame: BytesFrame | ConsumedFrame | EndFrame) -> None:
        match frame:
            case BytesFrame():
                self._arrived.append(memoryview(frame.data))
            case ConsumedFrame():
                self._under_way -= frame.size
                # otherwise chunks shrink to single bytes
                if self._under_way * 2 <= self._kernel_bytes:
                    self._flush()
            case EndFrame():
                self._peer_ended = True
        self._feed()

    def _feed(self) -> None:
        """Deliver received bytes to the protocol, unless reading is paused."""
        if self._protocol is None:
            return
        while self._arrived and not (self._paused or self._closing or self._ended):
            buffer = self._protocol.buffer(RECEIVE_HINT)
            assert len(buffer) >= 1, f"{self._protocol} gave an empty buffer"
            front = self._arrived[0]
            count = min(len(front), len(buffer))
            buffer[:count] = front[:count]
            if count < len(front):
                self._arrived[0] = front[count:]
            else:
                self._arrived.popleft()
            self._consumed += count
            if self._consumed * 2 >= self._kernel_bytes:
                self._end.send(ConsumedFrame(self._consumed))
                self._consumed = 0
            self._protocol.received(count)
        if self._peer_ended and not self._arrived and not self._paused:
            self.close()  # the peer has closed: queued bytes are lost, but the end is clean

    def _on_broken(self, reason: str) -> None:
        if self._peer_ended:
            self._queue.clear()
            self._feed()
            if not self._closing:
                return  # paused with bytes to read: the clean end follows them
            self._finish(None)
        else:
            self._finish(ConnectionResetError(reason))

    def _finish(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = True
        for item in self._queue:
            if isinstance(item, _Range):
                item.lease.release()
        self._queue.clear()
        self._unsent = 0
        # Later, never inside a call of the protocol itself.
        self._loop.call_soon(self._notify_closed, error, context=self._end.process.context())

    def _notify_closed(self, error: Exception | None) -> None:
        if not self._notified.done():
            self._notified.set_result(None)
        if self._protocol is not None:
            self._protocol.closed(error)


class _ByteListener:
    """A bound address with its accepted connections."""

    def __init__(self, fabric: Fabric, process: Process, address: str, factory: Factory) -> None:
        self._fabric = fabric
        self._process = process
        self._factory = factory
        self._connections: list[SimConnection] = []
        self._door = BoundAddress(process, "bytes", self._accept)
        self.address = fabric.listen(address, self._door)

    async def close(self, grace_ms: int) -> None:
        """Stop accepting, wait for connections to end up to the grace period, reset the rest."""
        self._process.check()
        self._fabric.unlisten(self.address, self._door)
        try:
            async with asyncio.timeout(grace_ms / 1000):
                for connection in list(self._connections):
                    await connection.wait_ended()
        except TimeoutError:
            for connection in reversed(self._connections):
                connection.abort()
        for connection in list(self._connections):
            await connection.wait_ended()

    def _accept(self, end: LinkEnd) -> None:
        connection = _connection(self._fabric, end, local=self.address)
        self._connections.append(connection)
        connection.start(self._factory)


def _connection(fabric: Fabric, end: LinkEnd, *, local: str) -> SimConnection:
    side = end.link.ends.index(end)
    peer = fabric.caller_name(end.other.process)
    entropy = fabric.stream(f"bytes/{end.link.number}/{side}")
    return SimConnection(end, peer=peer, local=local, entropy=entropy)


def listen_bytes(fabric: Fabric, process: Process, address: str, factory: Factory) -> _ByteListener:
    """Accept byte connections on an address; raises AddressInUse."""
    return _ByteListener(fabric, process, address, factory)


async def connect_bytes(
    fabric: Fabric, process: Process, address: str, factory: Factory
) -> SimConnection:
    """Connect; raises ConnectionFailed when refused, OutcomeUnknown on a time-out."""
    end = await fabric.connect(process, address, "bytes", CONNECT_TOTAL_MS)
    connection = _connection(fabric, end, local=fabric.caller_name(process))
    connection.start(factory)
    connection.check_reset()
    return connection
