"""Members of a quorum without a core, on both networks: transports that record messages."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S, run_patiently

from quorumlog import simulation
from quorumlog.errors import QuorumlogError
from quorumlog.ids import ClusterId, DirectoryId, Epoch, NodeId, Offset
from quorumlog.proto import raft_pb2 as pb
from quorumlog.raftlog.codec import Introduction, encode_introduction
from quorumlog.raftlog.frames import RAFT_FRAMES
from quorumlog.raftlog.log_view import Entry, EntryKind, LogEnd
from quorumlog.raftlog.messages import (
    AppendRequest,
    AppendResponse,
    FollowRequest,
    FollowResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.shell.transport import Transport, TransportConfig
from quorumlog.raftlog.voters import Voter
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Listener, Runtime, Scope
from quorumlog.runtime.frame_stream import FrameReader, FrameStream, open_stream
from quorumlog.services import RAFT_ENDPOINT

M = TypeVar("M")
Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]

CLUSTER = ClusterId("the-cluster-of-a-test0")
PATIENT = TransportConfig(  # a busy machine breaks nothing
    connect_ms_max=AMPLE_MS,
    silence_ms_max=AMPLE_MS,
    idle_ms_max=2 * AMPLE_MS,
    call_ms_max=AMPLE_MS,
)
QUICK = TransportConfig(silence_ms_max=200, idle_ms_max=1_000, call_ms_max=500)


def voter(node_id: int, disk: int = 1) -> Voter:
    return Voter(NodeId(node_id), DirectoryId(bytes([disk]) * 16))


def batch(base_offset: int, epoch: int = 1, *, count: int = 1, size: int = 10) -> Entry:
    """Build a stored batch of `count` values of `size` bytes."""
    records = [
        Record(offset=0, timestamp_ms=0, key=None, value=b"v" * size, headers=())
        for _ in range(count)
    ]
    return Entry(
        kind=EntryKind.DATA,
        epoch=Epoch(epoch),
        base_offset=Offset(base_offset),
        count=count,
        payload=encode_batch(records, base_offset=base_offset, leader_epoch=epoch),
    )


@dataclass
class Member:
    """A transport with its listener. It responds like a core unless it is silent."""

    me: Voter
    received: list[Message] = field(default_factory=list)
    lost: list[Voter] = field(default_factory=list)
    is_silent: bool = False
    thinks_s: float = 0.0  # seconds that its loop blocks at each message
    transport: Transport = field(init=False)
    listener: Listener = field(init=False)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def address(self) -> str:
        return self.listener.address

    def receive(self, message: Message) -> None:
        if self.thinks_s:
            time.sleep(self.thinks_s)
        self.received.append(message)
        self.changed.set()
        if not self.is_silent:
            answer = self._answer(message)
            if answer is not None:
                self.transport.send(answer)

    def unreachable(self, peer: Voter) -> None:
        self.lost.append(peer)
        self.changed.set()

    def of(self, kind: type[M]) -> list[M]:
        return [message for message in self.received if isinstance(message, kind)]

    async def until(self, condition: Callable[[], bool], within_ms: int = AMPLE_MS) -> None:
        """Return when the condition is true. Arrivals and losses trigger a check."""
        async with asyncio.timeout(within_ms / 1000):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def insist(self, send: Callable[[], None], condition: Callable[[], bool]) -> None:
        """Send repeatedly until the condition is true.

        On a slow machine a link may be closed with the messages that wait for it.
        """
        async with asyncio.timeout(AMPLE_S):
            while not condition():
                send()
                with suppress(TimeoutError):
                    await self.until(condition, within_ms=1_000)

    def heartbeat(self, peer: "Member | Voter", round_: int, *, epoch: int = 1) -> None:
        self.transport.send(
            Heartbeat(
                sender=self.me,
                receiver=_voter_of(peer),
                epoch=Epoch(epoch),
                high_watermark=Offset(round_),
                round=round_,
            )
        )

    def append(self, peer: "Member | Voter", *entries: Entry, epoch: int = 1) -> None:
        start = entries[0].base_offset if entries else Offset(0)
        self.transport.send(
            AppendRequest(
                sender=self.me,
                receiver=_voter_of(peer),
                epoch=Epoch(epoch),
                prev=LogEnd(Epoch(epoch if start else 0), start),
                entries=entries,
                high_watermark=Offset(0),
            )
        )

    def ask_vote(self, peer: "Member | Voter", *, epoch: int = 1, pre_vote: bool = False) -> None:
        self.transport.send(
            VoteRequest(
                sender=self.me,
                receiver=_voter_of(peer),
                epoch=Epoch(epoch),
                log_end=LogEnd(Epoch(0), Offset(0)),
                pre_vote=pre_vote,
            )
        )

    def ask_follow(self, address: str, own_address: str = "") -> None:
        self.transport.send(
            FollowRequest(
                sender=self.me,
                receiver_address=address,
                epoch=Epoch(0),
                address=own_address or self.address,
            )
        )

    def _answer(self, message: Message) -> Message | None:
        match message:
            case Heartbeat() if message.round:
                return HeartbeatResponse(
                    sender=self.me,
                    receiver=message.sender,
                    epoch=message.epoch,
                    round=message.round,
                    match_end=None,
                    received_end=None,
                )
            case AppendRequest():
                return AppendResponse(
                    sender=self.me,
                    receiver=message.sender,
                    epoch=message.epoch,
                    match_end=message.end_offset,
                    received_end=message.end_offset,
                )
            case VoteRequest():
                return VoteResponse(
                    sender=self.me,
                    receiver=message.sender,
                    epoch=message.epoch,
                    granted=True,
                    pre_vote=message.pre_vote,
                )
            case FollowRequest():
                return FollowResponse(
                    sender=self.me,
                    receiver=message.sender,
                    epoch=Epoch(1),
                    leader=self.me,
                    leader_address=self.address,
                )
            case _:
                return None


def _voter_of(peer: Member | Voter) -> Voter:
    return peer.me if isinstance(peer, Member) else peer


async def join(
    runtime: Runtime,
    scope: Scope,
    me: Voter,
    *,
    config: TransportConfig = PATIENT,
    cluster_id: ClusterId = CLUSTER,
    address: str = "127.0.0.1:0",
) -> Member:
    """Start a member whose transport runs its tasks in the scope."""
    member = Member(me)
    member.transport = Transport(
        runtime,
        scope,
        cluster_id=cluster_id,
        me=me,
        receive=member.receive,
        unreachable=member.unreachable,
        config=config,
    )
    await member.transport.listen(f"{address.rpartition(':')[0]}:0")
    member.listener = await runtime.network.serve(address, member.transport.handlers())
    return member


async def leave(member: Member, *, grace_ms: int = 0) -> None:
    await member.transport.close(grace_ms=grace_ms)
    await member.listener.close(0)


class Caller:
    """A peer that sends any frames to a member."""

    def __init__(self) -> None:
        self.stream: FrameStream[pb.RaftFrame]
        self._frames: deque[pb.RaftFrame] = deque()
        self._end: list[QuorumlogError | None] = []
        self._changed = asyncio.Event()

    async def receive(self) -> pb.RaftFrame | None:
        """Return the next frame, or None at a clean end. Raise the error of any other end."""
        while not self._frames and not self._end:
            self._changed.clear()
            await self._changed.wait()
        if self._frames:
            return self._frames.popleft()
        if self._end[0] is not None:
            raise self._end[0]
        return None

    def take(self, frame: pb.RaftFrame) -> None:
        self._frames.append(frame)
        self._changed.set()

    def ended(self, error: QuorumlogError | None) -> None:
        self._end.append(error)
        self._changed.set()


async def endpoint(runtime: Runtime, member: Member, introduction: pb.Introduction) -> str:
    """Return the address where the member accepts streams, from an endpoint call."""
    channel = runtime.network.channel(member.address)
    call = pb.EndpointCall(introduction=introduction)
    answer = await channel.call(RAFT_ENDPOINT, call, timeout_ms=AMPLE_MS)
    await channel.close()
    return f"{member.address.rpartition(':')[0]}:{answer.port}"


def introduced(
    me: Member, *, sender: int = 9, number: int = 1, incarnation: bytes = b"8 bytes!"
) -> pb.Introduction:
    """Return the first message of a caller."""
    return encode_introduction(
        Introduction(sender=voter(sender), incarnation=incarnation, stream_number=number),
        cluster_id=CLUSTER,
        receiver=me.me,
    )


async def call_on(runtime: Runtime, member: Member) -> Caller:
    """Open a stream to a member without sending anything."""
    caller = Caller()
    caller.stream = await open_stream(
        runtime.network,
        await endpoint(runtime, member, introduced(member)),
        FrameReader(RAFT_FRAMES),
        take=caller.take,
        ended=caller.ended,
    )
    return caller


@asynccontextmanager
async def members(
    runtime: Runtime, count: int, *, config: TransportConfig = PATIENT
) -> AsyncIterator[list[Member]]:
    """Members with ids from 1 and each other's addresses. They are closed at the end."""
    async with runtime.tasks.scope("members") as scope:
        joined = [
            await join(runtime, scope, voter(number), config=config)
            for number in range(1, count + 1)
        ]
        for one in joined:
            for other in joined:
                one.transport.learn(other.me, other.address)
        try:
            yield joined
        finally:
            for one in joined:
                await leave(one)


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    """Return a function that runs a main on both networks in turn."""
    return run_patiently if request.param == "real" else simulation.run
