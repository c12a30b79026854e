"""Frames of the Kafka protocol: a four-byte size, then the request.

The size is checked against the limit of the request's key before memory is allocated. All
connections of a server read into one buffer. A frame that is complete there is copied out at its
exact size, so an idle connection, or one in the middle of a small frame, holds no buffer. A large
incomplete frame is read directly into its own memory, which the kernel commits page by page as
bytes arrive: a client that claims much and sends little costs little. Memory of a large frame that
is cut where it lies serves the next one, since new pages cost more than what is copied into them.
"""

from collections.abc import Callable
from io import BytesIO
from struct import Struct
from typing import Final

from ...errors import InvalidRequest

SIZE: Final = Struct(">i")
SCRATCH_BYTES: Final = 256 << 10  # the shared read buffer of all connections of a server
LARGE_BYTES: Final = 64 << 10  # a larger frame gets its own buffer while it is incomplete
LARGE_STEP: Final = 256 << 10  # sizes of such buffers are multiples of it
LARGE_KEPT_BYTES: Final = 16 << 20  # of such buffers in total, while large frames arrive
FRAME_BYTES_MIN: Final = 8  # key, version and correlation id: the shortest header

_HEAD: Final = Struct(">ih")  # size and key
_KEY: Final = Struct(">h")
_NOTHING: Final = memoryview(b"")


