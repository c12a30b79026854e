"""What is stored of groups, as plain values; `formats` has their bytes, which are Kafka's own.

Each is a fact that takes the place of the one before with the same key; a `...Forgotten` is its
tombstone. Partitions of a topic are named by its id where the protocol does so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from ...ids import TopicId

NO_EPOCH = -1
NO_TIME_MS = -1

Partitions: TypeAlias = Mapping[TopicId, frozenset[int]]
"""Of each topic, some of its partitions; no topic without one."""


# --- offsets --------------------------------------------------------------------------------------


@dataclass(init=False, unsafe_hash=True, slots=True)
class OffsetCommitted:
    """Key type 0/1 (written as 1): how far a group has read a partition. Changed by nobody. Each
    partition of each commit makes one, as of what else has an `__init__` of its own here: where it
    is compiled, that takes a twentieth of the time of a generated one, which stays Python.
    """

    group: str
    topic: str
    partition: int
    offset: int  # of the next record to read
    leader_epoch: int  # of the last record read
    note: str  # the protocol's "metadata"
    commit_ms: int
    expire_ms: int  # of versions before 2.1; -1: by `offsets.retention.minutes`
    topic_id: TopicId | None  # value version 4; None: not known

    def __init__(
        self,
        *,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        leader_epoch: int = NO_EPOCH,
        note: str = "",
        commit_ms: int,
        expire_ms: int = NO_TIME_MS,
        topic_id: TopicId | None = None,
    ) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.note = note
        self.commit_ms = commit_ms
        self.expire_ms = expire_ms
        self.topic_id = topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForgotten:
    """The tombstone of `OffsetCommitted`."""

    group: str
    topic: str
    partition: int


# --- classic groups -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member of a classic group as of its last generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # of the protocol that was chosen, as the member sent it
    assignment: bytes  # as the group's leader sent it


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """Key type 2: a generation of a classic group."""

    group: str
    protocol_type: str  # "consumer", "connect"; empty: none has joined
    generation: int
    protocol: str | None
    leader: str | None  # member id
    state_ms: int  # when it came into its state, -1: unknown
    members: tuple[StoredMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupForgotten:
    """The tombstone of `ClassicGroup`."""

    group: str


# --- groups of KIP-848 ----------------------------------------------------------------------------


class MemberState(IntEnum):
    """Where a member is on its way to its target."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """Key type 3: the group's epoch, raised by each change that asks for a new target."""

    group: str
    epoch: int
    metadata_hash: int = 0  # over the subscribed topics; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupForgotten:
    """The tombstone of `ConsumerGroup`."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicFace:
    """What of a member is kept that speaks the classic protocol in a group of KIP-848."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name and subscription, as it sent them


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """Key type 5: who a member is and what it wants."""

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
    classic: ClassicFace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberForgotten:
    """The tombstone of `ConsumerMember`."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpoch:
    """Key type 6: the group epoch that the target assignment was made for.

    The last member's going stores one too, so that of a group without members this is the time
    since when it has none.
    """

    group: str
    epoch: int
    stored_ms: int = field(default=NO_TIME_MS, compare=False)  # the record's own timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochForgotten:
    """The tombstone of `TargetEpoch`."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignment:
    """Key type 7: what a member is to own."""

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
    """Key type 8: what a member owns, and what it has still to give back."""

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
    version: int  # metadata offset that they were matched at
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
