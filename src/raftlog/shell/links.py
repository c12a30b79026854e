"""A link: this node's stream of one kind to one peer, made anew whenever it breaks.

There are two kinds: entries with heartbeats, and snapshots, on connections of their own, so that no
heartbeat queues behind the bytes of a snapshot anywhere. A link lives while there is something to
send. Its connection is fresh at each attempt: a cut one without a reset looks alive for ever, so
what is asked and stays unanswered for too long breaks the link here.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ...errors import InvalidRequest, Lost, MessageTooLarge, QuorumlogError
from ...ids import ClusterId
from ...proto import raft_pb2 as pb
from ...runtime import Entropy, Method, Runtime, Scope, Stream
from ...services import RAFT_APPEND, RAFT_SNAPSHOT
from ..core.messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    EndEpoch,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
)
from ..core.voters import Voter
from ..formats.wire import Introduction, decode_message, encode_introduction
from .outbox import Outbox, OutboxLimits

_LOG = logging.getLogger("quorumlog.raftlog")

FrameStream = Stream[pb.RaftFrame, pb.RaftFrame]

NEWS_S: Final = 0.001
"""How long the news of a commit waits for entries to go with."""

FROM_LEADER: Final = frozenset((AppendRequest, Heartbeat, SnapshotChunk, TimeoutNow, EndEpoch))
"""What travels towards the peer that a stream was opened to."""

FROM_PEER: Final = frozenset((AppendResponse, HeartbeatResponse, AppendRejected, SnapshotResponse))
"""What comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConfig:
    """Bounds and times; raises InvalidRequest when it contradicts itself. In milliseconds."""

    queue: OutboxLimits = field(default_factory=OutboxLimits)  # of one stream, either way
    backoff_ms_min: int = 50  # between two attempts to connect, drawn
    backoff_ms_max: int = 500
    connect_ms_max: int = 1_000  # one attempt
    # Asked and not answered for so long: the link is broken. It is also what one request of entries
    # may take on a slow network.
    silence_ms_max: int = 2_000
    # A link without messages ends, and a served stream without them. Also what a peer may take to
    # write a piece of a snapshot.
    idle_ms_max: int = 10_000
    call_ms_max: int = 1_000  # a vote, or a question who leads
    calls_max: int = 1_000  # of others, waiting for an answer here
    peers_max: int = 2_000  # links, served streams of a kind, known addresses

    def __post_init__(self) -> None:
        if not 0 < self.backoff_ms_min <= self.backoff_ms_max:
            raise InvalidRequest(
                f"back-off must be 0 < min <= max, not {self.backoff_ms_min} and"
                f" {self.backoff_ms_max} ms"
            )
        for name in ("connect_ms_max", "silence_ms_max", "call_ms_max", "calls_max", "peers_max"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1")
        if self.idle_ms_max < 2 * self.silence_ms_max:
            raise InvalidRequest(
                f"idle_ms_max {self.idle_ms_max} must be at least twice silence_ms_max"
                f" {self.silence_ms_max}"
            )


class LinkKind(StrEnum):
    """What a stream carries."""

    APPEND = "append"
    SNAPSHOT = "snapshot"

    @property
    def method(self) -> Method[pb.RaftFrame, pb.RaftFrame]:
        """The remote call."""
        return RAFT_APPEND if self is LinkKind.APPEND else RAFT_SNAPSHOT


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatistics:
    """One link, now."""

    peer: Voter
    kind: LinkKind
    address: str  # "" when unknown
    is_up: bool  # the peer has answered on it
    queued: int  # messages
    queued_bytes: int
    breaks: int  # streams and attempts to connect that failed
    dropped: int  # messages
    last_error: str  # since the peer last answered; "" when there was none


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """This node among the others, as every link and call introduces it."""

    cluster_id: ClusterId
    me: Voter
    incarnation: bytes  # 8 bytes, drawn at its start
    next_stream_number: Callable[[], int]  # counts up over all of its streams

    def introduction(self, receiver: Voter | None, *, stream_number: int = 0) -> pb.Introduction:
        """What comes first on a stream or in a call."""
        mine = Introduction(
            sender=self.me, incarnation=self.incarnation, stream_number=stream_number
        )
        return encode_introduction(mine, cluster_id=self.cluster_id, receiver=receiver)


class Link:
    """One stream to one peer. `run` must run; `put` never waits."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        kind: LinkKind,
        member: Member,
        peer: Voter,
        address: str,
        config: TransportConfig,
        receive: Callable[[Message], None],
        unreachable: Callable[[Voter], None],
    ) -> None:
        self.kind = kind
        self.peer = peer
        self.address = address
        self.is_up = False  # the peer has answered on the present stream
        self.breaks = 0  # streams and attempts that failed
        self.last_error = ""
        self.dropped = 0  # messages
        self.outbox = Outbox(config.queue)
        self._runtime = runtime
        self._entropy: Entropy = runtime.entropy.stream(f"raft.link.{kind}.{peer.node_id}")
        self._member = member
        self._config = config
        self._receive = receive
        self._unreachable = unreachable
        self._wake = asyncio.Event()
        self.is_finishing = False  # what is queued still goes out, nothing more is taken
        self._stream: FrameStream | None = None
        self._attempts = 0  # since the peer last answered
        self._asked_ms: int | None = None  # when the oldest unanswered question was sent
        self._used_ms = runtime.clock.now_ms()
        self._complaint: type[QuorumlogError] | None = None  # logged since the peer last answered
        self._overflowed = False

    # --- what the transport calls --------------------------------------------------------------

    def put(self, message: Message) -> None:
        """Queue a message; a full queue drops it, and the peer counts as unreachable."""
        if self.is_finishing:
            self.dropped += 1
            return
        if not self.outbox.put(message):
            self.dropped += 1
            self._overflowed = True
        self._wake.set()

    def move(self, address: str) -> None:
        """The peer is reached elsewhere now."""
        if address != self.address:
            self.address = address
            self.break_off(f"node {self.peer.node_id} has moved to {address}")
            self._attempts = 0
            self._wake.set()

    def finish(self) -> None:
        """Send what is queued, end the stream cleanly, and end run()."""
        self.is_finishing = True
        self._wake.set()

    def break_off(self, reason: str) -> None:
        """Break the present stream; run() makes another."""
        if self._stream is not None:
            self._stream.abort(reason)

    def look(self, now_ms: int) -> None:
        """Break a silent stream, end an idle one; called now and then."""
        config = self._config
        if self._overflowed and self.is_up:
            self._overflowed = False
            self._unreachable(self.peer)
        if len(self.outbox) or self._asked_ms is not None:
            self._used_ms = now_ms
        is_append = self.kind is LinkKind.APPEND
        silence_ms = config.silence_ms_max if is_append else config.idle_ms_max
        if self._asked_ms is not None and now_ms - self._asked_ms > silence_ms:
            self._asked_ms = None
            self.break_off(f"node {self.peer.node_id} at {self.address} is silent")
        elif now_ms - self._used_ms > config.idle_ms_max:
            if self.is_finishing:
                self.break_off(f"node {self.peer.node_id} does not end the stream")
            self._used_ms = now_ms
            self.finish()

    def forgive(self, now_ms: int) -> None:
        """This node stood still itself: what looks like silence may be its own."""
        if self._asked_ms is not None:
            self._asked_ms = now_ms

    def statistics(self) -> LinkStatistics:
        """How it does."""
        return LinkStatistics(
            peer=self.peer,
            kind=self.kind,
            address=self.address,
            is_up=self.is_up,
            queued=len(self.outbox),
            queued_bytes=self.outbox.size,
            breaks=self.breaks,
            dropped=self.dropped,
            last_error=self.last_error,
        )

    # --- the task ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a stream while there is something to send; ends after finish()."""
        while await self._has_work():
            try:
                await self._talk()
            except QuorumlogError as error:
                self._complain(error)
            if self.is_finishing:
                return
            self.breaks += 1
            self._attempts += 1
            self.dropped += self.outbox.clear()
            self._overflowed = False
            self._unreachable(self.peer)
            await self._pause()

    async def _has_work(self) -> bool:
        while not len(self.outbox) and not self.is_finishing:
            self._wake.clear()
            await self._wake.wait()
        return len(self.outbox) > 0

    async def _pause(self) -> None:
        """Wait before the next attempt: jitter, so that peers do not come all at once."""
        config = self._config
        longest = min(config.backoff_ms_min << min(self._attempts, 16), config.backoff_ms_max)
        await asyncio.sleep(self._entropy.uniform(config.backoff_ms_min, longest) / 1000)

    async def _talk(self) -> None:
        """One stream from its start to its end; raises why it broke."""
        if not self.address:
            raise Lost(f"the address of node {self.peer.node_id} is unknown")
        channel = self._runtime.network.channel(self.address)
        try:
            stream = await self._connect(channel.stream(self.kind.method, timeout_ms=0))
            self._stream = stream
            try:
                async with self._runtime.tasks.scope("raft.link") as scope:
                    scope.spawn(self._read(stream, scope), name=f"{self.peer.node_id}.read")
                    await self._write(stream)
            finally:
                self._stream, self.is_up, self._asked_ms = None, False, None
                stream.abort("the link ends")
        finally:
            await channel.close()

    async def _connect(self, opening: Any) -> FrameStream:
        try:
            async with asyncio.timeout(self._config.connect_ms_max / 1000):
                stream: FrameStream = await opening
        except TimeoutError:
            raise Lost(f"{self.address} does not answer") from None
        return stream

    async def _write(self, stream: FrameStream) -> None:
        frame = self._first_frame()
        outbox, wake = self.outbox, self._wake
        while True:
            while not len(outbox):
                if self.is_finishing:
                    await stream.finish()
                    return
                wake.clear()
                await wake.wait()
            if outbox.is_news_alone and not self.is_finishing:
                await self._linger()
            if outbox.fill(frame) and self._asked_ms is None:
                self._asked_ms = self._runtime.clock.now_ms()
            try:
                await stream.send(frame)
                frame = pb.RaftFrame()
            except MessageTooLarge as error:
                self._complain(error)
                self.dropped += len(frame.messages)
                frame.ClearField("messages")

    async def _linger(self) -> None:
        """Give entries the time to come along: a leader that says so much more often than needed
        answers its clients later for it."""
        self._wake.clear()
        timer = asyncio.get_running_loop().call_later(NEWS_S, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _first_frame(self) -> pb.RaftFrame:
        frame = pb.RaftFrame()
        number = self._member.next_stream_number()
        frame.introduction.CopyFrom(self._member.introduction(self.peer, stream_number=number))
        return frame

    async def _read(self, stream: FrameStream, scope: Scope) -> None:
        me, peer, receive = self._member.me, self.peer, self._receive
        while (frame := await stream.receive()) is not None:
            self._asked_ms = None
            for encoded in frame.messages:
                message = decode_message(encoded, sender=peer, receiver=me)
                if type(message) not in FROM_PEER:
                    raise InvalidRequest(f"a {type(message).__name__} is no answer to a leader")
                receive(message)
            if not self.is_up:
                self.is_up = True
                self._attempts, self._complaint, self.last_error = 0, None, ""
        if not self.is_finishing:
            raise Lost(f"node {peer.node_id} at {self.address} ended the stream")
        scope.cancel()

    def _complain(self, error: QuorumlogError) -> None:
        """Log the first error of a kind since the peer last answered; the rest would be a storm."""
        self.last_error = f"{error.name}: {error}"
        if self._complaint is type(error):
            return
        self._complaint = type(error)
        _LOG.log(
            logging.INFO if error.retriable else logging.WARNING,
            "raft.link_broken kind=%s peer=%d address=%s error=%s: %s",
            self.kind,
            self.peer.node_id,
            self.address,
            error.name,
            error,
        )
