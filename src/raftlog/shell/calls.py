"""This node's calls to others: vote requests and follow requests.

A vote request is retried until it is answered, times out or is replaced: a repeated request changes
nothing, and a reset connection must not fail a campaign. Each attempt uses a new connection, so
that a silently broken one blocks none.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from google.protobuf.message import Message as Encoded

from ...errors import (
    ConnectionFailed,
    OutcomeUnknown,
    QuorumlogError,
)
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
        """Retry the call until the timeout. Raise the peer's error, TimedOut or OutcomeUnknown."""
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
