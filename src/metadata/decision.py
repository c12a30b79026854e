"""Decisions of the controller: records to append, and the reply after their commit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..ids import NodeId
from ..proto import metadata_records_pb2 as pb
from .commands import Reply
from .image import MetadataImage

RECORDS_A_STEP: Final = 1_000
"""The maximum number of records of one step; a decision with more is a LongDecision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Records to append atomically in this order, and the reply after their commit."""

    records: tuple[pb.MetadataRecord, ...]
    reply: Reply
    # Brokers that must apply the records before the change is usable, ascending.
    brokers: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LongDecision:
    """A decision that is made in steps, so that no step blocks the event loop for long. Its records
    form one metadata transaction.

    No other command is decided until it ends, so all slices are based on the same image.
    """

    name: str  # for log messages
    # Up to RECORDS_A_STEP records each; an empty slice only ends a step.
    slices: Iterator[tuple[pb.MetadataRecord, ...]]
    # Maps the image after all records to the reply, and to the brokers as in Decision.
    finish: Callable[[MetadataImage], tuple[Reply, tuple[NodeId, ...]]]


AnyDecision: TypeAlias = Decision | LongDecision
