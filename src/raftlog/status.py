"""The status of the quorum as reported by one node: frozen values for tools and people."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..ids import Epoch, Offset
from .leader import Leader
from .log_view import SnapshotId
from .progress import Progress
from .raft import Role
from .state import RaftState
from .voters import Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """One voter or observer, from the responding node's view."""

    member: Voter
    address: str  # "" if it is not in the voter set
    is_voter: bool
    # durable on the node and equal to the leader's log; None if unknown
    log_end_offset: Offset | None
    lag: int | None  # offsets behind the leader's log end
    heard_ms_ago: int | None  # since its last response; None if unknown or the responding node
    state: str  # replication mode: probe, replicate, snapshot; "" if not reported by the leader


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStatus:
    """The quorum, from the responding node's view."""

    me: Voter
    role: str
    leader: Voter | None
    epoch: Epoch
    high_watermark: Offset
    applied_end: Offset  # of the entries that the state machine applied
    log_start_offset: Offset
    log_end_offset: Offset
    snapshots: tuple[SnapshotId, ...]
    voters: tuple[MemberStatus, ...]  # ascending
    observers: tuple[MemberStatus, ...]  # known to a leader only

    @property
    def is_leader(self) -> bool:
        """Return True if the responding node leads the epoch."""
        return self.leader == self.me


def describe_quorum(state: RaftState, role: Role, now_ms: int) -> QuorumStatus:
    """Return the quorum's state as known to this node. Only a leader has the progress of the
    others."""
    peers = role.peers if isinstance(role, Leader) else {}
    voters = state.voters.latest
    observers = sorted(peer for peer in peers if peer not in voters)
    return QuorumStatus(
        me=state.me,
        role=role.name,
        leader=state.leader,
        epoch=state.epoch,
        high_watermark=state.high_watermark,
        applied_end=state.applied_end,
        log_start_offset=state.log.start_offset,
        log_end_offset=state.log.end_offset,
        snapshots=state.snapshots,
        voters=tuple(_member(state, voter, peers, now_ms) for voter in voters),
        observers=tuple(_member(state, observer, peers, now_ms) for observer in observers),
    )


def _member(
    state: RaftState, member: Voter, peers: Mapping[Voter, Progress], now_ms: int
) -> MemberStatus:
    progress = peers.get(member)
    end: Offset | None = None
    if member == state.me:
        end = state.writes.durable_end
    elif progress is not None:
        end = progress.match_end
    address = state.voters.latest.address_of(member)
    return MemberStatus(
        member=member,
        address=address or "",
        is_voter=address is not None,
        log_end_offset=end,
        lag=None if end is None else state.log.end_offset - end,
        heard_ms_ago=None if progress is None else now_ms - progress.contact_ms,
        state="" if progress is None else progress.state,
    )
