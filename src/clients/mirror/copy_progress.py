"""The progress of one partition's copy. Pure.

A partition starts with a comparison: the end of the copy, and whether its last batch equals the
source's. Then it is copied. Every event (an error, a new source leader, another end of the copy)
returns it to the comparison, the only way into copying. Responses to requests of an earlier turn
are dropped.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

PAUSE_MS: Final = (50, 5_000)
"""Pause after a failure: first and maximum, doubled each time."""

SHORT_MS: Final = 15_000
"""Time for which a source may end before its copy: a new leader's high watermark may lag."""

FAILURES_TOLD: Final = 6
"""Consecutive failures after which a partition is reported as failing (a few seconds)."""


Life: TypeAlias = tuple[bytes, int]
"""A copy's topic id and leader epoch."""


class CopyState(StrEnum):
    """The state of a partition's copy."""

    COMPARING = "looking"  # the copy is compared with its source
    COPYING = "copying"
    STOPPED = "stopped"  # for good; `reason` has the reason


@dataclass(slots=True, kw_only=True)
class CopyProgress:
    """The progress of one partition; times are Clock.now_ms()."""

    topic: str
    partition: int
    source: str  # the topic's mirror.source
    state: CopyState = CopyState.COMPARING
    reason: str = ""  # reason of the stop, or the last failure; empty: none
    is_diverged: bool = False  # stopped: its source has other records
    is_gone: bool = False  # stopped: its source has no such topic
    turn: int = 0  # number of the comparison: responses of earlier ones are dropped
    checked_epoch: int = -1  # the source's leader epoch at the last comparison
    address: str = ""  # the source leader in that epoch
    asked_to: int = 0  # end of the fetched offsets: the next fetch offset
    sent_to: int = 0  # end of the copy once everything fetched is appended
    copied_to: int = 0  # exclusive end of the records committed in the copy
    copy_start: int = 0
    copy_life: Life | None = None  # last known topic id and leader epoch of the copy
    source_end: int = -1  # end of the source's committed records, -1: unknown
    source_start: int = 0
    newest_ms: int = -1  # the largest copied timestamp, -1: none
    seen_ms: int = 0  # time of the source's last response
    caught_up_ms: int = -1  # last time at which the copy had caught up, -1: never
    records: int = 0  # copied by this mirror
    bytes: int = 0
    not_before_ms: int = 0
    is_comparing: bool = False  # a comparison is in flight
    served: int = 0  # number of the last read that returned records of it
    failures: int = field(default=0, repr=False)  # consecutive
    is_reported: bool = False  # the failure was reported
    _short_since_ms: int = -1

    @property
    def place(self) -> tuple[str, int]:
        """The (topic, partition) pair."""
        return self.topic, self.partition

    @property
    def lag(self) -> int:
        """Offsets committed in the source and not in the copy, -1: unknown."""
        if self.source_end < 0:
            return -1
        return max(0, self.source_end - max(reached_offset(self), self.source_start))

    @property
    def is_caught_up(self) -> bool:
        """True if the copy has reached the last known end of the source."""
        return self.state is CopyState.COPYING and self.source_end >= 0 and self.lag == 0

    @property
    def is_failing(self) -> bool:
        """True if it failed repeatedly and is not copied; `reason` has the reason."""
        return self.state is not CopyState.STOPPED and self.failures >= FAILURES_TOLD

    def lag_ms(self, now_ms: int) -> int:
        """Return the time since the copy was last caught up; -1: never in this mirror."""
        if self.is_caught_up:
            return 0
        return -1 if self.caught_up_ms < 0 else max(0, now_ms - self.caught_up_ms)

    def looked(
        self, *, copy_start: int, copy_end: int, source_start: int, address: str, epoch: int
    ) -> None:
        """Start to copy: the copy equals its source, as led at this address in this epoch.

        Copying starts at the copy's end, or at the source's log start if that is later.
        """
        self.state, self.is_comparing = CopyState.COPYING, False
        self.turn += 1
        self.copy_start, self.copied_to, self.sent_to = copy_start, copy_end, copy_end
        self.asked_to, self.source_start = max(copy_end, source_start), source_start
        self.address, self.checked_epoch = address, epoch
        self._short_since_ms = -1

    def answered(self, *, source_start: int, source_end: int, now_ms: int) -> None:
        """Record the bounds in a response of the source."""
        if source_start >= 0:  # negative: not in this response
            self.source_start = source_start
        if source_end >= 0:
            self.source_end = source_end
        self.seen_ms = now_ms
        self._note(now_ms)

    def sent(self, *, next_offset: int, end_offset: int) -> None:
        """Record that the source's records up to `next_offset` are being appended.

        The copy ends at `end_offset` afterwards.
        """
        self.asked_to, self.sent_to = next_offset, end_offset

    def appended(
        self,
        *,
        copy_start: int,
        copy_end: int,
        records: int,
        size: int,
        newest_ms: int,
        now_ms: int,
    ) -> None:
        """Record that an append is committed in the copy."""
        self.copy_start, self.copied_to = copy_start, copy_end
        self.records += records
        self.bytes += size
        self.newest_ms = max(self.newest_ms, newest_ms)
        self._is_well()
        self._note(now_ms)

    def failed(self, reason: str, now_ms: int) -> None:
        """Record a failure; compare again after a pause."""
        if self.state is CopyState.STOPPED:
            return
        self.failures += 1
        pause_ms = min(PAUSE_MS[0] << min(self.failures - 1, 10), PAUSE_MS[1])
        self.reason = reason
        self.compare_again(now_ms + pause_ms)

    def compare_again(self, not_before_ms: int = 0) -> None:
        """Stop copying until another comparison."""
        if self.state is not CopyState.STOPPED:
            self.state, self.is_comparing, self.not_before_ms = (
                CopyState.COMPARING,
                False,
                not_before_ms,
            )
            self.turn += 1

    def copy_changed(self, life: Life) -> None:
        """Record the copy's topic id and leader epoch; after a leader change compare again.

        A copy with a new leader may have lost records at its end.
        """
        if self.is_comparing:
            return  # the comparison may have begun before; this is called again soon
        if self.copy_life not in (None, life):
            self.compare_again()
        self.copy_life = life

    def ends_before(self, source_end: int, copy_end: int, now_ms: int) -> None:
        """Record that the source ends before the copy.

        After SHORT_MS the source counts as diverged: it has lost committed records.
        """
        if self._short_since_ms < 0:
            self._short_since_ms = now_ms
        if now_ms - self._short_since_ms < SHORT_MS:
            self.failed(f"the source ends at offset {source_end}, before the copy", now_ms)
            return
        self.stop(
            f"the source ends at offset {source_end} and the copy at {copy_end}: the source lost"
            " committed records that were copied",
            is_diverged=True,
        )

    def differs_at(self, offset: int, what: str = "another record") -> None:
        """Stop: the logs diverge at an offset, where the source has `what`."""
        self.stop(
            f"the source has {what} than the copy at offset {offset}: it lost committed records"
            " that were copied, and wrote others",
            is_diverged=True,
        )

    def stop(self, reason: str, *, is_diverged: bool = False, is_gone: bool = False) -> None:
        """Stop copying for good."""
        self.state, self.reason, self.is_diverged = CopyState.STOPPED, reason, is_diverged
        self.is_gone = is_gone
        self.is_comparing = False
        self.turn += 1

    def _note(self, now_ms: int) -> None:
        if self.is_caught_up:
            self.caught_up_ms = now_ms
            self._is_well()

    def _is_well(self) -> None:
        self.failures, self.reason, self.is_reported = 0, "", False


def reached_offset(progress: CopyProgress) -> int:
    """Return the offset up to which the source has no record that the copy lacks."""
    has_all = progress.sent_to == progress.copied_to
    return progress.asked_to if has_all else progress.copied_to
