"""Frames of Raft messages on a byte connection: length, checksum, one `RaftFrame`. Pure.

All numbers are big-endian, as in record batches: 4 bytes message length, 4 bytes CRC-32C of the
message, the message. The limit of a connection's first frame is small because the sender is not
identified yet.
"""

from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from ..errors import CorruptionError, InvalidRequest, MessageTooLarge, QuorumlogError
from ..proto import raft_pb2 as pb
from ..records.checksum import crc32c
from ..runtime.error_detail import decode_error, encode_error

FRAME_BYTES_MAX: Final = (64 << 20) + (64 << 10)  # the largest batch and its envelope
FIRST_FRAME_BYTES_MAX: Final = 64 << 10
_HEADER: Final = Struct(">II")


def encode_frame(frame: pb.RaftFrame) -> tuple[bytes, bytes]:
    """Return the header and the message. Raise MessageTooLarge. Takes 2 us, plus 0.1 us per KiB."""
    message = frame.SerializeToString()
    if len(message) > FRAME_BYTES_MAX:
        raise MessageTooLarge(f"frame: {len(message)} bytes; the limit is {FRAME_BYTES_MAX}")
    return _HEADER.pack(len(message), crc32c(message)), message


class RaftFrameFormat:
    """The `FrameFormat` of Raft."""

    header_size = _HEADER.size
    first_bytes_max = FIRST_FRAME_BYTES_MAX
    bytes_max = FRAME_BYTES_MAX

    def body_size(self, buffer: bytearray, start: int) -> int:
        """Return the size of the message after the header at `start`."""
        size: int = _HEADER.unpack_from(buffer, start)[0]
        return size

    def decode(self, frame: memoryview, *, is_reused: bool) -> pb.RaftFrame | QuorumlogError:
        """Return the message, a copy, or the error in it."""
        message = frame[_HEADER.size :]
        if crc32c(message) != _HEADER.unpack_from(frame)[1]:
            raise CorruptionError(f"frame of {len(message)} bytes: CRC-32C mismatch")
        try:
            decoded = pb.RaftFrame.FromString(message)  # type: ignore[arg-type]  # takes any buffer
        except DecodeError as error:
            raise InvalidRequest(
                f"frame of {len(message)} bytes: not a RaftFrame; {error}"
            ) from None
        return decode_error(decoded.error) if decoded.HasField("error") else decoded

    def is_last(self, frame: pb.RaftFrame) -> bool:
        """Return True if the frame announces the end of the stream."""
        return frame.is_last

    def encode_error(self, error: QuorumlogError) -> tuple[bytes, bytes]:
        """Return the last frame of a stream."""
        return encode_frame(pb.RaftFrame(error=encode_error(error)))


RAFT_FRAMES: Final = RaftFrameFormat()
