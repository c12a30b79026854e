"""Frames on a byte connection between two nodes: the reader of frames and the stream of both sides.

Raft and replication use it, each with its own layout of a frame (`FrameFormat`). A stream has no
task. A received frame is handled by the call that read it, and frames sent in one turn of the event
loop are written together. After an error, one side sends it in a last frame and ignores further
input; the other side closes. An immediate reset would overtake that frame.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from ..errors import InvalidRequest, QuorumlogError, StreamBroken
from .ports import Buffer, ByteConnection, ClientIdentity, Network

BUFFER_BYTES: Final = 64 << 10
"""The size of the read buffer; a larger frame gets a buffer of its own."""
SPARE_BYTES_MAX: Final = 16 << 20
"""Limit on the memory that a reader keeps for the next large frame."""
WINDOW_BYTES: Final = 64 << 10
"""Limit on bytes queued for the kernel; one frame may exceed it."""

F = TypeVar("F")


class FrameFormat(Protocol[F]):
    """The layout of the frames that one side receives: a header of fixed size, then the body."""

    @property
    def header_size(self) -> int:
        """The size of a header in bytes."""

    @property
    def first_bytes_max(self) -> int:
        """The limit of the first body; its sender is not identified yet."""

    @property
    def bytes_max(self) -> int:
        """The limit of a later body."""

    def body_size(self, buffer: bytearray, start: int) -> int:
        """Return the size of the body after the complete header at `start`."""

    def decode(self, frame: memoryview, *, is_reused: bool) -> F | QuorumlogError:
        """Return a complete frame, or the error with which the other side ends the stream.

        The result has no view of the frame's memory if the reader reuses that. Raise
        CorruptionError for damaged bytes, InvalidRequest for an invalid message.
        """

    def is_last(self, frame: F) -> bool:
        """Return True if the other side sends no more frames and expects the end of the stream."""

    def encode_error(self, error: QuorumlogError) -> Sequence[Buffer]:
        """Return the last frame of a stream."""


class FrameReader(Generic[F]):
    """Splits the bytes of one connection into frames. The connection reads into its buffers."""

    __slots__ = (
        "_body",
        "_body_end",
        "_buffer",
        "_bytes_max",
        "_end",
        "_spare",
        "_start",
        "format",
    )

    def __init__(self, frame_format: FrameFormat[F]) -> None:
        self.format = frame_format
        self._bytes_max = frame_format.first_bytes_max
        self._buffer = bytearray(BUFFER_BYTES)
        self._start = 0  # of the received bytes that are not decoded yet
        self._end = 0
        self._body: memoryview | None = None  # a large frame, from its header on
        self._body_end = 0  # of the received bytes in `_body`
        self._spare = bytearray()  # of an earlier large frame; new memory must be zeroed

    @property
    def is_within_frame(self) -> bool:
        """Return True if an incomplete frame was received."""
        return self._body is not None or self._start < self._end

    def buffer(self) -> memoryview:
        """Return the buffer for the next read; never empty."""
        if self._body is not None:
            return self._body[self._body_end :]
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> Iterator[F | QuorumlogError]:
        """Yield the complete frames after `count` bytes were read into the buffer.

        Exhaust the iterator before the next call. Raise CorruptionError or InvalidRequest, after
        which nothing more can be read.
        """
        layout = self.format
        if self._body is not None:
            self._body_end += count
            if self._body_end == len(self._body):
                body, self._body = self._body, None
                self._bytes_max = layout.bytes_max
                yield layout.decode(body, is_reused=False)
            return
        self._end += count
        header_size, view = layout.header_size, memoryview(self._buffer)
        while (start := self._start) + header_size <= self._end:
            body_size = layout.body_size(self._buffer, start)
            if body_size > self._bytes_max:
                raise InvalidRequest(
                    f"frame: {body_size} bytes; the limit here is {self._bytes_max}; check that the"
                    " peer is a node of this cluster"
                )
            end = start + header_size + body_size
            if end > self._end:
                self._ensure_space(end - start)
                return
            self._start = end
            self._bytes_max = layout.bytes_max
            yield layout.decode(view[start:end], is_reused=True)
        self._ensure_space(header_size)

    def recycle(self, content: memoryview) -> None:
        """Reuse the memory of a large frame, of which no view is accessed any more."""
        if isinstance(content.obj, bytearray) and len(content.obj) <= SPARE_BYTES_MAX:
            self._spare = content.obj

    def _ensure_space(self, size: int) -> None:
        """Move the frame at `_start` so that it fits into its buffer."""
        rest = self._buffer[self._start : self._end]
        if size > BUFFER_BYTES:
            spare, self._spare = self._spare, bytearray()
            if len(spare) < size:  # a power of two, so that it serves the next ones, too
                spare = bytearray(1 << (size - 1).bit_length() if size <= SPARE_BYTES_MAX else size)
            memory = spare
            self._body = memoryview(memory)[:size]
            self._body[: len(rest)] = rest
            self._body_end = len(rest)
            self._start = self._end = 0
        elif self._start + size > BUFFER_BYTES or not rest:
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)


class FrameStream(Generic[F]):
    """One side of a stream; the protocol of its connection. F is a received frame."""

    __slots__ = (
        "_connection",
        "_ended",
        "_is_over",
        "_reader",
        "_take",
        "_writable",
        "error",
    )

    def __init__(
        self,
        connection: ByteConnection,
        reader: FrameReader[F],
        *,
        take: Callable[[F], None],
        ended: Callable[[QuorumlogError | None], None],
        writable: Callable[[], None] | None = None,
    ) -> None:
        """`take` receives each frame and may raise an error about it.

        `ended` is called once, never inside a call to this object, with the reason; None if the
        other side closed the stream in order. `writable` is called when more can be sent.
        """
        self._connection = connection
        self._reader = reader
        self._take = take
        self._ended = ended
        self._writable = writable
        self._is_over = False
        self.error: QuorumlogError | None = None  # the reason of the end

    @property
    def peer(self) -> str:
        """The other side's "host:port", for logs only."""
        return self._connection.peer

    @property
    def client(self) -> ClientIdentity:
        """The other side, as it was authenticated."""
        return self._connection.client

    @property
    def is_over(self) -> bool:
        """Return True if the end of the stream was reported."""
        return self._is_over

    @property
    def is_writable(self) -> bool:
        """Return True if a frame would be sent soon."""
        return self._connection.unsent_bytes() < WINDOW_BYTES

    def send(self, frame: Sequence[Buffer], *, now: bool = False) -> None:
        """Send an encoded frame. Never waits. No effect if the stream has ended. `now`: no other
        frame follows in this turn of the loop."""
        if not self._is_over:
            self._connection.write(frame, now=now)

    def refuse(self, error: QuorumlogError) -> None:
        """End the stream and send the error to the other side. Call abort() later to close it."""
        if not self._is_over:
            self._connection.write(self._reader.format.encode_error(error))
            self._end(error)

    def abort(self, reason: str) -> None:
        """Break the stream at once. A second call has no effect."""
        self._end(StreamBroken(reason))
        self._connection.abort()

    # --- the connection's protocol -------------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""
        return self._reader.buffer()

    def received(self, count: int) -> None:
        """Handle the complete frames."""
        if self._is_over:
            return  # the other side has not read the error yet
        try:
            for frame in self._reader.received(count):
                if isinstance(frame, QuorumlogError):
                    self._end(frame)
                    self._connection.close()
                else:
                    self._take(frame)
                    if self._reader.format.is_last(frame):
                        self._connection.close()
                if self.is_over:
                    return
        except QuorumlogError as error:
            self.refuse(error)

    def sent(self) -> None:
        """Send more, since the connection has space again."""
        if not self._is_over and self._writable is not None:
            self._writable()

    def closed(self, error: Exception | None) -> None:
        """Record the end of the connection."""
        if error is not None:
            self._end(StreamBroken(f"connection to {self.peer}: broken; {error}"))
        elif self._reader.is_within_frame:
            self._end(StreamBroken(f"connection to {self.peer}: closed inside a frame"))
        else:
            self._end(None)

    def _end(self, error: QuorumlogError | None) -> None:
        if not self._is_over:
            self._is_over, self.error = True, error
            asyncio.get_running_loop().call_soon(self._ended, error)


async def open_stream(
    network: Network,
    address: str,
    reader: FrameReader[F],
    *,
    take: Callable[[F], None],
    ended: Callable[[QuorumlogError | None], None],
    writable: Callable[[], None] | None = None,
) -> FrameStream[F]:
    """Connect to a node's stream port. Raise ConnectionFailed if it is refused, otherwise
    OutcomeUnknown."""
    made: list[FrameStream[F]] = []

    def make(connection: ByteConnection) -> FrameStream[F]:
        made.append(FrameStream(connection, reader, take=take, ended=ended, writable=writable))
        return made[0]

    await network.connect_bytes(address, make)
    return made[0]
