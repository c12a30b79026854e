"""The state machine of a transactional producer, step by step and in a model test."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorumlog.clients.producer.transaction_state import TransactionPhase, TransactionStateMachine
from quorumlog.errors import (
    ClientClosed,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutcomeUnknown,
    ProducerFenced,
    ProducerUnusable,
    QuorumlogError,
    TimedOut,
    TransactionAbortable,
)
from quorumlog.ids import ProducerIdentity

FIRST = ProducerIdentity(7, 0)
SECOND = ProducerIdentity(7, 1)


def ready() -> TransactionStateMachine:
    machine = TransactionStateMachine("enrich-1")
    machine.initialized(FIRST)
    return machine


def opened(*, with_records: bool = True) -> TransactionStateMachine:
    machine = ready()
    machine.begin()
    if with_records:
        machine.add()
    return machine


def test_each_end_gives_the_identity_of_the_next_transaction() -> None:
    machine = opened()
    machine.begin_commit()
    machine.check_flushed()
    assert machine.send_end()
    machine.ended(SECOND)
    assert (machine.phase, machine.identity) == (TransactionPhase.READY, SECOND)
    machine.begin()
    machine.add()
    machine.begin_abort()
    assert machine.send_end()
    machine.ended(ProducerIdentity(8, 0))
    assert machine.identity == (8, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_empty_transaction_ends_without_a_request(commit: bool) -> None:
    machine = opened(with_records=False)
    if commit:
        machine.begin_commit()
    else:
        machine.begin_abort()
    assert not machine.send_end()
    assert (machine.phase, machine.identity) == (TransactionPhase.READY, FIRST)


def test_records_are_refused_outside_of_a_transaction() -> None:
    machine = ready()
    with pytest.raises(InvalidTxnState, match="enrich-1: no transaction is open"):
        machine.check_open()
    with pytest.raises(InvalidTxnState, match="no transaction is open"):
        machine.begin_commit()
    with pytest.raises(InvalidTxnState, match="nothing to abort"):
        machine.begin_abort()
    machine.begin()
    machine.check_open()
    with pytest.raises(InvalidTxnState, match="is open; commit or abort it first"):
        machine.begin()
    machine.begin_commit()
    with pytest.raises(InvalidTxnState, match="no transaction is open"):
        machine.check_open()


def test_failed_record_leaves_only_the_abort() -> None:
    machine = opened()
    machine.failed(TimedOut("not acknowledged", topic="t", partition=3))
    machine.failed(TimedOut("a later one"))
    for step in (machine.check_open, machine.begin_commit, machine.check_flushed):
        with pytest.raises(TransactionAbortable, match="not acknowledged") as raised:
            step()
        assert isinstance(raised.value.__cause__, TimedOut)
        assert (raised.value.topic, raised.value.partition) == ("t", 3)
    assert machine.is_dropping
    machine.begin_abort()
    assert machine.send_end()
    machine.ended(SECOND)
    machine.begin()
    machine.check_open()


def test_record_that_fails_during_the_flush_stops_the_commit() -> None:
    machine = opened()
    machine.begin_commit()
    machine.failed(TimedOut("late"))
    with pytest.raises(TransactionAbortable, match="late"):
        machine.check_flushed()
    machine.begin_abort()


def test_epoch_refused_by_a_leader_is_abortable_and_by_the_coordinator_fatal() -> None:
    machine = opened()
    machine.failed(InvalidProducerEpoch("older"))
    assert machine.phase is TransactionPhase.ABORTABLE
    machine.begin_abort()
    assert machine.send_end()
    machine.end_refused(InvalidProducerEpoch("older"))
    with pytest.raises(ProducerFenced, match="fenced"):
        machine.check_usable()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ProducerFenced("newer"), ProducerFenced),
        (InvalidProducerIdMapping("expired"), ProducerUnusable),
        (InvalidTxnState("not open"), ProducerUnusable),
    ],
)
def test_fatal_error_is_raised_once(error: QuorumlogError, kind: type[QuorumlogError]) -> None:
    machine = opened()
    machine.begin_commit()
    assert machine.send_end()
    machine.end_refused(error)
    with pytest.raises(kind) as raised:
        machine.check_flushed()
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error
    for step in (machine.begin, machine.check_open, machine.begin_commit, machine.begin_abort):
        with pytest.raises(ClientClosed, match="the producer is closed"):
            step()


def test_commit_that_the_coordinator_cannot_make_is_aborted() -> None:
    machine = opened()
    machine.begin_commit()
    assert machine.send_end()
    machine.end_refused(TransactionAbortable("a partition failed"))
    with pytest.raises(TransactionAbortable, match="a partition failed"):
        machine.check_flushed()
    machine.begin_abort()
    assert machine.send_end()
    machine.end_refused(TransactionAbortable("no abort either"))
    with pytest.raises(ProducerUnusable):
        machine.check_flushed()


def test_commit_without_an_answer_can_only_be_repeated() -> None:
    machine = opened()
    machine.begin_commit()
    assert machine.send_end()
    for step in (machine.begin, machine.begin_abort):
        with pytest.raises(OutcomeUnknown, match="commit again"):
            step()
    machine.begin_commit()
    assert machine.send_end()
    machine.ended(SECOND)
    machine.begin()


def test_commit_whose_end_was_not_sent_can_be_aborted() -> None:
    machine = opened()
    machine.begin_commit()
    machine.begin_abort()
    assert machine.send_end()
    machine.ended(SECOND)


class ProducerAgainstCoordinator(RuleBasedStateMachine):
    """The state machine with a model of the coordinator.

    Each transaction ends with the outcome that the application received.
    """

    def __init__(self) -> None:
        super().__init__()
        self.machine = TransactionStateMachine("x")
        self.epoch = 0  # the coordinator's, of producer id 7
        self.is_open = False  # at the coordinator
        self.may_commit = False  # the application asked for a commit of this transaction
        self.may_abort = False
        self.outcome: bool | None = None  # of the last transaction: True is a commit
        self.is_decided = False  # and its response was lost

    @initialize()
    def start(self) -> None:
        self.machine.initialized(ProducerIdentity(7, 0))

    @rule()
    def begin(self) -> None:
        was = self.machine.phase
        try:
            self.machine.begin()
        except (InvalidTxnState, OutcomeUnknown, ProducerUnusable, ClientClosed):
            assert was is not TransactionPhase.READY
            return
        assert was is TransactionPhase.READY
        assert not self.is_open, "the previous transaction is not ended"
        assert self.machine.identity == (7, self.epoch)
        self.may_commit = self.may_abort = self.is_decided = False
        self.outcome = None

    @rule(fails=st.booleans(), fatal=st.booleans())
    def send(self, fails: bool, fatal: bool) -> None:
        try:
            self.machine.check_open()
        except (TransactionAbortable, InvalidTxnState, ProducerUnusable, ClientClosed):
            assert self.machine.phase is not TransactionPhase.OPEN
            return
        self.machine.add()
        self.is_open = True
        if fails:
            self.machine.failed(ProducerFenced("f") if fatal else TimedOut("t"))
            assert self.machine.is_dropping

    @rule(commit=st.booleans())
    def ask(self, commit: bool) -> None:
        try:
            (self.machine.begin_commit if commit else self.machine.begin_abort)()
        except (
            TransactionAbortable,
            InvalidTxnState,
            OutcomeUnknown,
            ProducerUnusable,
            ClientClosed,
        ):
            return
        assert not (self.may_commit and self.is_decided and not commit), (
            "aborts a transaction that may commit"
        )
        self.may_commit, self.may_abort = commit, not commit

    @precondition(
        lambda self: self.machine.phase in (TransactionPhase.COMMITTING, TransactionPhase.ABORTING)
    )
    @rule(arrives=st.booleans(), answered=st.booleans(), refusal=st.booleans())
    def end(self, arrives: bool, answered: bool, refusal: bool) -> None:
        machine, commit = self.machine, self.machine.phase is TransactionPhase.COMMITTING
        if not machine.send_end():
            assert not self.is_open
            return
        if refusal and not self.is_decided:
            machine.end_refused(TransactionAbortable("refused"))
            assert machine.phase in (TransactionPhase.ABORTABLE, TransactionPhase.UNUSABLE)
            return
        if arrives and not self.is_decided:
            self.epoch += 1
            self.is_open, self.is_decided, self.outcome = False, True, commit
        if self.is_decided and answered:
            assert self.outcome is commit, "the response is for the other outcome"
            machine.ended(ProducerIdentity(7, self.epoch))

    @invariant()
    def a_commit_is_decided_only_if_the_application_asked_for_it(self) -> None:
        assert self.outcome is not True or self.may_commit
        assert self.outcome is not False or self.may_abort

    @invariant()
    def a_ready_producer_has_the_present_epoch_and_nothing_open(self) -> None:
        if self.machine.phase is TransactionPhase.READY:
            assert not self.is_open
            assert self.machine.identity == (7, self.epoch)


TestProducerAgainstCoordinator = ProducerAgainstCoordinator.TestCase
TestProducerAgainstCoordinator.settings = settings(max_examples=200, deadline=None)
