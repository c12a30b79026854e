"""TLS over a byte connection: `TlsConnection` lies between a protocol and its transport.

It encrypts and decrypts in memory (`ssl.SSLObject`), so it works over any `ByteConnection`. One
receive of the transport brings many TLS records, and one send carries many. Ranges of files are
read in pieces and encrypted as fast as the peer takes them: at most `UNSENT_MAX` bytes are
encrypted ahead.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ..errors import Overloaded, SaslAuthenticationFailed, StreamBroken
from .ports import (
    ANONYMOUS_CLIENT,
    Buffer,
    ByteConnection,
    ByteProtocol,
    ClientIdentity,
    File,
    Lease,
    PeerCertificate,
    Tasks,
)
from .tls import certificate_of, resumed_certificate_of

RECEIVE_BYTES: Final = 256 << 10
"""Received bytes that are decrypted together: 16 records of the largest size."""

PIECE_BYTES: Final = 128 << 10
"""Bytes that are encrypted with one call, in 8 records."""

IDLE_BYTES: Final = 16 << 10
"""Received bytes that are decrypted together while no data arrive, only messages of TLS."""

ANSWERS_MAX: Final = 4 << 10
"""Bytes of answers to messages of TLS, such as updates of keys, without data in between: some
hundred. A peer that causes more is disconnected."""

UNSENT_MAX: Final = 256 << 10
"""Bytes of the transport's queue from which on no more are encrypted."""

RECEIVE_HINT: Final = 64 << 10  # bytes; the size hint for the protocol's buffer
HANDSHAKE_S: Final = 30.0  # then the connection is reset
READ_RETRY_S: Final = 0.01  # while the read lane is full

_log = logging.getLogger(__name__)


