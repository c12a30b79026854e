"""Verification by a coordinator: no batch begins a transaction that no marker ends.

One producer has one epoch for all of its transactions, as before transaction version 2, so that
only the verification detects delayed batches. Verification requests, responses, markers and batches
have arbitrary delays.
"""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from quorumlog.broker.verification import (
    MarkerAppend,
    VerifiedAppend,
    VerifiedProducer,
    VerifiedProducers,
    must_verify,
)
from quorumlog.errors import QuorumlogError
from quorumlog.ids import ProducerIdentity
from quorumlog.records import MarkerType, Record, encode_batch, encode_marker, parse_header
from quorumlog.records.control import TransactionMarker
from quorumlog.storage.producer_state import ProducerLimits, ProducerStates

PRODUCER = ProducerIdentity(7, 0)
MARKER = TransactionMarker(PRODUCER, 0, False, 1)


@dataclass(eq=False)
class Batch:
    """A batch between its arrival and its turn in the log."""

    state: VerifiedProducer | None
    sequence: int


def unexpected(last: int, held: int) -> None:
    raise AssertionError(f"incomplete: {held} of {last}")


class VerifiedLog(RuleBasedStateMachine):
    """A partition's log, its coordinator and a producer, with delayed requests."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates(ProducerLimits(), wall_ms=1_000_000)
        self.producers = VerifiedProducers()
        self.end_offset = 0
        self.is_ongoing = False  # the coordinator has an open transaction
        self.is_added = False  # ... with this partition
        self.is_marker_due = False  # decided, but the partition has no marker yet
        self.sequence = 0  # of the client's next batch
        self.asked: list[Batch] = []  # requests in flight to the coordinator
        self.answered: list[Batch] = []  # positive responses in flight to the leader
        self.queue: list[Batch | None] = []  # of the log; None: the marker

    # --- the client and the coordinator ----------------------------------------------------------

    @precondition(lambda self: not self.is_ongoing and not self.is_marker_due)
    @rule()
    def begin(self) -> None:
        self.is_ongoing, self.is_added = True, False

    @precondition(lambda self: self.is_ongoing)
    @rule()
    def add_partition(self) -> None:
        self.is_added = True

    @precondition(lambda self: self.is_ongoing)
    @rule()
    def end(self) -> None:
        self.is_ongoing = False
        self.is_marker_due = self.is_added

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.asked) - 1))
        batch = self.asked.pop(at)
        if self.is_ongoing and self.is_added:
            self.answered.append(batch)

    # --- the leader ------------------------------------------------------------------------------

    @rule(back=st.integers(0, 3))
    def batch_arrives(self, back: int) -> None:
        """A new batch, or a delayed or repeated one of any transaction, arrives."""
        sequence = max(0, self.sequence - back)
        self.sequence += back == 0
        state = None
        if must_verify(self.states.entry(PRODUCER.producer_id), PRODUCER.producer_epoch):
            state = self.producers.begin(PRODUCER, "t", sequence)
        batch = Batch(state, sequence)
        if state is None or state.is_verified:
            self.queue.append(batch)
        else:
            self.asked.append(batch)

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def answer_arrives(self, data: st.DataObject) -> None:
        batch = self.answered.pop(data.draw(st.integers(0, len(self.answered) - 1)))
        assert batch.state is not None, "only batches with a state need verification"
        batch.state.is_verified = True
        self.queue.append(batch)

    @precondition(lambda self: self.is_marker_due and None not in self.queue)
    @rule()
    def marker_arrives(self) -> None:
        self.producers.marked(MARKER)
        self.queue.append(None)

    @precondition(lambda self: self.queue)
    @rule()
    def take_turn(self) -> None:
        item = self.queue.pop(0)
        if item is None:
            assert MarkerAppend(MARKER, self.producers.marked, -1, unexpected).is_met(self.states)
            self._append(
                encode_marker(
                    producer_id=PRODUCER.producer_id,
                    producer_epoch=PRODUCER.producer_epoch,
                    kind=MarkerType.ABORT,
                    coordinator_epoch=0,
                    timestamp_ms=1,
                    base_offset=self.end_offset,
                )
            )
            self.is_marker_due = False
            return
        condition = VerifiedAppend(PRODUCER, item.sequence, self.producers, item.state)
        try:
            assert condition.is_met(self.states)
        except QuorumlogError:
            return
        has_end = (self.is_ongoing and self.is_added) or self.is_marker_due
        assert has_end, "a batch was appended to a transaction that no marker will end"
        self._append(
            encode_batch(
                [Record(self.end_offset, 1, None, b"v")],
                base_offset=self.end_offset,
                producer_id=PRODUCER.producer_id,
                producer_epoch=PRODUCER.producer_epoch,
                base_sequence=item.sequence,
                is_transactional=True,
            )
        )

    def _append(self, batch: bytes) -> None:
        self.states.replay(batch, parse_header(batch))
        self.end_offset += 1


VerifiedLog.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
test_no_batch_begins_a_transaction_without_an_end = pytest.mark.slow(VerifiedLog.TestCase)
