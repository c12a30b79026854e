"""Byte connections over raw non-blocking sockets; the only user of `socket`.

A connection owns its descriptor and uses the loop's add_reader and add_writer, since uvloop's
transports have neither sendfile nor reads into a buffer of the protocol. Received bytes go straight
into the protocol's buffer. Queued buffers leave in one sendmsg per loop iteration. File ranges go
from the page cache to the socket without a copy in Python. A range outside the page cache is first
read in the `read` lane, so that sendfile does not block the loop on the device. Without sendmsg
each buffer is sent separately; without sendfile ranges are read and sent in pieces.
"""

import asyncio
import errno
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from ..errors import AddressInUse, ConnectionFailed, OutcomeUnknown, Overloaded, StreamBroken
from .files import RealFile
from .ports import (
    ANONYMOUS_CLIENT,
    Buffer,
    ByteConnection,
    ByteProtocol,
    ClientIdentity,
    File,
    Listener,
    PeerCertificate,
    Tasks,
)
from .range_sender import (
    CAN_SEND_IN_THREADS,
    THREAD_RANGE_MIN,
    PendingRange,
    QueuedRange,
    RangeResult,
    RangeSender,
    new_range_sender,
    queue_front,
)
from .sockets import bind, connect, is_near, name_of
from .system import sendfile

BACKLOG: Final = 1024
RECEIVE_HINT: Final = 64 << 10  # bytes; the size hint for the protocol's buffer
IOVEC_MAX: Final = 64 if hasattr(socket.socket, "sendmsg") else 1  # buffers in one sendmsg
SENDFILE_MAX: Final = 1 << 20  # bytes in one sendfile
NEAR_SEND_BUFFER: Final = 128 << 10
"""The approximate socket buffer for a peer on this machine.

A local peer gains nothing from a larger buffer. With the kernel's default of megabytes, file pages
leave the processor's caches before they are read, and sendfile takes three times as long.
"""
NEAR_RECEIVE_BUFFER: Final = 128 << 10
"""The same for received bytes, which the kernel doubles: they are still in the processor's caches
when they are checked and written to a file."""
COPIED_MAX: Final = 256 << 10  # bytes of a file that are read and sent at once without sendfile
SENDFILES_A_TURN: Final = 4  # then the loop runs other connections
PAUSES_LOGGED_S: Final = 10.0  # time between two log lines about that
ACCEPT_PAUSE_S: Final = 0.1  # after running out of descriptors or memory
WARM_RETRY_S: Final = 0.01  # while the read lane is full
_IS_WINSOCK: Final = hasattr(socket, "SO_EXCLUSIVEADDRUSE")
_RESET: Final = struct.pack("hh" if _IS_WINSOCK else "ii", 1, 0)  # linger 0 s: close() sends RST
_MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

ProtocolFactory: TypeAlias = Callable[[ByteConnection], ByteProtocol]

_log = logging.getLogger(__name__)