class _FileRange:
    """Bytes of a file that are not encrypted yet."""

    __slots__ = ("file", "lease", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.lease: Lease = file.lease()
        self.position = position
        self.size = size


class ReceiveBuffer:
    """The buffer for encrypted bytes of all connections of one loop, used within one call."""

    def __init__(self) -> None:
        self._bytes: memoryview | None = None

    def view(self) -> memoryview:
        """Return the buffer, which the first call creates."""
        if self._bytes is None:
            self._bytes = memoryview(bytearray(RECEIVE_BYTES))
        return self._bytes


class TlsConnection:
    """The `ByteConnection` of a protocol, and the `ByteProtocol` of its transport.

    A failed handshake closes the transport, and the protocol's `closed` receives StreamBroken with
    the cause.
    """

    def __init__(
        self,
        transport: ByteConnection,
        factory: Callable[[ByteConnection], ByteProtocol],
        *,
        context: ssl.SSLContext,
        tasks: Tasks,
        received: ReceiveBuffer,
        secured: Callable[["TlsConnection", PeerCertificate | None], None] | None = None,
        server_name: str | None = None,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        """`server_name` is the name in the server's certificate, for the client's side of a
        connection; None: the server's side. The protocol is created at once. `secured` is called
        after the handshake, before any byte is received, with the peer's certificate, None if it
        presented none; it may replace the protocol."""
        self._transport = transport
        self._tasks = tasks
        self._scratch = received
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        # into a buffer it returns the number of bytes, which its stub does not know
        self._read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]
        self._queue: deque[memoryview | _FileRange] = deque()  # not encrypted yet
        self._queued = 0  # bytes in the queue
        self._is_secured = False  # the handshake has ended
        self._is_reading = True  # the protocol wants bytes
        self._has_data = False  # the last decryption had data
        self._answers = 0  # bytes of answers to messages of TLS since the last data
        self._is_decrypting = False
        self._is_closing = False  # close when the queue is empty
        self._has_ended = False
        self._failure: StreamBroken | None = None
        self._loading: asyncio.Task[None] | None = None  # a lane reads the first range
        self._handshake_timer: asyncio.TimerHandle | None = self._loop.call_later(
            handshake_s, self._handshake_overdue
        )
        self._secured = secured
        self.certificate: PeerCertificate | None = None  # of the peer, after the handshake
        self.client: ClientIdentity = ANONYMOUS_CLIENT
        self.protocol = factory(self)
        if server_name is not None:
            self._loop.call_soon(self._shake_hands)

    # --- ByteConnection --------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """The other side's "host:port"."""
        return self._transport.peer

    @property
    def local(self) -> str:
        """This side's "host:port"; empty after the end."""
        return self._transport.local

    @property
    def version(self) -> str:
        """The version of TLS: "TLSv1.3"; empty before the handshake has ended."""
        return self._tls.version() or "" if self._is_secured else ""

    def write(self, buffers: Sequence[Buffer], *, more: bool = False, now: bool = False) -> None:
        """Queue bytes; as much as the transport takes is encrypted at once."""
        if self._is_closing or self._has_ended:
            return
        if not (more or self._queue) and self._may_encrypt():
            piece = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            if 0 < len(piece) <= PIECE_BYTES:
                self._send_piece(piece, now=now)
                return
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self._queue.append(view)
            self._queued += view.nbytes
        if not more:
            self._encrypt(now=now)

    def send_range(self, file: File, position: int, size: int) -> None:
        """Queue [position, position + size) of a file."""
        assert size >= 0, f"size {size}"
        if not size or self._is_closing or self._has_ended:
            return
        self._queue.append(_FileRange(file, position, size))
        self._queued += size
        self._encrypt()

    def unsent_bytes(self) -> int:
        """Return the number of bytes that are queued here and in the transport."""
        return self._queued + self._transport.unsent_bytes()

    def pause_reading(self) -> None:
        """Stop reading. At most one receive of the transport stays encrypted in memory."""
        self._is_reading = False
        if self._is_secured:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue reading."""
        if self._is_reading or self._is_closing or self._has_ended:
            return
        self._is_reading = True
        self._transport.resume_reading()
        if self._is_secured and not self._is_decrypting:
            self._loop.call_soon(self._decrypt_rest)

    def close(self) -> None:
        """Send the queue and the end of TLS, then close."""
        if self._is_closing or self._has_ended:
            return
        self._is_closing = True
        # Bytes that arrive until then are read and dropped: left unread, such as a session ticket,
        # they would make the kernel reset the connection and drop the queue.
        self._transport.resume_reading()
        if self._is_secured:
            self._encrypt()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close at once with a reset. Nothing that has arrived is read any more."""
        self._is_closing = True
        self._transport.abort()

    # --- ByteProtocol of the transport -----------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for encrypted bytes."""
        return self._scratch.view()

    def received(self, count: int) -> None:
        """Decrypt received bytes."""
        received = self._scratch.view()[:count]
        at = 0
        while at < count and not (self._is_closing or self._has_ended):
            end = count if self._has_data else min(at + IDLE_BYTES, count)
            self._incoming.write(received[at:end])
            at = end
            if not self._is_secured:
                self._shake_hands()
            if self._is_secured:
                self._decrypt()

    def sent(self) -> None:
        """Encrypt more, since the transport's queue has shrunk."""
        if self._is_secured and self._queue:
            self._encrypt()
        if not self._has_ended:
            self.protocol.sent()

    def closed(self, error: Exception | None) -> None:
        """Drop the queue and inform the protocol."""
        self._has_ended = True
        self._stop_timer()
        for item in self._queue:
            if isinstance(item, _FileRange):
                item.lease.release()
        self._queue.clear()
        self._queued = 0
        if not self._is_secured and self._failure is None and error is None:
            self._failure = StreamBroken(f"TLS with {self.peer}: closed during the handshake")
        self.protocol.closed(self._failure or error)

    # --- handshake -------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        if self._has_ended or self._is_closing:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_outgoing()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        encoded = self._tls.getpeercert(binary_form=True)
        if encoded:
            read = resumed_certificate_of if self._tls.session_reused else certificate_of
            try:
                self.certificate = read(encoded)
            except SaslAuthenticationFailed as error:
                self._failure = StreamBroken(f"TLS with {self.peer}: {error.message}")
                self._transport.abort()
                return
        self._is_secured = True
        self._stop_timer()
        self._send_outgoing()
        if self._secured is not None:
            self._secured(self, self.certificate)
        if not self._is_reading:
            self._transport.pause_reading()
        if self._queue:
            self._encrypt()

    def _handshake_overdue(self) -> None:
        self._failure = StreamBroken(f"TLS with {self.peer}: no handshake in time")
        self._transport.abort()

    def _stop_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def _fail(self, error: ssl.SSLError) -> None:
        """Close after an error of TLS; the peer receives its alert."""
        self._failure = StreamBroken(f"TLS with {self.peer}: {_reason(error)}")
        self._is_closing = True
        self._stop_timer()
        self._send_outgoing()
        self._transport.close()

    # --- reading ---------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """Give the protocol what has arrived, until it pauses reading."""
        self._is_decrypting = True
        is_over, has_data = False, False
        try:
            while self._is_reading and not (is_over or self._is_closing or self._has_ended):
                room = self.protocol.buffer(RECEIVE_HINT)
                filled = 0
                try:
                    while filled < len(room):
                        count = self._read(len(room) - filled, room[filled:])
                        if not count:  # the peer has announced its end
                            is_over = True
                            self._loop.call_soon(self.close)  # it may still read the queue
                            break
                        filled += count
                        if not (self._incoming.pending or self._tls.pending()):
                            is_over = True  # known without the cost of an exception
                            break
                except ssl.SSLWantReadError:
                    is_over = True
                if filled:
                    has_data = True
                    self.protocol.received(filled)
        except ssl.SSLError as error:
            self._fail(error)
        finally:
            self._is_decrypting = False
        self._has_data = has_data
        self._answers = 0 if has_data else self._answers + self._outgoing.pending
        if self._answers > ANSWERS_MAX and not self._has_ended:
            self._failure = StreamBroken(f"TLS with {self.peer}: too many updates of keys")
            self._transport.abort()
        elif self._outgoing.pending:  # the answer to an update of keys
            self._send_outgoing()

    def _decrypt_rest(self) -> None:
        """Decrypt what arrived while reading was paused."""
        if self._is_decrypting or not (self._incoming.pending or self._tls.pending()):
            return
        try:
            self._decrypt()
        except Exception:
            _log.exception("bytes.protocol_failed peer=%s", self.peer)
            self._transport.abort()

    # --- writing ---------------------------------------------------------------------------------

    def _encrypt(self, *, now: bool = False) -> None:
        """Encrypt the queue until it is empty, the transport has enough, or a range is read."""
        while self._queue and self._may_encrypt():
            piece = self._next_piece()
            if piece is None:
                return
            self._queued -= len(piece)
            if not self._send_piece(piece, now=now):
                return
        if self._is_closing and self._is_secured and not (self._queue or self._has_ended):
            self._say_goodbye()

    def _may_encrypt(self) -> bool:
        return (
            self._is_secured
            and not self._has_ended
            and self._loading is None
            and self._transport.unsent_bytes() < UNSENT_MAX
        )

    def _send_piece(self, piece: Buffer, *, now: bool) -> bool:
        """Encrypt and send bytes. Return False if TLS has failed."""
        try:
            self._tls.write(piece)
        except ssl.SSLError as error:
            self._fail(error)
            return False
        self._transport.write((self._outgoing.read(),), now=now)
        return True

    def _next_piece(self) -> Buffer | None:
        """Take up to PIECE_BYTES from the queue; None if a lane reads them first."""
        queue, room = self._queue, PIECE_BYTES
        pieces: list[Buffer] = []
        while queue and room:
            front = queue[0]
            if isinstance(front, memoryview):
                piece: Buffer = front[:room]
                if front.nbytes > room:
                    queue[0] = front[room:]
                else:
                    queue.popleft()
            else:
                size = min(front.size, room)
                read = front.file.read_cached(front.position, size)
                if not read:
                    if not pieces:
                        self._loading = self._loop.create_task(self._load(front, size))
                        return None
                    break
                piece = read
                self._advance(front, len(read))
            pieces.append(piece)
            room -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _advance(self, item: _FileRange, count: int) -> None:
        """Consume the beginning of the first range."""
        item.position += count
        item.size -= count
        if not item.size:
            self._queue.popleft()
            item.lease.release()

    async def _load(self, item: _FileRange, size: int) -> None:
        """Read the beginning of the first range in the read lane, and put it in front of it."""
        file, position = item.file, item.position
        lease = file.lease()  # the job continues after the connection has ended
        try:
            while True:
                try:
                    read = await self._tasks.offload("read", lambda: file.read(position, size))
                    break
                except Overloaded:
                    await asyncio.sleep(READ_RETRY_S)
                if self._has_ended:
                    return
            if self._has_ended:
                return
            if not read:
                raise StreamBroken(f"{file.path}: ends before position {position}")
            self._advance(item, len(read))
            self._queue.appendleft(memoryview(read))
        except Exception as error:  # otherwise the queue would never be sent
            self._failure = StreamBroken(f"connection to {self.peer}: {error}")
            self._transport.abort()
            return
        finally:
            lease.release()
            self._loading = None
        self._encrypt()

    def _send_outgoing(self) -> None:
        """Send the bytes of a handshake, of an alert or of an update of keys."""
        if self._outgoing.pending:
            self._transport.write((self._outgoing.read(),), now=True)

    def _say_goodbye(self) -> None:
        """Announce the end to the peer, and close without waiting for its answer."""
        with suppress(ssl.SSLError):  # the answer is not awaited
            self._tls.unwrap()
        self._send_outgoing()
        self._transport.close()


def _reason(error: ssl.SSLError) -> str:
    """Return the cause in words: "no shared cipher", "certificate has expired"."""
    verify = getattr(error, "verify_message", "")
    if verify:
        return f"the peer's certificate is not accepted: {verify}"
    return (error.reason or str(error)).replace("_", " ").lower()
