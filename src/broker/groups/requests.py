"""Requests to a group coordinator and their answers, as plain values.

Both front ends (gRPC and the Kafka protocol) translate to these. A request that is refused as a
whole raises a typed error of `quorumlog.errors`; the error of one part is returned in that part of
the answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from ...errors import QuorumlogError
from ...ids import ProducerIdentity
from ...metadata.acls import AclOperation
from ...records.control import TransactionMarker
from ..coordinator.shard import CoordinatorRequest
from .records import OffsetToCommit as OffsetToCommit
from .records import Partitions
from .transactional_producers import VerificationGuard

R = TypeVar("R")

DescribesTopic: TypeAlias = Callable[[str], bool]
"""Returns True if the client of a request may describe the topic of a name."""

NO_GENERATION: Final = -1
JOIN_EPOCH: Final = 0
"""The member epoch of a join (KIP-848)."""
LEAVE_EPOCH: Final = -1
"""The member epoch of a leave."""
LEAVE_STATIC_EPOCH: Final = -2
"""The member epoch with which a static member leaves temporarily; it keeps its partitions."""


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class GroupRequest(CoordinatorRequest[R]):
    """A request to one group; `R` is the type of its answer."""

    operation: ClassVar[AclOperation] = AclOperation.READ
    """The operation on the group that a client must be authorized for."""

    group: str
    client: str = field(default="", compare=False)  # the principal, for limits; "": none
    # raises GroupFull if the client must not add so many bytes to the group; None: no limit
    check_growth: Callable[[int], None] | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """The group id."""
        return self.group


# --- classic groups -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member's entry in the join answer of the group's leader."""

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
    leader: str = ""  # member id; equal to `member_id`: this member assigns the partitions
    members: tuple[JoinedMember, ...] = ()  # all members; only in the leader's answer
    skip_assignment: bool = False  # the leader must not assign (KIP-814)
    is_member_id_required: bool = False  # the other fields are unset; join again with `member_id`


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class JoinGroup(GroupRequest[Joined]):
    """The request of a member to join a classic group, or to rejoin it for the next generation."""

    member_id: str  # empty: a new member
    instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # name and subscription, most preferred first
    takes_member_id_first: bool  # the client's version understands MEMBER_ID_REQUIRED
    can_skip_assignment: bool = False  # the client's version has `skip_assignment`
    reason: str = ""
    describes: DescribesTopic | None = field(default=None, compare=False)  # None: every topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The answer to a sync: the member's assignment."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class SyncGroup(GroupRequest[Synced]):
    """A member's request for its assignment; the leader's request carries all assignments."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None  # None: not sent
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)  # by member id
    describes: DescribesTopic | None = field(default=None, compare=False)  # None: every topic


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class ClassicHeartbeat(GroupRequest[None]):
    """The heartbeat of a member of a classic group."""

    member_id: str
    instance_id: str | None = None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaver:
    """A member that leaves or that an administrator removes, named by id or by instance id."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The answer to a leave: one error or None for each leaver, in the order of the request."""

    errors: tuple[QuorumlogError | None, ...]


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class LeaveGroup(GroupRequest[Left]):
    """The request to remove members from a group."""

    leavers: tuple[Leaver, ...]


# --- groups of KIP-848 ----------------------------------------------------------------------------


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class ConsumerBeat:
    """The answer to a heartbeat."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    session_timeout_ms: int  # a member without a heartbeat for this long is fenced
    assignment: Partitions | None = None  # None: unchanged since the last answer


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class ConsumerHeartbeat(GroupRequest[ConsumerBeat]):
    """A member's join (epoch 0), heartbeat, or leave (-1; static -2); None: unchanged."""

    member_id: str  # empty only in version 0, where the coordinator generates it
    member_epoch: int
    instance_id: str | None = None
    rack: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1  # -1: unchanged
    topics: frozenset[str] | None = None
    pattern: str | None = None  # RE2; empty: unsubscribe from the pattern
    assignor: str | None = None
    owned: Partitions | None = None
    describes: DescribesTopic | None = field(default=None, compare=False)  # None: every topic


