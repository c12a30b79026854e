"""The numbers by which a partition's leader knows a repeat of an idempotent producer's batch. Pure.

A leader remembers the last five batches of each producer id and epoch, and takes the next one only
if its number (its first record's sequence) continues them. From that follow the rules here (KIP-98,
KIP-360; R22):

1. A batch gets its number when it is first taken to be sent and keeps it over every repeat, at
   whichever leader; the halves of one that was too large share its range.
2. A leader that remembers nothing of the producer takes any number, and so the second batch
   without the first. Several batches, five at most, are under way only while the leader is known to
   remember: it acknowledged one of this identity, not longer ago than `TRUST_MS`.
3. After a failure nothing more is sent until everything under way has its answer. Then the oldest
   goes first, alone, until the next acknowledgement.
4. A numbered batch that is given up leaves a gap. What was sent behind it and may be stored is
   resolved first, under its old number; then the epoch counts up and numbers start at 0. The leader
   takes nothing of the older epoch from then on: no straggler comes behind what is younger.
5. What is certainly not stored may get another number; what may be stored gets one only where its
   old number can not be taken any more, because a batch before it was renumbered.

Each partition counts its own epochs of its producer id, since each log knows producers for itself:
a loss in one partition disturbs no other.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

IN_FLIGHT_MAX: Final = 5
"""Batches of a partition under way: as many as a log remembers of a producer."""

TRUST_MS: Final = 60_000
"""Logs remember a producer for longer than this after its last batch (`retry_window_ms`)."""

SEQUENCE_MASK: Final = 2**31 - 1
"""Sequences count modulo 2^31."""

EPOCH_MAX: Final = 2**15 - 1
"""Epochs have 16 bits, signed."""

NO_ID: Final = -1


class Number(NamedTuple):
    """What a batch's header says of its producer."""

    producer_id: int
    epoch: int
    sequence: int  # of the first record

    def behind(self, count: int) -> "Number":
        """Return the number that follows `count` records."""
        return self._replace(sequence=(self.sequence + count) & SEQUENCE_MASK)


@dataclass(slots=True)
class Numbering:
    """How far one partition's numbers have come."""

    producer_id: int = NO_ID
    epoch: int = 0
    next_sequence: int = 0
    has_gap: bool = False  # a number of this epoch was given up: go on with the next one
    is_spent: bool = False  # another producer has the id, by what a leader says
    is_trusted: bool = False  # the leader is known to remember this identity
    acknowledged_ms: int = 0

    @property
    def needs_id(self) -> bool:
        """Whether the next identity takes another producer id than the present one."""
        return self.producer_id < 0 or self.is_spent or (self.has_gap and self.epoch >= EPOCH_MAX)

    @property
    def must_begin(self) -> bool:
        """Whether the next number is of another identity."""
        return self.producer_id < 0 or self.has_gap

    def begin(self, producer_id: int) -> None:
        """Take the next identity: the next epoch, or `producer_id` where that `needs_id`."""
        if self.needs_id:
            assert producer_id not in (NO_ID, self.producer_id), f"{producer_id} was used up"
            self.producer_id, self.epoch = producer_id, 0
        else:
            self.epoch += 1
        self.next_sequence = 0
        self.has_gap = self.is_spent = self.is_trusted = False

    def give(self, count: int) -> Number:
        """Return the number of the next batch, of `count` records."""
        assert not self.must_begin, f"{self} has to begin anew"
        number = Number(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = number.behind(count).sequence
        return number

    def gave(self, number: Number | None) -> bool:
        """Whether a number is of the present identity."""
        return number is not None and number[:2] == (self.producer_id, self.epoch)

    def acknowledged(self, number: Number | None, now_ms: int) -> None:
        """The leader has stored a batch, or had."""
        if self.gave(number):
            self.acknowledged_ms = now_ms
            self.is_trusted = True

    def look_at_time(self, now_ms: int) -> None:
        """Nothing is under way: trust no leader for longer than it must remember."""
        if now_ms - self.acknowledged_ms > TRUST_MS:
            self.is_trusted = False

    def gave_up(self, number: Number | None) -> None:
        """A batch of this number is not sent any more."""
        if self.gave(number):
            self.has_gap = True
