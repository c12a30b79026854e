"""Frames of the protocol: four bytes that say how long a request is, then the request.

The size is judged, by the key behind it, before memory is taken. All connections of a server read
into one buffer; a frame that is whole there is copied out at its exact size, so a connection that
is idle, or stuck in the middle of a small frame, holds no buffer of its own. A large frame that is
not whole yet is read straight into memory of its own, which the kernel hands out page by page as
bytes come: who claims much and sends little takes little.
"""

from collections.abc import Callable
from io import BytesIO
from struct import Struct
from typing import Final

from ...errors import InvalidRequest

SIZE: Final = Struct(">i")
SCRATCH_BYTES: Final = 256 << 10  # what is read at once, by all connections of a server in turn
LARGE_BYTES: Final = 64 << 10  # a larger frame is not gathered in the shared buffer
FRAME_BYTES_MIN: Final = 8  # key, version and correlation id: the least that a header has

_HEAD: Final = Struct(">ih")  # size and key
_NOTHING: Final = memoryview(b"")


class FrameReader:
    """Cuts one connection's bytes into frames; see `runtime.ports.ByteProtocol` for the calls.

    After `received`, call `next` while more is wanted, and `keep` before anybody else reads.
    """

    __slots__ = ("_bytes_max", "_end", "_large", "_large_end", "_scratch", "_source", "_start")

    def __init__(self, scratch: memoryview, bytes_max: Callable[[int], int]) -> None:
        """`scratch` is the shared buffer; `bytes_max` says how large requests of a key may be."""
        assert len(scratch) > 2 * LARGE_BYTES, f"a shared buffer of {len(scratch)} bytes"
        self._scratch = scratch
        self._bytes_max = bytes_max
        self._source = _NOTHING  # where the bytes are that are not cut yet
        self._start = self._end = 0  # of them
        self._large: memoryview | None = None  # a large frame that is being read
        self._large_end = 0  # bytes of it that have come

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has begun and not been cut out."""
        return self._large is not None or self._start < self._end

    @property
    def large_bytes(self) -> int:
        """The size of the large frame that is being read, 0: none is."""
        return 0 if self._large is None else len(self._large)

    @property
    def large_come_bytes(self) -> int:
        """How much of that frame has come."""
        return 0 if self._large is None else self._large_end

    def buffer(self) -> memoryview:
        """Return where the next bytes go."""
        if self._large is not None:
            return self._large[self._large_end :]
        left = self._end - self._start
        if left:
            self._scratch[:left] = self._source[self._start : self._end]
        return self._scratch[left:]

    def received(self, count: int) -> None:
        """Take note that so many bytes have come."""
        if self._large is not None:
            self._large_end += count
            return
        self._end += count - self._start
        self._source, self._start = self._scratch, 0

    def next(self) -> memoryview | None:
        """Return the next frame that is whole, without its size; raises InvalidRequest."""
        if self._large is not None:
            if self._large_end < len(self._large):
                return None
            frame, self._large = self._large.toreadonly(), None
            return frame
        come = self._end - self._start
        if come < SIZE.size:
            return None
        (size,) = SIZE.unpack_from(self._source, self._start)
        if size < FRAME_BYTES_MIN:
            raise InvalidRequest(
                f"a frame claims {size} bytes, which is no request; is this a client of the Kafka "
                "protocol?"
            )
        if come < _HEAD.size:
            return None
        self._judge(size)
        begin = self._start + SIZE.size
        if come >= SIZE.size + size:
            self._start = begin + size
            return memoryview(bytes(self._source[begin : self._start]))
        if size > LARGE_BYTES:
            self._begin_large(size, begin)
        return None

    def keep(self) -> None:
        """Take what is left out of the shared buffer."""
        if self._source is self._scratch:
            self._source = memoryview(bytes(self._scratch[self._start : self._end]))
            self._start, self._end = 0, len(self._source)

    def _judge(self, size: int) -> None:
        _, key = _HEAD.unpack_from(self._source, self._start)
        bytes_max = self._bytes_max(key)
        if size > bytes_max:
            raise InvalidRequest(
                f"a frame claims {size} bytes for a request of key {key}, which may have "
                f"{bytes_max}; is this a client of the Kafka protocol, without TLS?"
            )

    def _begin_large(self, size: int, begin: int) -> None:
        # Zeroes that nobody has touched take no memory, and getbuffer() does not copy what nobody
        # else holds. A bytearray of this size would be written all over first.
        self._large = BytesIO(bytes(size)).getbuffer()
        self._large_end = self._end - begin
        self._large[: self._large_end] = self._source[begin : self._end]
        self._source, self._start, self._end = _NOTHING, 0, 0
