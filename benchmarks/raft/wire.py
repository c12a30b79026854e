"""A minimal gRPC client: the part of HTTP/2 that a cheap client needs.

A client library in Python takes a third of a millisecond per call, more than the servers under
test, and would limit the results. Here a call composes a few bytes and parses a few. The same
client is used for all systems.

One connection calls one method of one server, over plain TCP. Header blocks are written with the
dynamic table filled by the first call (RFC 7541), so that a further call has six bytes of them;
those of responses are not decoded: a call that ends without a message has failed, and one that ends
with one has succeeded. Flow control is respected in both directions (RFC 9113, 5.2 and 6.9).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import cast

_HEAD = Struct(">BHBBI")  # length in 24 bits, type, flags, stream
_WORD = Struct(">I")
_SETTING = Struct(">HI")
_PREFIX = Struct(">BI")  # of a gRPC message: compressed, length

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_PADDED = 8
_WINDOW_FIRST = 65_535
_WINDOW_MAX = (1 << 31) - 1
_CREDIT_BYTES = 1 << 30
"""After so many received bytes the windows, opened to the maximum at the start, are refilled."""
_INITIAL_WINDOW_SIZE = 4
_FRAME_MAX = 16_384


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def message(payload: bytes) -> bytes:
    """Return a gRPC message without compression."""
    return _PREFIX.pack(0, len(payload)) + payload


def _remembered(name: bytes, value: bytes) -> bytes:
    """Return a header for the server's dynamic table; the name by its static index or text."""
    assert len(value) < 127, f"{value!r} is too long for one length byte"
    return name + bytes([len(value)]) + value