# --- offsets --------------------------------------------------------------------------------------


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class CommitOutcome:
    """The answer to a commit: one error or None for each offset, in the order of the request."""

    errors: tuple[QuorumlogError | None, ...]


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class CommitOffsets(GroupRequest[CommitOutcome]):
    """A commit of offsets by a member, or without a member by a client outside of the group."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = NO_GENERATION  # or the member's epoch (KIP-848)
    retention_ms: int = -1  # set by versions before 5; -1: the broker's setting applies
    offsets: tuple[OffsetToCommit, ...]


class PlainOffsets(NamedTuple):
    """Offsets of one topic, by columns: no metadata strings, and no retention time of their own."""

    topic: str
    partitions: tuple[int, ...]  # at least one
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]


class PlainCommit(NamedTuple):
    """A commit of a member that `GroupCoordinator.commit_at_once` may store without a decision."""

    group: str
    member_id: str
    instance_id: str | None
    generation: int  # or the member's epoch (KIP-848)
    topics: tuple[PlainOffsets, ...]


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class CommitTransactionalOffsets(CommitOffsets):
    """A commit of offsets in a transaction: they take effect if the transaction commits.

    Member and generation fence a producer after its consumer was replaced (KIP-447). Older clients
    send neither, then only the producer's epoch fences.
    """

    transactional_id: str
    producer: ProducerIdentity
    adds: bool = False  # the coordinator adds the group to the transaction; False: it verifies
    guard: VerificationGuard | None = None  # of the verification; None: not verified


@dataclass(frozen=True, slots=True)
class WriteGroupMarker(CoordinatorRequest[None]):
    """The end of a transaction, for the pending offsets of all groups of the partition. Answered
    with None once the marker is stored, also for a repeated one."""

    marker: TransactionMarker

    @property
    def key(self) -> str:
        """The producer, for error messages."""
        return f"producer {self.marker.producer.producer_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffset:
    """The committed offset of a partition; offset -1: none."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    note: str = ""
    commit_ms: int = -1
    error: QuorumlogError | None = None


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class FetchOffsets(GroupRequest[tuple[StoredOffset, ...]]):
    """A query of committed offsets.

    Raises UnknownMember if the member is not in the group, and StaleMemberEpoch if its epoch is not
    current.
    """

    operation: ClassVar[AclOperation] = AclOperation.DESCRIBE

    partitions: tuple[tuple[str, int], ...] | None = None  # None: all that are committed
    member_id: str = ""  # empty: no epoch is checked
    member_epoch: int = -1
    require_stable: bool = False


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class DeleteOffsets(GroupRequest[CommitOutcome]):
    """The request to delete committed offsets of partitions that no member is subscribed to."""

    operation: ClassVar[AclOperation] = AclOperation.DELETE

    partitions: tuple[tuple[str, int], ...]


# --- descriptions and deletion --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member of either protocol."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rack: str | None = None
    is_classic: bool = True  # the member's protocol
    silent_ms: int = -1  # since the last request of the member; -1: unknown
    # Of classic groups: the bytes that members and leader sent.
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
    """The state of a group."""

    group: str
    is_classic: bool
    state: str  # Kafka's name: "Stable", "PreparingRebalance", "Reconciling", ...
    protocol_type: str = ""
    protocol: str = ""  # the chosen protocol, or the assignor
    generation: int = NO_GENERATION  # or the group's epoch
    target_epoch: int = -1  # of KIP-848
    members: tuple[MemberDescription, ...] = ()


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class DescribeGroup(GroupRequest[GroupDescription]):
    """A query of one group. Raises GroupNotFound."""

    operation: ClassVar[AclOperation] = AclOperation.DESCRIBE


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class DeleteGroup(GroupRequest[None]):
    """The request to delete a group and its offsets. Raises NonEmptyGroup and GroupNotFound."""

    operation: ClassVar[AclOperation] = AclOperation.DELETE


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """One entry of the list of groups."""

    group: str
    is_classic: bool
    state: str
    protocol_type: str
