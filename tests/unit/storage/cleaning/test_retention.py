"""Selection of the oldest segments for deletion."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.storage import LogConfig
from quorumlog.storage.retention import (
    FUTURE_MS,
    DeletionReason,
    LogHold,
    RetentionDecision,
    deletable_segments,
)
from quorumlog.storage.segment import SegmentAge

NOW = 1_000_000


def segments(*sizes_and_times: tuple[int, int | None], created_ms: int = NOW) -> list[SegmentAge]:
    """Build segments of ten offsets each."""
    return [
        SegmentAge(
            base_offset=at * 10,
            end_offset=at * 10 + 10,
            size=size,
            max_timestamp=time,
            created_ms=created_ms,
        )
        for at, (size, time) in enumerate(sizes_and_times)
    ]


def judge(
    found: Sequence[SegmentAge],
    *,
    limit: int = 1_000,
    start: int = 0,
    now_ms: int = NOW,
    held: Any = (),
    **config: Any,
) -> RetentionDecision:
    return deletable_segments(
        found,
        LogConfig(**config),
        count=len(found),
        size_bytes=sum(segment.size for segment in found),
        now_ms=now_ms,
        limit_offset=limit,
        log_start_offset=start,
        held=held,
    )


def test_segment_is_deleted_when_its_newest_record_exceeds_retention_ms() -> None:
    found = segments((1, NOW - 101), (1, NOW - 100), (1, NOW))
    verdict = judge(found, retention_ms=100)
    assert verdict == RetentionDecision(reasons=(DeletionReason.AGE,), due_ms=NOW + 1)
    assert judge(found, retention_ms=100, now_ms=NOW + 1).count == 2


def test_old_segment_after_a_young_one_is_kept() -> None:
    assert judge(segments((1, NOW), (1, 0), (1, NOW)), retention_ms=100).count == 0


def test_retained_size_is_at_least_retention_bytes() -> None:
    found = segments((50, NOW), (50, NOW), (50, NOW))
    assert judge(found, retention_bytes=101).count == 0
    assert judge(found, retention_bytes=100).reasons == (DeletionReason.SIZE,)
    assert judge(found, retention_bytes=50).count == 2
    assert judge(found, retention_bytes=49).count == 2, (
        "the active segment alone is larger than retention.bytes"
    )


def test_retention_of_minus_one_deletes_nothing() -> None:
    found = segments((50, 0), (50, 0), (50, 0))
    assert judge(found, retention_ms=-1, retention_bytes=-1) == RetentionDecision()


def test_an_idle_log_is_emptied_by_rolling_its_active_segment() -> None:
    found = segments((1, 0), (1, 0))
    assert judge(found, retention_ms=100) == RetentionDecision(
        reasons=(DeletionReason.AGE,) * 2, rolls=True
    )
    assert judge([*found, *segments((0, -1))], retention_ms=100).rolls is False
    assert judge(found, retention_bytes=0).rolls


def test_empty_active_segment_is_kept() -> None:
    assert judge(segments((0, -1), created_ms=0), retention_ms=0) == RetentionDecision()
    assert judge([], retention_ms=0) == RetentionDecision()


def test_deleted_records_are_removed_under_every_cleanup_policy() -> None:
    found = segments((1, NOW), (1, NOW), (1, NOW))
    keep_all, compact = {"delete_enabled": False}, {"delete_enabled": False, "compacted": True}
    for config in (keep_all, compact, {}):
        assert judge(found, start=19, **config).reasons == (DeletionReason.DELETED,)
        assert judge(found, start=20, **config).count == 2
        assert judge(found, start=30, **config).rolls


@pytest.mark.parametrize("compacted", [False, True])
def test_a_policy_without_delete_ignores_age_and_size(compacted: bool) -> None:
    found = segments((50, 0), (50, 0), (50, 0))
    config = {"compacted": compacted, "retention_ms": 1, "retention_bytes": 1}
    assert judge(found, delete_enabled=False, **config) == RetentionDecision()
    assert judge(found, delete_enabled=True, **config).count == 3


def test_segment_without_timestamps_uses_the_file_time() -> None:
    found = segments((1, -1), (1, -1), created_ms=NOW - 100)
    assert judge(found, retention_ms=100) == RetentionDecision(due_ms=NOW + 1)
    assert judge(found, retention_ms=99).count == 2


def test_only_the_deciding_timestamp_is_read() -> None:
    found = segments((50, None), (50, None), (50, None))
    assert judge(found, retention_ms=100) == RetentionDecision(unknown=0)
    by_size = judge(found, retention_ms=100, retention_bytes=100)
    assert by_size == RetentionDecision(reasons=(DeletionReason.SIZE,), unknown=1)
    assert judge(found, retention_bytes=100) == RetentionDecision(reasons=(DeletionReason.SIZE,))


def test_future_timestamp_keeps_its_segment_and_is_reported() -> None:
    verdict = judge(segments((1, NOW + FUTURE_MS + 1), (1, NOW)), retention_ms=100)
    assert (verdict.count, verdict.is_from_future) == (0, True)
    assert verdict.due_ms == NOW + FUTURE_MS + 102
    assert not judge(segments((1, NOW + FUTURE_MS), (1, NOW)), retention_ms=100).is_from_future


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (29, 2), (30, 3)])
def test_unstable_records_are_kept(limit: int, count: int) -> None:
    found = segments((1, 0), (1, 0), (1, 0))
    assert judge(found, limit=limit, retention_ms=1).count == count


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentAge]:
    bases = sorted(draw(st.sets(st.integers(0, 200), min_size=2, max_size=12)))
    times = st.none() | st.integers(-1, 2 * NOW)
    return [
        SegmentAge(
            base_offset=base,
            end_offset=end,
            size=draw(st.integers(0, 100)),
            max_timestamp=draw(times),
            created_ms=draw(st.integers(0, 2 * NOW)),
        )
        for base, end in pairwise(bases)
    ]


@given(
    logs(),
    st.integers(-1, 300),
    st.integers(-1, 300),
    st.integers(-1, 2 * NOW),
    st.integers(-1, 500),
    st.booleans(),
)
def test_retention_deletes_nothing_at_or_above_the_limit(
    found: list[SegmentAge], limit: int, start: int, age_ms: int, size: int, deletes: bool
) -> None:
    verdict = judge(
        found,
        limit=limit,
        start=start,
        retention_ms=age_ms,
        retention_bytes=size,
        delete_enabled=deletes,
    )
    gone, stay = found[: verdict.count], found[verdict.count :]
    assert all(segment.end_offset <= limit for segment in gone)
    assert verdict.rolls == (not stay)
    assert all(segment.size for segment in gone if segment is found[-1])
    for segment, reason in zip(gone, verdict.reasons, strict=True):
        match reason:
            case DeletionReason.DELETED:
                assert segment.end_offset <= start
            case DeletionReason.AGE:
                assert deletes
                assert segment.max_timestamp is not None
            case DeletionReason.SIZE:
                assert deletes
                behind = found[found.index(segment) + 1 :]
                assert sum(other.size for other in behind) >= size >= 0


# --- holds -------------------------------------------------------------------------------------


def test_unread_segments_of_a_group_are_held() -> None:
    found = segments((50, 0), (50, 0), (50, 0))
    assert judge(found, retention_ms=100, held=[LogHold(10, 1_000)]).count == 1
    assert judge(found, retention_ms=100, held=[LogHold(9, 1_000)]).count == 0
    assert judge(found, retention_bytes=0, held=[LogHold(25, 1_000)]).count == 2
    assert judge(found, retention_ms=100, held=[LogHold(30, 1_000)]).count == 3


def test_hold_follows_the_slowest_group() -> None:
    found = segments((50, 0), (50, 0), (50, 0))
    assert judge(found, retention_ms=100, held=[LogHold(30, 1_000), LogHold(10, 1_000)]).count == 1


def test_hold_ends_above_its_byte_limit() -> None:
    found = segments((50, 0), (50, 0), (50, 0))
    assert judge(found, retention_ms=100, held=[LogHold(0, 149)]).count == 1
    assert judge(found, retention_ms=100, held=[LogHold(0, 50)]).count == 2
    assert judge(found, retention_ms=100, held=[LogHold(0, 0)]).count == 3
    assert judge(found, retention_ms=100, held=[LogHold(0, 149), LogHold(20, 1_000)]).count == 1


def test_deleted_records_are_not_held() -> None:
    found = segments((50, 0), (50, 0), (50, 0))
    verdict = judge(found, start=10, retention_ms=100, held=[LogHold(0, 1_000)])
    assert verdict.reasons == (DeletionReason.DELETED,)


def test_timestamps_of_held_segments_are_not_read() -> None:
    found = segments((50, None), (50, 0))
    assert judge(found, retention_ms=100, held=[LogHold(0, 1_000)]) == RetentionDecision()
