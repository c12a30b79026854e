"""Which of a log's oldest segments may go: by age, by size, or since their records were deleted.

Whole segments, oldest first, up to the first that must stay, so that a log never has a hole:

- below the log start offset everything may go, whatever the policy is;
- by time, when the segment's largest timestamp is more than `retention_ms` ago. A segment whose
  batches carry none has the age of its file, as far as this process knows it: since it was made,
  or opened, so a restart prolongs its life and never shortens it. A timestamp of the future keeps
  its segment until that time has passed too: the records say so; `is_from_future` is there so that
  nobody keeps them without a word;
- by size, while what would stay has `retention_bytes` or more.

Neither reaches what a group holds that has not read it yet, while the log with it has no more than
the bytes that the hold is bounded by.

Time and size count under `cleanup.policy` delete alone. Nothing reaches the limit offset (the last
stable offset, below the high watermark). When even the active segment may go, it is to be rolled
first: an idle log becomes empty. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ..config import KEEP, LogConfig

FUTURE_MS: Final = 24 * 3600 * 1000
"""Timestamps further ahead than this are worth a warning: no clock is that wrong by accident."""


class Reason(StrEnum):
    """Why a segment may go."""

    DELETED = "log_start"  # its records were deleted
    AGE = "retention.ms"
    SIZE = "retention.bytes"


class Held(NamedTuple):
    """What a group holds of a log: everything from an offset on."""

    offset: int  # of the next record that it reads
    bytes_max: int  # of the whole log: what makes it larger is not held


class Aged(NamedTuple):
    """What is asked of one segment. Not a dataclass: a log may have 10,000."""

    base_offset: int
    end_offset: int  # exclusive: where the next one starts, or the log ends
    size: int  # bytes of its batches
    max_timestamp: int | None  # ms; below 0: its batches carry none; None: not known yet
    created_ms: int  # wall clock: its file was made, or opened, then
    first_timestamp: int = -1  # ms, of its first batch; known where max_timestamp is; below 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How many of the oldest segments may go, and when to ask again."""

    reasons: tuple[Reason, ...] = ()  # one for each that may go, oldest first
    rolls: bool = False  # the last of them is active: roll it first
    unknown: int | None = None  # place of the segment whose largest timestamp decides
    due_ms: int | None = None  # wall time at which age lets the next one go; None: not by age
    is_from_future: bool = False  # the one that stays has a timestamp far in the future

    @property
    def count(self) -> int:
        """Segments that may go."""
        return len(self.reasons)


def removable(
    segments: Iterable[Aged],
    config: LogConfig,
    *,
    count: int,
    size_bytes: int,
    now_ms: int,
    limit_offset: int,
    log_start_offset: int,
    most: int | None = None,
    held: Sequence[Held] = (),
) -> Verdict:
    """Decide. `segments` are the log's, ascending, and are taken as far as they go; there are
    `count` of them, the last one active, with `size_bytes` in all. `now_ms` is UTC. No more than
    `most` are let go at once: ask again then."""
    reasons: list[Reason] = []
    left = size_bytes
    by_age = config.delete_enabled and config.retention_ms != KEEP
    by_size = config.delete_enabled and config.retention_bytes != KEEP
    for place, segment in enumerate(segments):
        is_active = place == count - 1
        if place == most:
            return Verdict(reasons=tuple(reasons))
        if segment.end_offset > limit_offset or (is_active and segment.size == 0):
            return Verdict(reasons=tuple(reasons))
        if segment.end_offset <= log_start_offset:
            reasons.append(Reason.DELETED)
        elif any(segment.end_offset > hold.offset and left <= hold.bytes_max for hold in held):
            return Verdict(reasons=tuple(reasons))
        elif by_size and left - segment.size >= config.retention_bytes:
            reasons.append(Reason.SIZE)
        elif not by_age:
            return Verdict(reasons=tuple(reasons))
        elif segment.max_timestamp is None:
            return Verdict(reasons=tuple(reasons), unknown=place)
        elif now_ms - age_base(segment) > config.retention_ms:
            reasons.append(Reason.AGE)
        else:
            return Verdict(
                reasons=tuple(reasons),
                due_ms=age_base(segment) + config.retention_ms + 1,
                is_from_future=age_base(segment) > now_ms + FUTURE_MS,
            )
        left -= segment.size
    return Verdict(reasons=tuple(reasons), rolls=bool(reasons))


def age_base(segment: Aged) -> int:
    """Return from when on a segment ages (ms, UTC)."""
    assert segment.max_timestamp is not None, f"the age of segment {segment.base_offset} is asked"
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
