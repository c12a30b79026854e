"""Streams that other nodes opened here.

Only the newest stream per peer and kind is served; late frames of an earlier one are dropped with
it. The core also rejects messages of old epochs; this avoids passing them on.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from ...errors import Overloaded, QuorumlogError, StreamBroken, TimedOut
from ...proto import raft_pb2 as pb
from ...runtime import ByteConnection
from ...runtime.frame_stream import FrameReader, FrameStream
from ..codec import Introduction
from ..frames import RAFT_FRAMES, encode_frame
from ..messages import Message
from ..voters import Voter
from .link import LinkKind, TransportConfig
from .outbox import Outbox


class ServedStream:
    """A stream that another node opened here. Responses use the same stream."""

    def __init__(
        self,
        connection: ByteConnection,
        *,
        take: Callable[["ServedStream", pb.RaftFrame], None],
        ended: Callable[["ServedStream", QuorumlogError | None], None],
        config: TransportConfig,
        now_ms: int,
    ) -> None:
        """`take` gets the frames; `ended` is called once with the reason."""
        self.stream = FrameStream(
            connection,
            FrameReader(RAFT_FRAMES),
            take=partial(take, self),
            writable=self._write_out,
            ended=partial(ended, self),
        )
        self.introduction: Introduction | None = None  # set after validation
        self.peer_name = host_of(connection.peer)  # the identity that it claims; for logs
        self.is_settled = False  # its first frame was valid
        self.received_ms = now_ms
        self._outbox = Outbox(config.queue)

    @property
    def key(self) -> tuple[LinkKind, Voter]:
        """The kind and the sender of an introduced stream."""
        assert self.introduction is not None, f"stream of {self.peer_name} without an introduction"
        kind = LinkKind.SNAPSHOT if self.introduction.is_snapshot else LinkKind.APPEND
        return kind, self.introduction.sender

    def put(self, message: Message) -> bool:
        """Queue a response. Return False, and break the stream, if the peer reads too slowly."""
        if not self._outbox.put(message):
            self.stream.abort("responses are not read")
            return False
        self._write_out()
        return True

    def _write_out(self) -> None:
        """Send responses while the stream has space."""
        while len(self._outbox) and self.stream.is_writable:
            frame = pb.RaftFrame()
            self._outbox.fill(frame)
            self.stream.send(encode_frame(frame))


class ServedStreams:
    """The streams that others opened, before and after their introduction."""

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        self._unidentified: dict[ServedStream, None] = {}  # before the introduction
        self._streams: dict[tuple[LinkKind, Voter], ServedStream] = {}
        # The newest introduction of each, also after its end, to detect late older streams. Oldest
        # first.
        self._newest: dict[tuple[LinkKind, Voter], Introduction] = {}
        # (time, stream): the peer may still read the error
        self._refused: deque[tuple[int, FrameStream[pb.RaftFrame]]] = deque()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def is_empty(self) -> bool:
        """Return True if there are no streams to check."""
        return not (self._streams or self._unidentified or self._refused)

    def find(self, kind: LinkKind, peer: Voter) -> ServedStream | None:
        """Return the stream for a response: of this kind, or else of the other one."""
        stream = self._streams.get((kind, peer))
        if stream is not None:
            return stream
        other = LinkKind.SNAPSHOT if kind is LinkKind.APPEND else LinkKind.APPEND
        return self._streams.get((other, peer))

    def accept(self, served: ServedStream) -> None:
        """Add a new connection. Raise Overloaded if too many have no introduction."""
        if len(self._unidentified) >= self._config.peers_max:
            raise Overloaded(
                f"raft streams: {len(self._unidentified)} without an introduction; retry later"
            )
        self._unidentified[served] = None

    def introduce(self, served: ServedStream, introduction: Introduction) -> None:
        """Serve a stream instead of the earlier one.

        Raise StreamBroken if a later one came before, Overloaded if there are too many.
        """
        served.introduction = introduction
        key, newest = served.key, self._newest.get(served.key)
        if (
            newest is not None
            and newest.incarnation == introduction.incarnation
            and newest.stream_number >= introduction.stream_number
        ):
            raise StreamBroken("stream: a later stream of this node was opened before")
        before = self._streams.get(key)
        if before is None and len(self._streams) >= 2 * self._config.peers_max:
            raise Overloaded(f"raft streams: {len(self._streams)} are open; retry later")
        self._newest.pop(key, None)
        self._newest[key] = introduction
        if len(self._newest) > 2 * self._config.peers_max:
            del self._newest[next(iter(self._newest))]
        self._unidentified.pop(served, None)
        self._streams[key] = served
        if before is not None:
            before.stream.refuse(StreamBroken("stream: replaced by a later stream of this node"))

    def ended(self, served: ServedStream, now_ms: int) -> None:
        """Remove a stream that ended. The other side may read the error within the silence
        timeout."""
        self._unidentified.pop(served, None)
        if served.introduction is not None and self._streams.get(served.key) is served:
            del self._streams[served.key]
        self._refused.append((now_ms, served.stream))
        if len(self._refused) > self._config.peers_max:
            self._refused.popleft()[1].abort("too many streams are refused")

    def check(self, now_ms: int) -> None:
        """Break the silent streams."""
        config = self._config
        for served in list(self._unidentified):
            if now_ms - served.received_ms > config.silence_ms_max:
                served.stream.refuse(
                    TimedOut(f"stream: no introduction within {config.silence_ms_max} ms")
                )
        for served in list(self._streams.values()):
            if now_ms - served.received_ms > config.idle_ms_max:
                served.stream.abort(f"no message within {config.idle_ms_max} ms")
        while self._refused and now_ms - self._refused[0][0] > config.silence_ms_max:
            self._refused.popleft()[1].abort("the stream was refused")

    def restart_timeouts(self, now_ms: int) -> None:
        """Restart all timeouts after this node was suspended."""
        for served in (*self._streams.values(), *self._unidentified):
            served.received_ms = now_ms

    def close(self) -> None:
        """Break all streams."""
        for served in (*self._streams.values(), *self._unidentified):
            served.stream.abort("node: stopping")


def host_of(peer: str) -> str:
    """Return the host of a caller's "host:port". The port changes with every connection."""
    return peer.rpartition(":")[0]
