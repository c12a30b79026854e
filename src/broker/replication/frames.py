"""Frames between a follower and its leader on a byte connection. Pure.

Big-endian: 4 bytes length of the message, 4 bytes length of the records after it, 4 bytes CRC-32C
of the message, 1 byte kind; then the message (`FollowRequest` in one direction, `FollowResponse` or
`Error` in the other); then the record batches of all its results, concatenated as stored; each
batch has its own checksum. Batches are not part of a message, so they are not copied.

gRPC is not used here: a message copies its `bytes`, and each message of a stream costs more CPU
than its processing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from ...errors import CorruptionError, InvalidRequest, MessageTooLarge
from ...proto import errors_pb2
from ...records.checksum import crc32c
from ...records.compression import Buffer

FRAME_BYTES_MAX: Final = (128 << 20) + (64 << 10)
"""An answer of the maximum size may end with one more batch of the maximum size."""

FIRST_FRAME_BYTES_MAX: Final = 1 << 20
"""The limit before the follower is identified: enough for a first request with the maximum number
of partitions."""

SCRATCH_BYTES: Final = 64 << 10  # size of one read; larger frames get a buffer of their own

SPARE_BYTES_MAX: Final = 16 << 20  # of the memory kept for the next large frame

_HEADER: Final = Struct(">IIIB")

M = TypeVar("M", bound=Message)


class FrameKind(IntEnum):
    """The content of a frame."""

    MESSAGE = 0
    ERROR = 1  # the reason of the connection's end


@dataclass(slots=True)
class ReplicationFrame(Generic[M]):
    """A message or an error, and the records after it."""

    message: M | None
    error: errors_pb2.Error | None
    records: memoryview


def encode_frame(
    message: Message, records: Sequence[Buffer] = (), *, kind: FrameKind = FrameKind.MESSAGE
) -> list[Buffer]:
    """Return the parts of a frame; raise MessageTooLarge."""
    head = message.SerializeToString()
    size = sum(len(part) for part in records)
    if len(head) + size > FRAME_BYTES_MAX:
        raise MessageTooLarge(
            f"the frame has {len(head) + size} bytes, the limit is {FRAME_BYTES_MAX}"
        )
    return [_HEADER.pack(len(head), size, crc32c(head), kind), head, *records]


class ReplicationFrameReader(Generic[M]):
    """Splits the bytes of a connection into frames; bytes are received into its buffers.

    The user of a frame's records may return their memory with `recycle`.
    """

    __slots__ = (
        "_body",
        "_body_end",
        "_bytes_max",
        "_end",
        "_incoming",
        "_scratch",
        "_spare",
        "_start",
    )

    def __init__(self, incoming: type[M], *, is_unidentified: bool) -> None:
        """`is_unidentified`: the first frame identifies the peer, and has a lower size limit."""
        self._incoming = incoming
        self._bytes_max = FIRST_FRAME_BYTES_MAX if is_unidentified else FRAME_BYTES_MAX
        self._scratch = bytearray(SCRATCH_BYTES)
        self._start = 0  # of the bytes in it that were not consumed yet
        self._end = 0
        self._body: memoryview | None = None  # a large frame, from its header on
        self._spare = bytearray()  # of an earlier large frame; new memory must be zeroed
        self._body_end = 0  # of the bytes in `_body`

    @property
    def is_within_frame(self) -> bool:
        """True if a frame has been received in part."""
        return self._body is not None or self._start < self._end

    def buffer(self) -> memoryview:
        """Return the buffer for the next read; never empty."""
        if self._body is not None:
            return self._body[self._body_end :]
        return memoryview(self._scratch)[self._end :]

    def received(self, count: int) -> Iterator[ReplicationFrame[M]]:
        """Consume `count` bytes of the buffer and yield the complete frames; exhaust the iterator
        before the next call.

        Raises CorruptionError, InvalidRequest; the connection is then unusable.
        """
        if self._body is not None:
            self._body_end += count
            if self._body_end == len(self._body):
                body, self._body = self._body, None
                yield self._frame(body, 0)
            return
        self._end += count
        while self._end - self._start >= _HEADER.size:
            size = self._size_of(self._start)
            if self._end - self._start < size:
                self._ensure_space(size)
                return
            frame = self._frame(memoryview(self._scratch), self._start)
            frame.records = memoryview(bytes(frame.records))  # the scratch is reused
            self._start += size
            yield frame
        self._ensure_space(_HEADER.size)

    def recycle(self, records: memoryview) -> None:
        """Reuse the memory of a frame's records, which must not be accessed any more."""
        if isinstance(records.obj, bytearray) and len(records.obj) <= SPARE_BYTES_MAX:
            self._spare = records.obj

    def _size_of(self, start: int) -> int:
        """Return the size of the frame at `start`, including its header."""
        head, records, _, _ = _HEADER.unpack_from(self._scratch, start)
        if head + records > self._bytes_max:
            raise InvalidRequest(
                f"the frame has {head + records} bytes, the limit is {self._bytes_max}; check that"
                " the peer is a broker of this cluster"
            )
        size: int = _HEADER.size + head + records
        return size

    def _ensure_space(self, size: int) -> None:
        """Move the frame at `_start` so that it fits into its buffer."""
        rest = self._scratch[self._start : self._end]
        if size > SCRATCH_BYTES:
            spare, self._spare = self._spare, bytearray()
            memory = spare if len(spare) >= size else bytearray(size)
            self._body = memoryview(memory)[:size]
            self._body[: len(rest)] = rest
            self._body_end = len(rest)
            self._start = self._end = 0
        elif self._start + size > SCRATCH_BYTES or not rest:
            self._scratch[: len(rest)] = rest
            self._start, self._end = 0, len(rest)

    def _frame(self, view: memoryview, start: int) -> ReplicationFrame[M]:
        head_size, records_size, crc, kind = _HEADER.unpack_from(view, start)
        head_start = start + _HEADER.size
        head = view[head_start : head_start + head_size]
        if crc32c(head) != crc:
            raise CorruptionError(f"the CRC-32C of a message of {head_size} bytes is wrong")
        self._bytes_max = FRAME_BYTES_MAX
        records = view[head_start + head_size : head_start + head_size + records_size]
        try:
            if kind == FrameKind.ERROR:
                return ReplicationFrame(None, errors_pb2.Error.FromString(head), records)  # type: ignore[arg-type]  # takes any buffer
            return ReplicationFrame(self._incoming.FromString(head), None, records)  # type: ignore[arg-type]
        except DecodeError as error:
            raise InvalidRequest(
                f"a message of {head_size} bytes cannot be parsed: {error}"
            ) from None
