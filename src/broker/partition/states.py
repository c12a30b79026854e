"""Types of a partition: its metadata, reports of replicas, and results."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from ...ids import Epoch, NodeId, Offset
from .waits import Wait


class Acks(Enum):
    """The acknowledgement that a producer requests."""

    ALL = "all"  # all in-sync replicas
    NONE = "0"  # none
    LEADER = "1"  # the leader alone


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The metadata of a broker."""

    broker_epoch: Offset
    is_active: bool  # neither fenced nor shutting down
    rack: str = ""  # empty: none


BrokerOf: TypeAlias = Callable[[NodeId], BrokerFacts | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """The metadata of a partition that this node leads."""

    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[NodeId, ...]  # committed; includes this node
    min_isr: int  # min.insync.replicas, at most the number of replicas
    counts_flushed: bool  # flush.policy=fsync: end offsets are flushed end offsets
    replicas: tuple[NodeId, ...] = ()  # the assignment, the preferred leader first
    recovering: bool = False  # after an unclean election; no replica may join the ISR yet
    mirrors: str = ""  # mirror.source: only a mirror appends; empty: producers append


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerState:
    """The metadata of a partition that this node follows."""

    leader_id: NodeId  # NO_NODE: no leader
    leader_epoch: Epoch
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerFetch:
    """The state of a follower's log, sent with its fetch; all records below the ends are
    present."""

    broker_epoch: Offset  # of the follower's registration
    leader_epoch: Epoch  # that it follows
    log_end_offset: Offset
    flushed_end_offset: Offset  # <= log_end_offset
    log_start_offset: Offset


@dataclass(init=False, unsafe_hash=True, slots=True)
class Progress:
    """The result of an event. Treated as immutable. `__init__` is written by hand because every
    append creates one, and mypyc leaves a generated one interpreted."""

    released: tuple[Wait, ...]
    high_watermark_moved: bool

    def __init__(self, released: tuple[Wait, ...], high_watermark_moved: bool) -> None:
        self.released = released
        self.high_watermark_moved = high_watermark_moved


NO_PROGRESS: Final = Progress((), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """The ISR change requested from the controller; at most one is pending."""

    leader_epoch: Epoch
    partition_epoch: int  # of the state that it is based on
    isr: tuple[tuple[NodeId, Offset], ...]  # members with their known broker epochs
    recovered: bool  # the leader has recovered from an unclean election

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The node ids of the requested ISR."""
        return tuple(node for node, _ in self.isr)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """The replication status of one replica, for operators."""

    node_id: NodeId
    log_end_offset: Offset | int  # -1: unknown in this leader epoch
    caught_up_ms_ago: int  # since it last had every record; -1: not in this leader epoch
    in_sync: bool
    reason: str  # of being out of sync; "" if in sync


# --- followers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowAnswer:
    """A leader's answer to a follower's fetch."""

    leader_epoch: Epoch
    high_watermark: Offset
    log_start_offset: Offset
    first_offset: Offset | None = None  # of the received records; None: no records
    # Set if the logs diverge before the follower's end: the largest epoch of the leader's log up to
    # the requested one, and its end there. The other fields are then ignored (KAFKA-14704).
    diverging: tuple[Epoch, Offset] | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """No change of the log; `reason` explains a dropped answer, else ""."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to the offset, then fetch again."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Reset:
    """Delete the log and restart it, empty, at the offset. Then append the received records if they
    start there, else fetch again."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Append:
    """Append the received records, then call `replicated`."""


FollowStep: TypeAlias = Skip | Truncate | Reset | Append
