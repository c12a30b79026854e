"""What of a compacted log is dirty, whether that is worth a round, and which log comes first.

A log is clean up to where the last round came, dirty behind. What a round may take ends before the
active segment, before the limit offset (the last stable offset, and what is flushed), and before
the first dirty segment that has a record younger than `min_compaction_lag_ms`. A log is due when
the dirty part of what could be cleaned is `min_cleanable_dirty_ratio` of it or more, or when its
oldest dirty record is older than `max_compaction_lag_ms`; for that even the active segment is
rolled. Batches without timestamps are as old as their segment's file, as retention has it. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..config import LogConfig
from .retention import Aged, age_base


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """What could be cleaned of a log: offsets [first_dirty_offset, end_offset)."""

    first_dirty_offset: int = 0
    end_offset: int = 0  # exclusive: where a segment starts
    dirty_bytes: int = 0
    ratio: float = 0.0  # of the dirty bytes in all that a round would see, [0, 1]
    is_due: bool = False
    is_overdue: bool = False  # by age: goes before all that are due by their ratio
    rolls: bool = False  # the active segment has a record that is overdue: roll it first
    unknown: int | None = None  # place of the segment whose timestamps decide: ask again with them

    @property
    def urgency(self) -> tuple[bool, float]:
        """The larger, the sooner."""
        return self.is_overdue, self.ratio


def dirt_of(
    segments: Sequence[Aged],
    config: LogConfig,
    *,
    now_ms: int,
    limit_offset: int,
    cleaned_to: int,
) -> Dirt:
    """Decide. `segments` are all of the log's, ascending, the last one active; `cleaned_to` is
    where earlier rounds came, 0 if there were none; `now_ms` is UTC."""
    if not segments or not config.compacted:
        return Dirt()
    first_dirty = cleaned_to
    if not segments[0].base_offset <= cleaned_to <= segments[-1].end_offset:
        first_dirty = segments[0].base_offset  # of a log that is gone, or cut below it
    end, clean, dirty = segments[0].base_offset, 0, 0
    oldest: int | None = None
    oldest_place = -1
    lag_limits = config.min_compaction_lag_ms > 0
    ages = lag_limits or config.max_compaction_lag_ms < now_ms
    for place, segment in enumerate(segments):
        is_dirty = segment.end_offset > first_dirty and segment.size > 0
        if is_dirty and ages and segment.max_timestamp is None:
            return Dirt(unknown=place)
        if is_dirty and ages and oldest is None:
            first = segment.first_timestamp
            oldest = first if first >= 0 else age_base(segment)
            oldest_place = place
        is_young = lag_limits and is_dirty and age_base(segment) > _before(now_ms, config)
        if place == len(segments) - 1 or segment.end_offset > limit_offset or is_young:
            break
        end = segment.end_offset
        clean += 0 if is_dirty else segment.size
        dirty += segment.size if is_dirty else 0
    ratio = dirty / (clean + dirty) if dirty else 0.0
    is_overdue = oldest is not None and now_ms - oldest > config.max_compaction_lag_ms
    return Dirt(
        first_dirty_offset=first_dirty,
        end_offset=end,
        dirty_bytes=dirty,
        ratio=ratio,
        is_due=dirty > 0 and (is_overdue or ratio >= config.min_cleanable_dirty_ratio),
        is_overdue=is_overdue and dirty > 0,
        rolls=is_overdue and oldest_place == len(segments) - 1,
    )


def _before(now_ms: int, config: LogConfig) -> int:
    """Return the time from which on records are too young."""
    return now_ms - config.min_compaction_lag_ms
