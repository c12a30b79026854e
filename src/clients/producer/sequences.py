"""Sequence numbers of an idempotent producer in one partition. Pure.

A leader remembers the last five batches of each producer id and epoch, and accepts the next batch
only if its base sequence continues them. The rules that follow (KIP-98, KIP-360; R22):

1. A batch gets its number when it is first taken for sending and keeps it over every retry, at
every leader. The halves of a batch that was too large share its range. 2. A leader without state
of the producer accepts any number, even the second batch without the first. Several batches, at
most five, are in flight only while the leader certainly has the state: it acknowledged a batch of
this identity within `TRUST_MS`. 3. After a failure nothing more is sent until all batches in
flight have their responses. Then the oldest is sent alone, until the next acknowledgement. 4. A
numbered batch that is given up leaves a gap. Batches sent after it that may be stored are resolved
first, under their old numbers. Then the epoch is incremented and numbers start at 0. The leader
refuses the older epoch from then on: no delayed request is stored after newer ones. 5. A batch
that is certainly not stored may get another number. A batch that may be stored gets one only if
its old number is unusable because an earlier batch was renumbered.

Each partition increments its own epoch of the producer id, since each log keeps its own producer
state: a loss in one partition does not affect the others.

A transactional producer has one identity for all partitions, which the transaction coordinator
assigns for each transaction (`adopt`). Its batches are never renumbered: a batch that is given up
makes the transaction abortable, and the next transaction has a new epoch.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from ...ids import ProducerIdentity

IN_FLIGHT_MAX: Final = 5
"""Maximum of a partition's batches in flight: as many as a log remembers of a producer."""

TRUST_MS: Final = 60_000
"""Logs keep a producer's state for longer than this after its last batch (`retry_window_ms`)."""

SEQUENCE_MASK: Final = 2**31 - 1
"""Sequences count modulo 2^31."""

EPOCH_MAX: Final = 2**15 - 1
"""Epochs are signed 16-bit integers."""

NO_ID: Final = -1


class ProducerSequence(NamedTuple):
    """Producer id, epoch and base sequence of a batch."""

    producer_id: int
    epoch: int
    sequence: int  # of the first record

    def after(self, count: int) -> "ProducerSequence":
        """Return the number that follows `count` records."""
        return self._replace(sequence=(self.sequence + count) & SEQUENCE_MASK)


@dataclass(slots=True)
class SequenceNumbers:
    """The numbering state of one partition."""

    producer_id: int = NO_ID
    epoch: int = 0
    next_sequence: int = 0
    record_count: int = 0  # records with a number of this identity
    has_gap: bool = False  # a number of this epoch was given up: the next epoch must begin
    is_spent: bool = False  # a leader reported that another producer has the id
    is_trusted: bool = False  # the leader certainly has the state of this identity
    acknowledged_ms: int = 0

    @property
    def needs_id(self) -> bool:
        """True if the next identity needs another producer id."""
        return self.producer_id < 0 or self.is_spent or (self.has_gap and self.epoch >= EPOCH_MAX)

    @property
    def needs_identity(self) -> bool:
        """True if the next number belongs to a new identity."""
        return self.producer_id < 0 or self.has_gap

    def begin(self, producer_id: int) -> None:
        """Start the next identity: the next epoch, or `producer_id` if `needs_id`."""
        if self.needs_id:
            assert producer_id not in (NO_ID, self.producer_id), f"{producer_id} was used up"
            self.producer_id, self.epoch = producer_id, 0
        else:
            self.epoch += 1
        self.next_sequence = self.record_count = 0
        self.has_gap = self.is_spent = self.is_trusted = False

    def adopt(self, identity: ProducerIdentity) -> None:
        """Start the identity of a transaction, unless it is the present one."""
        if (self.producer_id, self.epoch) != identity:
            self.producer_id, self.epoch = identity
            self.next_sequence = self.record_count = 0
            self.has_gap = self.is_spent = self.is_trusted = False

    def give(self, count: int) -> ProducerSequence:
        """Return the number of the next batch, of `count` records."""
        assert not self.needs_identity, f"{self} needs a new identity"
        number = ProducerSequence(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = number.after(count).sequence
        self.record_count += count
        return number

    def is_current(self, number: ProducerSequence | None) -> bool:
        """Return True if a number belongs to the present identity."""
        return number is not None and number[:2] == (self.producer_id, self.epoch)

    def acknowledged(self, number: ProducerSequence | None, now_ms: int) -> None:
        """Record that the leader stored a batch, now or before."""
        if self.is_current(number):
            self.acknowledged_ms = now_ms
            self.is_trusted = True

    def expire_trust(self, now_ms: int) -> None:
        """Revoke the trust after `TRUST_MS`; call it with no batch in flight."""
        if now_ms - self.acknowledged_ms > TRUST_MS:
            self.is_trusted = False

    def give_up(self, number: ProducerSequence | None) -> None:
        """Record that a batch with this number will not be sent again."""
        if self.is_current(number):
            self.has_gap = True
