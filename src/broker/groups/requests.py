"""What the front doors ask of a group's coordinator, and what it answers: plain frozen values.

Both doors (gRPC, the Kafka protocol) translate to these. A request that is refused as a whole
raises a typed error of `quorumlog.errors`; what is wrong with a part of it stands in that part of
the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from ...errors import QuorumlogError
from .offset_to_commit import OffsetToCommit as OffsetToCommit
from .records import Partitions

R = TypeVar("R")

NO_GENERATION: Final = -1
JOIN_EPOCH: Final = 0
"""A member's epoch with which it joins (KIP-848)."""
LEAVE_EPOCH: Final = -1
"""A member's epoch with which it leaves."""
LEAVE_STATIC_EPOCH: Final = -2
"""A member's epoch with which a static member leaves for a while; its partitions stay its own."""


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class GroupRequest(Generic[R]):
    """A request to one group. `R` is what it is answered with."""

    group: str


# --- classic groups -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member, as its group's leader is told of it."""

    member_id: str
    instance_id: str | None
    subscription: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a join."""

    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""  # member id; equal to `member_id`: this one shares the partitions out
    members: tuple[JoinedMember, ...] = ()  # of all, for the leader alone
    skip_assignment: bool = False  # the leader need not assign (KIP-814)
    is_member_id_required: bool = False  # nothing else is said: join again with `member_id`


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class JoinGroup(GroupRequest[Joined]):
    """A member comes to a classic group, or comes again for its next generation."""

    member_id: str  # empty: new
    instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # name and subscription, most wanted first
    takes_member_id_first: bool  # whether the caller's version can be told MEMBER_ID_REQUIRED
    can_skip_assignment: bool = False  # the caller's version has `skip_assignment`
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The answer to a sync: what the member is to read."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class SyncGroup(GroupRequest[Synced]):
    """A member asks for its part; the leader brings everybody's."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None  # None: not said
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)  # by member id


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class ClassicHeartbeat(GroupRequest[None]):
    """A member of a classic group lives."""

    member_id: str
    instance_id: str | None = None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaver:
    """A member that leaves, or that an administrator removes: by its id, or by its static name."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The answer to a leave: an error, or None, for each in the order of the request."""

    errors: tuple[QuorumlogError | None, ...]


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class LeaveGroup(GroupRequest[Left]):
    """Members leave."""

    leavers: tuple[Leaver, ...]


# --- groups of KIP-848 ----------------------------------------------------------------------------


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class ConsumerBeat:
    """The answer to a heartbeat."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    session_timeout_ms: int  # a member that is silent for longer is shut out
    assignment: Partitions | None = None  # None: as it was told before


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class ConsumerHeartbeat(GroupRequest[ConsumerBeat]):
    """A member joins (epoch 0), stays, or leaves (-1, static -2); None: as it said before."""

    member_id: str  # empty only where the coordinator is to draw it (version 0)
    member_epoch: int
    instance_id: str | None = None
    rack: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1  # -1: as before
    topics: frozenset[str] | None = None
    pattern: str | None = None  # RE2; empty: none any more
    assignor: str | None = None
    owned: Partitions | None = None


# --- offsets --------------------------------------------------------------------------------------


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class Committed:
    """The answer to a commit: an error, or None, for each in the order of the request."""

    errors: tuple[QuorumlogError | None, ...]


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class CommitOffsets(GroupRequest[Committed]):
    """A member stores how far it has read; without a member, a program outside of the group."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = NO_GENERATION  # or the member's epoch (KIP-848)
    retention_ms: int = -1  # of versions before 5; -1: the broker's
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffset:
    """How far a group has read a partition; offset -1: nothing is stored."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    note: str = ""
    commit_ms: int = -1
    error: QuorumlogError | None = None


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class FetchOffsets(GroupRequest[tuple[StoredOffset, ...]]):
    """Ask what is stored. Raises UnknownMember and StaleMemberEpoch for a member that is not."""

    partitions: tuple[tuple[str, int], ...] | None = None  # None: all that are stored
    member_id: str = ""  # empty: nobody's epoch is checked
    member_epoch: int = -1
    require_stable: bool = False


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class DeleteOffsets(GroupRequest[Committed]):
    """Forget what is stored of partitions that no member reads."""

    partitions: tuple[tuple[str, int], ...]


# --- looking on, and deleting ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member, of either protocol."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rack: str | None = None
    is_classic: bool = True  # how it speaks
    silent_ms: int = -1  # since it was heard of last, -1: that is not told
    # Of classic groups: bytes as members and leader sent them.
    subscription: bytes = b""
    assignment: bytes = b""
    # Of groups of KIP-848.
    member_epoch: int = -1
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    owned: Partitions = field(default_factory=dict)
    target: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as it stands."""

    group: str
    is_classic: bool
    state: str  # as the field names it: "Stable", "PreparingRebalance", "Reconciling", ...
    protocol_type: str = ""
    protocol: str = ""  # the strategy, or the assignor
    generation: int = NO_GENERATION  # or the group's epoch
    target_epoch: int = -1  # of KIP-848
    members: tuple[MemberDescription, ...] = ()


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class DescribeGroup(GroupRequest[GroupDescription]):
    """Ask for a group; raises GroupNotFound."""


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class DeleteGroup(GroupRequest[None]):
    """Forget a group and its offsets; raises NonEmptyGroup and GroupNotFound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A line of the list of groups."""

    group: str
    is_classic: bool
    state: str
    protocol_type: str
