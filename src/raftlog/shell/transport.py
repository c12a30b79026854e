"""The transport: Raft messages between nodes over the runtime's network.

The leader opens a stream to each peer for entries and heartbeats, and one on another connection for
a snapshot; responses use the same stream. Streams are frames on byte connections to a port that a
call returns, because a message of a gRPC stream costs ten times as much. Vote requests and follow
requests are calls. An introduction comes first: another cluster, node or directory is refused with
a typed error, which both sides log once.

It makes no protocol decision. Only the order within one stream is guaranteed: queues are bounded
and drop, streams break, and the core is informed by `unreachable`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from ...errors import AddressInUse, InvalidRequest, QuorumlogError, Stopping, StreamBroken
from ...ids import ClusterId
from ...proto import raft_pb2 as pb
from ...runtime import (
    ByteConnection,
    CallContext,
    ClientIdentity,
    Handler,
    Listener,
    Runtime,
    Scope,
)
from ...runtime.frame_stream import FrameStream
from ...runtime.node_identity import CONTROLLER_ROLE, check_sender
from ...services import RAFT_ENDPOINT, RAFT_FOLLOW, RAFT_VOTE
from ..codec import (
    INCARNATION_SIZE,
    Introduction,
    decode_follow_request,
    decode_introduction,
    decode_message,
    decode_vote_request,
    encode_follow_response,
    encode_vote_response,
)
from ..messages import (
    FollowRequest,
    FollowResponse,
    Message,
    SnapshotChunk,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from ..voters import Voter
from .link import FROM_LEADER, FROM_PEER, LinkKind, PeerLink
from .link import LinkStatistics as LinkStatistics  # a part of what this module says
from .link import TransportConfig as TransportConfig
from .peer import AddressBook, PeerErrorLog, PeerIdentity, StreamPorts
from .peer_calls import PeerCalls, PendingCalls
from .served_streams import ServedStream, ServedStreams, host_of

CHECKS_PER_SILENCE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportStatistics:
    """The state of the connections between this node and the others."""

    links: tuple[LinkStatistics, ...]  # opened by this node, by peer and kind
    streams_served: int  # opened by others
    calls_waiting: int  # of others, for this node's response
    dropped: int  # messages without a connection or queue space


class Transport:
    """The transport of one node. Use it on the node's event loop only."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        *,
        cluster_id: ClusterId,
        me: Voter,
        receive: Callable[[Message], None],
        unreachable: Callable[[Voter], None],
        config: TransportConfig,
    ) -> None:
        """`receive` gets every received message, `unreachable` a peer whose messages may be lost.

        Neither is called inside send(). Tasks run in `scope` until close().
        """
        entropy = runtime.entropy.stream(f"raft.transport.{runtime.clock.now_ms()}")
        self._runtime = runtime
        self._scope = scope
        self._config = config
        self._receive = receive
        self._unreachable = unreachable
        self._member = PeerIdentity(
            cluster_id=cluster_id,
            me=me,
            incarnation=entropy.token(INCARNATION_SIZE),
            next_stream_number=count(1).__next__,
        )
        self._addresses = AddressBook(config.peers_max)
        self._endpoints = StreamPorts(
            runtime.network,
            member=self._member,
            call_ms_max=config.connect_ms_max,
            entries_max=config.peers_max,
        )
        self._error_log = PeerErrorLog()
        self._links: dict[tuple[Voter, LinkKind], PeerLink] = {}
        self._ending: dict[PeerLink, None] = {}  # other links of the same kind may exist already
        self._tasks: dict[asyncio.Task[None], None] = {}  # in start order
        self._calls = PeerCalls(
            runtime,
            member=self._member,
            config=config,
            addresses=self._addresses,
            error_log=self._error_log,
            spawn=self._spawn,
            receive=receive,
            learn=self._learn_member,
        )
        self._served = ServedStreams(config)
        self._votes: PendingCalls[VoteResponse] = PendingCalls("vote requests", config)
        self._follows: PendingCalls[FollowResponse] = PendingCalls("follow requests", config)
        self._listener: Listener | None = None  # of streams
        self._listening = asyncio.Event()
        self._dropped = 0
        self._wake = asyncio.Event()  # there are streams to check
        self._link_ended = asyncio.Event()
        self._closed = False
        self._spawn(self._check_streams(), "raft.transport.look")

    # --- sending -------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Queue a message. Never waits, never raises.

        Messages are ordered per peer and kind of stream. One without queue space or connection is
        dropped: the core is informed by `unreachable` or retries. A FollowRequest goes to its
        address.
        """
        kind = type(message)
        if self._closed:
            self._dropped += 1
        elif kind in FROM_LEADER:
            assert not isinstance(message, FollowRequest), "it goes to an address"
            stream_kind = LinkKind.SNAPSHOT if kind is SnapshotChunk else LinkKind.APPEND
            link = self._links.get((message.receiver, stream_kind))
            if link is None or link.is_finishing:
                link = self._open(message.receiver, stream_kind)
            if link is None:
                self._dropped += 1
            else:
                link.put(message)
        elif kind in FROM_PEER:
            self._answer(message)
        else:
            self._send_call(message)

    def learn(self, voter: Voter, address: str) -> None:
        """Record the address of a voter in a voter set; "" changes nothing.

        Addresses of followers, and of the leader in a FollowResponse, are recorded automatically.
        """
        self._learn(voter, address, is_voter=True)

    def _learn_member(self, voter: Voter, address: str) -> None:
        self._learn(voter, address, is_voter=False)

    def address_of(self, voter: Voter) -> str:
        """Return the address of a node, "" if unknown."""
        return self._addresses.find(voter)

    def _learn(self, voter: Voter, address: str, *, is_voter: bool) -> None:
        if voter == self._member.me:
            return
        if self._addresses.learn(voter, address, is_voter=is_voter):
            for kind in LinkKind:
                link = self._links.get((voter, kind))
                if link is not None:
                    link.move(address)

    def _open(self, peer: Voter, kind: LinkKind) -> PeerLink | None:
        """Return a new link in place of an ending one, or None if there are too many."""
        before = self._links.pop((peer, kind), None)
        if before is not None:
            self._ending[before] = None
        if len(self._links) >= 2 * self._config.peers_max:
            return None
        link = PeerLink(
            self._runtime,
            kind=kind,
            member=self._member,
            endpoints=self._endpoints,
            peer=peer,
            address=self._addresses.find(peer),
            config=self._config,
            receive=self._receive,
            unreachable=self._unreachable,
        )
        self._links[(peer, kind)] = link
        self._spawn(self._run_link(link), f"raft.link.{kind}.{peer.node_id}")
        self._wake.set()
        return link

    async def _run_link(self, link: PeerLink) -> None:
        try:
            await link.run()
        finally:
            self._dropped += link.dropped
            self._ending.pop(link, None)
            if self._links.get((link.peer, link.kind)) is link:
                del self._links[(link.peer, link.kind)]
            self._link_ended.set()

    def _answer(self, message: Message) -> None:
        assert not isinstance(message, FollowRequest), "it goes to an address"
        kind = LinkKind.SNAPSHOT if isinstance(message, SnapshotResponse) else LinkKind.APPEND
        served = self._served.find(kind, message.receiver)
        if served is None or not served.put(message):
            self._dropped += 1

    def _send_call(self, message: Message) -> None:
        match message:
            case VoteRequest():
                self._calls.ask_vote(message)
            case FollowRequest():
                self._count(self._calls.ask_follow(message))
            case VoteResponse():
                self._count(self._votes.answer(message.receiver, message, tag=message.pre_vote))
            case FollowResponse():
                self._count(self._follows.answer(message.receiver, message))
            case _:
                raise AssertionError(
                    f"{type(message).__name__} is neither a stream message nor a call"
                )

    def _count(self, sent: bool) -> None:
        if not sent:
            self._dropped += 1

    # --- streams and calls of others ------------------------------------------------------------

    async def listen(self, address: str) -> None:
        """Listen for streams on "host:port"; port 0 selects a free one. Raise AddressInUse."""
        try:
            self._listener = await self._runtime.network.listen_bytes(address, self._accept)
        except OSError as error:
            raise AddressInUse(f"{address}: cannot listen; {error.strerror or error}") from error
        self._listening.set()

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of the internal Raft service, for Network.serve."""
        handlers = (
            Handler(RAFT_ENDPOINT, self._serve_endpoint),
            Handler(RAFT_VOTE, self._serve_vote),
            Handler(RAFT_FOLLOW, self._serve_follow),
        )
        return {handler.method.path: handler for handler in handlers}

    async def _serve_endpoint(
        self, call: pb.EndpointCall, context: CallContext
    ) -> pb.EndpointResponse:
        self._called_by(call.introduction, context)
        await self._listening.wait()
        assert self._listener is not None, "it listens"
        return pb.EndpointResponse(port=int(self._listener.address.rpartition(":")[2]))

    def _accept(self, connection: ByteConnection) -> FrameStream[pb.RaftFrame]:
        """Accept a connection."""
        served = ServedStream(
            connection,
            take=self._on_frame,
            ended=self._stream_ended,
            config=self._config,
            now_ms=self._runtime.clock.now_ms(),
        )
        try:
            self._served.accept(served)
        except QuorumlogError as error:
            served.stream.refuse(error)
        self._wake.set()
        return served.stream

    def _on_frame(self, served: ServedStream, frame: pb.RaftFrame) -> None:
        """Process a frame. Raise an error about it to its sender."""
        served.received_ms = self._runtime.clock.now_ms()
        if served.introduction is None:
            served.peer_name = _peer_name(served.stream.peer, frame.introduction)
            sender = self._introduced(frame.introduction, served.stream.client, CONTROLLER_ROLE)
            self._served.introduce(served, sender)
        peer, me, receive = served.key[1], self._member.me, self._receive
        for encoded in frame.messages:
            message = decode_message(encoded, sender=peer, receiver=me)
            if type(message) not in FROM_LEADER:
                raise InvalidRequest(f"{type(message).__name__}: not a message of a leader")
            receive(message)
        if not served.is_settled:
            served.is_settled = True
            self._error_log.reset(served.peer_name)

    def _stream_ended(self, served: ServedStream, error: QuorumlogError | None) -> None:
        self._served.ended(served, self._runtime.clock.now_ms())
        if error is not None and not isinstance(error, StreamBroken):
            self._error_log.log("raft.stream_refused", served.peer_name, error)

    async def _serve_vote(self, call: pb.VoteCall, context: CallContext) -> pb.VoteResponse:
        introduction = self._called_by(call.introduction, context, CONTROLLER_ROLE)
        request = decode_vote_request(
            call.request, sender=introduction.sender, receiver=self._member.me
        )
        response = await self._votes.ask(
            request.sender, lambda: self._receive(request), tag=request.pre_vote
        )
        return encode_vote_response(response)

    async def _serve_follow(
        self, call: pb.FollowQuorumCall, context: CallContext
    ) -> pb.FollowQuorumResponse:
        introduction = self._called_by(call.introduction, context)
        request = decode_follow_request(
            call.request, sender=introduction.sender, receiver_address=""
        )
        self._learn_member(request.sender, request.address)
        response = await self._follows.ask(request.sender, lambda: self._receive(request))
        return encode_follow_response(response)

    def _called_by(
        self, introduction: pb.Introduction, context: CallContext, role: str = ""
    ) -> Introduction:
        try:
            caller = self._introduced(introduction, context.sender, role)
        except QuorumlogError as error:
            self._error_log.log("raft.call_refused", _peer_name(context.peer, introduction), error)
            raise
        self._error_log.reset(_peer_name(context.peer, introduction))
        return caller

    def _introduced(
        self, introduction: pb.Introduction, client: ClientIdentity, role: str
    ) -> Introduction:
        if self._closed:
            raise Stopping("node: stopping; use another node")
        self._wake.set()
        member = self._member
        found = decode_introduction(introduction, cluster_id=member.cluster_id, me=member.me)
        check_sender(client, found.sender.node_id, role=role)
        return found

    # --- lifecycle -----------------------------------------------------------------------------

    async def close(self, *, grace_ms: int = 300) -> None:
        """Send queued messages to responsive peers within the grace, then break every stream.

        Return after the tasks have ended. A second call has no effect. The grace lets a resigning
        leader announce it.
        """
        if self._closed:
            return
        self._closed = True
        await self._drain(grace_ms)
        self._served.close()
        tasks = list(self._tasks)
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listener is not None:
            await self._listener.close(0)

    async def _drain(self, grace_ms: int) -> None:
        """Wait until the connected links have ended cleanly, at most for the grace."""
        waiting = [link for link in self._links.values() if link.is_up]
        for link in waiting:
            link.finish()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                while any(self._links.get((link.peer, link.kind)) is link for link in waiting):
                    self._link_ended.clear()
                    await self._link_ended.wait()
        except TimeoutError:
            return

    def statistics(self) -> TransportStatistics:
        """Return the current state of the connections."""
        links = sorted(self._links.items(), key=lambda item: (item[0][0], item[0][1].value))
        return TransportStatistics(
            links=tuple(link.statistics() for _, link in links),
            streams_served=len(self._served),
            calls_waiting=len(self._votes) + len(self._follows),
            dropped=self._dropped + sum(link.dropped for _, link in links),
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = self._scope.spawn(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def _check_streams(self) -> None:
        """Find silent and idle streams. Sleeps while there are no streams."""
        clock, config = self._runtime.clock, self._config
        pause_ms = max(1, config.silence_ms_max // CHECKS_PER_SILENCE)
        while True:
            while not (self._links or self._ending) and self._served.is_empty:
                self._wake.clear()
                await self._wake.wait()
            before_ms = clock.now_ms()
            await asyncio.sleep(pause_ms / 1000)
            now_ms = clock.now_ms()
            links = [*self._links.values(), *self._ending]
            if now_ms - before_ms > 2 * pause_ms:  # this node was suspended
                self._served.restart_timeouts(now_ms)
                for link in links:
                    link.restart_timeouts(now_ms)
            self._served.check(now_ms)
            for link in links:
                link.check(now_ms)


def _peer_name(peer: str, introduction: pb.Introduction) -> str:
    """Return the peer's host and the node id that it claims."""
    return f"{host_of(peer)}/{introduction.sender.node_id}"
