"""The cleanable part of a compacted log, and its priority for cleaning.

A log is clean below the end of the last cleaning run, dirty above it. The cleanable part ends
before the active segment, before the limit offset (the last stable offset, and the flushed offset),
and before the first dirty segment with a record younger than `min_compaction_lag_ms`. A log is due
if the dirty part is at least `min_cleanable_dirty_ratio` of the cleanable log, or if its oldest
dirty record is older than `max_compaction_lag_ms`; in the latter case even the active segment is
rolled. Batches without timestamps have the age of their segment's file, as for retention. Pure.
"""

from bisect import bisect_right
from dataclasses import dataclass

from .config import LogConfig
from .segment import SegmentOutline, age_base


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """The cleanable part of a log: offsets [first_dirty_offset, end_offset)."""

    first_dirty_offset: int = 0
    end_offset: int = 0  # exclusive: the base offset of a segment
    dirty_bytes: int = 0
    ratio: float = 0.0  # of the dirty bytes in the cleanable log, [0, 1]
    is_due: bool = False
    is_overdue: bool = False  # by age: cleaned before all logs due by their ratio
    rolls: bool = False  # the active segment has an overdue record: roll it first
    # index of a segment; load its timestamps and call again
    unknown: int | None = None

    @property
    def urgency(self) -> tuple[bool, float]:
        """Sort key: the larger, the sooner."""
        return self.is_overdue, self.ratio


def find_log_to_clean(
    outline: SegmentOutline,
    config: LogConfig,
    *,
    now_ms: int,
    limit_offset: int,
    cleaned_to: int,
    settled: int = 0,
) -> LogToClean:
    """Return the cleanable part. `cleaned_to` is the end of earlier runs, 0 without one; `now_ms`
    is UTC. Segments before index `settled` are known to be old enough: a former result asked for
    the timestamps of the segment there."""
    bases, sizes = outline.bases, outline.sizes
    if not bases or not config.compacted:
        return LogToClean()
    first_dirty = cleaned_to
    if not bases[0] <= cleaned_to <= outline.end_offset:
        # sometimes if cleaned_to > outline.end_offset: a log is truncated below its cleaned part
        first_dirty = bases[0]  # of a deleted log, or truncated below it
    first = max(0, bisect_right(bases, first_dirty) - 1)
    if first_dirty == outline.end_offset:
        first = len(bases)
    # the first segment that must not be cleaned
    stop = max(0, bisect_right(bases, limit_offset) - 1)
    oldest_place, oldest = -1, now_ms
    if config.max_compaction_lag_ms < now_ms:
        oldest_place = next((at for at in range(first, stop + 1) if sizes[at] > 0), -1)
    if oldest_place >= 0:
        segment = outline.age_of(oldest_place)
        if segment.max_timestamp is None:
            return LogToClean(unknown=oldest_place)
        first_ms = segment.first_timestamp
        oldest = first_ms if first_ms >= 0 else age_base(segment)
    if config.min_compaction_lag_ms > 0:
        young = _first_young(outline, max(first, settled), stop, now_ms, config)
        if young < stop and outline.age_of(young).max_timestamp is None:
            return LogToClean(unknown=young)
        stop = young
    clean, dirty = sum(sizes[: min(first, stop)]), sum(sizes[first:stop])
    ratio = dirty / (clean + dirty) if dirty else 0.0
    is_overdue = now_ms - oldest > config.max_compaction_lag_ms
    return LogToClean(
        first_dirty_offset=first_dirty,
        end_offset=bases[stop],
        dirty_bytes=dirty,
        ratio=ratio,
        is_due=dirty > 0 and (is_overdue or ratio >= config.min_cleanable_dirty_ratio),
        is_overdue=is_overdue and dirty > 0,
        rolls=is_overdue and oldest_place == len(bases) - 1,
    )


def _first_young(
    outline: SegmentOutline, first: int, stop: int, now_ms: int, config: LogConfig
) -> int:
    """Return the index of the first segment of [first, stop) with a record younger than
    `min_compaction_lag_ms`, or with unknown timestamps; `stop` without one."""
    before = now_ms - config.min_compaction_lag_ms
    for place in range(first, stop):
        if outline.sizes[place] > 0:
            segment = outline.age_of(place)
            if segment.max_timestamp is None or age_base(segment) > before:
                return place
    return stop
