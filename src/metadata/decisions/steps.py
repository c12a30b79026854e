"""Decisions over many partitions, made in steps.

A walk that ends within one step becomes an ordinary decision. A longer one becomes a metadata
transaction with one slice per step, so that the event loop runs in between, however many partitions
the walk visits and however few change.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from ...ids import NodeId
from ...proto import metadata_records_pb2 as pb
from ..commands import Done, Reply
from ..decision import AnyDecision, Decision, LongDecision
from ..image import MetadataImage

STEP_RECORDS: Final = 200
"""The maximum number of records per step: about 5 ms with their replay and append."""
STEP_VISITS: Final = 2_000
"""The maximum number of partitions that one step visits, changed or not."""

Walk: TypeAlias = Iterator[pb.MetadataRecord | None]
"""A record for each change, None for each visited partition without a change."""

Answer: TypeAlias = Callable[[], tuple[Reply, tuple[NodeId, ...]]]
"""After the walk: returns the reply, and the brokers that must apply the change."""


def done() -> tuple[Reply, tuple[NodeId, ...]]:
    """Return the reply of commands without a result."""
    return Done(), ()


def decision_of(name: str, walk: Walk, answer: Answer = done) -> AnyDecision:
    """Return the decision of a walk. The first step is made at once; if the walk ends within it,
    the decision is not a LongDecision. The name is for log messages."""
    steps = _steps(walk)
    first, is_last = next(steps)
    if is_last:
        reply, brokers = answer()
        return Decision(records=first, reply=reply, brokers=brokers)

    def slices() -> Iterator[tuple[pb.MetadataRecord, ...]]:
        yield first
        for records, _ in steps:
            yield records

    def finish(_image: MetadataImage) -> tuple[Reply, tuple[NodeId, ...]]:
        return answer()

    return LongDecision(name=name, slices=slices(), finish=finish)


def _steps(walk: Walk) -> Iterator[tuple[tuple[pb.MetadataRecord, ...], bool]]:
    """Yield (records, is_last) of each step. A step that ends by STEP_VISITS yields an empty slice;
    its records follow with the next step."""
    records: list[pb.MetadataRecord] = []
    visits = 0
    for record in walk:
        visits += 1
        if record is not None:
            records.append(record)
        if len(records) == STEP_RECORDS:
            yield tuple(records), False
            records, visits = [], 0
        elif visits == STEP_VISITS:
            yield (), False
            visits = 0
    yield tuple(records), True
