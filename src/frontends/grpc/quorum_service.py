"""The service `Quorum`: the leader, voters and observers, and changes of the voters.

Every controller serves it on each of its listeners. A controller that is not the leader forwards
the call once to the leader. The receiver answers itself or returns the leader's id. A description
without the leader contains only the local state.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from ...errors import (
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    NotController,
    QuorumlogError,
    VoterLagging,
    VoterNotFound,
)
from ...ids import NO_NODE, ClusterId, DirectoryId, NodeId
from ...proto import quorum_pb2 as pb
from ...raftlog.status import MemberStatus, QuorumStatus
from ...raftlog.voters import Voter
from ...runtime import CallContext, Channel, Handler, Method, Runtime
from ...services import (
    QUORUM_ADD_VOTER,
    QUORUM_DESCRIBE,
    QUORUM_REMOVE_VOTER,
    QUORUM_TRANSFER_LEADERSHIP,
)
from .validation import ANSWER_MS, left_ms

Change = TypeVar("Change", pb.AddVoterRequest, pb.RemoveVoterRequest, pb.TransferLeadershipRequest)
R = TypeVar("R", bound=Message)

LEADER_MS: Final = 1_000
"""The timeout of the leader for a description; afterwards this node describes its own state."""


class QuorumMember(Protocol):
    """The part of the local Raft node that the service uses. A change returns when it is committed,
    and raises the typed errors of the quorum."""

    def status(self) -> QuorumStatus: ...
    def address_of(self, member: Voter) -> str: ...
    async def add_voter(self, voter: Voter, address: str) -> None: ...
    async def remove_voter(self, voter: Voter) -> None: ...
    async def transfer(self, to: NodeId | None) -> None: ...


class QuorumService:
    """Handlers of `quorumlog.v1.Quorum`."""

    def __init__(
        self,
        runtime: Runtime,
        member: QuorumMember,
        *,
        cluster_id: ClusterId,
        is_controller: bool = True,
    ) -> None:
        """`is_controller`: the node may become a voter."""
        self._runtime = runtime
        self._is_controller = is_controller
        self._member = member
        self._cluster_id = cluster_id
        self._channels: dict[str, Channel] = {}  # to present and past leaders: as many as voters

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(QUORUM_DESCRIBE, self.describe),
            Handler(QUORUM_ADD_VOTER, self.add_voter),
            Handler(QUORUM_REMOVE_VOTER, self.remove_voter),
            Handler(QUORUM_TRANSFER_LEADERSHIP, self.transfer),
        )
        return {handler.method.path: handler for handler in table}

    async def describe(
        self, request: pb.DescribeQuorumRequest, context: CallContext
    ) -> pb.DescribeQuorumResponse:
        """Return the leader's description; if no leader answers, the local one."""
        status = self._member.status()
        if request.local or status.leader == status.me:
            return self._description(status)
        timeout_ms = min(LEADER_MS, self._left_ms(context) // 2)
        try:
            passed_on = pb.DescribeQuorumRequest(local=True)
            channel = self._leader_channel(status)
            return await channel.call(QUORUM_DESCRIBE, passed_on, timeout_ms=timeout_ms)
        except QuorumlogError as error:
            if not error.retriable:
                raise
            return self._description(self._member.status())

    async def add_voter(
        self, request: pb.AddVoterRequest, context: CallContext
    ) -> pb.AddVoterResponse:
        """Add a node that replicates the log to the voters."""
        _check(request.id, request.directory_id)

        async def here(status: QuorumStatus) -> pb.AddVoterResponse:
            voter, address = self._new_voter(status, request)
            await self._check_has_controller_role(voter, address)
            await self._member.add_voter(voter, address)
            return pb.AddVoterResponse(directory_id=voter.directory_id, address=address)

        return await self._at_leader(QUORUM_ADD_VOTER, request, context, here)

    async def remove_voter(
        self, request: pb.RemoveVoterRequest, context: CallContext
    ) -> pb.RemoveVoterResponse:
        """Remove a voter."""
        _check(request.id, request.directory_id)

        async def here(status: QuorumStatus) -> pb.RemoveVoterResponse:
            voter = _voter_named(status, request)
            await self._member.remove_voter(voter)
            return pb.RemoveVoterResponse(directory_id=voter.directory_id)

        return await self._at_leader(QUORUM_REMOVE_VOTER, request, context, here)

    async def transfer(
        self, request: pb.TransferLeadershipRequest, context: CallContext
    ) -> pb.TransferLeadershipResponse:
        """Transfer the leadership to another voter."""

        async def here(status: QuorumStatus) -> pb.TransferLeadershipResponse:
            await self._member.transfer(NodeId(request.id) if request.HasField("id") else None)
            return pb.TransferLeadershipResponse(
                leader_id=status.me.node_id, leader_epoch=status.epoch
            )

        return await self._at_leader(QUORUM_TRANSFER_LEADERSHIP, request, context, here)

    async def _at_leader(
        self,
        method: Method[Change, R],
        request: Change,
        context: CallContext,
        here: Callable[[QuorumStatus], Awaitable[R]],
    ) -> R:
        """Handle a request here if this node is the leader, otherwise forward it."""
        if request.cluster_id not in ("", self._cluster_id):
            raise InconsistentClusterId(
                f"cluster id: this node belongs to {self._cluster_id!r}, the request is for"
                f" {request.cluster_id!r}; check the address"
            )
        status = self._member.status()
        if status.leader == status.me:
            return await here(status)
        if request.passed_on:
            raise NotController(
                f"node {status.me.node_id}: not the leader of the quorum; ask the leader",
                leader_id=_leader_id(status),
            )
        request.passed_on = True
        request.cluster_id = self._cluster_id
        timeout_ms = max(1, self._left_ms(context) - ANSWER_MS)
        return await self._leader_channel(status).call(method, request, timeout_ms=timeout_ms)

    def _new_voter(self, status: QuorumStatus, request: pb.AddVoterRequest) -> tuple[Voter, str]:
        """Return the voter to add and its address, from the request or from this node's state."""
        node_id = NodeId(request.id)
        if request.directory_id:
            voter = Voter(node_id, DirectoryId(request.directory_id))
        else:
            following = [each for each in status.observers if each.member.node_id == node_id]
            if not following:
                _check_not_voter(status, node_id)
                raise VoterLagging(
                    f"node {node_id}: it does not replicate the log; start it with"
                    " controller.bootstrap naming members of the quorum, then retry"
                )
            voter = min(following, key=_silence).member
        address = request.address or self._member.address_of(voter)
        if not address:
            raise VoterLagging(
                f"node {node_id}: its address is unknown; start it, or give its address"
            )
        return voter, address

    async def _check_has_controller_role(self, voter: Voter, address: str) -> None:
        """Raise InvalidRequest if the node reports that it has no controller role. A node that does
        not answer passes."""
        channel = self._runtime.network.channel(address)
        request = pb.DescribeQuorumRequest(local=True)
        try:
            answer = await channel.call(QUORUM_DESCRIBE, request, timeout_ms=LEADER_MS)
        except QuorumlogError:
            return
        finally:
            await channel.close()
        if answer.answered_by == voter.node_id and answer.is_broker_alone:
            raise InvalidRequest(
                f"node {voter.node_id}: without the role controller it cannot vote; add the role"
                " (node.roles), restart the node and retry"
            )

    def _description(self, status: QuorumStatus) -> pb.DescribeQuorumResponse:
        leads = status.leader == status.me
        return pb.DescribeQuorumResponse(
            cluster_id=self._cluster_id,
            leader_id=_leader_id(status),
            leader_epoch=status.epoch,
            high_watermark=status.high_watermark,
            voters=[self._replica(each, status, leads=leads) for each in status.voters],
            observers=[self._replica(each, status, leads=leads) for each in status.observers],
            answered_by=status.me.node_id,
            is_broker_alone=not self._is_controller,
        )

    def _replica(
        self, each: MemberStatus, status: QuorumStatus, *, leads: bool
    ) -> pb.QuorumReplica:
        """Describe a replica. Only the leader has the lag and the time since the last request of
        others."""
        silence = 0 if each.member == status.me else each.heard_ms_ago
        return pb.QuorumReplica(
            id=each.member.node_id,
            directory_id=each.member.directory_id,
            address=each.address or self._member.address_of(each.member),
            log_end_offset=-1 if each.log_end_offset is None else each.log_end_offset,
            lag=-1 if each.lag is None or not leads else each.lag,
            heard_ms_ago=-1 if silence is None or not leads else silence,
        )

    def _leader_channel(self, status: QuorumStatus) -> Channel:
        address = "" if status.leader is None else self._member.address_of(status.leader)
        if not address:
            raise NotController(
                f"quorum: node {status.me.node_id} has no known leader; start a majority of the"
                " voters, then retry",
                leader_id=_leader_id(status),
            )
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._runtime.network.channel(address)
        return channel

    def _left_ms(self, context: CallContext) -> int:
        return left_ms(context, self._runtime.clock.now_ms())


def _check(node_id: int, directory_id: bytes) -> None:
    if node_id < 0:
        raise InvalidRequest(f"id: {node_id} is not a node id; give 0 or more")
    if len(directory_id) not in (0, 16):
        raise InvalidRequest(f"directory_id: {len(directory_id)} bytes; give 16, or none")


def _leader_id(status: QuorumStatus) -> NodeId:
    return NO_NODE if status.leader is None else status.leader.node_id


def _silence(each: MemberStatus) -> int:
    """Return the time since an observer's last request, in ms. After a restart with a new data
    directory, the old observer remains for a while."""
    return 1 << 62 if each.heard_ms_ago is None else each.heard_ms_ago


def _check_not_voter(status: QuorumStatus, node_id: NodeId) -> None:
    if any(each.member.node_id == node_id for each in status.voters):
        raise DuplicateVoter(
            f"node {node_id}: already a voter; after a disk change remove the voter, then add it"
        )


def _voter_named(status: QuorumStatus, request: pb.RemoveVoterRequest) -> Voter:
    if request.directory_id:
        return Voter(NodeId(request.id), DirectoryId(request.directory_id))
    for each in status.voters:
        if each.member.node_id == request.id:
            return each.member
    ids = ", ".join(str(each.member.node_id) for each in status.voters)
    raise VoterNotFound(f"node {request.id}: not a voter; the voters are {ids}")
