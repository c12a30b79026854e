"""The words of a partition: what the metadata says of it, what replicas report, what follows."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from ...ids import Epoch, NodeId, Offset
from .waits import Wait


class Acks(Enum):
    """How many replicas must hold a batch before it is acknowledged."""

    ALL = "all"  # every in-sync replica
    NONE = "0"  # none: nobody waits
    LEADER = "1"  # the leader alone


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What the metadata says of a broker now."""

    broker_epoch: Offset
    is_active: bool  # neither fenced nor stopping
    rack: str = ""  # its failure zone; empty: none


BrokerOf: TypeAlias = Callable[[NodeId], BrokerFacts | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """What the metadata says of a partition that this node leads."""

    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[NodeId, ...]  # committed; this node is in it
    min_isr: int  # min.insync.replicas, never above the number of replicas
    counts_flushed: bool  # flush.policy=fsync: ends are flushed ends
    replicas: tuple[NodeId, ...] = ()  # the assignment, the preferred leader first
    recovering: bool = False  # elected with possible loss: nobody joins before it says otherwise
    mirrors: str = ""  # mirror.source: only a mirror writes here; empty: anybody


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerState:
    """What the metadata says of a partition that this node follows."""

    leader_id: NodeId  # NO_NODE: nobody leads
    leader_epoch: Epoch
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerFetch:
    """What a follower's fetch says of its log; everything below the ends is there."""

    broker_epoch: Offset  # of the follower's registration
    leader_epoch: Epoch  # that it follows
    log_end_offset: Offset
    flushed_end_offset: Offset  # <= log_end_offset
    log_start_offset: Offset


@dataclass(init=False, unsafe_hash=True, slots=True)
class Progress:
    """What an event brought about. Changed by nobody; each append makes one, and an `__init__` of
    its own is compiled."""

    released: tuple[Wait, ...]
    high_watermark_moved: bool

    def __init__(self, released: tuple[Wait, ...], high_watermark_moved: bool) -> None:
        self.released = released
        self.high_watermark_moved = high_watermark_moved


NO_PROGRESS: Final = Progress((), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """The ISR that a leader asks the controller for; at most one is under way."""

    leader_epoch: Epoch
    partition_epoch: int  # what it is based on
    isr: tuple[tuple[NodeId, Offset], ...]  # members with the broker epochs known here
    recovered: bool  # the leader has recovered from an unclean election

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The node ids of the ISR asked for."""
        return tuple(node for node, _ in self.isr)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStanding:
    """How a replica stands, for people."""

    node_id: NodeId
    log_end_offset: Offset | int  # -1: not known in this leader epoch
    caught_up_ms_ago: int  # since it last had everything, -1: not in this leader epoch
    in_sync: bool
    reason: str  # why it is not in sync; "" when it is


# --- followers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowAnswer:
    """A leader's answer to a follower's fetch."""

    leader_epoch: Epoch
    high_watermark: Offset
    log_start_offset: Offset
    first_offset: Offset | None = None  # of the records that came; None: none came
    # (largest epoch of the leader's log that is not above the one asked for, its end there); set
    # when the logs part before the follower's end. Nothing else counts then (KAFKA-14704).
    diverging: tuple[Epoch, Offset] | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The answer changes nothing in the log; `reason` says why it was dropped, "" if it was not."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log: everything from the offset on goes; then ask again."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Reset:
    """Everything goes, the log starts anew and empty at the offset; then append the records that
    came if they start there, else ask again."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records that came, then tell `replicated`."""


FollowStep: TypeAlias = Nothing | Truncate | Reset | Append
