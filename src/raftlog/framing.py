"""Frames on a byte connection between nodes: length, checksum, one message. Pure.

All numbers are big-endian, as in record batches: 4 bytes message length, 4 bytes CRC-32C of the
message, the message (`RaftFrame`). The limit of a connection's first frame is small because the
sender is not identified yet. Damaged bytes raise CorruptionError, invalid frames InvalidRequest.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from ..errors import CorruptionError, InvalidRequest, MessageTooLarge
from ..proto import raft_pb2 as pb
from ..records.checksum import crc32c

FRAME_BYTES_MAX: Final = (64 << 20) + (64 << 10)  # the largest batch and its envelope
FIRST_FRAME_BYTES_MAX: Final = 64 << 10
BUFFER_BYTES: Final = 64 << 10  # the read buffer; a larger frame gets a buffer of its size
_HEADER: Final = Struct(">II")


def encode_frame(frame: pb.RaftFrame) -> tuple[bytes, bytes]:
    """Return the header and the message. Raise MessageTooLarge. Takes 2 us, plus 0.1 us per KiB."""
    message = frame.SerializeToString()
    if len(message) > FRAME_BYTES_MAX:
        raise MessageTooLarge(f"frame: {len(message)} bytes; the limit is {FRAME_BYTES_MAX}")
    return _HEADER.pack(len(message), crc32c(message)), message


class RaftFrameReader:
    """Splits the bytes of one connection into frames. The connection reads into its buffer."""

    __slots__ = ("_buffer", "_bytes_max", "_end", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray(BUFFER_BYTES)
        self._start = 0  # of the received bytes that are not decoded yet
        self._end = 0
        self._bytes_max = FIRST_FRAME_BYTES_MAX

    @property
    def is_within_frame(self) -> bool:
        """Return True if an incomplete frame was received."""
        return self._start < self._end

    def buffer(self) -> memoryview:
        """Return the buffer for the next read; never empty."""
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> Iterator[pb.RaftFrame]:
        """Yield the complete frames after `count` bytes were read into the buffer.

        Exhaust the iterator before the next call. Raise CorruptionError or InvalidRequest, after
        which nothing more can be read.
        """
        self._end += count
        while self._end - self._start >= _HEADER.size:
            size, crc = _HEADER.unpack_from(self._buffer, self._start)
            if size > self._bytes_max:
                raise InvalidRequest(
                    f"frame: {size} bytes; the limit here is {self._bytes_max}; check that the"
                    " peer is a controller of this cluster"
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
        """Make the buffer large enough for the frame at the start."""
        if self._start + size <= len(self._buffer):
            return
        rest = self._buffer[self._start : self._end]
        if size > len(self._buffer) or len(self._buffer) > BUFFER_BYTES:
            self._buffer = bytearray(max(size, BUFFER_BYTES))
        self._start, self._end = 0, len(rest)
        self._buffer[: self._end] = rest


def _decode(message: memoryview, crc: int) -> pb.RaftFrame:
    if crc32c(message) != crc:
        raise CorruptionError(f"frame of {len(message)} bytes: CRC-32C mismatch")
    try:
        return pb.RaftFrame.FromString(message)  # type: ignore[arg-type]  # takes any buffer
    except DecodeError as error:
        raise InvalidRequest(f"frame of {len(message)} bytes: not a RaftFrame; {error}") from None
