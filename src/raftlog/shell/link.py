"""A link: this node's stream of one kind to one peer, reconnected whenever it breaks.

Entries with heartbeats and snapshots have separate connections, so that no heartbeat queues behind
a snapshot's bytes. A link exists while there are messages to send. Each attempt opens a new
connection. A connection that is cut without a reset seems open, so the link breaks it when a
response takes too long.

The task connects and reconnects. Sending and receiving need no task: messages are written at once
while there is space, and received ones are handled in the step that read them.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias

from ...errors import InvalidRequest, MessageTooLarge, OutcomeUnknown, QuorumlogError, TimedOut
from ...proto import raft_pb2 as pb
from ...runtime import Entropy, Runtime
from ...runtime.frame_stream import FrameStream
from ...runtime.node_identity import check_sender
from ..codec import decode_message
from ..frames import encode_frame
from ..messages import (
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
from ..voters import Voter
from .outbox import Outbox, OutboxLimits
from .peer import PeerIdentity, StreamPorts

_LOG = logging.getLogger("quorumlog.raftlog")

_End: TypeAlias = "asyncio.Future[QuorumlogError | None]"

UPDATE_DELAY_S: Final = 0.001
"""The time that a high watermark update waits for entries to share a frame."""

FROM_LEADER: Final = frozenset((AppendRequest, Heartbeat, SnapshotChunk, TimeoutNow, EndEpoch))
"""Messages to the peer that a stream was opened to."""

FROM_PEER: Final = frozenset((AppendResponse, HeartbeatResponse, AppendRejected, SnapshotResponse))
"""Messages back from that peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConfig:
    """Limits and times in milliseconds. Raise InvalidRequest if they contradict each other."""

    queue: OutboxLimits = field(default_factory=OutboxLimits)  # of one stream, in each direction
    backoff_ms_min: int = 50  # between two connection attempts, random
    backoff_ms_max: int = 500
    connect_ms_max: int = 1_000  # of one attempt
    # A link breaks if a response takes longer. This also limits the time of one append request on a
    # slow network.
    silence_ms_max: int = 2_000
    # An idle link and an idle served stream end after this time. It also limits the time in which a
    # peer writes a snapshot chunk.
    idle_ms_max: int = 10_000
    call_ms_max: int = 1_000  # of a vote or follow request
    calls_max: int = 1_000  # calls of others that wait for a response
    peers_max: int = 2_000  # links, served streams per kind, known addresses

    def __post_init__(self) -> None:
        if not 0 < self.backoff_ms_min <= self.backoff_ms_max:
            raise InvalidRequest(
                f"backoff: {self.backoff_ms_min} to {self.backoff_ms_max} ms is not a range; set"
                " 0 < min <= max"
            )
        for name in ("connect_ms_max", "silence_ms_max", "call_ms_max", "calls_max", "peers_max"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name}: {getattr(self, name)} is too small; set at least 1")
        if self.idle_ms_max < 2 * self.silence_ms_max:
            raise InvalidRequest(
                f"idle_ms_max: {self.idle_ms_max} is too small; set at least twice silence_ms_max"
                f" {self.silence_ms_max}"
            )


class LinkKind(StrEnum):
    """The content of a stream."""

    APPEND = "append"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatistics:
    """The current state of one link."""

    peer: Voter
    kind: LinkKind
    address: str  # "" if unknown
    is_up: bool  # the peer responded on it
    queued: int  # messages
    queued_bytes: int
    breaks: int  # failed streams and connection attempts
    dropped: int  # messages
    last_error: str  # since the peer's last response; "" if none


