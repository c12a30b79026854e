"""Selection of dirty logs for compaction, and the throttle of rounds."""

from dataclasses import replace
from typing import Any

from quorumlog.runtime.rate_limit import Throttle
from quorumlog.storage import LogConfig
from quorumlog.storage.log_to_clean import LogToClean, find_log_to_clean
from quorumlog.storage.segment import SegmentAge, SegmentOutline

NOW = 1_000_000


def segments(*sizes: int, times: tuple[int | None, ...] = ()) -> list[SegmentAge]:
    """Build segments of ten offsets. The first timestamp of each is the largest one."""
    times = times or (0,) * len(sizes)
    return [
        SegmentAge(
            base_offset=at * 10,
            end_offset=at * 10 + 10,
            size=size,
            max_timestamp=time,
            created_ms=0,
            first_timestamp=-1 if time is None else time,
        )
        for at, (size, time) in enumerate(zip(sizes, times, strict=True))
    ]


def outline(found: list[SegmentAge]) -> SegmentOutline:
    return SegmentOutline(
        bases=[segment.base_offset for segment in found],
        sizes=[segment.size for segment in found],
        end_offset=found[-1].end_offset if found else 0,
        age_of=found.__getitem__,
    )


def judge(
    found: list[SegmentAge], *, limit: int = 1_000, cleaned_to: int = 0, **config: Any
) -> LogToClean:
    return find_log_to_clean(
        outline(found),
        LogConfig(compacted=True, **config),
        now_ms=NOW,
        limit_offset=limit,
        cleaned_to=cleaned_to,
    )


def test_log_to_clean_depends_on_the_dirty_ratio_of_inactive_segments() -> None:
    found = segments(50, 30, 20, 999)
    dirt = judge(found, cleaned_to=10)
    assert (dirt.first_dirty_offset, dirt.end_offset, dirt.dirty_bytes) == (10, 30, 50)
    assert (dirt.ratio, dirt.is_due) == (0.5, True)
    assert not judge(found, cleaned_to=20).is_due
    assert judge(found, cleaned_to=20, min_cleanable_dirty_ratio=0.2).is_due


def test_clean_log_is_never_selected() -> None:
    dirt = judge(segments(50, 30, 1), cleaned_to=20, min_cleanable_dirty_ratio=0.0)
    assert (dirt.is_due, dirt.dirty_bytes) == (False, 0)
    assert not judge(segments(50), min_cleanable_dirty_ratio=0.0).is_due, (
        "all records are in the active segment"
    )
    assert (
        find_log_to_clean(outline([]), LogConfig(), now_ms=0, limit_offset=0, cleaned_to=0)
        == LogToClean()
    )


def test_records_above_the_last_stable_offset_are_not_cleaned() -> None:
    assert judge(segments(1, 1, 1, 1), limit=29).end_offset == 20


def test_cleaner_checkpoint_outside_of_the_log_is_ignored() -> None:
    found = [*segments(1, 1, 1)][1:]
    assert judge(found, cleaned_to=9).first_dirty_offset == 10
    assert judge(found, cleaned_to=31).first_dirty_offset == 10
    assert judge(found, cleaned_to=20).first_dirty_offset == 20


def test_min_compaction_lag_delays_all_later_records() -> None:
    found = segments(1, 1, 1, 1, times=(0, NOW - 99, 0, 0))
    assert judge(found, min_compaction_lag_ms=100).end_offset == 10
    assert judge(found, min_compaction_lag_ms=99).end_offset == 30
    assert judge(found, min_compaction_lag_ms=100, cleaned_to=20).end_offset == 30


def test_max_compaction_lag_overrides_the_dirty_ratio() -> None:
    found = segments(1_000, 1, 1, times=(0, NOW - 101, NOW))
    dirt = judge(found, cleaned_to=10, max_compaction_lag_ms=100)
    assert (dirt.is_due, dirt.is_overdue, dirt.rolls) == (True, True, False)
    assert not judge(found, cleaned_to=10, max_compaction_lag_ms=101).is_due
    due = judge(segments(1, 1), min_cleanable_dirty_ratio=0.0)
    assert dirt.urgency > due.urgency


def test_max_compaction_lag_rolls_the_active_segment() -> None:
    found = segments(1_000, 1, times=(0, NOW - 101))
    assert judge(found, cleaned_to=10, max_compaction_lag_ms=100).rolls
    assert not judge(found, cleaned_to=10, max_compaction_lag_ms=101).rolls
    stuck = segments(1_000, 1, 1, times=(0, NOW - 101, NOW - 101))
    assert not judge(stuck, cleaned_to=10, limit=19, max_compaction_lag_ms=100).rolls


def test_timestamps_are_read_only_if_a_lag_is_set() -> None:
    found = segments(1, 1, 1, times=(None, None, None))
    assert judge(found, cleaned_to=10).unknown is None
    assert judge(found, cleaned_to=10, max_compaction_lag_ms=5).unknown == 1
    assert judge(found, min_compaction_lag_ms=5).unknown == 0


def test_timestamps_are_read_only_from_the_deciding_segments() -> None:
    """Otherwise every check would read the timestamps of all segments."""
    found = segments(*[1] * 10_000, times=(0,) * 10_000)
    asked: list[int] = []

    def aged(place: int) -> SegmentAge:
        asked.append(place)
        return found[place]

    view = replace(outline(found), age_of=aged)
    for config, settled, places in (
        (LogConfig(compacted=True), 0, []),
        (LogConfig(compacted=True, max_compaction_lag_ms=5), 0, [9_000]),
        (LogConfig(compacted=True, min_compaction_lag_ms=5), 9_997, [9_997, 9_998]),
    ):
        asked.clear()
        dirt = find_log_to_clean(
            view, config, now_ms=NOW, limit_offset=10**6, cleaned_to=90_000, settled=settled
        )
        assert (asked, dirt.dirty_bytes, dirt.end_offset) == (places, 999, 99_990)


def test_throttle_accumulates_no_unused_budget() -> None:
    throttle = Throttle(1_000)
    assert throttle.spend(500, now_ms=10_000) == 500
    assert throttle.spend(500, now_ms=10_000) == 1_000
    assert throttle.spend(1, now_ms=99_000) == 1
    assert Throttle(0).spend(10**12, now_ms=0) == 0