class ByteNetwork:
    """The listeners and connections of one runtime, on one loop."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        # created for the first connection, since it belongs to one loop
        self._range_sender: RangeSender | None = None
        self._listeners: dict[_ByteListener, None] = {}
        self._connections: dict[_Connection, None] = {}  # opened by connect_bytes

    async def listen_bytes(self, address: str, factory: ProtocolFactory) -> Listener:
        """Accept connections on an address; port 0 selects a free one.

        Raise AddressInUse, or another OSError of bind.
        """
        bound = await bind(address)
        bound.listen(BACKLOG)
        host = address.rpartition(":")[0]
        port = bound.getsockname()[1]
        listener = _ByteListener(bound, f"{host}:{port}", factory, self._lanes(), self._listeners)
        self._listeners[listener] = None
        return listener

    async def connect_bytes(self, address: str, factory: ProtocolFactory) -> ByteConnection:
        """Connect. Raise ConnectionFailed if refused, otherwise OutcomeUnknown."""
        try:
            connected, where = await connect(address)
        except ConnectionRefusedError as error:
            raise ConnectionFailed(
                f"{address}: connection refused; check that the node runs"
            ) from error
        except OSError as error:
            raise OutcomeUnknown(f"{address}: {error}") from error
        peer = name_of(where)
        connection = _Connection(connected, peer, self._lanes(), self._connections)
        connection.start(factory)
        return connection

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Return True if a connection is refused; False on success, timeout and any other
        failure."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connected, _ = await connect(address)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connected.close()
        return False

    async def why_not_bindable(self, address: str) -> Exception | None:
        """Return the error that binding the address would raise, or None."""
        try:
            (await bind(address)).close()
        except (AddressInUse, OSError) as error:
            return error
        return None

    async def close(self) -> None:
        """Reset every connection and close every listener, newest first."""
        for connection in reversed(list(self._connections)):
            connection.abort()
            await connection.wait_ended()
        for listener in reversed(list(self._listeners)):
            await listener.close(0)
        if self._range_sender is not None:
            await self._range_sender.close()
            self._range_sender = None

    def _lanes(self) -> "_Lanes":
        if self._range_sender is None:
            self._range_sender = new_range_sender(self._tasks)
        return _Lanes(self._tasks, self._range_sender)


class _Lanes(NamedTuple):
    """The threads that work for connections."""

    tasks: Tasks  # read cold ranges
    range_sender: RangeSender  # sends large ranges


# --- the listening side --------------------------------------------------------------------------


class _ByteListener:
    """Accepts connections and owns them."""

    def __init__(
        self,
        bound: socket.socket,
        address: str,
        factory: ProtocolFactory,
        lanes: _Lanes,
        siblings: "dict[_ByteListener, None]",
    ) -> None:
        self._socket = bound
        self._address = address
        self._factory = factory
        self._lanes = lanes
        self._siblings = siblings  # the network's open listeners; removed when closed
        self._connections: dict[_Connection, None] = {}
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._pause_logged_s = -PAUSES_LOGGED_S
        self._closed = False
        self._loop.add_reader(bound, self._on_acceptable)

    @property
    def address(self) -> str:
        """The address "host:port" with the actual port."""
        return self._address

    async def close(self, grace_ms: int) -> None:
        """Accept no more, wait `grace_ms` for the connections to end, reset the rest."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket)
            if self._pause is not None:
                self._pause.cancel()
            self._socket.close()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._wait_connections()
        except TimeoutError:
            for connection in reversed(list(self._connections)):
                connection.abort()
            await self._wait_connections()
        self._siblings.pop(self, None)  # last: after a cancellation the network closes the rest

    async def _wait_connections(self) -> None:
        while self._connections:
            await next(iter(self._connections)).wait_ended()

    def _on_acceptable(self) -> None:
        try:
            accepted, where = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            now_s = self._loop.time()
            if now_s - self._pause_logged_s >= PAUSES_LOGGED_S:
                self._pause_logged_s = now_s
                _log.warning("bytes.accept_paused address=%s error=%s", self._address, error)
            self._loop.remove_reader(self._socket)
            self._pause = self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
            return
        accepted.setblocking(False)
        peer = name_of(where)
        _Connection(accepted, peer, self._lanes, self._connections).start(self._factory)

    def _accept_again(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._on_acceptable)


# --- a connection --------------------------------------------------------------------------------


