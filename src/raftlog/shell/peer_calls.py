"""Vote requests and follow requests: this node's calls to others, and theirs to it.

This node retries a vote request until it is answered, times out or is replaced: a repeated request
changes nothing, and a reset connection must not fail a campaign. Each attempt uses a new
connection, so that a silently broken one blocks none.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message as Encoded

from ...errors import ConnectionFailed, OutcomeUnknown, Overloaded, QuorumlogError, TimedOut
from ...proto import raft_pb2 as pb
from ...runtime import Entropy, Method, Runtime
from ...services import RAFT_FOLLOW, RAFT_VOTE
from ..codec import (
    decode_follow_response,
    decode_vote_response,
    encode_follow_request,
    encode_vote_request,
)
from ..messages import FollowRequest, Message, VoteRequest
from ..voters import Voter
from .link import TransportConfig
from .peer import AddressBook, PeerErrorLog, PeerIdentity

A = TypeVar("A")
Q = TypeVar("Q", bound=Encoded)
R = TypeVar("R", bound=Encoded)

Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class PeerCalls:
    """The calls in progress: one vote request per peer, one follow request per address."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        member: PeerIdentity,
        config: TransportConfig,
        addresses: AddressBook,
        error_log: PeerErrorLog,
        spawn: Spawn,
        receive: Callable[[Message], None],
        learn: Callable[[Voter, str], None],
    ) -> None:
        self._runtime = runtime
        self._member = member
        self._config = config
        self._addresses = addresses
        self._error_log = error_log
        self._spawn = spawn
        self._receive = receive
        self._learn = learn
        self._entropy: Entropy = runtime.entropy.stream("raft.calls")
        self._votes: dict[Voter, tuple[VoteRequest, asyncio.Task[None]]] = {}
        self._follows: dict[str, asyncio.Task[None]] = {}  # by address

    def ask_vote(self, request: VoteRequest) -> None:
        """Request a vote. It replaces a different request to the same peer."""
        peer = request.receiver
        under_way = self._votes.get(peer)
        if under_way is not None:
            if under_way[0] == request:
                return
            under_way[1].cancel()
        task = self._spawn(self._vote(request), f"raft.vote.{peer.node_id}")
        self._votes[peer] = (request, task)

    def ask_follow(self, request: FollowRequest) -> bool:
        """Ask an address for the leader. Return False if that call is in progress or too many
        are."""
        address = request.receiver_address
        if address in self._follows or len(self._follows) >= self._config.calls_max:
            return False
        self._follows[address] = self._spawn(self._follow(request), f"raft.follow.{address}")
        return True

    # --- the tasks -----------------------------------------------------------------------------

    async def _vote(self, request: VoteRequest) -> None:
        peer, me = request.receiver, self._member.me
        call = pb.VoteCall(
            introduction=self._member.introduction(peer), request=encode_vote_request(request)
        )
        try:
            answer = await self._ask_until_answered(call, peer)
            response = decode_vote_response(answer, sender=peer, receiver=me)
        except QuorumlogError as error:
            self._error_log.log("raft.vote_failed", _peer_name(peer), error)
            return
        finally:
            if self._votes.get(peer, (None,))[0] is request:
                del self._votes[peer]
        self._error_log.reset(_peer_name(peer))
        self._receive(response)

    async def _ask_until_answered(self, call: pb.VoteCall, peer: Voter) -> pb.VoteResponse:
        """Retry the call until the timeout. Raise the peer's error, TimedOut, ConnectionFailed or
        OutcomeUnknown."""
        config, clock = self._config, self._runtime.clock
        deadline_ms = clock.now_ms() + config.call_ms_max
        while True:
            left_ms = deadline_ms - clock.now_ms()
            address = self._addresses.find(peer)  # looked up again: the peer may have moved
            try:
                return await self._call(RAFT_VOTE, address, call, timeout_ms=left_ms)
            except (OutcomeUnknown, ConnectionFailed):
                pause_ms = self._entropy.uniform(config.backoff_ms_min, 2 * config.backoff_ms_min)
                if clock.now_ms() + pause_ms >= deadline_ms:
                    raise
                await asyncio.sleep(pause_ms / 1000)

    async def _follow(self, request: FollowRequest) -> None:
        address = request.receiver_address
        call = pb.FollowQuorumCall(
            introduction=self._member.introduction(None), request=encode_follow_request(request)
        )
        try:
            answer = await self._call(
                RAFT_FOLLOW, address, call, timeout_ms=self._config.call_ms_max
            )
            response = decode_follow_response(answer, receiver=self._member.me)
        except QuorumlogError as error:
            self._error_log.log("raft.follow_failed", address, error)
            return
        finally:
            del self._follows[address]
        if response.leader is not None:
            self._learn(response.leader, response.leader_address)
        self._error_log.reset(address)
        self._receive(response)

    async def _call(self, method: Method[Q, R], address: str, call: Q, *, timeout_ms: int) -> R:
        if not address:
            raise OutcomeUnknown(f"{method.path}: the peer's address is unknown")
        channel = self._runtime.network.channel(address)
        try:
            return await channel.call(method, call, timeout_ms=timeout_ms)
        finally:
            await channel.close()


def _peer_name(peer: Voter) -> str:
    return f"{peer.node_id}/{peer.directory_id.hex()}"


@dataclass(slots=True, eq=False)
class _Waiting(Generic[A]):
    tag: object  # equal in request and response
    answer: "asyncio.Future[A]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class PendingCalls(Generic[A]):
    """Calls of peers that the core answers later or never."""

    def __init__(self, what: str, config: TransportConfig) -> None:
        self._what = what
        self._config = config
        self._waiting: dict[Voter, deque[_Waiting[A]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def ask(self, peer: Voter, ask: Callable[[], None], *, tag: object = None) -> A:
        """Pass a call to the core and return its response.

        Raise Overloaded if too many calls wait, TimedOut if there is no response.
        """
        if self._count >= self._config.calls_max:
            raise Overloaded(f"{self._what}: {self._count} are waiting; retry later")
        waiting: _Waiting[A] = _Waiting(tag)
        questions = self._waiting.setdefault(peer, deque())
        questions.append(waiting)
        self._count += 1
        try:
            ask()
            async with asyncio.timeout(self._config.call_ms_max / 1000):
                return await waiting.answer
        except TimeoutError:
            raise TimedOut(
                f"{self._what}: no response within {self._config.call_ms_max} ms"
            ) from None
        finally:
            questions.remove(waiting)
            self._count -= 1
            if not questions and self._waiting.get(peer) is questions:
                del self._waiting[peer]

    def answer(self, peer: Voter, answer: A, tag: object = None) -> bool:
        """Answer the oldest call of the peer. Return False if there is none."""
        for waiting in self._waiting.get(peer, ()):
            if waiting.tag == tag and not waiting.answer.done():
                waiting.answer.set_result(answer)
                return True
        return False
