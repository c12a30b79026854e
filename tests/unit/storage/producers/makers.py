"""Batches and markers of producers, and a way to put them through `ProducerStates`."""

from typing import Any

from quorumlog.records import MarkerType, Record, encode_batch, encode_marker, parse_header
from quorumlog.storage import Origin
from quorumlog.storage.producers import ProducerLimits, ProducerStates
from quorumlog.storage.producers.states import Changes, CompletedTransaction

START_MS = 1_000_000


def data(
    sequence: int,
    *,
    producer: int = 1,
    epoch: int = 0,
    count: int = 1,
    txn: bool = False,
    value: bytes = b"v",
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch of `count` records of a producer, from a sequence on."""
    return encode_batch(
        [Record(0, 1_000, None, value) for _ in range(count)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=txn,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def marker(kind: MarkerType, *, producer: int = 1, epoch: int = 0, coordinator: int = 0) -> bytes:
    """The end of a producer's transaction."""
    return encode_marker(
        producer_id=producer,
        producer_epoch=epoch,
        kind=kind,
        coordinator_epoch=coordinator,
        timestamp_ms=1_000,
    )


class Producers:
    """States with a log's end beside them."""

    def __init__(self, **limits: int) -> None:
        self.states = ProducerStates(ProducerLimits(**limits), wall_ms=START_MS)
        self.end = 0  # behind all that is outstanding
        self.now_ms = START_MS

    def plan(self, batch: bytes, origin: Origin = Origin.CLIENT) -> Changes | None:
        header = parse_header(batch)
        changes = self.states.plan(
            batch, [(0, header)], next_offset=self.end, origin=origin, wall_ms=self.now_ms
        )
        if changes is not None:
            self.states.reserve(changes)
            self.end += header.last_offset_delta + 1
        return changes

    def write(self, batch: bytes, origin: Origin = Origin.CLIENT) -> list[CompletedTransaction]:
        changes = self.plan(batch, origin)
        assert changes is not None, "nothing is outstanding"
        ended = self.states.complete(changes)
        self.states.check_invariants()
        return ended

    def mark(self, kind: MarkerType, **who: Any) -> list[CompletedTransaction]:
        return self.write(marker(kind, **who), Origin.INTERNAL)
