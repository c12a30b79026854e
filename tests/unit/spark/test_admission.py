"""The share of a backlog that a micro-batch takes, and its waits for more records."""

from hypothesis import given
from hypothesis import strategies as st

from quorumlog.ids import TopicPartition
from quorumlog.spark.admission import (
    PAUSE_MS_MAX,
    RECORD_BYTES,
    Admission,
    Density,
    Pace,
    limit_bytes,
)
from quorumlog.spark.options import Limits

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SECOND = 1_000


def test_without_limits_the_whole_backlog_is_taken() -> None:
    assert Admission(Limits()).end_of({A: 3}, {A: 10}, {}, now_ms=0) == {A: 10}


def test_first_batch_runs_and_later_ones_wait_for_the_minimum() -> None:
    admission = Admission(Limits(offsets_min=5, delay_ms_max=60 * SECOND))
    assert admission.end_of({A: 0}, {A: 2}, {}, now_ms=0) == {A: 2}
    assert admission.end_of({A: 2}, {A: 6}, {}, now_ms=SECOND) is None
    assert admission.end_of({A: 2}, {A: 7}, {}, now_ms=2 * SECOND) == {A: 7}


def test_records_wait_at_most_the_delay_since_the_first_was_found() -> None:
    admission = Admission(Limits(offsets_min=5, delay_ms_max=60 * SECOND))
    assert admission.end_of({A: 0}, {A: 0}, {}, now_ms=0) == {A: 0}
    assert admission.end_of({A: 0}, {A: 0}, {}, now_ms=500 * SECOND) == {A: 0}, "no record waits"
    assert admission.end_of({A: 0}, {A: 1}, {}, now_ms=1_000 * SECOND) is None
    assert admission.end_of({A: 0}, {A: 2}, {}, now_ms=1_059 * SECOND) is None
    assert admission.end_of({A: 0}, {A: 2}, {}, now_ms=1_060 * SECOND) == {A: 2}
    assert admission.end_of({A: 2}, {A: 3}, {}, now_ms=1_061 * SECOND) is None, (
        "the delay starts again"
    )


def test_no_record_waits_when_the_end_is_fixed() -> None:
    admission = Admission(Limits(offsets_min=5))
    assert admission.end_of({A: 0}, {A: 1}, {}, now_ms=0) == {A: 1}
    assert admission.end_of({A: 1}, {A: 2}, {}, now_ms=0, waits=False) == {A: 2}


def test_minimum_maximum_and_delay_combine() -> None:
    limits = Limits(offsets_min=4, offsets_max=6, delay_ms_max=10 * SECOND)
    admission = Admission(limits)
    assert admission.end_of({A: 0}, {A: 9}, {}, now_ms=0) == {A: 6}
    assert admission.end_of({A: 6}, {A: 9}, {}, now_ms=1 * SECOND) is None
    assert admission.end_of({A: 6}, {A: 9}, {}, now_ms=11 * SECOND) == {A: 9}
    assert admission.end_of({A: 9}, {A: 30}, {}, now_ms=12 * SECOND) == {A: 15}


def test_bytes_are_those_of_the_partitions_own_records() -> None:
    large, small = Density(size_bytes=1_000_000, offsets=100), Density(100, 100)
    starts, ends = {A: 50, B: 50}, {A: 100, B: 100}
    taken = limit_bytes(starts, ends, {A: large, B: small}, 250_025)
    assert taken == {A: 75, B: 75}
    assert limit_bytes(starts, ends, {A: large, B: small}, 500_050) == ends
    assert limit_bytes({A: 0}, {A: 10}, {}, 5 * RECORD_BYTES) == {A: 5}


def test_smaller_of_two_limits_applies() -> None:
    density = {A: Density(1_000, 10)}
    few = Admission(Limits(offsets_max=3, bytes_max=500))
    assert few.end_of({A: 0}, {A: 10}, density, now_ms=0) == {A: 3}
    light = Admission(Limits(offsets_max=8, bytes_max=500))
    assert light.end_of({A: 0}, {A: 10}, density, now_ms=0) == {A: 5}


def looks(seconds: int, *, every_ms: int) -> list[int]:
    """Return the times of the checks of an idle query that is polled at this interval."""
    pace, now_ms, found = Pace(), 0, []
    while now_ms < seconds * SECOND:
        now_ms += pace.pause_ms(now_ms)
        found.append(now_ms)
        pace.polled(now_ms, found=False)
        now_ms += every_ms
    return found


def test_idle_query_checks_twenty_times_a_second_at_most() -> None:
    found = looks(10, every_ms=10)
    assert 195 <= len(found) <= 215
    assert found[1] - found[0] == 10, "soon at first"


def test_rarely_polled_query_checks_every_time() -> None:
    assert looks(10, every_ms=PAUSE_MS_MAX) == [*range(0, 10 * SECOND, PAUSE_MS_MAX)]


def test_query_that_finds_records_does_not_pause() -> None:
    pace = Pace()
    for now_ms in range(10):
        pace.polled(now_ms, found=False)
    assert pace.pause_ms(9) == PAUSE_MS_MAX
    pace.polled(10, found=True)
    assert pace.pause_ms(10) == 0


places = st.builds(TopicPartition, st.sampled_from("tu"), st.integers(0, 3))


@given(
    backlog=st.dictionaries(places, st.integers(0, 1_000_000), min_size=1),
    sizes=st.lists(st.integers(0, 10_000_000), min_size=8, max_size=8),
    bytes_max=st.integers(1, 2**63 - 1),
)
def test_limit_by_bytes_always_progresses_and_is_never_exceeded(
    backlog: dict[TopicPartition, int], sizes: list[int], bytes_max: int
) -> None:
    starts = dict.fromkeys(backlog, 7)
    ends = {place: 7 + count for place, count in backlog.items()}
    densities = {
        place: Density(size, count)
        for (place, count), size in zip(backlog.items(), sizes, strict=False)
    }
    taken = limit_bytes(starts, ends, densities, bytes_max)
    assert taken.keys() == ends.keys()
    for place, end in taken.items():
        assert starts[place] <= end <= ends[place]
        assert end > starts[place] or not backlog[place]
