"""The stream ports of the other nodes.

A call to a node's address returns its stream port. The port is cached until a connection fails.
"""

from collections.abc import Callable

from ....errors import InvalidRequest, NotSent
from ....proto import raft_pb2 as pb
from ....runtime import Network
from ....services import RAFT_ENDPOINT
from ...core.voters import Voter
from .members import Member
from .streams import Ended, FrameStream, open_stream

PORT_MAX = 65_535


class Endpoints:
    """The stream ports by node address. Bounded."""

    def __init__(
        self, network: Network, *, member: Member, call_ms_max: int, entries_max: int
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
        room: Callable[[], None],
        ended: Ended,
    ) -> FrameStream:
        """Open a stream to the peer at the address. Raise Lost, or the error of another node
        there."""
        port = self._ports.get(address)
        if port is not None:
            try:
                return await open_stream(
                    self._network, _beside(address, port), take=take, room=room, ended=ended
                )
            except NotSent:  # restarted, with another port
                self.forget(address)
        port = await self._ask(peer, address)
        return await open_stream(
            self._network, _beside(address, port), take=take, room=room, ended=ended
        )

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


def _beside(address: str, port: int) -> str:
    """Return the address with another port."""
    return f"{address.rpartition(':')[0]}:{port}"
