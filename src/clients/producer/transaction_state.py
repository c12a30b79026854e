"""The state machine of a transactional producer (KIP-98, KIP-890, KIP-1050). Pure.

A transaction begins at the coordinator with the first batch or the first offsets; nothing is sent
for an empty one. Each end of a transaction returns the identity for the next one, with a higher
epoch, so sequence numbers begin at 0 again and delayed requests of the old transaction are fenced.

Errors have two kinds. After an abortable one only an abort is possible, then the next transaction.
After a fatal one the producer is unusable: it raises the error once, then ClientClosed.
"""

from enum import Enum
from typing import Final

from ...errors import (
    ClientClosed,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutcomeUnknown,
    ProducerFenced,
    ProducerUnusable,
    QuorumlogError,
    TransactionAbortable,
)
from ...ids import ProducerIdentity

FATAL_ERRORS: Final = (ProducerUnusable, InvalidProducerIdMapping)
"""Errors of any request that are final for the producer."""


class TransactionPhase(Enum):
    """The phase of a transactional producer."""

    NEW = "new"  # without an identity
    READY = "ready"  # no transaction is open
    OPEN = "open"
    ABORTABLE = "abortable"  # open, and it can only be aborted
    COMMITTING = "committing"
    ABORTING = "aborting"
    UNUSABLE = "unusable"


