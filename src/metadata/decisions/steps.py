"""Decisions over many partitions, made in steps: whoever walks yields, and is cut into slices here.

A decision that is found within one step is an ordinary one. A longer one is a metadata transaction
whose slices are made one at a time, so that the loop goes on in between, however many partitions
are looked at and however few of them change.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from ...ids import NodeId
from ...proto import metadata_records_pb2 as pb
from ..commands import Done, Reply
from ..decision import AnyDecision, Decision, LongDecision
from ..image import MetadataImage

STEP_RECORDS: Final = 200
"""Records of one step: about 5 ms with their replay and the append."""
STEP_LOOKS: Final = 2_000
"""Partitions that one step looks at, changed or not."""

Walk: TypeAlias = Iterator[pb.MetadataRecord | None]
"""A record for what changes, None for each partition that was looked at and stays as it is."""

Answer: TypeAlias = Callable[[], tuple[Reply, tuple[NodeId, ...]]]
"""Once the walk is over: the reply, and the brokers that must have applied the change."""


def done() -> tuple[Reply, tuple[NodeId, ...]]:
    """The answer of those who have nothing more to say."""
    return Done(), ()


def decision_of(name: str, walk: Walk, answer: Answer = done) -> AnyDecision:
    """Return what a walk comes to: its first step is made at once, and the only one if it ends in
    it. The name is for people."""
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
    """Yield the records of each step, and whether it was the last. Those of a step in which little
    changed wait for the next ones: only its time is over, and an empty slice says so."""
    records: list[pb.MetadataRecord] = []
    looks = 0
    for record in walk:
        looks += 1
        if record is not None:
            records.append(record)
        if len(records) == STEP_RECORDS:
            yield tuple(records), False
            records, looks = [], 0
        elif looks == STEP_LOOKS:
            yield (), False
            looks = 0
    yield tuple(records), True
