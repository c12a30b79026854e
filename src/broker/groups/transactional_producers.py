"""The producers that commit offsets in transactions, of one partition of `__consumer_offsets`.
Pure.

The shard checks the epoch of a commit and of a marker here, before it decides: an append that the
log refused would discard the state of all groups. So these rules are at least as strict as those of
the log (`ProducerStates`), which sees the same batches.

Rules; m is the epoch of a marker, e the newest epoch of its producer here:

1. A commit with an epoch below e is refused: its transaction has ended.
2. A commit that begins a transaction here must have been verified at the transaction coordinator
   (KIP-890), and no marker that may end its transaction may have arrived since the verification
   began. Otherwise a delayed commit would begin a transaction that no coordinator ends. From
   transaction version 2 on, a marker ends transactions of epochs below m only; m is the epoch of
   the next one. The verification is that of the transactional id of the commit: a commit under
   another id, or after a reload, which leaves the id unknown, is verified also if the transaction
   is open here.
3. Marker of an unknown producer, or m > e: appended, even if the producer has written nothing here:
   its commit may still be on its way.
4. m = e and no transaction is open: a repeat, acknowledged and not appended (KAFKA-19999).
5. m = e and a transaction is open, or m < e: refused; it belongs to an earlier transaction.
6. Below transaction version 2 the epoch does not distinguish transactions: m >= e is appended.
7. A marker of an older coordinator epoch than the last one is refused.
8. An idle producer is forgotten after `producer.id.expiration.ms` and `EXPIRATION_MARGIN_MS`, and
   the longest idle one if there would be more than `producer.ids.max`; never one with an open
   transaction.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from ...errors import (
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    TransactionCoordinatorFenced,
)
from ...ids import ProducerIdentity
from ...records.control import EPOCH_BUMP_VERSION, TransactionMarker
from ...storage.producer_state import ProducerLimits

EXPIRATION_MARGIN_MS: Final = 3_600_000
"""Added to the log's expiration time: the log checks idle time at intervals, and must not keep a
producer longer than this table."""


class VerificationGuard(NamedTuple):
    """Proof that a verification began after the last marker that may end its transaction. Valid for
    the producers that issued it, so it ends with a reload."""

    producers: "TransactionalProducers"
    marker_count: int


class GroupProducer:
    """The state of one producer."""

    __slots__ = (
        "coordinator_epoch",
        "ended_epoch",
        "epoch",
        "is_open",
        "last_marker_count",
        "newest_marker_count",
        "touched_ms",
        "transactional_id",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1  # of the last marker; -1: none
        self.is_open = False  # a transaction is open here
        self.last_marker_count = 0  # the number of markers up to its last one below version 2
        self.newest_marker_count = 0  # the number of markers up to its last one
        self.ended_epoch = 0  # of its markers from version 2 on: transactions below it have ended
        self.touched_ms = 0
        self.transactional_id: str | None = None  # that was verified; None: unknown after a reload


class TransactionalProducers:
    """The producers of one partition; times are in milliseconds of the wall clock."""

    __slots__ = ("_forgotten_marker_count", "_limits", "_marker_count", "_producers")

    def __init__(self, limits: ProducerLimits) -> None:
        """`limits` are those of the log."""
        self._limits = limits
        self._producers: dict[int, GroupProducer] = {}  # the longest idle first
        self._marker_count = 0  # of all producers, appended or not
        # The number of markers up to the last one of a forgotten producer.
        self._forgotten_marker_count = 0

    def __len__(self) -> int:
        return len(self._producers)

    def is_open(self, producer_id: int) -> bool:
        """Return True if the producer has a transaction open here."""
        known = self._producers.get(producer_id)
        return known is not None and known.is_open

    # --- commits ----------------------------------------------------------------------------------

    def guard(self, producer: ProducerIdentity, transactional_id: str) -> VerificationGuard | None:
        """Return the guard to hold while a transaction is verified; None if it is open here under
        this transactional id, so that it needs no verification. Raises InvalidProducerEpoch."""
        self._check_epoch(producer)
        if self._is_verified(producer, transactional_id):
            return None
        return VerificationGuard(self, self._marker_count)

    def check_commit(
        self, producer: ProducerIdentity, transactional_id: str, guard: VerificationGuard | None
    ) -> None:
        """Raise the error of a commit that must not be appended (rules 1 and 2):
        InvalidProducerEpoch; InvalidTxnState without a verification; CoordinatorNotAvailable if it
        must be verified again."""
        self._check_epoch(producer)
        if self._is_verified(producer, transactional_id):
            return
        producer_id, epoch = producer
        known = self._producers.get(producer_id)
        if guard is None:
            raise InvalidTxnState(
                f"producer {producer_id}, epoch {epoch}: the transaction was not verified; begin it"
                " at the transaction coordinator"
            )
        has_ended = self._forgotten_marker_count > guard.marker_count or (
            known is not None
            and (epoch < known.ended_epoch or known.last_marker_count > guard.marker_count)
        )
        if guard.producers is not self or has_ended:
            # sometimes: a marker arrives while group offsets are verified
            raise CoordinatorNotAvailable(
                f"producer {producer_id}, epoch {epoch}: a transaction ended while this one was"
                " verified; retry"
            )

    def begin(self, producer: ProducerIdentity, transactional_id: str | None, now_ms: int) -> None:
        """Record a transactional batch of a producer. `transactional_id` is None while loading."""
        known = self._touch(producer, now_ms)
        known.is_open = True
        known.transactional_id = transactional_id

    def _is_verified(self, producer: ProducerIdentity, transactional_id: str) -> bool:
        """Return True if the producer has a transaction open here that was verified with this
        transactional id."""
        known = self._producers.get(producer.producer_id)
        return (
            known is not None
            and known.is_open
            and known.epoch == producer.producer_epoch
            and known.transactional_id == transactional_id
        )

    def _check_epoch(self, producer: ProducerIdentity) -> None:
        producer_id, epoch = producer
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id}: epoch {epoch} is not the current one, {known.epoch}; its"
                " transaction has ended, or another producer with this transactional id has"
                " started"
            )

    # --- markers ----------------------------------------------------------------------------------

    def end(self, marker: TransactionMarker, now_ms: int) -> bool:
        """Record a marker; return False for a repeat, which must not be appended. Raises
        InvalidProducerEpoch and TransactionCoordinatorFenced (rules 3 to 7). The verifications of
        the transactions that it may end are void in any case (rule 2)."""
        self._marker_count += 1
        producer_id, epoch = marker.producer
        known = self._producers.get(producer_id)
        if known is not None:
            self._end_verifications(known, marker)
            is_late = epoch == known.epoch and marker.transaction_version >= EPOCH_BUMP_VERSION
            if epoch < known.epoch or (is_late and known.is_open):
                # sometimes: an old marker of group offsets arrives
                raise InvalidProducerEpoch(
                    f"producer {producer_id}: a marker of epoch {epoch} belongs to an earlier"
                    f" transaction; the current epoch is {known.epoch}"
                )
            if marker.coordinator_epoch < known.coordinator_epoch:
                raise TransactionCoordinatorFenced(
                    f"producer {producer_id}: a marker of coordinator epoch"
                    f" {marker.coordinator_epoch} follows one of {known.coordinator_epoch}; another"
                    " transaction coordinator has taken over"
                )
            if is_late:
                # sometimes: a marker of group offsets is repeated
                return False
        self._apply(marker, now_ms)
        return True

    def _apply(self, marker: TransactionMarker, now_ms: int) -> None:
        known = self._touch(marker.producer, now_ms)
        known.is_open = False
        known.coordinator_epoch = marker.coordinator_epoch
        self._end_verifications(known, marker)

    def _end_verifications(self, known: GroupProducer, marker: TransactionMarker) -> None:
        known.newest_marker_count = self._marker_count
        if marker.transaction_version < EPOCH_BUMP_VERSION:
            known.last_marker_count = self._marker_count
        else:
            known.ended_epoch = max(known.ended_epoch, marker.producer.producer_epoch)

    def _touch(self, producer: ProducerIdentity, now_ms: int) -> GroupProducer:
        """Return the state of a producer, with the epoch of its newest batch."""
        producer_id, epoch = producer
        known = self._producers.pop(producer_id, None)
        if known is None:
            known = GroupProducer(epoch)
            self._evict_idle()
        self._producers[producer_id] = known
        known.epoch = epoch
        known.touched_ms = now_ms
        return known

    def _evict_idle(self) -> None:
        """Forget the longest idle producers, so that one more fits, as far as rule 8 allows."""
        surplus = len(self._producers) + 1 - self._limits.producers_max
        if surplus > 0:
            idle = (each for each, known in self._producers.items() if not known.is_open)
            self._forget(list(islice(idle, surplus)))

    def _forget(self, producer_ids: Iterable[int]) -> None:
        for producer_id in producer_ids:
            known = self._producers.pop(producer_id)
            self._forgotten_marker_count = max(
                self._forgotten_marker_count, known.newest_marker_count
            )

    # --- loading and expiry -----------------------------------------------------------------------

    def replay_marker(self, marker: TransactionMarker) -> None:
        """Apply a stored marker."""
        self._marker_count += 1
        self._apply(marker, 0)

    def loaded(self, now_ms: int) -> None:
        """Finish loading: every producer counts as active now."""
        for known in self._producers.values():
            known.touched_ms = now_ms

    def expire(self, now_ms: int) -> None:
        """Forget idle producers without an open transaction; O(producers)."""
        kept_ms = self._limits.expiration_ms + EXPIRATION_MARGIN_MS
        self._forget(
            [
                producer_id
                for producer_id, known in self._producers.items()
                if not known.is_open and now_ms - known.touched_ms >= kept_ms
            ]
        )
