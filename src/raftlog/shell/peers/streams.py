"""A stream of frames between two members, over a byte connection: what both its sides do alike.

There is no task in it: what arrives is handed on in the step that read it, and what is sent in one
turn of the loop leaves in one write. Whoever finds a fault says so in a last frame and hears
nothing more; the other side closes. A reset at once would overtake that frame.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from ....errors import QuorumlogError, StreamBroken
from ....proto import raft_pb2 as pb
from ....runtime import ByteConnection, Network
from ....runtime.error_detail import decode_error, encode_error
from ...formats.framing import FrameReader, encode_frame

WINDOW_BYTES: Final = 64 << 10
"""Bytes that may wait for the kernel before no more are given to it; one frame may pass it."""

Ended: TypeAlias = Callable[[QuorumlogError | None], None]


class FrameStream:
    """One side of a stream; the protocol of its connection."""

    __slots__ = ("_connection", "_ended", "_is_told", "_reader", "_room", "_take")

    def __init__(
        self,
        connection: ByteConnection,
        *,
        take: Callable[[pb.RaftFrame], None],
        room: Callable[[], None],
        ended: Ended,
    ) -> None:
        """`take` gets what arrives, and may raise what is wrong with it; `room` is told that more
        can be sent, `ended` once, never inside of a call to this, why it is over: None when the
        other side has closed it in order."""
        self._connection = connection
        self._take = take
        self._room = room
        self._ended = ended
        self._reader = FrameReader()
        self._is_told = False  # why it is over

    @property
    def peer(self) -> str:
        """ "host:port" of the other side, for logs only."""
        return self._connection.peer

    @property
    def is_over(self) -> bool:
        """Whether nothing is heard and nothing is sent any more."""
        return self._is_told

    @property
    def has_room(self) -> bool:
        """Whether a frame would leave soon."""
        return self._connection.unsent_bytes() < WINDOW_BYTES

    def send(self, frame: pb.RaftFrame) -> None:
        """Send a frame; never waits. Raises MessageTooLarge with the stream as good as before."""
        encoded = encode_frame(frame)
        if not self._is_told:
            self._connection.write(encoded)

    def finish(self) -> None:
        """Say that nothing more will be sent: the other side sends what is left and closes."""
        self.send(pb.RaftFrame(is_last=True))

    def refuse(self, error: QuorumlogError) -> None:
        """End the stream and tell the other side why; abort() what does not go then."""
        if not self._is_told:
            self.send(pb.RaftFrame(error=encode_error(error)))
            self._tell(error)

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
        if self._is_told:
            return  # until the other side has read why
        try:
            for frame in self._reader.received(count):
                if frame.HasField("error"):
                    self._tell(decode_error(frame.error))
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
        """The connection has room again."""
        if not self._is_told:
            self._room()

    def closed(self, error: Exception | None) -> None:
        """The connection is over."""
        if error is not None:
            self._tell(StreamBroken(f"the connection with {self.peer} broke: {error}"))
        elif self._reader.is_within_frame:
            self._tell(StreamBroken(f"{self.peer} closed the connection within a frame"))
        else:
            self._tell(None)

    def _tell(self, error: QuorumlogError | None) -> None:
        if not self._is_told:
            self._is_told = True
            asyncio.get_running_loop().call_soon(self._ended, error)


async def open_stream(
    network: Network,
    address: str,
    *,
    take: Callable[[pb.RaftFrame], None],
    room: Callable[[], None],
    ended: Ended,
) -> FrameStream:
    """Connect to where a member takes streams; raises NotSent when refused, Lost otherwise."""
    made: list[FrameStream] = []

    def make(connection: ByteConnection) -> FrameStream:
        made.append(FrameStream(connection, take=take, room=room, ended=ended))
        return made[0]

    await network.connect_bytes(address, make)
    return made[0]
