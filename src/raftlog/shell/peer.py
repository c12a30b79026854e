"""Peer data: this node's identity, addresses of nodes, stream ports and logged errors."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...errors import ConnectionFailed, InvalidRequest, QuorumlogError
from ...ids import ClusterId
from ...proto import raft_pb2 as pb
from ...runtime import Network
from ...runtime.frame_stream import FrameReader, FrameStream, open_stream
from ...services import RAFT_ENDPOINT
from ..codec import Introduction, encode_introduction
from ..frames import RAFT_FRAMES
from ..voters import Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """The identity that this node sends to others."""

    cluster_id: ClusterId
    me: Voter
    incarnation: bytes  # 8 bytes, drawn at the node's start
    next_stream_number: Callable[[], int]  # increasing over all of its streams

    def introduction(
        self, receiver: Voter | None, *, stream_number: int = 0, is_snapshot: bool = False
    ) -> pb.Introduction:
        """Return the introduction, the first part of a stream or call."""
        mine = Introduction(
            sender=self.me,
            incarnation=self.incarnation,
            stream_number=stream_number,
            is_snapshot=is_snapshot,
        )
        return encode_introduction(mine, cluster_id=self.cluster_id, receiver=receiver)


_LOG = logging.getLogger("quorumlog.raftlog")

# (peer, error); beyond it the oldest is dropped and may be logged again
REMEMBERED_MAX: Final = 1_000


class PeerErrorLog:
    """The errors that were logged per peer."""

    def __init__(self) -> None:
        self._logged: dict[str, dict[str, None]] = {}  # names of errors by peer, oldest first

    def log(self, event: str, peer: str, error: QuorumlogError) -> None:
        """Log an error of a peer unless it was logged before."""
        names = self._logged.setdefault(peer, {})
        if error.name in names:
            return
        names[error.name] = None
        if len(self._logged) > REMEMBERED_MAX:
            del self._logged[next(iter(self._logged))]
        level = logging.INFO if error.retriable else logging.WARNING
        _LOG.log(level, "%s peer=%s error=%s: %s", event, peer, error.name, error)

    def reset(self, peer: str) -> None:
        """Reset a peer after a success: its next error is logged."""
        self._logged.pop(peer, None)


class AddressBook:
    """Addresses by node. O(1), except for an eviction."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._addresses: dict[Voter, str] = {}  # "host:port", oldest first
        self._voters: set[Voter] = set()  # the nodes that a voter set named

    def __len__(self) -> int:
        return len(self._addresses)

    def find(self, voter: Voter) -> str:
        """Return the address of a node, "" if unknown."""
        return self._addresses.get(voter, "")

    def learn(self, voter: Voter, address: str, *, is_voter: bool) -> bool:
        """Record an address. Return True if it is new. "" changes nothing."""
        if is_voter:
            self._voters.add(voter)
        if not address or self._addresses.get(voter) == address:
            return False
        self._addresses.pop(voter, None)
        self._addresses[voter] = address
        if len(self._addresses) > self._entries_max:
            self._evict()
        return True

    def _evict(self) -> None:
        """Evict the oldest node that no voter set named, or else the oldest one."""
        oldest = next((v for v in self._addresses if v not in self._voters), None)
        voter = next(iter(self._addresses)) if oldest is None else oldest
        del self._addresses[voter]
        self._voters.discard(voter)


PORT_MAX = 65_535


class StreamPorts:
    """The stream ports by node address. Bounded."""

    def __init__(
        self, network: Network, *, member: PeerIdentity, call_ms_max: int, entries_max: int
    ) -> None:
        self._network = network
        self._member = member
        self._call_ms_max = call_ms_max
        self._entries_max = entries_max
        self._ports: dict[str, int] = {}

    async def connect(
        self,
        peer: Voter,
        address: str,
        *,
        take: Callable[[pb.RaftFrame], None],
        writable: Callable[[], None],
        ended: Callable[[QuorumlogError | None], None],
    ) -> FrameStream[pb.RaftFrame]:
        """Open a stream to the peer at the address. Raise ConnectionFailed, OutcomeUnknown,
        TimedOut, or the error of another node there."""

        async def connect_to(port: int) -> FrameStream[pb.RaftFrame]:
            return await open_stream(
                self._network,
                f"{address.rpartition(':')[0]}:{port}",
                FrameReader(RAFT_FRAMES),
                take=take,
                writable=writable,
                ended=ended,
            )

        port = self._ports.get(address)
        if port is not None:
            try:
                return await connect_to(port)
            except ConnectionFailed:  # restarted, with another port
                self.forget(address)
        return await connect_to(await self._ask(peer, address))

    def forget(self, address: str) -> None:
        """Drop the port of an address that did not lead to the peer."""
        self._ports.pop(address, None)

    async def _ask(self, peer: Voter, address: str) -> int:
        call = pb.EndpointCall(introduction=self._member.introduction(peer))
        channel = self._network.channel(address)
        try:
            answer = await channel.call(RAFT_ENDPOINT, call, timeout_ms=self._call_ms_max)
        finally:
            await channel.close()
        if not 0 < answer.port <= PORT_MAX:
            raise InvalidRequest(f"{address}: stream port {answer.port} is not in 1 to {PORT_MAX}")
        if len(self._ports) >= self._entries_max:
            del self._ports[next(iter(self._ports))]
        self._ports[address] = answer.port
        return answer.port