class _Connection:
    """One socket with its send queue. It ends once: by the peer, close(), abort() or an error.

    Everything runs on the loop's thread, except reading a cold range and sending a large one.
    """

    def __init__(
        self,
        connected: socket.socket,
        peer: str,
        lanes: _Lanes,
        siblings: "dict[_Connection, None]",
    ) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_near(connected):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR_SEND_BUFFER)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NEAR_RECEIVE_BUFFER)
        self._socket = connected
        self._peer = peer
        self._tasks, self._threads = lanes
        self._siblings = siblings  # the owner's open connections; removed at the end
        self._loop = asyncio.get_running_loop()
        self._protocol: ByteProtocol | None = None
        self._queue: deque[memoryview | QueuedRange] = deque()
        self._unsent = 0  # bytes in the queue
        self._flush_is_due = False  # a flush is scheduled, or follows the current read
        self._is_in_read = False  # within a call of the protocol for received bytes
        self._has_sent = False  # within that call; `ByteProtocol.sent` follows it
        self._is_writing = False  # the loop watches the socket for space
        self._is_reading = False
        self._reset: OSError | None = None  # by the peer, with bytes left to read
        self._warming: asyncio.Task[None] | None = None  # a lane reads the first range
        self._pending: PendingRange | None = None  # a thread sends the first range
        self._is_delegated = False  # one of these two
        self._is_closing = False  # end when the queue is empty
        self._has_ended = False  # the socket is closed
        self.client: ClientIdentity = ANONYMOUS_CLIENT
        # the protocol was informed of the end
        self._end_notified: asyncio.Future[None] = self._loop.create_future()
        siblings[self] = None

    def start(self, factory: ProtocolFactory) -> None:
        """Create the protocol and start reading. An error of the factory resets the connection."""
        try:
            self._protocol = factory(self)
        except Exception:
            self.abort()
            raise
        self.resume_reading()

    @property
    def peer(self) -> str:
        """The other side's "host:port"."""
        return self._peer

    @property
    def local(self) -> str:
        """This side's "host:port"; empty after the end."""
        return "" if self._has_ended else name_of(self._socket.getsockname())

    @property
    def certificate(self) -> PeerCertificate | None:
        """The certificate of the peer: None without TLS."""
        return None

    def write(self, buffers: Sequence[Buffer], *, more: bool = False, now: bool = False) -> None:
        """Queue bytes. Within a read, and with `now`, they are sent at once, as far as the socket
        has room; otherwise those of one loop iteration are sent together."""
        if self._is_closing or self._has_ended:
            return
        sent, now = 0, now or self._is_in_read
        if now and not (more or self._queue) and len(buffers) <= IOVEC_MAX > 1:
            try:
                sent = self._socket.sendmsg(buffers)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._end(error)
                return
            if self._is_in_read and sent:
                self._has_sent = True
            if sent == sum(map(len, buffers)):
                return
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if sent >= view.nbytes:
                sent -= view.nbytes
                continue
            self._queue.append(view[sent:])
            self._unsent += view.nbytes - sent
            sent = 0
        if self._queue:
            self._flush_soon()

    def send_range(self, file: File, position: int, size: int) -> None:
        """Queue [position, position + size) of a file."""
        assert isinstance(file, RealFile), f"{file} is not a RealFile"
        assert size >= 0, f"size {size}"
        if not size or self._is_closing or self._has_ended:
            return
        self._queue.append(QueuedRange(file, file.lease(), position, size))
        self._unsent += size
        self._flush_soon()

    def unsent_bytes(self) -> int:
        """Return the number of bytes that are queued and not yet in the kernel."""
        return self._unsent

    def pause_reading(self) -> None:
        """Stop reading. The kernel's buffers fill and TCP slows the peer."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        """Continue reading."""
        if not (self._is_reading or self._is_closing or self._has_ended):
            self._is_reading = True
            self._loop.add_reader(self._socket, self._on_readable)

    def close(self) -> None:
        """Send the queue, then close."""
        if not self._is_closing and not self._has_ended:
            self._is_closing = True
            self.pause_reading()
            self._flush_soon()

    def abort(self) -> None:
        """Close at once with a reset."""
        if not self._has_ended:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._end(StreamBroken(f"connection to {self._peer}: aborted"))

    async def wait_ended(self) -> None:
        """Wait until the socket is closed and the protocol is informed."""
        await asyncio.shield(self._end_notified)

    # --- reading ---------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        assert self._protocol is not None, "reading before start"
        try:
            buffer = self._protocol.buffer(RECEIVE_HINT)
            assert len(buffer) >= 1, f"{self._protocol} returned an empty buffer"
            count = self._socket.recv_into(buffer)
            if count:
                self._is_in_read = True
                try:
                    self._protocol.received(count)
                finally:
                    self._is_in_read = False
                if self._flush_is_due:
                    self._flush()
                elif self._has_sent:
                    self._notify_sent()
                self._has_sent = False
                self._look_for_reset()
            elif self._reset is not None:
                self._end(self._reset)
            else:
                self.close()  # the peer sends no more but may still read the queue
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
        except Exception as error:
            _log.exception("bytes.protocol_failed peer=%s", self._peer)
            self._end(error)

    def _look_for_reset(self) -> None:
        """Read to the end without the loop after a reset by the peer: uvloop reports it only once,
        however much is left to read."""
        if self._reset is None and not self._has_ended:
            number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                self._reset = OSError(number, f"connection to {self._peer}: reset by the peer")
        if self._reset is not None and self._is_reading:
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._is_reading:  # neither paused nor ended in the meantime
            self._on_readable()

    # --- writing ---------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not (self._flush_is_due or self._is_writing or self._is_delegated):
            self._flush_is_due = True
            if not self._is_in_read:  # else the read ends with the flush
                self._loop.call_soon(self._flush)

    def _flush(self, went: int = 0) -> None:
        """Send until the queue is empty, the socket is full, or a thread sends the first range.

        `went` is the number of bytes sent since the last report to the protocol.
        """
        self._flush_is_due = False
        if self._has_ended:
            return
        before = self._unsent + went
        try:
            is_blocked = self._send_queue()
        except OSError as error:
            self._end(error)
            return
        self._watch_for_room(is_blocked and not self._is_delegated)
        if self._unsent < before:
            self._notify_sent()
        if self._is_closing and not self._queue and not self._has_ended:
            self._end(None)

    def _send_queue(self) -> bool:
        """Send the queue. Return True if something is left."""
        pieces = 0  # of files; after some the other connections run
        while self._queue and pieces < SENDFILES_A_TURN:
            head, item, tail = queue_front(self._queue)
            if item is None:
                went = self._send_buffers()
            elif self._send_in_thread(item, head, tail):
                went = False
            elif self._threads.takes_bytes:
                went = self._send_now(item, head, tail)
                pieces += 1
            elif head:
                went = self._send_buffers()
            else:
                went = (item.is_warm or self._probe(item)) and self._send_range(item)
                pieces += 1
            if not went:
                break
        return bool(self._queue)

    def _send_buffers(self) -> bool:
        """Send the first buffers with one call. Return False if the socket is full."""
        group: list[memoryview] = []
        more = size = 0
        for item in self._queue:
            if not isinstance(item, memoryview):
                more = _MSG_MORE  # the header of a range shares its packet
                break
            if len(group) == IOVEC_MAX:
                break
            group.append(item)
            size += item.nbytes
        try:
            if IOVEC_MAX > 1:
                count = self._socket.sendmsg(group, (), more)
            else:
                count = self._socket.send(group[0], more)  # IOVEC_MAX is 1, so there is one buffer
        except (BlockingIOError, InterruptedError):
            return False
        self._consume_sent(count)
        return count == size

    def _send_range(self, item: QueuedRange) -> bool:
        """Send a part of the first range. Return False if the socket is full."""
        size = min(item.size, SENDFILE_MAX)
        try:
            if sendfile is not None:
                count = item.file.send_to(self._socket.fileno(), item.position, size)
            else:
                count = self._socket.send(item.file.read(item.position, min(size, COPIED_MAX)))
        except (BlockingIOError, InterruptedError):
            return False
        if not count:
            raise OSError(errno.EIO, f"{item.file.path}: ends before position {item.position}")
        self._consume_sent(count)
        return True

    def _consume_sent(self, count: int) -> None:
        """Remove sent bytes from the front of the queue."""
        queue = self._queue
        self._unsent -= count
        while count:
            front = queue[0]
            if isinstance(front, memoryview):
                if count < front.nbytes:
                    queue[0] = front[count:]
                    return
                count -= front.nbytes
                queue.popleft()
            else:
                step = min(count, front.size)
                front.position += step
                front.size -= step
                count -= step
                if not front.size:
                    queue.popleft()
                    front.lease.release()

    def _send_in_thread(
        self, item: QueuedRange, head: list[memoryview], tail: list[memoryview]
    ) -> bool:
        """Let a thread send the first range, with buffers around it, if it is large. Return True
        also while the range is read first."""
        if item.size < THREAD_RANGE_MIN or item.is_slow or not CAN_SEND_IN_THREADS:
            return False
        threads = self._threads
        if not threads.takes_bytes:
            if head or not (item.is_warm or self._probe(item)):
                return self._is_delegated
            tail = []
        before, behind = b"".join(head), b"".join(tail)
        whole = len(before) + item.size + len(behind)
        self._pending = threads.begin(
            self._socket.fileno(), item, before, behind, partial(self._on_range_sent, item, whole)
        )
        self._is_delegated = self._pending is not None
        item.is_slow = not self._is_delegated
        return self._is_delegated

    def _send_now(self, item: QueuedRange, head: list[memoryview], tail: list[memoryview]) -> bool:
        """Send the first range, or a part of it, with buffers around it. Return False if the socket
        is full or the range is read first."""
        size, behind = item.size, b"".join(tail)
        if size > SENDFILE_MAX:
            size, behind = SENDFILE_MAX, b""
        before = b"".join(head)
        sent = self._threads.now(self._socket.fileno(), item, size, before, behind)
        if sent.error is not None:
            raise sent.error
        if sent.is_cold:
            self._start_warming(item)
            return False
        item.is_warm = True
        self._consume_sent(sent.size)
        return sent.size == len(before) + size + len(behind)

    def _on_range_sent(self, item: QueuedRange, whole: int, sent: RangeResult) -> None:
        """Continue after a thread sent the range or returned its rest."""
        self._pending, self._is_delegated = None, False
        if self._has_ended:
            return
        if sent.error is not None:
            self._end(sent.error)
            return
        if sent.is_cold:
            self._start_warming(item)
            return
        item.is_warm, item.is_slow = True, sent.size < whole
        self._consume_sent(sent.size)
        self._flush(sent.size)

    def _probe(self, item: QueuedRange) -> bool:
        """Return True if the range is in the page cache; otherwise start to read it in the lane."""
        if item.file.is_resident(item.position, item.size):
            item.is_warm = True
            return True
        self._start_warming(item)
        return False

    def _start_warming(self, item: QueuedRange) -> None:
        self._is_delegated = True
        self._warming = self._loop.create_task(self._warm(item))

    async def _warm(self, item: QueuedRange) -> None:
        file, position, size = item.file, item.position, item.size
        lease = file.lease()  # the job continues after the connection has ended
        try:
            while not self._has_ended:
                try:
                    await self._tasks.offload("read", lambda: file.warm(position, size))
                    break
                except Overloaded:
                    await asyncio.sleep(WARM_RETRY_S)
        except Exception as error:  # otherwise the queue would never be sent
            self._end(error)
        finally:
            lease.release()
            self._warming, self._is_delegated = None, False
        item.is_warm = True
        self._flush()

    def _watch_for_room(self, wanted: bool) -> None:
        if wanted and not self._is_writing:
            self._loop.add_writer(self._socket, self._flush)
        elif self._is_writing and not wanted:
            self._loop.remove_writer(self._socket)
        self._is_writing = wanted

    def _notify_sent(self) -> None:
        assert self._protocol is not None, "sending before start"
        try:
            self._protocol.sent()
        except Exception as error:
            _log.exception("bytes.protocol_failed peer=%s", self._peer)
            self._end(error)

    # --- the end ---------------------------------------------------------------------------------

    def _end(self, error: Exception | None) -> None:
        """Close the socket, drop the queue and inform the protocol. Only the first call has an
        effect."""
        if self._has_ended:
            return
        self.pause_reading()
        self._watch_for_room(False)
        self._has_ended = True
        if self._pending is not None:
            self._pending.stop()
        self._socket.close()
        for item in self._queue:
            if isinstance(item, QueuedRange):
                item.lease.release()
        self._queue.clear()
        self._unsent = 0
        # Later: never inside a call that the protocol made.
        self._loop.call_soon(self._notify_closed, error)

    def _notify_closed(self, error: Exception | None) -> None:
        self._siblings.pop(self, None)
        self._end_notified.set_result(None)
        if self._protocol is not None:
            self._protocol.closed(error)
