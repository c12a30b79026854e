"""Verification of transactional batches before their append (KIP-890 part 1).

A log accepts a transactional batch if its epoch and sequence continue those of its producer. If the
batch was delayed past the end of its transaction, it would begin one that no coordinator ends. So a
partition leader asks the coordinator before a batch that would begin a transaction in the log.

The answer may be outdated when it arrives. Rules, for one partition in one leader epoch:

1. A producer's state is created before the coordinator is asked. Every marker of the producer id
   deletes it, appended or not, when the marker arrives and again at its turn in the log. But from
   transaction version 2 on, a marker ends transactions of lower epochs only, and keeps the state of
   the next one, which has the marker's epoch.
2. At the turn of a batch in the log, with nothing between the check and the append: the log has an
   open transaction of the batch's epoch, or the state that the batch asked with still exists, is
   verified and has the batch's epoch.
3. A batch above the lowest sequence that asked is refused. A log accepts any first sequence of an
   unknown producer. If the verification of a batch failed, its successor would be accepted, and its
   retry refused for ever.
4. A verified state refuses batches of older epochs. A newer epoch replaces it once that is verified
   too: a batch that no coordinator confirms must not fence a producer. A state without an answer is
   replaced by that of any other epoch.
5. A state is that of one transactional id, and a batch needs the state of its own id, also in an
   open transaction. Without a verified one, as after a change of the leader, the coordinator is
   asked. Ids and sequences of a producer are no secret: another client could otherwise write into
   its transaction. A question has no effect on the states of other transactional ids, and its state
   is deleted if the coordinator refuses the producer under this id.
6. At most `PRODUCERS_MAX` states exist; a new one then drops those of the oldest producer.

The batches of a state that is replaced or dropped are refused, and their retry asks again.

A state stays after its batch is stored, until the next marker: if the write fails, it is retried
without another request.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ..errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotEnoughReplicas,
    OutOfOrderSequence,
    ProducerFenced,
    QuorumlogError,
    TransactionAbortable,
)
from ..ids import ProducerIdentity, TopicId
from ..records.control import EPOCH_BUMP_VERSION, TransactionMarker
from ..storage.producer_state import (
    SEQUENCE_MASK,
    ProducerEntry,
    ProducerStates,
)

PRODUCERS_MAX: Final = 10_000
"""Producers of one partition that asked since their last marker, by transactional id."""

_HALF: Final = (SEQUENCE_MASK + 1) // 2


class TransactionalWrite(NamedTuple):
    """The fields of a produce request that concern its transaction."""

    transactional_id: str
    adds: bool  # the leader adds the partition to the transaction (Produce v12); False: it verifies
    knows_abortable: bool  # the client handles TransactionAbortable (Produce v11)
    # raises the denial of a write to a topic; called after a wait for the verification
    authorize: Callable[[str], None] | None = None


class Verification(NamedTuple):
    """A query to a transaction coordinator: is this partition in the producer's transaction?"""

    transactional_id: str
    producer: ProducerIdentity
    topic: str
    partition: int
    topic_id: TopicId
    adds: bool  # add the partition to the transaction


class Verifier(Protocol):
    """Sends the verifications of partition leaders to transaction coordinators."""

    def verify(
        self, verification: Verification, callback: Callable[[QuorumlogError | None], None]
    ) -> None:
        """Send a verification to its coordinator; call `callback` exactly once, on the loop, within
        a bounded time, possibly before this call returns.

        None: the partition is in the producer's open transaction. The error is that of the
        coordinator, or the reason why the request failed, which is retriable.
        """


class VerifiedProducer:
    """The verification of one producer and epoch under one transactional id."""

    __slots__ = ("is_verified", "lowest_sequence", "older", "producer", "transactional_id")

    def __init__(
        self,
        producer: ProducerIdentity,
        transactional_id: str,
        sequence: int,
        older: "VerifiedProducer | None",
    ) -> None:
        self.producer = producer
        self.transactional_id = transactional_id
        self.lowest_sequence = sequence  # of the batches that asked
        self.is_verified = False  # the coordinator has confirmed the producer's transaction
        self.older = older  # the verified state of an older epoch, valid until this one is


