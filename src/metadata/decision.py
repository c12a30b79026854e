"""What a decision is: records to append, and what to answer once they are committed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..ids import NodeId
from ..proto import metadata_records_pb2 as pb
from .commands import Reply
from .image import MetadataImage

RECORDS_A_STEP: Final = 1_000
"""Records of one step of a decision; one that needs more is a LongDecision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """What the controller assumes where a command does not say; equal on all controllers."""

    partitions_default: int = 1  # num.partitions
    replication_factor_default: int = 1  # default.replication.factor
    partitions_max: int = 10_000  # of one topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to append, atomically and in this order, and what to answer once it is committed."""

    records: tuple[pb.MetadataRecord, ...]
    reply: Reply
    # Brokers that must have applied it before the change is usable, ascending.
    brokers: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LongDecision:
    """A decision that is made in steps, so that no step of the loop is long: all of it counts, or
    nothing (a metadata transaction).

    Nothing else is decided meanwhile, so the slices need no image but the one that was given.
    """

    name: str  # for people
    # Up to RECORDS_A_STEP records each; an empty one says that a step's time is over, no more.
    slices: Iterator[tuple[pb.MetadataRecord, ...]]
    # From the image after all of it: the reply, and the brokers as in Decision.
    finish: Callable[[MetadataImage], tuple[Reply, tuple[NodeId, ...]]]


AnyDecision: TypeAlias = Decision | LongDecision