class Connection(asyncio.Protocol):
    """One connection for calls of one method. Bytes are sent by flush() only."""

    def __init__(
        self,
        method: str,
        *,
        on_message: Callable[[int, bytes], None],
        on_end: Callable[[int, bool], None],
        on_lost: Callable[[str], None],
    ) -> None:
        """`method` is "/package.Service/Name". `on_message(stream, payload)` gets each message, in
        order for a stream; `on_end(stream, succeeded)` its end; `on_lost(reason)` the
        connection's."""
        self._method = method
        self._on_message, self._on_end, self._on_lost = on_message, on_end, on_lost
        self._transport: asyncio.Transport | None = None
        self._next_stream = 1
        self._unsent: list[bytes] = []
        self._waiting: deque[tuple[int, bytes, int]] = deque()  # (stream, data, flags): no window
        self._window = _WINDOW_FIRST
        self._stream_window = _WINDOW_FIRST  # of a new stream
        self._windows: dict[int, int] = {}  # of the streams with data to send, bytes
        self._unread = b""
        self._parts: dict[int, bytearray] = {}  # by stream: an incomplete message
        self._answered: set[int] = set()  # streams with a received message
        self._uncredited = 0
        self._headers = b""

    # --- requests ----------------------------------------------------------------------------

    def call(self, payload: bytes) -> int:
        """Start a call of one message; return its stream."""
        stream = self.open()
        self._send(stream, message(payload), _END_STREAM)
        return stream

    def open(self) -> int:
        """Start a call with messages by send(); return its stream."""
        stream = self._next_stream
        self._next_stream += 2
        assert stream < 1 << 31, "a connection has no more streams"
        headers = self._headers if stream > 1 else self._first_headers()
        self._unsent.append(_frame(_HEADERS, _END_HEADERS, stream, headers))
        self._windows[stream] = self._stream_window
        return stream

    def send(self, stream: int, payload: bytes) -> None:
        """Send one message."""
        self._send(stream, message(payload), 0)

    def finish(self, stream: int) -> None:
        """End the messages of a stream."""
        self._send(stream, b"", _END_STREAM)

    def flush(self) -> None:
        """Pass all queued bytes to the kernel in one write."""
        if self._unsent and self._transport is not None:
            self._transport.write(b"".join(self._unsent))
            self._unsent.clear()

    def close(self) -> None:
        """Close the connection and call `on_lost`."""
        if self._transport is not None:
            self._transport.abort()

    def _first_headers(self) -> bytes:
        """Return the header block of the first call; set that of the others, which refer to its
        entries in the table: the newest entry is 62 (RFC 7541, 2.3.3)."""
        self._headers = bytes([0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62])
        assert self._transport is not None, "not connected"
        host, port = self._transport.get_extra_info("peername")[:2]
        return b"".join(
            [
                b"\x83\x86",  # :method POST, :scheme http
                _remembered(b"\x44", self._method.encode()),  # :path
                _remembered(b"\x41", f"{host}:{port}".encode()),  # :authority
                _remembered(b"\x5f", b"application/grpc"),  # content-type
                _remembered(b"\x40\x02te", b"trailers"),
            ]
        )

    def _send(self, stream: int, data: bytes, flags: int) -> None:
        if not self._waiting and len(data) <= min(_FRAME_MAX, self._window, self._windows[stream]):
            self._put(stream, data, flags)
            return
        for at in range(0, max(1, len(data)), _FRAME_MAX):
            piece = data[at : at + _FRAME_MAX]
            self._waiting.append((stream, piece, flags if at + _FRAME_MAX >= len(data) else 0))
        self._send_waiting()

    def _put(self, stream: int, data: bytes, flags: int) -> None:
        self._window -= len(data)
        if flags & _END_STREAM:
            del self._windows[stream]
        else:
            self._windows[stream] -= len(data)
        self._unsent.append(_frame(_DATA, flags, stream, data))

    def _send_waiting(self) -> None:
        while self._waiting:
            stream, data, flags = self._waiting[0]
            if len(data) > min(self._window, self._windows[stream]):
                return
            self._waiting.popleft()
            self._put(stream, data, flags)

    # --- responses ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface, and open the windows for responses."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit it
        settings = _SETTING.pack(_INITIAL_WINDOW_SIZE, _WINDOW_MAX)
        credit = _WORD.pack(_WINDOW_MAX - _WINDOW_FIRST)
        self._unsent += [_PREFACE, _frame(_SETTINGS, 0, 0, settings), _frame(_WINDOW, 0, 0, credit)]
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection."""
        self._transport = None
        self._on_lost(str(error) if error else "the connection was closed")

    def data_received(self, data: bytes) -> None:
        """Process complete frames; the frames in response are sent in one write."""
        data = self._unread + data if self._unread else data
        at, end = 0, len(data)
        while end - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            size = high << 16 | low
            if end - at - _HEAD.size < size:
                break
            at += _HEAD.size
            payload = data[at : at + size]
            at += size
            if kind == _DATA:
                self._take(stream, payload, flags)
            elif kind == _HEADERS:
                if flags & _END_STREAM:
                    self._over(stream)
            else:
                self._control(kind, flags, stream, payload)
        self._unread = data[at:]
        self._send_waiting()
        self.flush()

    def _take(self, stream: int, payload: bytes, flags: int) -> None:
        assert not flags & _PADDED, "padded frames are not expected"
        self._uncredited += len(payload)
        if self._uncredited >= _CREDIT_BYTES:
            credit = _WORD.pack(self._uncredited)
            self._unsent.append(_frame(_WINDOW, 0, 0, credit))
            self._unsent += [_frame(_WINDOW, 0, each, credit) for each in self._windows]
            self._uncredited = 0
        part = self._parts.get(stream)
        if (
            part is None
            and len(payload) >= 5
            and _WORD.unpack_from(payload, 1)[0] + 5 == len(payload)
        ):
            self._answered.add(stream)
            self._on_message(stream, payload[5:])
        elif payload:
            self._gather(stream, payload)
        if flags & _END_STREAM:
            self._over(stream)

    def _gather(self, stream: int, payload: bytes) -> None:
        part = self._parts.setdefault(stream, bytearray())
        part += payload
        while len(part) >= 5 and len(part) >= (size := _WORD.unpack_from(part, 1)[0] + 5):
            whole = bytes(part[5:size])
            del part[:size]
            self._answered.add(stream)
            self._on_message(stream, whole)
        if not part:
            del self._parts[stream]

    def _over(self, stream: int) -> None:
        succeeded = stream in self._answered
        self._answered.discard(stream)
        self._parts.pop(stream, None)
        self._windows.pop(stream, None)
        self._on_end(stream, succeeded)

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self._set(payload)
        elif kind == _PING and not flags & _ACK:
            self._unsent.append(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW:
            more = _WORD.unpack(payload)[0]
            if stream == 0:
                self._window += more
            elif stream in self._windows:
                self._windows[stream] += more
        elif kind == _RST:
            self._answered.discard(stream)
            self._over(stream)
        elif kind == _GOAWAY:
            self.close()

    def _set(self, payload: bytes) -> None:
        for at in range(0, len(payload), _SETTING.size):
            name, value = _SETTING.unpack_from(payload, at)
            if name == _INITIAL_WINDOW_SIZE:
                for each in self._windows:
                    self._windows[each] += value - self._stream_window
                self._stream_window = value
        self._unsent.append(_frame(_SETTINGS, _ACK, 0, b""))


async def ask(address: str, method: str, payload: bytes) -> bytes:
    """Make one call. Raise ConnectionError if it fails."""
    answers: list[bytes] = []
    over = asyncio.get_running_loop().create_future()

    def end(stream: int, succeeded: bool) -> None:
        if not over.done():
            over.set_result(succeeded)

    connection = Connection(
        method,
        on_message=lambda stream, answer: answers.append(answer),
        on_end=end,
        on_lost=lambda why: end(0, False),
    )
    host, _, port = address.rpartition(":")
    await asyncio.get_running_loop().create_connection(lambda: connection, host, int(port))
    connection.call(payload)
    connection.flush()
    try:
        succeeded = await over
    finally:
        connection.close()
    if not succeeded:
        raise ConnectionError(f"{method} failed at {address}")
    return answers[0]
