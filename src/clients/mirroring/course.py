"""What is known of the copy of one partition, and what is to be done next for it. Pure.

A course begins by looking where the copy ends, and whether its last batch is the source's too;
then it copies. Whatever happens to it on the way (an error, a source that is led by another broker,
a copy that ends elsewhere) makes it look again: there is one way into copying, and it checks.
Answers that were under way meanwhile are of an earlier turn, and dropped.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

PAUSE_MS: Final = (50, 5_000)
"""After a failure a partition is looked at again after so long, doubled each time."""

SHORT_MS: Final = 15_000
"""A source that ends before its copy may only not know yet how far it has committed; so long."""

FAILURES_TOLD: Final = 6
"""Failures in a row from which on a partition is one that fails: it took a few seconds."""


Life: TypeAlias = tuple[bytes, int]
"""A copy's topic id and leader epoch."""


class State(StrEnum):
    """Where a partition's copy is."""

    LOOKING = "looking"  # where it ends, and whether it is one with its source
    COPYING = "copying"
    STOPPED = "stopped"  # for good, as far as a mirror can do anything: `reason` says why


@dataclass(slots=True, kw_only=True)
class Course:
    """One partition; times are Clock.now_ms()."""

    topic: str
    partition: int
    source: str  # the topic's mirror.source
    state: State = State.LOOKING
    reason: str = ""  # why it stopped, or what went wrong last; empty: nothing
    is_diverged: bool = False  # it stopped since its source has other records
    is_gone: bool = False  # it stopped since its source has no such topic
    turn: int = 0  # counts looks: what was asked for in an earlier one is dropped
    checked_epoch: int = -1  # of the source's leadership, in which it was last found to be one
    address: str = ""  # where the source is read, in that epoch
    asked_to: int = 0  # all below was fetched: where to ask for more
    sent_to: int = 0  # where the copy ends once all that was fetched is appended
    copied_to: int = 0  # all below is committed in the copy
    copy_start: int = 0
    copy_life: Life | None = None  # of the copy, as last told
    source_end: int = -1  # committed end of the source, -1: not known yet
    source_start: int = 0
    newest_ms: int = -1  # the largest timestamp that was copied, -1: none
    seen_ms: int = 0  # when the source last said how far it is
    caught_up_ms: int = -1  # when the copy last had all that it said, -1: never yet
    records: int = 0  # copied by this mirror
    bytes: int = 0
    not_before_ms: int = 0
    is_looking: bool = False  # a look is under way
    served: int = 0  # the read that last brought something of it, as its mirror counts reads
    failures: int = field(default=0, repr=False)  # in a row
    is_told: bool = False  # that it fails
    _short_since_ms: int = -1

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def lag(self) -> int:
        """Offsets that the source has committed and the copy has not, -1: not known."""
        if self.source_end < 0:
            return -1
        # What was asked for and brought nothing to send is not missing.
        reached = self.asked_to if self.sent_to == self.copied_to else self.copied_to
        return max(0, self.source_end - max(reached, self.source_start))

    @property
    def is_caught_up(self) -> bool:
        """Whether the copy had all that the source said it has when it last said so."""
        return self.state is State.COPYING and self.source_end >= 0 and self.lag == 0

    @property
    def is_failing(self) -> bool:
        """Whether it was tried again and again, and is not copied; `reason` says why."""
        return self.state is not State.STOPPED and self.failures >= FAILURES_TOLD

    def lag_ms(self, now_ms: int) -> int:
        """Return since when the copy lacks something, -1: since before this mirror ran."""
        if self.is_caught_up:
            return 0
        return -1 if self.caught_up_ms < 0 else max(0, now_ms - self.caught_up_ms)

    def looked(
        self, *, copy_start: int, copy_end: int, source_start: int, address: str, epoch: int
    ) -> None:
        """The copy is one with its source as led there in this epoch: go on behind its end, or
        where the source begins by now."""
        self.state, self.is_looking = State.COPYING, False
        self.turn += 1
        self.copy_start, self.copied_to, self.sent_to = copy_start, copy_end, copy_end
        self.asked_to, self.source_start = max(copy_end, source_start), source_start
        self.address, self.checked_epoch = address, epoch
        self._short_since_ms = -1

    def answered(self, *, source_start: int, source_end: int, now_ms: int) -> None:
        """The source has told how far it is."""
        if source_start >= 0:  # below: this answer does not say
            self.source_start = source_start
        if source_end >= 0:
            self.source_end = source_end
        self.seen_ms = now_ms
        self._note(now_ms)

    def sent(self, *, next_offset: int, end_offset: int) -> None:
        """What the source sent up to `next_offset` is on its way to the copy, which ends at
        `end_offset` then."""
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
        """What was sent is committed in the copy."""
        self.copy_start, self.copied_to = copy_start, copy_end
        self.records += records
        self.bytes += size
        self.newest_ms = max(self.newest_ms, newest_ms)
        self._is_well()
        self._note(now_ms)

    def failed(self, reason: str, now_ms: int) -> None:
        """Something went wrong: look again, after a while."""
        if self.state is State.STOPPED:
            return
        self.failures += 1
        pause_ms = min(PAUSE_MS[0] << min(self.failures - 1, 10), PAUSE_MS[1])
        self.reason = reason
        self.look_again(now_ms + pause_ms)

    def look_again(self, not_before_ms: int = 0) -> None:
        """Go on only after another look."""
        if self.state is not State.STOPPED:
            self.state, self.is_looking, self.not_before_ms = State.LOOKING, False, not_before_ms
            self.turn += 1

    def copy_lives(self, life: Life) -> None:
        """The target tells of the copy: one with another leader may have lost its end."""
        if self.is_looking:
            return  # that look may have begun before; told again soon
        if self.copy_life not in (None, life):
            self.look_again()
        self.copy_life = life

    def ends_before(self, source_end: int, copy_end: int, now_ms: int) -> None:
        """The source says that it ends before the copy does; if it goes on saying so, it has lost
        records that were committed."""
        if self._short_since_ms < 0:
            self._short_since_ms = now_ms
        if now_ms - self._short_since_ms < SHORT_MS:
            self.failed(f"the source ends at offset {source_end}, before the copy", now_ms)
            return
        self.stop(
            f"the source ends at offset {source_end} and the copy at {copy_end}: the source lost"
            " records that were committed and copied",
            is_diverged=True,
        )

    def differs_at(self, offset: int, what: str = "another record") -> None:
        """The logs are two at an offset, as `what` the source has there shows."""
        self.stop(
            f"the source has {what} at offset {offset} than the copy: it lost records that"
            " were committed and copied, and wrote others",
            is_diverged=True,
        )

    def stop(self, reason: str, *, is_diverged: bool = False, is_gone: bool = False) -> None:
        """Copy nothing more."""
        self.state, self.reason, self.is_diverged = State.STOPPED, reason, is_diverged
        self.is_gone = is_gone
        self.is_looking = False
        self.turn += 1

    def _note(self, now_ms: int) -> None:
        if self.is_caught_up:
            self.caught_up_ms = now_ms
            self._is_well()

    def _is_well(self) -> None:
        self.failures, self.reason, self.is_told = 0, "", False