class PeerLink:
    """One stream to one peer. `run` must be running; `put` never waits."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        kind: LinkKind,
        member: PeerIdentity,
        endpoints: StreamPorts,
        peer: Voter,
        address: str,
        config: TransportConfig,
        receive: Callable[[Message], None],
        unreachable: Callable[[Voter], None],
    ) -> None:
        self.kind = kind
        self.peer = peer
        self.address = address
        self.is_up = False  # the peer responded on the current stream
        self.breaks = 0  # failed streams and attempts
        self.last_error = ""
        self.dropped = 0  # messages
        self.outbox = Outbox(config.queue)
        self._clock = runtime.clock
        self._entropy: Entropy = runtime.entropy.stream(f"raft.link.{kind}.{peer.node_id}")
        self._member = member
        self._endpoints = endpoints
        self._config = config
        self._receive = receive
        self._unreachable = unreachable
        self._wake = asyncio.Event()  # there are messages to send and no stream
        self.is_finishing = False  # queued messages are sent, new ones are dropped
        self._has_finished = False  # the end was announced to the peer
        self._stream: FrameStream[pb.RaftFrame] | None = None
        self._update_timer: asyncio.TimerHandle | None = (
            None  # a high watermark update waits for entries
        )
        self._attempts = 0  # since the peer's last response
        self._request_ms: int | None = None  # send time of the oldest unanswered request
        self._used_ms = runtime.clock.now_ms()
        self._logged_error: type[QuorumlogError] | None = (
            None  # logged since the peer's last response
        )
        self._overflowed = False

    # --- what the transport calls --------------------------------------------------------------

    def put(self, message: Message) -> None:
        """Queue a message. If the queue is full it is dropped and the peer is unreachable."""
        if self.is_finishing:
            self.dropped += 1
            return
        if not self.outbox.put(message):
            self.dropped += 1
            self._overflowed = True
        self._write_soon()

    def move(self, address: str) -> None:
        """Reconnect to the peer's new address."""
        if address != self.address:
            self.address = address
            self.disconnect(f"node {self.peer.node_id}: moved to {address}")
            self._attempts = 0
            self._wake.set()

    def finish(self) -> None:
        """Send queued messages, end the stream cleanly, and end run()."""
        self.is_finishing = True
        self._wake.set()
        self._write_soon()

    def disconnect(self, reason: str) -> None:
        """Break the current stream. run() reconnects."""
        if self._stream is not None:
            self._stream.abort(reason)

    def check(self, now_ms: int) -> None:
        """Break a silent stream and end an idle one. Called periodically."""
        config = self._config
        if self._overflowed and self.is_up:
            self._overflowed = False
            self._unreachable(self.peer)
        if len(self.outbox) or self._request_ms is not None:
            self._used_ms = now_ms
        is_append = self.kind is LinkKind.APPEND
        silence_ms = config.silence_ms_max if is_append else config.idle_ms_max
        if self._request_ms is not None and now_ms - self._request_ms > silence_ms:
            self._request_ms = None
            self.disconnect(
                f"node {self.peer.node_id} at {self.address}: no response in {silence_ms} ms"
            )
        elif now_ms - self._used_ms > config.idle_ms_max:
            if self.is_finishing:
                self.disconnect(f"node {self.peer.node_id}: the stream was not ended")
            self._used_ms = now_ms
            self.finish()

    def restart_timeouts(self, now_ms: int) -> None:
        """Restart the timeout after this node was suspended, which may explain the silence."""
        if self._request_ms is not None:
            self._request_ms = now_ms

    def statistics(self) -> LinkStatistics:
        """Return the current state."""
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
        """Keep a stream while there are messages to send. Ends after finish()."""
        while await self._has_work():
            try:
                await self._run_stream()
            except QuorumlogError as error:
                self._log_error(error)
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
        """Wait before the next attempt, with jitter, so that nodes do not reconnect at once."""
        config = self._config
        longest = min(config.backoff_ms_min << min(self._attempts, 16), config.backoff_ms_max)
        await asyncio.sleep(self._entropy.uniform(config.backoff_ms_min, longest) / 1000)

    async def _run_stream(self) -> None:
        """Run one stream from its start to its end. Raise the reason of its end."""
        ended: _End = asyncio.get_running_loop().create_future()
        self._stream = stream = await self._connect(ended)
        try:
            first = self._member.introduction(
                self.peer,
                stream_number=self._member.next_stream_number(),
                is_snapshot=self.kind is LinkKind.SNAPSHOT,
            )
            stream.send(encode_frame(pb.RaftFrame(introduction=first)))
            self._write_out()
            error = await ended
            if error is not None:
                raise error
            if not self._has_finished:
                raise OutcomeUnknown(
                    f"node {self.peer.node_id} at {self.address}: the peer ended the stream"
                )
        finally:
            if not self.is_up:
                self._endpoints.forget(self.address)
            self._stream, self.is_up, self._request_ms = None, False, None
            self._has_finished = False
            stream.abort("the link ends")

    async def _connect(self, ended: _End) -> FrameStream[pb.RaftFrame]:
        if not self.address:
            raise OutcomeUnknown(f"node {self.peer.node_id}: address unknown")
        try:
            async with asyncio.timeout(self._config.connect_ms_max / 1000):
                return await self._endpoints.connect(
                    self.peer,
                    self.address,
                    take=self._take,
                    writable=self._write_out,
                    ended=partial(_resolve, ended),
                )
        except TimedOut:
            raise  # of the call that asks for the endpoint
        except TimeoutError:
            raise OutcomeUnknown(
                f"{self.address}: not connected within {self._config.connect_ms_max} ms"
            ) from None

    # --- what goes out -------------------------------------------------------------------------

    def _write_soon(self) -> None:
        """Send queued messages, in one write per turn of the event loop.

        A high watermark update alone waits shortly for entries to share a frame: sending it more
        often than needed delays the leader's responses to its clients.
        """
        if self._stream is None:
            self._wake.set()
        elif not self.outbox.has_update_only or self.is_finishing:
            self._write_out()
        elif self._update_timer is None:
            self._update_timer = asyncio.get_running_loop().call_later(
                UPDATE_DELAY_S, self._write_out
            )

    def _write_out(self) -> None:
        """Send queued messages while the stream has space."""
        if self._update_timer is not None:
            self._update_timer.cancel()
            self._update_timer = None
        stream, outbox = self._stream, self.outbox
        if stream is None:
            return
        while len(outbox) and stream.is_writable:
            frame = pb.RaftFrame()
            wants_answer = outbox.fill(frame)
            try:
                stream.send(encode_frame(frame))
            except MessageTooLarge as error:
                self._log_error(error)
                self.dropped += len(frame.messages)
                continue
            if wants_answer and self._request_ms is None:
                self._request_ms = self._clock.now_ms()
        if self.is_finishing and not len(outbox) and not self._has_finished:
            self._has_finished = True
            stream.send(encode_frame(pb.RaftFrame(is_last=True)))

    # --- what comes back -----------------------------------------------------------------------

    def _take(self, frame: pb.RaftFrame) -> None:
        """Handle the peer's responses. Raise an error about them."""
        me, peer = self._member.me, self.peer
        if not self.is_up:
            if self._stream is None:
                raise InvalidRequest("a response came before the introduction")
            check_sender(self._stream.client, peer.node_id)
        self._request_ms = None
        for encoded in frame.messages:
            message = decode_message(encoded, sender=peer, receiver=me)
            if type(message) not in FROM_PEER:
                raise InvalidRequest(f"{type(message).__name__}: not a response to a leader")
            self._receive(message)
        if not self.is_up:
            self.is_up = True
            self._attempts, self._logged_error, self.last_error = 0, None, ""

    def _log_error(self, error: QuorumlogError) -> None:
        """Log the first error of a kind since the peer's last response. More would flood the
        log."""
        self.last_error = f"{error.name}: {error}"
        if self._logged_error is type(error):
            return
        self._logged_error = type(error)
        _LOG.log(
            logging.INFO if error.retriable else logging.WARNING,
            "raft.link_broken kind=%s peer=%d address=%s error=%s: %s",
            self.kind,
            self.peer.node_id,
            self.address,
            error.name,
            error,
        )


def _resolve(ended: _End, error: QuorumlogError | None) -> None:
    if not ended.done():
        ended.set_result(error)