class VerifiedProducers:
    """The verified and waiting producers of one partition in one leader epoch."""

    __slots__ = ("_count", "_producers", "_producers_max")

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        # by producer id, oldest first, and by transactional id
        self._producers: dict[int, dict[str, VerifiedProducer]] = {}
        self._count = 0  # of the states, without older ones

    def __len__(self) -> int:
        return self._count

    def begin(
        self, producer: ProducerIdentity, transactional_id: str, sequence: int
    ) -> VerifiedProducer:
        """Return the state of a producer for a batch that must be verified. Raises
        InvalidProducerEpoch if a newer epoch was verified before."""
        producer_id, epoch = producer
        known = self._find(producer_id, transactional_id)
        verified = known
        if known is not None and not known.is_verified:
            verified = known.older
        for state in (known, verified):
            if state is not None and state.producer.producer_epoch == epoch:
                if _is_below(sequence, state.lowest_sequence):
                    # sometimes: batches are verified out of order
                    state.lowest_sequence = sequence
                return state
        if verified is not None and verified.producer.producer_epoch > epoch:
            # sometimes: a fenced producer asks for a verification
            raise InvalidProducerEpoch(
                f"producer {producer_id} writes with epoch {verified.producer.producer_epoch} now,"
                f" the batch has {epoch}; another producer took over; close this one"
            )
        if known is None:
            if self._count >= self._producers_max:
                self._count -= len(self._producers.pop(next(iter(self._producers))))
            self._count += 1
        if verified is not None:
            verified.older = None
        # sometimes if verified is not None: a producer with a raised epoch is verified
        begun = VerifiedProducer(producer, transactional_id, sequence, verified)
        self._producers.setdefault(producer_id, {})[transactional_id] = begun
        return begun

    def is_verified(self, producer: ProducerIdentity, transactional_id: str) -> bool:
        """Return True if a batch of an open transaction needs no verification: its producer was
        verified with this transactional id."""
        known = self._find(producer.producer_id, transactional_id)
        for state in (known, None if known is None else known.older):
            if state is not None and state.is_verified and state.producer == producer:
                return True
        return False

    def delete(self, state: VerifiedProducer) -> None:
        """Delete a state after the coordinator refused its producer (rule 5)."""
        producer_id = state.producer.producer_id
        if self._find(producer_id, state.transactional_id) is not state:
            return
        if state.older is not None:
            self._producers[producer_id][state.transactional_id] = state.older
            return
        self._delete(producer_id, state.transactional_id)

    def marked(self, marker: TransactionMarker) -> None:
        """Delete the states of the transactions that an arrived marker ends (rule 1)."""
        producer_id, epoch = marker.producer
        ends_any = marker.transaction_version < EPOCH_BUMP_VERSION
        for known in tuple(self._producers.get(producer_id, {}).values()):
            if ends_any or known.producer.producer_epoch < epoch:
                # sometimes if not known.is_verified: a marker arrives during a verification
                self._delete(producer_id, known.transactional_id)
            elif known.older is not None and known.older.producer.producer_epoch < epoch:
                known.older = None

    def is_valid(self, state: VerifiedProducer) -> bool:
        """Return True if a state is verified and no marker or newer epoch has deleted it."""
        known = self._find(state.producer.producer_id, state.transactional_id)
        if known is not None and not known.is_verified:
            known = known.older
        return state.is_verified and known is state

    def _find(self, producer_id: int, transactional_id: str) -> VerifiedProducer | None:
        states = self._producers.get(producer_id)
        return None if states is None else states.get(transactional_id)

    def _delete(self, producer_id: int, transactional_id: str) -> None:
        states = self._producers[producer_id]
        del states[transactional_id]
        self._count -= 1
        if not states:
            del self._producers[producer_id]


def must_verify(entry: ProducerEntry | None, producer_epoch: int) -> bool:
    """Return True if a transactional batch of this epoch would begin a transaction in a log with
    this entry of the producer. A batch of an older epoch would not: the log refuses it."""
    if entry is None or producer_epoch > entry.epoch:
        return True
    return producer_epoch == entry.epoch and entry.transaction_start < 0


def is_open(entry: ProducerEntry | None, producer_epoch: int) -> bool:
    """Return True if the log has an open transaction of this epoch of the producer."""
    if entry is None or entry.transaction_start < 0:
        return False
    return entry.epoch == producer_epoch


