"""The stored facts of groups as plain values; `formats` encodes them in Kafka's own format.

Each record replaces the previous record with the same key; a `...Forgotten` is the tombstone of
that key. Partitions are identified by topic id where Kafka's format does so.
`OffsetToCommit` is a part of a request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from ...ids import TopicId
from ..coordinator.decision import DecisionBuilder, ShardDecision

NO_EPOCH = -1
NO_TIME_MS = -1

Partitions: TypeAlias = Mapping[TopicId, frozenset[int]]
"""Some partitions of each topic; no topic has an empty set."""


# --- offsets --------------------------------------------------------------------------------------


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class OffsetCommitted:
    """Key type 0/1 (written as 1): the committed offset of one partition. Not frozen: every
    partition of every commit creates one."""

    group: str
    topic: str
    partition: int
    offset: int  # of the next record to read
    leader_epoch: int = NO_EPOCH  # of the last record that was read
    note: str = ""  # the protocol's "metadata"
    commit_ms: int
    expire_ms: int = (
        NO_TIME_MS  # set by versions before 2.1; -1: `offsets.retention.minutes` applies
    )
    topic_id: TopicId | None = None  # value version 4; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForgotten:
    """The tombstone of `OffsetCommitted`."""

    group: str
    topic: str
    partition: int


# --- classic groups -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member of a classic group as of its last completed generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # for the chosen protocol, as the member sent it
    assignment: bytes  # as the group's leader sent it


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """Key type 2: a generation of a classic group."""

    group: str
    protocol_type: str  # "consumer", "connect"; empty: no member has joined yet
    generation: int
    protocol: str | None
    leader: str | None  # member id
    state_ms: int  # start of the current state; -1: unknown
    members: tuple[StoredMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupForgotten:
    """The tombstone of `ClassicGroup`."""

    group: str


# --- groups of KIP-848 ----------------------------------------------------------------------------


class MemberState(IntEnum):
    """A member's progress towards its target assignment."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """Key type 3: the group epoch, incremented by each change that requires a new target."""

    group: str
    epoch: int
    metadata_hash: int = 0  # over the subscribed topics; 0: no topic


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupForgotten:
    """The tombstone of `ConsumerGroup`."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """The stored classic-protocol fields of a member of a KIP-848 group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name and subscription, as the member sent them


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """Key type 5: a member's identity and subscription."""

    group: str
    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str | None = None  # RE2
    assignor: str | None = None
    rebalance_timeout_ms: int
    classic: ClassicMemberMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberForgotten:
    """The tombstone of `ConsumerMember`."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpoch:
    """Key type 6: the group epoch for which the target assignment was computed.

    One is stored also when the last member leaves, so the timestamp of an empty group's record is
    the time since which it has been empty.
    """

    group: str
    epoch: int
    stored_ms: int = field(default=NO_TIME_MS, compare=False)  # the timestamp of the record


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochForgotten:
    """The tombstone of `TargetEpoch`."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignment:
    """Key type 7: the partitions that a member is to own."""

    group: str
    member_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentForgotten:
    """The tombstone of `TargetAssignment`."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """Key type 8: the partitions that a member owns, and those it has yet to revoke."""

    group: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions
    pending_revocation: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignmentForgotten:
    """The tombstone of `CurrentAssignment`."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPattern:
    """Key type 16: the topics that a pattern matched."""

    group: str
    pattern: str
    topics: frozenset[str]
    version: int  # metadata offset at which the pattern was matched
    resolved_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPatternForgotten:
    """The tombstone of `ResolvedPattern`."""

    group: str
    pattern: str


GroupRecord: TypeAlias = (
    OffsetCommitted
    | OffsetForgotten
    | ClassicGroup
    | ClassicGroupForgotten
    | ConsumerGroup
    | ConsumerGroupForgotten
    | ConsumerMember
    | ConsumerMemberForgotten
    | TargetEpoch
    | TargetEpochForgotten
    | TargetAssignment
    | TargetAssignmentForgotten
    | CurrentAssignment
    | CurrentAssignmentForgotten
    | ResolvedPattern
    | ResolvedPatternForgotten
)

GroupDecision: TypeAlias = ShardDecision[GroupRecord]
"""The result of one step of a group."""


class GroupDecisionBuilder(DecisionBuilder[GroupRecord]):
    """Collects the records and replies of one step of a group."""

    __slots__ = ()


@dataclass(unsafe_hash=True, slots=True, kw_only=True)  # as `OffsetCommitted`
class OffsetToCommit:
    """The offset to commit for one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    note: str = ""
    topic_id: TopicId | None = None
