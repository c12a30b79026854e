"""A stream of frames between a follower and its leader, over a byte connection: what both its
sides do alike.

There is no task in it: what arrives is handed on in the step that read it, and what is sent in one
turn of the loop leaves in one write. Whoever finds a fault says so in a last frame and hears
nothing more; the other side closes. A reset at once would overtake that frame.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from google.protobuf.message import Message

from ....errors import QuorumlogError, StreamBroken
from ....runtime import Buffer, ByteConnection
from ....runtime.error_detail import decode_error, encode_error
from ...follow_frames import FrameKind, FrameReader, encode_frame

M = TypeVar("M", bound=Message)


class FollowStream(Generic[M]):
    """One side of a stream; the protocol of its connection. M is what it receives."""

    __slots__ = ("_connection", "_ended", "_reader", "_take", "ending")

    def __init__(
        self,
        connection: ByteConnection,
        incoming: type[M],
        *,
        is_stranger: bool,
        take: Callable[[M, memoryview], None],
        ended: Callable[[QuorumlogError], None],
    ) -> None:
        """`take` gets each message with the records behind it, and may raise what is wrong with
        it; `ended` is told once, never inside of a call to this, why it is over."""
        self._connection = connection
        self._reader = FrameReader(incoming, is_stranger=is_stranger)
        self._take = take
        self._ended = ended
        self.ending: QuorumlogError | None = None  # why it is over, None: it is not

    @property
    def peer(self) -> str:
        """ "host:port" of the other side, for logs only."""
        return self._connection.peer

    @property
    def is_over(self) -> bool:
        """Whether nothing is heard and nothing is sent any more."""
        return self.ending is not None

    def send(self, message: Message, records: Sequence[Buffer] = ()) -> None:
        """Send a message with records behind it; never waits. Raises MessageTooLarge with the
        stream as good as before."""
        parts = encode_frame(message, records)
        if not self.is_over:
            self._connection.write(parts)

    def recycle(self, records: memoryview) -> None:
        """Nobody looks at these records any more: their memory takes the next ones."""
        self._reader.recycle(records)

    def refuse(self, error: QuorumlogError) -> None:
        """End the stream and tell the other side why, which closes it then."""
        if not self.is_over:
            self._connection.write(encode_frame(encode_error(error), kind=FrameKind.ERROR))
            self._tell(error)

    def close(self) -> None:
        """End the stream in order; a second call does nothing."""
        self._tell(StreamBroken("the stream was closed here"))
        self._connection.close()

    def abort(self, reason: str) -> None:
        """Break the stream at once; a second call does nothing."""
        self._tell(StreamBroken(reason))
        self._connection.abort()

    # --- the connection's protocol -------------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Where to read the next bytes into."""
        return self._reader.buffer()

    def received(self, count: int) -> None:
        """Hand on the frames that are complete."""
        if self.ending is not None:
            return  # until the other side has read why
        try:
            for frame in self._reader.received(count):
                if frame.error is not None:
                    self._tell(decode_error(frame.error))
                    self._connection.close()
                elif frame.message is not None:
                    self._take(frame.message, frame.records)
                if self.is_over:
                    return
        except QuorumlogError as error:
            self.refuse(error)

    def sent(self) -> None:
        """The connection has room again: requests and answers take turns, so nobody waits."""

    def closed(self, error: Exception | None) -> None:
        """The connection is over."""
        if error is not None:
            self._tell(StreamBroken(f"the connection with {self.peer} broke: {error}"))
        elif self._reader.is_within_frame:
            self._tell(StreamBroken(f"{self.peer} closed the connection within a frame"))
        else:
            self._tell(StreamBroken(f"{self.peer} closed the connection"))

    def _tell(self, error: QuorumlogError) -> None:
        if self.ending is None:
            self.ending = error
            asyncio.get_running_loop().call_soon(self._ended, error)
