"""The metadata quorum: its leader, voters and observers, and changes of the voters.

Every node of the quorum serves these operations. A node that is not the leader forwards a change
once to the leader, which carries it out or returns its leader's id. A description without the
leader contains only the local state.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..errors import (
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    NotController,
    QuorumlogError,
    VoterLagging,
    VoterNotFound,
)
from ..ids import NO_NODE, ClusterId, DirectoryId, Epoch, NodeId, Offset
from ..metadata.acls import AclOperation, AclResourceType
from ..raftlog.status import MemberStatus, QuorumStatus
from ..raftlog.voters import Voter, VoterAddition, VoterChange, VoterRemoval
from ..runtime import ClientIdentity, Clock
from .audit import AuditLog, recorded
from .authorizer import Authorizer
from .request_context import RequestContext
from .validation import ANSWER_MS, check_node_id, left_ms

R = TypeVar("R")

LEADER_MS: Final = 1_000
"""The timeout of the leader for a description; afterwards this node describes its own state."""


class QuorumReplicaState(Struct, frozen=True, kw_only=True):
    """A voter or observer of the metadata log."""

    id: NodeId
    directory_id: bytes
    address: str  # empty: unknown
    log_end_offset: Offset | int  # -1: unknown
    lag: int  # offsets behind the leader's log end; -1: unknown
    heard_ms_ago: int  # since its last request; -1: unknown


class QuorumDescription(Struct, frozen=True, kw_only=True):
    """The quorum as one node reports it."""

    cluster_id: ClusterId | str
    leader_id: NodeId  # NO_NODE: unknown
    leader_epoch: Epoch | int
    high_watermark: Offset | int
    voters: tuple[QuorumReplicaState, ...]
    observers: tuple[QuorumReplicaState, ...]  # as the leader has them
    answered_by: NodeId
    is_broker_alone: bool  # the reporting node has no controller role


class AddVoter(Struct, frozen=True, kw_only=True):
    """Add a node that replicates the log to the voters."""

    id: int
    directory_id: bytes = b""  # empty: that of the observer with this id
    address: str = ""  # empty: as this node has it
    cluster_id: str = ""  # empty: not checked


class RemoveVoter(Struct, frozen=True, kw_only=True):
    """Remove a voter."""

    id: int
    directory_id: bytes = b""  # empty: that of the voter with this id
    cluster_id: str = ""


class TransferLeadership(Struct, frozen=True, kw_only=True):
    """Transfer the leadership to another voter."""

    id: int | None = None  # None: the leader chooses
    cluster_id: str = ""


Change = TypeVar("Change", AddVoter, RemoveVoter, TransferLeadership)


class VoterAdded(Struct, frozen=True, kw_only=True):
    """The voter after the change."""

    directory_id: bytes
    address: str


class LeadershipTransferred(Struct, frozen=True, kw_only=True):
    """The leader before the transfer, with its epoch."""

    leader_id: NodeId
    leader_epoch: Epoch | int


class QuorumMember(Protocol):
    """The part of the local Raft node that the operations use. A change returns when it is
    committed, and raises the typed errors of the quorum."""

    def status(self) -> QuorumStatus: ...
    def address_of(self, member: Voter) -> str: ...
    async def change_voters(self, change: VoterChange) -> None: ...
    async def transfer(self, to: NodeId | None) -> None: ...


class QuorumPeers(Protocol):
    """These operations at the node of an address; changes on behalf of a client."""

    async def describe(self, address: str, timeout_ms: int) -> QuorumDescription:
        """Return the state of the node itself."""

    async def has_controller_role(self, address: str, node_id: NodeId, timeout_ms: int) -> bool:
        """Return False if the node of this id reports that it has no controller role."""

    async def add_voter(
        self, address: str, change: AddVoter, client: ClientIdentity, timeout_ms: int
    ) -> VoterAdded: ...
    async def remove_voter(
        self, address: str, change: RemoveVoter, client: ClientIdentity, timeout_ms: int
    ) -> bytes: ...
    async def transfer(
        self, address: str, change: TransferLeadership, client: ClientIdentity, timeout_ms: int
    ) -> LeadershipTransferred: ...


class QuorumAdmin:
    """The operations on the quorum."""

    def __init__(
        self,
        clock: Clock,
        member: QuorumMember,
        peers: QuorumPeers,
        authorizer: Authorizer,
        *,
        cluster_id: ClusterId,
        is_controller: bool = True,
        audit: AuditLog | None = None,
    ) -> None:
        """`is_controller`: the node may become a voter. `audit` records changes."""
        self._audit = audit
        self._clock = clock
        self._is_controller = is_controller
        self._member = member
        self._authorizer = authorizer
        self._peers = peers
        self._cluster_id = cluster_id

    async def describe(
        self, context: RequestContext, *, is_local: bool = False
    ) -> QuorumDescription:
        """Return the leader's description; if no leader answers, or with `is_local`, that of this
        node."""
        self._check(AclOperation.DESCRIBE, context)
        status = self._member.status()
        if is_local or status.is_leader:
            return self._description(status)
        timeout_ms = min(LEADER_MS, self._left_ms(context) // 2)
        try:
            return await self._peers.describe(self._leader_address(status), timeout_ms)
        except QuorumlogError as error:
            if not error.retriable:
                raise
            return self._description(self._member.status())

    async def add_voter(self, change: AddVoter, context: RequestContext) -> VoterAdded:
        """Add a node that replicates the log to the voters."""
        _check(change.id, change.directory_id)

        async def here(status: QuorumStatus) -> VoterAdded:
            voter, address = self._new_voter(status, change)
            if not await self._peers.has_controller_role(address, voter.node_id, LEADER_MS):
                raise InvalidRequest(
                    f"node {voter.node_id}: without the role controller it cannot vote; add the"
                    " role (node.roles), restart the node and retry"
                )
            self._check(AclOperation.ALTER, context)  # again, after the wait
            await self._member.change_voters(VoterAddition(voter, address))
            return VoterAdded(directory_id=voter.directory_id, address=address)

        return await self._at_leader(change, context, here, self._peers.add_voter)

    async def remove_voter(self, change: RemoveVoter, context: RequestContext) -> bytes:
        """Remove a voter; return its directory id."""
        _check(change.id, change.directory_id)

        async def here(status: QuorumStatus) -> bytes:
            voter = _voter_named(status, change)
            await self._member.change_voters(VoterRemoval(voter))
            return voter.directory_id

        return await self._at_leader(change, context, here, self._peers.remove_voter)

    async def transfer(
        self, change: TransferLeadership, context: RequestContext
    ) -> LeadershipTransferred:
        """Transfer the leadership to another voter."""

        async def here(status: QuorumStatus) -> LeadershipTransferred:
            await self._member.transfer(None if change.id is None else NodeId(change.id))
            return LeadershipTransferred(leader_id=status.me.node_id, leader_epoch=status.epoch)

        return await self._at_leader(change, context, here, self._peers.transfer)

    async def _at_leader(
        self,
        change: Change,
        context: RequestContext,
        here: Callable[[QuorumStatus], Awaitable[R]],
        there: Callable[[str, Change, ClientIdentity, int], Awaitable[R]],
    ) -> R:
        """Make a change here if this node is the leader, otherwise forward it. The audit log of the
        node that the client has called has the change."""
        self._check(AclOperation.ALTER, context)
        audit = None if context.is_forwarded else self._audit
        with recorded(audit, context.client, change):
            return await self._make(change, context, here, there)

    async def _make(
        self,
        change: Change,
        context: RequestContext,
        here: Callable[[QuorumStatus], Awaitable[R]],
        there: Callable[[str, Change, ClientIdentity, int], Awaitable[R]],
    ) -> R:
        if change.cluster_id not in ("", self._cluster_id):
            raise InconsistentClusterId(
                f"cluster id: this node belongs to {self._cluster_id!r}, the request is for"
                f" {change.cluster_id!r}; check the address"
            )
        status = self._member.status()
        if status.is_leader:
            return await here(status)
        if context.is_forwarded:
            raise NotController(
                f"node {status.me.node_id}: not the leader of the quorum; ask the leader",
                leader_id=_leader_id(status),
            )
        forwarded = replace(change, cluster_id=self._cluster_id)
        timeout_ms = max(1, self._left_ms(context) - ANSWER_MS)
        return await there(self._leader_address(status), forwarded, context.client, timeout_ms)

    def _check(self, operation: AclOperation, context: RequestContext) -> None:
        self._authorizer.check(context.client, operation, AclResourceType.CLUSTER)

    def _new_voter(self, status: QuorumStatus, change: AddVoter) -> tuple[Voter, str]:
        """Return the voter to add and its address, from the request or from this node's state."""
        node_id = NodeId(change.id)
        if change.directory_id:
            voter = Voter(node_id, DirectoryId(change.directory_id))
        else:
            following = [each for each in status.observers if each.member.node_id == node_id]
            if not following:
                _check_not_voter(status, node_id)
                raise VoterLagging(
                    f"node {node_id}: it does not replicate the log; start it with"
                    " controller.bootstrap naming members of the quorum, then retry"
                )
            voter = min(following, key=_silence).member
        address = change.address or self._member.address_of(voter)
        if not address:
            raise VoterLagging(
                f"node {node_id}: its address is unknown; start it, or give its address"
            )
        return voter, address

    def _description(self, status: QuorumStatus) -> QuorumDescription:
        leads = status.is_leader
        return QuorumDescription(
            cluster_id=self._cluster_id,
            leader_id=_leader_id(status),
            leader_epoch=status.epoch,
            high_watermark=status.high_watermark,
            voters=tuple(self._replica(each, status, leads=leads) for each in status.voters),
            observers=tuple(self._replica(each, status, leads=leads) for each in status.observers),
            answered_by=status.me.node_id,
            is_broker_alone=not self._is_controller,
        )

    def _replica(
        self, each: MemberStatus, status: QuorumStatus, *, leads: bool
    ) -> QuorumReplicaState:
        """Describe a replica. Only the leader has the lag and the time since the last request of
        others."""
        silence = 0 if each.member == status.me else each.heard_ms_ago
        return QuorumReplicaState(
            id=each.member.node_id,
            directory_id=each.member.directory_id,
            address=each.address or self._member.address_of(each.member),
            log_end_offset=-1 if each.log_end_offset is None else each.log_end_offset,
            lag=-1 if each.lag is None or not leads else each.lag,
            heard_ms_ago=-1 if silence is None or not leads else silence,
        )

    def _leader_address(self, status: QuorumStatus) -> str:
        address = "" if status.leader is None else self._member.address_of(status.leader)
        if not address:
            raise NotController(
                f"quorum: node {status.me.node_id} has no known leader; start a majority of the"
                " voters, then retry",
                leader_id=_leader_id(status),
            )
        return address

    def _left_ms(self, context: RequestContext) -> int:
        return left_ms(context.deadline_ms, self._clock.now_ms())


def _check(node_id: int, directory_id: bytes) -> None:
    check_node_id("id", node_id)
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


def _voter_named(status: QuorumStatus, change: RemoveVoter) -> Voter:
    if change.directory_id:
        return Voter(NodeId(change.id), DirectoryId(change.directory_id))
    for each in status.voters:
        if each.member.node_id == change.id:
            return each.member
    ids = ", ".join(str(each.member.node_id) for each in status.voters)
    raise VoterNotFound(f"node {change.id}: not a voter; the voters are {ids}")