class TransactionStateMachine:
    """The state of one transactional producer; see the module."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = TransactionPhase.NEW
        self.identity: ProducerIdentity | None = None  # of the present or next transaction
        self.is_begun = False  # the coordinator may have the transaction
        self.is_end_sent = False  # the end was requested, and its outcome is not known
        self.error: QuorumlogError | None = None  # that made it abortable or unusable
        self._is_raised = False  # the fatal error was raised

    # --- identity ----------------------------------------------------------------------------

    @property
    def needs_identity(self) -> bool:
        """True if the producer has no identity yet."""
        return self.phase is TransactionPhase.NEW

    def initialized(self, identity: ProducerIdentity) -> None:
        """Set the first identity, which fences earlier producers of the transactional id."""
        assert self.phase is TransactionPhase.NEW, f"initialized twice: {self.phase}"
        self.identity = identity
        self.phase = TransactionPhase.READY

    # --- the open transaction ----------------------------------------------------------------

    def begin(self) -> None:
        """Open a transaction. Raises InvalidTxnState if one is open, OutcomeUnknown after a commit
        without an answer."""
        self.check_usable()
        if self.phase is TransactionPhase.COMMITTING and self.is_end_sent:
            raise OutcomeUnknown(
                f"producer {self.transactional_id}: the commit before has no answer; commit again,"
                " or close the producer and create another one: its first transaction follows the"
                " outcome"
            )
        if self.phase is not TransactionPhase.READY:
            raise InvalidTxnState(
                f"producer {self.transactional_id}: a transaction is {self.phase.value}; commit or"
                " abort it first"
            )
        self.phase = TransactionPhase.OPEN
        self.is_begun = self.is_end_sent = False
        self.error = None

    def check_open(self) -> None:
        """Raise unless records and offsets can be added: TransactionAbortable after an error,
        InvalidTxnState without an open transaction."""
        self.check_usable()
        if self.phase is TransactionPhase.ABORTABLE:
            raise self._abortable()
        if self.phase is not TransactionPhase.OPEN:
            raise InvalidTxnState(
                f"producer {self.transactional_id}: no transaction is open; send within `with"
                " producer.transaction()`"
            )

    def check_usable(self) -> None:
        """Raise the fatal error once, then ClientClosed."""
        if self.phase is not TransactionPhase.UNUSABLE:
            return
        assert self.error is not None, "unusable without an error"
        if self._is_raised:
            raise ClientClosed(f"the producer is closed: {self.error.message}")
        self._is_raised = True
        raise self.error.with_traceback(None)

    def withhold(self) -> None:
        """Record that the application did not get the fatal error: it is raised again."""
        self._is_raised = False

    def add(self) -> None:
        """Record that a batch or offsets are about to be sent."""
        assert self.phase not in (TransactionPhase.NEW, TransactionPhase.READY), "nothing is open"
        self.is_begun = True

    def failed(self, error: QuorumlogError) -> None:
        """Record that a record or offsets of the transaction failed for good."""
        if isinstance(error, FATAL_ERRORS):
            self._give_up(error)
        elif self.phase is TransactionPhase.OPEN or (
            self.phase is TransactionPhase.COMMITTING and not self.is_end_sent
        ):
            self.phase = TransactionPhase.ABORTABLE
            self.error = error

    # --- the end -----------------------------------------------------------------------------

    def begin_commit(self) -> None:
        """Accept no more records; a commit without an answer may be repeated. Raises as
        `check_open`."""
        # sometimes if self.is_end_sent: an application repeats a commit
        if self.phase is not TransactionPhase.COMMITTING:
            self.check_open()
            self.phase = TransactionPhase.COMMITTING

    def check_flushed(self) -> None:
        """Raise TransactionAbortable if a record failed since `begin_commit`."""
        self.check_usable()
        if self.phase is TransactionPhase.ABORTABLE:
            raise self._abortable()

    def begin_abort(self) -> None:
        """Accept no more records. An abort without an answer may be repeated.

        Raises InvalidTxnState without an open transaction, OutcomeUnknown if a commit has no
        answer: it may be decided.
        """
        self.check_usable()
        if self.phase is TransactionPhase.COMMITTING and self.is_end_sent:
            raise OutcomeUnknown(
                f"producer {self.transactional_id}: the commit has no answer and may be decided;"
                " commit again, or close the producer and create another one"
            )
        if self.phase in (TransactionPhase.NEW, TransactionPhase.READY):
            raise InvalidTxnState(
                f"producer {self.transactional_id}: no transaction is open; there is nothing to"
                " abort"
            )
        self.phase = TransactionPhase.ABORTING

    @property
    def is_dropping(self) -> bool:
        """True if records that are not sent yet are dropped."""
        return self.phase in (
            TransactionPhase.ABORTABLE,
            TransactionPhase.ABORTING,
            TransactionPhase.UNUSABLE,
        )

    def send_end(self) -> bool:
        """Return True if the end must be requested from the coordinator; False: nothing was
        sent, and the transaction has ended."""
        assert self.phase in (TransactionPhase.COMMITTING, TransactionPhase.ABORTING), self.phase
        if not self.is_begun:
            self.phase = TransactionPhase.READY
            self.error = None
            return False
        self.is_end_sent = True
        return True

    def ended(self, identity: ProducerIdentity) -> None:
        """Record the coordinator's answer: the identity for the next transaction."""
        assert self.is_end_sent, "an answer without a request"
        self.identity = identity
        self.phase = TransactionPhase.READY
        self.is_begun = self.is_end_sent = False
        self.error = None

    def end_refused(self, error: QuorumlogError) -> None:
        """Record that the coordinator refused the end for good. An end without an answer is not
        refused: it may be requested again."""
        if isinstance(error, TransactionAbortable) and self.phase is TransactionPhase.COMMITTING:
            # sometimes: a coordinator refuses a commit
            self.phase = TransactionPhase.ABORTABLE
            self.is_end_sent = False
            self.error = error
        else:
            self._give_up(error)

    # --- internals ---------------------------------------------------------------------------

    def _give_up(self, error: QuorumlogError) -> None:
        if self.phase is TransactionPhase.UNUSABLE:
            return
        self.phase = TransactionPhase.UNUSABLE
        self.error = unusable(self.transactional_id, error)

    def _abortable(self) -> TransactionAbortable:
        assert self.error is not None, "abortable without an error"
        remedy = f"abort it and repeat it: {self.error.message}"
        if isinstance(self.error, InvalidProducerEpoch):
            remedy = (
                "it timed out, or another producer has this transactional id; abort it, which"
                " raises ProducerFenced in the second case"
            )
        abortable = TransactionAbortable(
            f"producer {self.transactional_id}: the transaction cannot commit; {remedy}",
            topic=self.error.topic,
            partition=self.error.partition,
        )
        abortable.__cause__ = self.error
        return abortable


def unusable(transactional_id: str, error: QuorumlogError) -> ProducerUnusable:
    """Return the fatal error for an error of a coordinator or leader."""
    kind = ProducerUnusable
    what = f"the producer cannot continue; create another one: {error.message}"
    if isinstance(error, ProducerFenced | InvalidProducerEpoch):
        kind = ProducerFenced
        what = (
            "fenced: another producer has this transactional id, or its transaction timed out;"
            " close this producer"
        )
    fatal = kind(f"producer {transactional_id}: {what}")
    fatal.__cause__ = error
    return fatal
