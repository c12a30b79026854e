"""A stream of frames between a follower and its leader, over a byte connection.

There is no task: a frame is passed on by the call that received it, and messages sent in one
iteration of the loop are written together. After an error, one side sends a last frame with the
reason and ignores what it receives; the other side closes. An immediate reset could overtake that
frame.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from google.protobuf.message import Message

from ....errors import QuorumlogError, StreamBroken
from ....runtime import Buffer, ByteConnection
from ....runtime.error_detail import decode_error, encode_error
from ..frames import FrameKind, ReplicationFrameReader, encode_frame

M = TypeVar("M", bound=Message)


class ReplicationStream(Generic[M]):
    """One side of a stream, as the protocol of its connection. M is the received message."""

    __slots__ = ("_connection", "_ended", "_reader", "_take", "ending")

    def __init__(
        self,
        connection: ByteConnection,
        incoming: type[M],
        *,
        is_unidentified: bool,
        take: Callable[[M, memoryview], None],
        ended: Callable[[QuorumlogError], None],
    ) -> None:
        """`take` gets each message and the records after it, and may raise an error. `ended` is
        called once with the reason, never within a call to this object."""
        self._connection = connection
        self._reader = ReplicationFrameReader(incoming, is_unidentified=is_unidentified)
        self._take = take
        self._ended = ended
        self.ending: QuorumlogError | None = None  # None: open

    @property
    def peer(self) -> str:
        """The "host:port" of the other side, for logs only."""
        return self._connection.peer

    @property
    def is_over(self) -> bool:
        """True if the stream has ended."""
        return self.ending is not None

    def send(self, message: Message, records: Sequence[Buffer] = ()) -> None:
        """Send a message and the records after it; never blocks. Raises MessageTooLarge, after
        which the stream is still usable."""
        parts = encode_frame(message, records)
        if not self.is_over:
            self._connection.write(parts)

    def recycle(self, records: memoryview) -> None:
        """Reuse the memory of these records, which must not be accessed any more."""
        self._reader.recycle(records)

    def refuse(self, error: QuorumlogError) -> None:
        """End the stream and send the reason; the other side then closes."""
        if not self.is_over:
            self._connection.write(encode_frame(encode_error(error), kind=FrameKind.ERROR))
            self._end(error)

    def close(self) -> None:
        """Close the stream in order; no-op if it has ended."""
        self._end(StreamBroken("the stream was closed here"))
        self._connection.close()

    def abort(self, reason: str) -> None:
        """Abort the stream at once; no-op if it has ended."""
        self._end(StreamBroken(reason))
        self._connection.abort()

    # --- the connection's protocol -------------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""
        return self._reader.buffer()

    def received(self, count: int) -> None:
        """Pass on the complete frames."""
        if self.ending is not None:
            return  # the other side has yet to read the reason
        try:
            for frame in self._reader.received(count):
                if frame.error is not None:
                    self._end(decode_error(frame.error))
                    self._connection.close()
                elif frame.message is not None:
                    self._take(frame.message, frame.records)
                if self.is_over:
                    return
        except QuorumlogError as error:
            self.refuse(error)

    def sent(self) -> None:
        """Do nothing: requests and answers alternate, so no sender waits."""

    def closed(self, error: Exception | None) -> None:
        """Handle the end of the connection."""
        if error is not None:
            self._end(StreamBroken(f"the connection with {self.peer} failed: {error}"))
        elif self._reader.is_within_frame:
            self._end(StreamBroken(f"{self.peer} closed the connection within a frame"))
        else:
            self._end(StreamBroken(f"{self.peer} closed the connection"))

    def _end(self, error: QuorumlogError) -> None:
        if self.ending is None:
            self.ending = error
            asyncio.get_running_loop().call_soon(self._ended, error)
