"""Batches and markers of producers, with helpers that apply them to `ProducerStates` and logs."""

from typing import Any

from quorumlog.records import MarkerType, Record, encode_batch, encode_marker, parse_header
from quorumlog.storage import AppendOrigin
from quorumlog.storage.producer_state import (
    Changes,
    CompletedTransaction,
    ProducerLimits,
    ProducerStates,
)
from quorumlog.storage.segment_files import perform_removal
from quorumlog.storage.transaction_index import AbortedTransaction

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
    """Build a batch of `count` records of a producer, from a base sequence."""
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
    """Build the marker that ends a producer's transaction."""
    return encode_marker(
        producer_id=producer,
        producer_epoch=epoch,
        kind=kind,
        coordinator_epoch=coordinator,
        timestamp_ms=1_000,
    )


class Producers:
    """Producer states and the log end that belongs to them."""

    def __init__(self, **limits: int) -> None:
        self.states = ProducerStates(ProducerLimits(**limits), wall_ms=START_MS)
        self.end = 0  # behind all outstanding writes
        self.now_ms = START_MS
        self.outstanding: list[Changes] = []

    def plan(self, batch: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> Changes | None:
        header = parse_header(batch)
        changes = self.states.plan(
            batch, [(0, header)], next_offset=self.end, origin=origin, wall_ms=self.now_ms
        )
        if changes is not None:
            self.states.reserve(changes)
            self.outstanding.append(changes)
            self.end += header.last_offset_delta + 1
        return changes

    def write(
        self, batch: bytes, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> list[CompletedTransaction]:
        changes = self.plan(batch, origin)
        assert changes is not None, "no write is outstanding"
        return self.complete(changes)

    def complete(self, changes: Changes) -> list[CompletedTransaction]:
        self.outstanding.remove(changes)
        ended = self.states.complete(changes)
        self.states.check_invariants(self.end, self.outstanding)
        return ended

    def fail(self, changes: Changes) -> None:
        self.outstanding.remove(changes)
        self.states.failed(changes)
        self.states.check_invariants(self.end, self.outstanding)

    def mark(self, kind: MarkerType, **producer: Any) -> list[CompletedTransaction]:
        return self.write(marker(kind, **producer), AppendOrigin.INTERNAL)


# --- in a log: `b` is a bench ---


def mark(b: Any, kind: MarkerType, **producer: int) -> int:
    offset: int = b.append(marker(kind, **producer), origin=AppendOrigin.INTERNAL)
    return offset


def refill(b: Any, count: int, *, producer: int = 1, first: int = 0) -> None:
    """Append batches of one record, about two to a segment."""
    for sequence in range(first, first + count):
        b.append(data(sequence, producer=producer))


def names(b: Any, suffix: str) -> list[int]:
    found: list[str] = b.place.files.names(b.folder)
    return [int(name.removesuffix(suffix)) for name in found if name.endswith(suffix)]


def known(b: Any) -> dict[int, Any]:
    """Return the state of all producers without timestamps."""
    return {
        producer: entry._replace(touched_ms=0)
        for producer, entry in b.log.producers.states.entries()
    }


def crash(b: Any, *, recovery_point: int = 0) -> None:
    """Open the log as after a kill of the process."""
    b.open(is_clean=False, recovery_point=recovery_point)


def remove(b: Any, count: int) -> None:
    b.flush()
    removal = b.log.cleanup.begin_remove(count)
    perform_removal(b.place.files, removal)
    b.log.cleanup.complete_remove(removal)


def abort_two(b: Any) -> list[AbortedTransaction]:
    """Write offsets 0..9: two aborted transactions, one committed and one open."""
    b.append(data(0, producer=1, txn=True))
    b.append(data(0, producer=2, txn=True))
    mark(b, MarkerType.ABORT, producer=1)
    b.append(data(0, producer=3, txn=True))
    mark(b, MarkerType.COMMIT, producer=3)
    b.append(data(1, producer=1, txn=True))
    mark(b, MarkerType.ABORT, producer=2)
    mark(b, MarkerType.ABORT, producer=1)
    b.append(data(0, producer=4, txn=True))
    b.append(data(0, producer=5))
    return [
        AbortedTransaction(1, 0, 2, 1),
        AbortedTransaction(2, 1, 6, 5),
        AbortedTransaction(1, 5, 7, 8),
    ]
