"""Frames between a follower and its leader on a byte connection. Pure.

Big-endian: 4 bytes length of the message, 4 bytes length of the records after it, 4 bytes CRC-32C
of the message, 1 byte kind; then the message (`FollowRequest` in one direction, `FollowResponse` or
`Error` in the other); then the record batches of all its results, concatenated as stored; each
batch has its own checksum. Batches are not part of a message, so they are not copied.

gRPC is not used here: a message copies its `bytes`, and each message of a stream costs more CPU
than its processing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from ..errors import CorruptionError, InvalidRequest, MessageTooLarge, QuorumlogError
from ..proto import errors_pb2
from ..records.checksum import crc32c
from ..records.compression import Buffer
from ..runtime.error_detail import decode_error, encode_error

FRAME_BYTES_MAX: Final = (128 << 20) + (64 << 10)
"""An answer of the maximum size may end with one more batch of the maximum size."""

FIRST_FRAME_BYTES_MAX: Final = 1 << 20
"""The limit before the follower is identified: enough for a first request with the maximum number
of partitions."""

_HEADER: Final = Struct(">IIIB")

M = TypeVar("M", bound=Message)


class FrameKind(IntEnum):
    """The content of a frame."""

    MESSAGE = 0
    ERROR = 1  # the reason of the connection's end


@dataclass(slots=True)
class ReplicationFrame(Generic[M]):
    """A message and the records after it."""

    message: M
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


class ReplicationFrameFormat(Generic[M]):
    """The `FrameFormat` of one direction. M is the received message."""

    header_size = _HEADER.size
    bytes_max = FRAME_BYTES_MAX

    def __init__(self, incoming: type[M], *, is_unidentified: bool) -> None:
        """`is_unidentified`: the first frame identifies the peer, and has a lower size limit."""
        self._incoming = incoming
        self.first_bytes_max = FIRST_FRAME_BYTES_MAX if is_unidentified else FRAME_BYTES_MAX

    def body_size(self, buffer: bytearray, start: int) -> int:
        """Return the size of message and records after the header at `start`."""
        message_size, records_size, _, _ = _HEADER.unpack_from(buffer, start)
        size: int = message_size + records_size
        return size

    def decode(self, frame: memoryview, *, is_reused: bool) -> ReplicationFrame[M] | QuorumlogError:
        """Return the frame, or the error in it. The records are views of its memory, or a copy if
        the reader reuses that."""
        message_size, _, crc, kind = _HEADER.unpack_from(frame)
        end = _HEADER.size + message_size
        message, records = frame[_HEADER.size : end], frame[end:]
        if crc32c(message) != crc:
            raise CorruptionError(f"the CRC-32C of a message of {message_size} bytes is wrong")
        try:
            if kind == FrameKind.ERROR:
                return decode_error(errors_pb2.Error.FromString(message))  # type: ignore[arg-type]  # takes any buffer
            decoded = self._incoming.FromString(message)  # type: ignore[arg-type]
        except DecodeError as error:
            raise InvalidRequest(
                f"a message of {message_size} bytes cannot be parsed: {error}"
            ) from None
        return ReplicationFrame(decoded, memoryview(bytes(records)) if is_reused else records)

    def is_last(self, frame: ReplicationFrame[M]) -> bool:
        """Return False: a follower or leader aborts its stream."""
        return False

    def encode_error(self, error: QuorumlogError) -> list[Buffer]:
        """Return the last frame of a stream."""
        return encode_frame(encode_error(error), kind=FrameKind.ERROR)