class VerifiedAppend:
    """The precondition of a transactional batch at its turn in the log (rules 2 and 3)."""

    __slots__ = ("_producer", "_producers", "_sequence", "_state")

    def __init__(
        self,
        producer: ProducerIdentity,
        sequence: int,
        producers: VerifiedProducers | None,
        state: VerifiedProducer | None,
    ) -> None:
        """`state`: None if the log had an open transaction when the batch arrived."""
        self._producer = producer
        self._sequence = sequence
        self._producers = producers
        self._state = state

    def is_met(self, states: ProducerStates) -> bool:
        """Return True; raise NotEnoughReplicas if a marker has arrived since the verification,
        OutOfOrderSequence if an earlier batch must be retried first.

        Below transaction version 2, the marker may be a late one of the previous transaction. A
        retry asks the coordinator: its state decides.
        """
        producer_id, epoch = self._producer
        if not must_verify(states.entry(producer_id, with_outstanding=True), epoch):
            return True
        producers, state = self._producers, self._state
        if producers is None or state is None or not producers.is_valid(state):
            raise NotEnoughReplicas(
                f"producer {producer_id}: a marker arrived before the batch was appended, so its"
                " verification is outdated; retry"
            )
        if _is_below(state.lowest_sequence, self._sequence):
            # sometimes: an earlier batch is refused before a verified one
            raise OutOfOrderSequence(
                f"producer {producer_id}, epoch {epoch}: the batch starts with sequence"
                f" {self._sequence}, but the one of sequence {state.lowest_sequence} was refused;"
                " send that one first"
            )
        return True


class MarkerAppend:
    """The precondition of a marker at its turn in the log."""

    __slots__ = ("_last_sequence", "_marked", "_marker", "_torn")

    def __init__(
        self,
        marker: TransactionMarker,
        marked: Callable[[TransactionMarker], None],
        last_sequence: int,
        torn: Callable[[int, int], None],
    ) -> None:
        """`marked` deletes the verification that the marker ends. `last_sequence` is that of the
        transaction in this partition, -1 if unknown. `torn` gets it with that of the log if they
        differ: a commit of which the log lacks records."""
        self._last_sequence = last_sequence
        self._marker = marker
        self._marked = marked
        self._torn = torn

    def is_met(self, states: ProducerStates) -> bool:
        """Delete the verification that the marker ends, and check the marker; see
        `ProducerStates.check_marker`."""
        marker, last = self._marker, self._last_sequence
        self._marked(marker)
        if not states.check_marker(marker):
            return False
        if marker.is_commit and last >= 0:
            held = _last_in_transaction(states, marker.producer.producer_id)
            if held != last:
                # sometimes: a committed transaction lacks records in a partition
                self._torn(last, held)
                self._last_sequence = -1  # reported, if the marker has another turn
        return True


def not_in_transaction(message: str, *, knows_abortable: bool) -> QuorumlogError:
    """Return the error for a batch outside of an open transaction."""
    return TransactionAbortable(message) if knows_abortable else InvalidTxnState(message)


def verification_error(error: QuorumlogError, transaction: TransactionalWrite) -> QuorumlogError:
    """Return the error for a batch after its verification failed, as its client expects it.

    Clients look up leaders, not coordinators, after an error of Produce. So an error that a retry
    may overcome becomes NotEnoughReplicas, which every client retries without a look-up.
    """
    if isinstance(error, InvalidTxnState | TransactionAbortable):
        return not_in_transaction(
            f"the partition is not in the transaction: {error.message}",
            knows_abortable=transaction.knows_abortable,
        )
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    if isinstance(error, ConcurrentTransactions) and transaction.adds:
        return error  # frequent here, and clients that let the leader add retry it
    if error.retriable:
        return NotEnoughReplicas(f"the transaction could not be verified: {error.message}; retry")
    return error


def _last_in_transaction(states: ProducerStates, producer_id: int) -> int:
    """Return the last sequence in the open transaction of a producer, -1 without one."""
    entry = states.entry(producer_id)
    if entry is None or entry.transaction_start < 0 or not entry.batches:
        return -1
    return entry.batches[-1].last_sequence


def _is_below(sequence: int, other: int) -> bool:
    """Return True if a sequence precedes another one; they count modulo 2^31."""
    return 0 < (other - sequence) & SEQUENCE_MASK < _HALF
