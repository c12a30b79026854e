"""Retention: which of a log's oldest segments are deletable, by age, size, or log start offset.

Whole segments, oldest first, up to the first one that must stay, so that a log never has a gap:

- A segment below the log start offset is deletable under every policy.
- By time: the segment's largest timestamp is more than `retention_ms` ago. A segment without
  timestamps has the age of its file in this process: since it was created or opened. A
  restart so prolongs its retention, never shortens it. A timestamp in the future keeps its segment
  until that time has passed too; `is_from_future` is set so that a warning can be logged.
- By size: the remaining segments have `retention_bytes` or more.

Time and size do not apply to records held by a consumer group that has not read them yet, while the
log including them is not larger than the hold's limit in bytes.

Time and size apply only under `cleanup.policy` delete. Nothing at or above the limit offset (the
last stable offset, at most the high watermark) is deletable. If even the active segment is
deletable, it must be rolled first: an idle log becomes empty. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from .config import KEEP, LogConfig
from .segment import SegmentAge, age_base

FUTURE_MS: Final = 24 * 3600 * 1000
"""Timestamps further ahead are worth a warning: they exceed every plausible clock error."""


class DeletionReason(StrEnum):
    """The reason to delete a segment."""

    DELETED = "log_start"  # its records were deleted
    AGE = "retention.ms"
    SIZE = "retention.bytes"


class LogHold(NamedTuple):
    """A hold of a consumer group on a log: everything from an offset on."""

    offset: int  # of the next record that the group reads
    bytes_max: int  # limit of the whole log: a larger log is not held


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDecision:
    """The number of deletable segments, and the time of the next decision."""

    reasons: tuple[DeletionReason, ...] = ()  # one per deletable segment, oldest first
    rolls: bool = False  # the last of them is active: roll it first
    unknown: int | None = None  # index of a segment; load its timestamps and call again
    due_ms: int | None = None  # wall time at which the next one expires by age; None: not by age
    is_from_future: bool = False  # the remaining one has a timestamp far in the future

    @property
    def count(self) -> int:
        """Number of deletable segments."""
        return len(self.reasons)


def deletable_segments(
    segments: Iterable[SegmentAge],
    config: LogConfig,
    *,
    count: int,
    size_bytes: int,
    now_ms: int,
    limit_offset: int,
    log_start_offset: int,
    most: int | None = None,
    held: Sequence[LogHold] = (),
) -> RetentionDecision:
    """Return the deletable segments. `segments` are the log's, ascending, and are consumed as far
    as needed; there are `count` of them, the last one active, with `size_bytes` in all. `now_ms` is
    UTC. At most `most` are returned; call again for more."""
    reasons: list[DeletionReason] = []
    left = size_bytes
    by_age = config.delete_enabled and config.retention_ms != KEEP
    by_size = config.delete_enabled and config.retention_bytes != KEEP
    for place, segment in enumerate(segments):
        is_active = place == count - 1
        if place == most:
            return RetentionDecision(reasons=tuple(reasons))
        if segment.end_offset > limit_offset or (is_active and segment.size == 0):
            return RetentionDecision(reasons=tuple(reasons))
        if segment.end_offset <= log_start_offset:
            reasons.append(DeletionReason.DELETED)
        elif any(segment.end_offset > hold.offset and left <= hold.bytes_max for hold in held):
            # sometimes: a hold of a group prevents a deletion
            return RetentionDecision(reasons=tuple(reasons))
        elif by_size and left - segment.size >= config.retention_bytes:
            reasons.append(DeletionReason.SIZE)
        elif not by_age:
            return RetentionDecision(reasons=tuple(reasons))
        elif segment.max_timestamp is None:
            return RetentionDecision(reasons=tuple(reasons), unknown=place)
        elif now_ms - age_base(segment) > config.retention_ms:
            reasons.append(DeletionReason.AGE)
        else:
            return RetentionDecision(
                reasons=tuple(reasons),
                due_ms=age_base(segment) + config.retention_ms + 1,
                is_from_future=age_base(segment) > now_ms + FUTURE_MS,
            )
        left -= segment.size
    # sometimes if reasons: retention deletes the active segment
    return RetentionDecision(reasons=tuple(reasons), rolls=bool(reasons))