class ReadBuffers:
    """The buffers into which the connections of a server read."""

    def __init__(self, scratch: memoryview | None = None) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES)) if scratch is None else scratch
        assert len(self.scratch) > 2 * LARGE_BYTES, f"a shared buffer of {len(self.scratch)} bytes"
        self._kept: list[memoryview] = []  # for large frames, the last used at the end
        self._kept_bytes = 0
        self._unused = 0  # the fewest of them since the last `trim`

    def take_large(self, size: int) -> memoryview:
        """Return a buffer of at least `size` bytes."""
        kept = self._kept
        if kept and size <= len(kept[-1]) <= 4 * size:
            found = kept.pop()
            self._kept_bytes -= len(found)
            self._unused = min(self._unused, len(kept))
            return found
        # Zeroed pages take no memory before they are touched, and getbuffer() does not copy bytes
        # without another reference. A bytearray of this size would be written at once.
        return BytesIO(bytes(-(-size // LARGE_STEP) * LARGE_STEP)).getbuffer()

    def give_large(self, buffer: memoryview) -> None:
        """Keep a buffer that is not used any more for the next large frame."""
        if self._kept_bytes + len(buffer) <= LARGE_KEPT_BYTES:
            self._kept.append(buffer)
            self._kept_bytes += len(buffer)

    def trim(self) -> None:
        """Free the buffers that were not needed since the last call."""
        for buffer in self._kept[: self._unused]:
            self._kept_bytes -= len(buffer)
        del self._kept[: self._unused]
        self._unused = len(self._kept)


class RequestFrameReader:
    """Cuts the bytes of one connection into frames; see `runtime.ports.ByteProtocol` for the calls.

    After `received`, call `next` while another frame is wanted; it returns None if none is
    complete. Call `keep` before another connection reads.
    """

    __slots__ = (
        *("_buffers", "_bytes_max", "_end", "_large", "_large_end", "_room", "_scratch"),
        *("_source", "_spent", "_start"),
    )

    def __init__(self, buffers: ReadBuffers, bytes_max: Callable[[int], int]) -> None:
        """`bytes_max` returns the size limit of a key's requests."""
        self._buffers = buffers
        self._scratch = buffers.scratch
        self._bytes_max = bytes_max
        self._source = _NOTHING  # the buffer that holds the bytes not cut yet
        self._start = self._end = 0  # their range in it
        self._large: memoryview | None = None  # a large incomplete frame
        self._large_end = 0  # received bytes of it
        self._room = _NOTHING  # the buffer with it at its start
        self._spent: memoryview | None = None  # the buffer of a large frame that was cut

    @property
    def is_within_frame(self) -> bool:
        """Return True if an incomplete frame is buffered."""
        return self._large is not None or self._start < self._end

    @property
    def is_empty(self) -> bool:
        """Return True if no byte is buffered."""
        return self._start == self._end and self._large is None

    @property
    def large_bytes(self) -> int:
        """The size of the incomplete large frame, 0 if there is none."""
        return 0 if self._large is None else len(self._large)

    @property
    def large_received_bytes(self) -> int:
        """The received bytes of the incomplete large frame."""
        return 0 if self._large is None else self._large_end

    def buffer(self) -> memoryview:
        """Return the buffer for the next read."""
        if self._large is not None:
            return self._large[self._large_end :]
        left = self._end - self._start
        if not left:
            return self._scratch
        self._scratch[:left] = self._source[self._start : self._end]
        return self._scratch[left:]

    def received(self, count: int) -> bool:
        """Record that `count` bytes were read into the buffer. Return False if they only continue a
        large frame."""
        if self._large is not None:
            self._large_end += count
            return self._large_end == len(self._large)
        self._end += count - self._start
        self._source, self._start = self._scratch, 0
        return True

    def first_key(self) -> int:
        """Return the API key of the next frame if the frame is complete, else -1."""
        if self._large is not None:
            if self._large_end < len(self._large):
                return -1
            (key,) = _KEY.unpack_from(self._large)
            return int(key)
        received_bytes = self._end - self._start
        if received_bytes < _HEAD.size:
            return -1
        size, key = _HEAD.unpack_from(self._source, self._start)
        if not FRAME_BYTES_MIN <= size <= received_bytes - SIZE.size:
            return -1
        return int(key)

    def rest(self) -> tuple[memoryview, int, int]:
        """Return the buffer with the bytes that are not cut yet, and their range in it. It is valid
        until the next call of `keep` or `buffer`."""
        return self._source, self._start, self._end

    def skip_to(self, position: int) -> None:
        """Cut the bytes before `position` of the buffer of `rest`."""
        self._start = position

    def large_frame(self) -> memoryview | None:
        """Return the next frame if it is a large one and complete; `drop_first` cuts it."""
        return self._large if self._large_end == self.large_bytes else None

    def first_frame(self) -> tuple[memoryview, int, int]:
        """Return the buffer and the range of the next frame, without its size, after `first_key`
        has found the frame complete. It is valid until the next call of `keep` or `buffer`."""
        if self._large is not None:
            return self._large, 0, self._large_end
        (size,) = SIZE.unpack_from(self._source, self._start)
        begin = self._start + SIZE.size
        return self._source, begin, begin + size

    def drop_first(self) -> None:
        """Cut the frame of `first_frame`."""
        if self._large is not None:
            self._large, self._spent = None, self._room
        else:
            (size,) = SIZE.unpack_from(self._source, self._start)
            self._start += SIZE.size + size

    def next(self) -> memoryview | None:
        """Return the next complete frame without its size; raises InvalidRequest."""
        if self._large is not None:
            if self._large_end < len(self._large):
                return None
            frame, self._large = self._large.toreadonly(), None
            return frame
        received_bytes = self._end - self._start
        if received_bytes < SIZE.size:
            return None
        (size,) = SIZE.unpack_from(self._source, self._start)
        if size < FRAME_BYTES_MIN:
            raise InvalidRequest(
                f"frame: the size is {size} bytes, the least is {FRAME_BYTES_MIN}; check that the"
                " client speaks the Kafka protocol"
            )
        if received_bytes < _HEAD.size:
            return None
        self._check_size(size)
        begin = self._start + SIZE.size
        if received_bytes >= SIZE.size + size:
            self._start = begin + size
            return memoryview(bytes(self._source[begin : self._start]))
        if size > LARGE_BYTES:
            self._begin_large(size, begin)
        return None

    def keep(self) -> None:
        """Move the bytes that are left out of the shared buffer."""
        if self._spent is not None:
            self._buffers.give_large(self._spent)
            self._spent = None
        if self._source is not self._scratch:
            return
        left = self._end - self._start
        if not left:
            self._source, self._start, self._end = _NOTHING, 0, 0
            return
        # A run stamps the batches in the buffer, so a copy is writable, too.
        copy = memoryview(bytearray(self._scratch[self._start : self._end]))
        self._source, self._start, self._end = copy, 0, left

    def _check_size(self, size: int) -> None:
        _, key = _HEAD.unpack_from(self._source, self._start)
        bytes_max = self._bytes_max(key)
        if size > bytes_max:
            raise InvalidRequest(
                f"frame: the size is {size} bytes and the limit for requests of key {key} is"
                f" {bytes_max}; check that the client speaks the Kafka protocol without TLS"
            )

    def _begin_large(self, size: int, begin: int) -> None:
        self._room = self._buffers.take_large(size)
        self._large = self._room[:size]
        self._large_end = self._end - begin
        self._large[: self._large_end] = self._source[begin : self._end]
        self._source, self._start, self._end = _NOTHING, 0, 0
