"""Frames on a byte connection between members: length, checksum, one message. Pure.

Big-endian, as the batches inside are: 4 bytes length of the message, 4 bytes CRC-32C of it, the
message (`RaftFrame`). The first frame of a connection is bounded tightly: nobody knows yet who
speaks. Bytes that are damaged raise CorruptionError, anything else that is no frame InvalidRequest.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from ...errors import CorruptionError, InvalidRequest, MessageTooLarge
from ...proto import raft_pb2 as pb
from ...records.checksum import crc32c

FRAME_BYTES_MAX: Final = (64 << 20) + (64 << 10)  # a largest batch, with what goes around it
FIRST_FRAME_BYTES_MAX: Final = 64 << 10
BUFFER_BYTES: Final = 64 << 10  # read at once; frames that need more get a buffer of their size
_HEADER: Final = Struct(">II")


def encode_frame(frame: pb.RaftFrame) -> tuple[bytes, bytes]:
    """Return the header and the message; raises MessageTooLarge. 2 us, and 0.1 us a KiB."""
    message = frame.SerializeToString()
    if len(message) > FRAME_BYTES_MAX:
        raise MessageTooLarge(f"a frame of {len(message)} bytes; the bound is {FRAME_BYTES_MAX}")
    return _HEADER.pack(len(message), crc32c(message)), message


class FrameReader:
    """Cuts what arrives on one connection into frames; bytes are read into its buffer."""

    __slots__ = ("_buffer", "_bytes_max", "_end", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray(BUFFER_BYTES)
        self._start = 0  # of the bytes that were read and are not taken
        self._end = 0
        self._bytes_max = FIRST_FRAME_BYTES_MAX

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return self._start < self._end

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> Iterator[pb.RaftFrame]:
        """Take in `count` bytes of the buffer and yield the frames that are complete; exhaust it
        before the next call. Raises CorruptionError, InvalidRequest: nothing more can be read."""
        self._end += count
        while self._end - self._start >= _HEADER.size:
            size, crc = _HEADER.unpack_from(self._buffer, self._start)
            if size > self._bytes_max:
                raise InvalidRequest(
                    f"a frame of {size} bytes, where {self._bytes_max} are the bound: is this a"
                    " member of the quorum?"
                )
            message_start = self._start + _HEADER.size
            if self._end - message_start < size:
                self._make_room(_HEADER.size + size)
                return
            self._start = message_start + size
            self._bytes_max = FRAME_BYTES_MAX
            yield _decode(memoryview(self._buffer)[message_start : self._start], crc)
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > BUFFER_BYTES:
                self._buffer = bytearray(BUFFER_BYTES)
        elif len(self._buffer) - self._start < _HEADER.size:
            self._make_room(_HEADER.size)

    def _make_room(self, size: int) -> None:
        """Have the frame that begins at the start fit behind it."""
        if self._start + size <= len(self._buffer):
            return
        rest = self._buffer[self._start : self._end]
        if size > len(self._buffer) or len(self._buffer) > BUFFER_BYTES:
            self._buffer = bytearray(max(size, BUFFER_BYTES))
        self._start, self._end = 0, len(rest)
        self._buffer[: self._end] = rest


def _decode(message: memoryview, crc: int) -> pb.RaftFrame:
    if crc32c(message) != crc:
        raise CorruptionError(f"the CRC-32C of a frame of {len(message)} bytes is wrong")
    try:
        return pb.RaftFrame.FromString(message)  # type: ignore[arg-type]  # takes any buffer
    except DecodeError as error:
        raise InvalidRequest(f"a frame of {len(message)} bytes does not parse: {error}") from None
