"""Frames between a follower and its leader, on a byte connection. Pure.

Big-endian: 4 bytes length of the message, 4 bytes length of the records behind it, 4 bytes CRC-32C
of the message, 1 byte kind; then the message (`FollowRequest` one way, `FollowResponse` or `Error`
the other); then the record batches of all its results, back to back as they are stored: each has
a checksum of its own. So batches pass through no message, and are not copied on their way.

Why not gRPC: a message copies its `bytes`, and each message of a stream costs more than what is
done with it here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from ..errors import CorruptionError, InvalidRequest, MessageTooLarge
from ..proto import errors_pb2
from ..records.checksum import crc32c
from ..records.compression import Buffer

FRAME_BYTES_MAX: Final = (128 << 20) + (64 << 10)
"""An answer of the largest size that is asked for may still end with one largest batch."""

FIRST_FRAME_BYTES_MAX: Final = 1 << 20
"""Nobody knows yet who speaks: a first request with as many partitions as one takes."""

SCRATCH_BYTES: Final = 64 << 10  # read at once; larger frames get a buffer of their own

SPARE_BYTES_MAX: Final = 16 << 20  # what one connection keeps for its next large frame

_HEADER: Final = Struct(">IIIB")

M = TypeVar("M", bound=Message)


class FrameKind(IntEnum):
    """What a frame carries."""

    MESSAGE = 0
    ERROR = 1  # why nothing more will come


@dataclass(slots=True)
class Frame(Generic[M]):
    """One of the two messages, and the records behind it."""

    message: M | None
    error: errors_pb2.Error | None
    records: memoryview


def encode_frame(
    message: Message, records: Sequence[Buffer] = (), *, kind: FrameKind = FrameKind.MESSAGE
) -> list[Buffer]:
    """Return the parts of a frame; raises MessageTooLarge."""
    head = message.SerializeToString()
    size = sum(len(part) for part in records)
    if len(head) + size > FRAME_BYTES_MAX:
        raise MessageTooLarge(
            f"a frame of {len(head) + size} bytes; the bound is {FRAME_BYTES_MAX}"
        )
    return [_HEADER.pack(len(head), size, crc32c(head), kind), head, *records]


class FrameReader(Generic[M]):
    """Cuts what arrives on one connection into frames; bytes are read into its buffers. Whoever
    has done with the records of a frame may give their memory back by `recycle`."""

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

    def __init__(self, incoming: type[M], *, is_stranger: bool) -> None:
        """`is_stranger`: the first frame says who speaks, and is bounded tightly."""
        self._incoming = incoming
        self._bytes_max = FIRST_FRAME_BYTES_MAX if is_stranger else FRAME_BYTES_MAX
        self._scratch = bytearray(SCRATCH_BYTES)
        self._start = 0  # of the bytes in it that were read and are not taken
        self._end = 0
        self._body: memoryview | None = None  # of a large frame, from its header on
        self._spare = bytearray()  # of a large frame that was used up: new memory costs its zeros
        self._body_end = 0  # of what was read of it

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return self._body is not None or self._start < self._end

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._body is not None:
            return self._body[self._body_end :]
        return memoryview(self._scratch)[self._end :]

    def received(self, count: int) -> Iterator[Frame[M]]:
        """Take in `count` bytes of the buffer and yield the frames that are complete; exhaust it
        before the next call. Raises CorruptionError, InvalidRequest: nothing more can be read."""
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
                self._make_room(size)
                return
            frame = self._frame(memoryview(self._scratch), self._start)
            frame.records = memoryview(bytes(frame.records))  # the scratch is used again
            self._start += size
            yield frame
        self._make_room(_HEADER.size)

    def recycle(self, records: memoryview) -> None:
        """Use the memory of a frame's records again: nobody looks at them any more."""
        if isinstance(records.obj, bytearray) and len(records.obj) <= SPARE_BYTES_MAX:
            self._spare = records.obj

    def _size_of(self, start: int) -> int:
        """Bytes of the frame that begins there, its header included."""
        head, records, _, _ = _HEADER.unpack_from(self._scratch, start)
        if head + records > self._bytes_max:
            raise InvalidRequest(
                f"a frame of {head + records} bytes, where {self._bytes_max} are the bound: is this"
                " a broker of the cluster?"
            )
        size: int = _HEADER.size + head + records
        return size

    def _make_room(self, size: int) -> None:
        """Have the frame that begins at the start fit behind it."""
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

    def _frame(self, view: memoryview, start: int) -> Frame[M]:
        head_size, records_size, crc, kind = _HEADER.unpack_from(view, start)
        head_start = start + _HEADER.size
        head = view[head_start : head_start + head_size]
        if crc32c(head) != crc:
            raise CorruptionError(f"the CRC-32C of a frame of {head_size} bytes is wrong")
        self._bytes_max = FRAME_BYTES_MAX
        records = view[head_start + head_size : head_start + head_size + records_size]
        try:
            if kind == FrameKind.ERROR:
                return Frame(None, errors_pb2.Error.FromString(head), records)  # type: ignore[arg-type]  # takes any buffer
            return Frame(self._incoming.FromString(head), None, records)  # type: ignore[arg-type]
        except DecodeError as error:
            raise InvalidRequest(f"a frame of {head_size} bytes does not parse: {error}") from None
