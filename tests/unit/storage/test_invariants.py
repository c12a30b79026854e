"""Each numbered invariant of a log is reported once its state is corrupted."""

from collections.abc import Callable
from typing import Any

import pytest

from quorumlog.records.control import MarkerType
from quorumlog.storage import AppendOrigin
from quorumlog.storage.producer_state import BATCHES_KEPT

from .producers.producer_batches import data, marker

Bench = Any  # conftest.Bench
MakeBench = Callable[..., Bench]
Corrupt = Callable[[Bench], None]

MOST = 2**40  # above every offset


def log_start(b: Bench) -> None:
    b.log.log_start_offset = b.log.high_watermark + 1


def high_watermark(b: Bench) -> None:
    b.log.high_watermark = b.log.log_end_offset + 1


def recovery_point(b: Bench) -> None:
    b.log.flushed_end_offset = b.log.log_end_offset + 1


def segment_above_the_log_start(b: Bench) -> None:
    b.log._segments.bases[0] = b.log.log_start_offset + 1


def epoch_above_the_log_end(b: Bench) -> None:
    b.log.epochs.assign(99, b.log.log_end_offset + 1)


def epochs_in_disorder(b: Bench) -> None:
    b.log.epochs._epochs.reverse()


def write_at_a_gap(b: Bench) -> None:
    write = b.log.appender.prepare(
        data(7, producer=1), leader_epoch=2, wall_ms=0, origin=AppendOrigin.CLIENT
    )
    write.position += 1


def bases_differ(b: Bench) -> None:
    b.log._segments.bases[1] += 1


def size_differs(b: Bench) -> None:
    b.log._segments.size_bytes += 1


def index_of_an_inactive_segment(b: Bench) -> None:
    segments = b.log._segments
    segments[0].index = segments.active.index


def index_beyond_the_segment(b: Bench) -> None:
    active = b.log._segments.active
    active.index.truncate(0)
    for _ in range(2):
        active.index.note(
            position=active.size + 5000, size=5000, last_offset=active.base_offset, max_timestamp=0
        )


def entry_of(b: Bench, **changes: Any) -> None:
    states = b.log.producers.states
    states._entries[1] = states._entries[1]._replace(**changes)


def six_batches(b: Bench) -> None:
    batches = b.log.producers.states.entry(1).batches
    assert len(batches) == BATCHES_KEPT
    entry_of(b, batches=(*batches, batches[-1]._replace(last_offset=batches[-1].last_offset + 1)))


def batch_above_the_log_end(b: Bench) -> None:
    batch = b.log.producers.states.entry(1).batches[-1]
    entry_of(b, batches=(batch._replace(last_offset=MOST),))


def change_above_the_log_end(b: Bench) -> None:
    b.log.producers.states._last_changed = b.log.log_end_offset


def reserved_without_a_write(b: Bench) -> None:
    states = b.log.producers.states
    states._pending[1] = states._entries[1]


def transaction_forgotten(b: Bench) -> None:
    b.log.producers.states.undecided._open.clear()


def markers_in_disorder(b: Bench) -> None:
    unreplicated = b.log.producers.states.undecided._unreplicated
    items = list(unreplicated.items())
    assert len(items) > 1
    unreplicated.clear()
    unreplicated.update(reversed(items))


def marker_below_the_high_watermark(b: Bench) -> None:
    b.log.producers.states.undecided.high_watermark = b.log.log_end_offset


def snapshot_above_the_log_end(b: Bench) -> None:
    b.log.producers._kept.offsets.append(MOST)


def marker_above_the_log_end(b: Bench) -> None:
    transactions = b.log.producers.transactions
    (base,) = transactions._aborted
    entries = transactions._aborted[base]
    entries[-1] = entries[-1]._replace(last_offset=MOST)


CORRUPTIONS: tuple[tuple[int, Corrupt], ...] = (
    (1, log_start),
    (1, high_watermark),
    (2, recovery_point),
    (3, segment_above_the_log_start),
    (4, epoch_above_the_log_end),
    (4, epochs_in_disorder),
    (5, write_at_a_gap),
    (6, bases_differ),
    (7, size_differs),
    (8, index_of_an_inactive_segment),
    (8, index_beyond_the_segment),
    (9, six_batches),
    (10, batch_above_the_log_end),
    (10, change_above_the_log_end),
    (11, reserved_without_a_write),
    (12, transaction_forgotten),
    (13, markers_in_disorder),
    (13, marker_below_the_high_watermark),
    (14, snapshot_above_the_log_end),
    (15, marker_above_the_log_end),
)

CHEAP = 5
"""The invariants up to this one are checked in production too."""


def filled(bench: MakeBench) -> Bench:
    """Return a log with several segments, epochs, producers and transactions."""
    b = bench(segment_bytes=400, index_interval_bytes=100)
    for sequence in range(7):
        b.append(data(sequence, producer=1), epoch=sequence // 3)
    for producer, kind in ((2, MarkerType.ABORT), (3, MarkerType.COMMIT)):
        b.append(data(0, producer=producer, txn=True), epoch=2)
        b.append(marker(kind, producer=producer), epoch=2, origin=AppendOrigin.INTERNAL)
    b.append(data(0, producer=4, txn=True), epoch=2)
    b.flush()
    b.log.note_high_watermark(3)
    return b


@pytest.mark.parametrize(
    ("number", "corrupt"), CORRUPTIONS, ids=[corrupt.__name__ for _, corrupt in CORRUPTIONS]
)
def test_a_corrupt_state_breaks_its_invariant(
    bench: MakeBench, number: int, corrupt: Corrupt
) -> None:
    b = filled(bench)
    b.log.check_invariants()
    corrupt(b)
    with pytest.raises(AssertionError, match=rf"\binvariant {number}: "):
        b.log.check_invariants()
    if number > CHEAP:
        b.log.check_invariants(is_complete=False)
    else:
        with pytest.raises(AssertionError, match=rf"\binvariant {number}: "):
            b.log.check_invariants(is_complete=False)


def test_every_invariant_has_a_corruption() -> None:
    assert {number for number, _ in CORRUPTIONS} == set(range(1, 16))


def test_a_roll_checks_the_offsets(bench: MakeBench) -> None:
    b = filled(bench)
    recovery_point(b)
    with pytest.raises(AssertionError, match="invariant 2: "):
        b.log.appender.roll(0)
