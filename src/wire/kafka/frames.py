"""Frames of the protocol: four bytes that say how long a request is, then the request.

The size is judged before memory is taken for it. Small frames are cut out of a buffer that the
connection keeps; a large one is read straight into memory of its own, which its handler may keep.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ...errors import InvalidRequest

SIZE: Final = Struct(">i")
BUFFER_BYTES: Final = 32 << 10
FRAME_BYTES_MIN: Final = 8  # the fixed start of a request header


class FrameReader:
    """Cuts one connection's bytes into frames; see `runtime.ports.ByteProtocol` for the calls."""

    __slots__ = ("_buffer", "_end", "_frame", "_frame_end", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()  # taken when bytes come, given back when all are used
        self._start = self._end = 0  # of the bytes in it
        self._frame: bytearray | None = None  # a large frame that is being read
        self._frame_end = 0  # bytes of it that have come

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._frame is not None or self._start < self._end

    def buffer(self) -> memoryview:
        """Return where the next bytes go."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_end :]
        if not self._buffer:
            self._buffer = bytearray(BUFFER_BYTES)
        elif self._start:
            left = self._buffer[self._start : self._end]
            self._buffer = bytearray(BUFFER_BYTES)  # views of the old one may be in use
            self._buffer[: len(left)] = left
            self._start, self._end = 0, len(left)
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Yield the frames that are complete now, without their sizes; raises InvalidRequest."""
        if self._frame is not None:
            self._frame_end += count
            if self._frame_end == len(self._frame):
                frame, self._frame = self._frame, None
                yield memoryview(frame)
            return
        self._end += count
        while self._end - self._start >= SIZE.size:
            size = self._size()
            begin = self._start + SIZE.size
            if size > BUFFER_BYTES - SIZE.size:
                self._begin_large(size, begin)
                break
            if self._end < begin + size:
                return
            self._start = begin + size
            yield memoryview(self._buffer)[begin : begin + size]
        if self._start == self._end:
            self._buffer, self._start, self._end = bytearray(), 0, 0

    def _size(self) -> int:
        (size,) = SIZE.unpack_from(self._buffer, self._start)
        if not FRAME_BYTES_MIN <= size <= self.frame_bytes_max:
            raise InvalidRequest(
                f"a frame claims {size} bytes: requests have {FRAME_BYTES_MIN} to "
                f"{self.frame_bytes_max} here; is this a client of the Kafka protocol, without TLS?"
            )
        return int(size)

    def _begin_large(self, size: int, begin: int) -> None:
        self._frame = bytearray(size)
        come = self._end - begin
        self._frame[:come] = memoryview(self._buffer)[begin : self._end]
        self._frame_end = come
        self._start = self._end
