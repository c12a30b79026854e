"""A stream of frames between two nodes over a byte connection; both sides use it.

It has no task. Received frames are handled in the step that read them, and frames sent in one turn
of the event loop leave in one write. The side that detects an error sends it in a last frame and
ignores further input; the other side closes. An immediate reset would overtake that frame.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from ...errors import QuorumlogError, StreamBroken
from ...proto import raft_pb2 as pb
from ...runtime import ByteConnection, Network
from ...runtime.error_detail import decode_error, encode_error
from ..framing import RaftFrameReader, encode_frame

WINDOW_BYTES: Final = 64 << 10
"""Limit on bytes queued for the kernel; one frame may exceed it."""

Ended: TypeAlias = Callable[[QuorumlogError | None], None]


class FrameStream:
    """One side of a stream; the protocol of its connection."""

    __slots__ = ("_connection", "_ended", "_has_ended", "_reader", "_room", "_take")

    def __init__(
        self,
        connection: ByteConnection,
        *,
        take: Callable[[pb.RaftFrame], None],
        room: Callable[[], None],
        ended: Ended,
    ) -> None:
        """`take` receives each frame and may raise an error about it. `room` is called when more
        can be sent.

        `ended` is called once, never inside a call to this object, with the reason; None if the
        other side closed the stream in order.
        """
        self._connection = connection
        self._take = take
        self._room = room
        self._ended = ended
        self._reader = RaftFrameReader()
        self._has_ended = False  # the end was reported

    @property
    def peer(self) -> str:
        """The other side's "host:port", for logs only."""
        return self._connection.peer

    @property
    def is_over(self) -> bool:
        """Return True if the stream has ended in both directions."""
        return self._has_ended

    @property
    def has_room(self) -> bool:
        """Return True if a frame would be sent soon."""
        return self._connection.unsent_bytes() < WINDOW_BYTES

    def send(self, frame: pb.RaftFrame) -> None:
        """Send a frame. Never waits. Raise MessageTooLarge, which leaves the stream usable."""
        encoded = encode_frame(frame)
        if not self._has_ended:
            self._connection.write(encoded)

    def finish(self) -> None:
        """Announce the last frame. The other side sends its remaining frames and closes."""
        self.send(pb.RaftFrame(is_last=True))

    def refuse(self, error: QuorumlogError) -> None:
        """End the stream and send the error to the other side. Call abort() later to close it."""
        if not self._has_ended:
            self.send(pb.RaftFrame(error=encode_error(error)))
            self._report_end(error)

    def abort(self, reason: str) -> None:
        """Break the stream at once. A second call has no effect."""
        self._report_end(StreamBroken(reason))
        self._connection.abort()

    # --- the connection's protocol -------------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""
        return self._reader.buffer()

    def received(self, count: int) -> None:
        """Handle the complete frames."""
        if self._has_ended:
            return  # the other side has not read the error yet
        try:
            for frame in self._reader.received(count):
                if frame.HasField("error"):
                    self._report_end(decode_error(frame.error))
                    self._connection.close()
                else:
                    self._take(frame)
                    if frame.is_last:
                        self._connection.close()
                if self.is_over:
                    return
        except QuorumlogError as error:
            self.refuse(error)

    def sent(self) -> None:
        """Send more, since the connection has space again."""
        if not self._has_ended:
            self._room()

    def closed(self, error: Exception | None) -> None:
        """Record the end of the connection."""
        if error is not None:
            self._report_end(StreamBroken(f"connection to {self.peer}: broken; {error}"))
        elif self._reader.is_within_frame:
            self._report_end(StreamBroken(f"connection to {self.peer}: closed inside a frame"))
        else:
            self._report_end(None)

    def _report_end(self, error: QuorumlogError | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            asyncio.get_running_loop().call_soon(self._ended, error)


async def open_stream(
    network: Network,
    address: str,
    *,
    take: Callable[[pb.RaftFrame], None],
    room: Callable[[], None],
    ended: Ended,
) -> FrameStream:
    """Connect to a node's stream port. Raise ConnectionFailed if it is refused, otherwise
    OutcomeUnknown."""
    made: list[FrameStream] = []

    def make(connection: ByteConnection) -> FrameStream:
        made.append(FrameStream(connection, take=take, room=room, ended=ended))
        return made[0]

    await network.connect_bytes(address, make)
    return made[0]
