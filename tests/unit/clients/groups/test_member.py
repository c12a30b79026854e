"""The member state machine: reported partitions and their lease."""

from collections.abc import Mapping
from typing import Any

import pytest

from quorumlog.clients.groups.member import (
    CERTAIN,
    FOREVER_MS,
    GroupHeartbeat,
    GroupSubscription,
    MemberLease,
    MemberStateMachine,
    Phase,
)
from quorumlog.clients.groups.member import SESSION_MS as KAFKAS_SESSION_MS
from quorumlog.clients.groups.reconciler import AssignmentReconciler, StepKind
from quorumlog.errors import NotCoordinator, PollTooLate

Place = tuple[str, int]
SESSION_MS, INTERVAL_MS, POLL_MS = 10_000, 1_000, 60_000
SURE_MS = int(SESSION_MS * CERTAIN)
ONE, TWO, THREE = ("t", 0), ("t", 1), ("t", 2)


class Talk:
    """A member and its coordinator, which responds after a millisecond."""

    def __init__(self) -> None:
        self.now_ms = 100_000
        self.epoch = 1
        self.reconciler = AssignmentReconciler()
        self.member = MemberStateMachine(
            GroupSubscription(("t",)),
            self.reconciler,
            is_static=False,
            poll_interval_ms=POLL_MS,
            backoff_ms=lambda failures: 100,
            now_ms=self.now_ms,
        )

    def asks(self) -> GroupHeartbeat:
        beat = self.member.beat(self.now_ms)
        assert beat is not None
        return beat

    def beats(self, assignment: Mapping[Place, bytes] | None = None, **said: Any) -> GroupHeartbeat:
        beat = self.asks()
        self.hears(beat, assignment, **said)
        return beat

    def hears(
        self, beat: GroupHeartbeat, assignment: Mapping[Place, bytes] | None = None, **said: Any
    ) -> None:
        sent_ms = self.now_ms
        self.now_ms += 1
        fields = {"sent_ms": sent_ms, "session_ms": SESSION_MS, "epoch": self.epoch} | said
        self.member.answered(
            beat, assignment=assignment, interval_ms=INTERVAL_MS, now_ms=self.now_ms, **fields
        )

    def passes(self, ms: int) -> None:
        self.now_ms += ms

    def looks(self, at_ms: int | None = None) -> Phase:
        self.member.check_deadlines(self.now_ms if at_ms is None else at_ms)
        return self.member.phase

    def joins(self, *places: Place) -> None:
        self.beats(dict.fromkeys(places, b"id"))
        step = self.reconciler.step()
        assert step is not None
        self.reconciler.done(step)
        self.beats()


def test_assigned_partition_is_reported_before_it_is_used() -> None:
    """Other members may get an unreported partition at once. It may be used while the heartbeat is
    in flight."""
    talk = Talk()
    talk.beats({ONE: b"id", TWO: b"id"})
    assert talk.reconciler.owned == {}
    assert talk.asks().owned == (ONE, TWO)


def test_partition_being_added_is_reported_even_if_already_revoked() -> None:
    talk = Talk()
    talk.joins(ONE)
    talk.passes(INTERVAL_MS)
    talk.beats({ONE: b"id", TWO: b"id"})
    step = talk.reconciler.step()
    assert step is not None
    assert (step.act, step.places) == (StepKind.ASSIGN, (TWO,))
    talk.beats({ONE: b"id"})
    talk.passes(INTERVAL_MS)
    beat = talk.asks()
    talk.member.refused(beat, NotCoordinator("it has moved"), talk.now_ms)
    talk.passes(INTERVAL_MS)
    assert talk.asks().owned == (ONE, TWO)
    talk.reconciler.done(step)
    step = talk.reconciler.step()
    assert step is not None
    assert (step.act, step.places) == (StepKind.REVOKE, (TWO,))


def test_a_partition_of_a_recreated_topic_is_lost_and_assigned() -> None:
    talk = Talk()
    talk.joins(ONE, TWO)
    talk.passes(INTERVAL_MS)
    talk.beats({ONE: b"id", TWO: b"another"})
    steps = []
    while (step := talk.reconciler.step()) is not None:
        steps.append((step.act, step.places))
        talk.reconciler.done(step)
    assert steps == [(StepKind.LOSE, (TWO,)), (StepKind.ASSIGN, (TWO,))]
    assert talk.reconciler.owned == {ONE: b"id", TWO: b"another"}


def test_session_starts_at_the_send_time_of_the_answered_heartbeat() -> None:
    talk = Talk()
    talk.joins(ONE)
    talk.passes(INTERVAL_MS)
    beat = talk.asks()
    sent_ms = talk.now_ms
    talk.passes(SURE_MS - 2)
    talk.hears(beat, sent_ms=sent_ms)
    assert talk.looks() is Phase.JOINED
    talk.passes(1)
    assert talk.looks() is Phase.FENCED
    assert talk.member.holds_until_ms == FOREVER_MS


def test_late_response_does_not_extend_the_session() -> None:
    talk = Talk()
    talk.joins(ONE)
    talk.passes(INTERVAL_MS)
    beat = talk.asks()
    sent_ms = talk.now_ms
    talk.passes(SURE_MS)
    talk.hears(beat, {ONE: b"id"}, sent_ms=sent_ms)
    assert talk.member.phase is Phase.FENCED
    step = talk.reconciler.step()
    assert step is not None
    assert (step.act, step.places) == (StepKind.LOSE, (ONE,))
    talk.reconciler.done(step)
    assert talk.asks().epoch == 0


def test_missing_session_timeout_uses_the_default_of_kafka() -> None:
    talk = Talk()
    talk.beats({ONE: b"id"}, session_ms=0)
    assert talk.member.holds_until_ms == talk.now_ms - 1 + int(KAFKAS_SESSION_MS * CERTAIN)


def test_revocation_time_counts_from_the_first_unanswered_heartbeat() -> None:
    """A lost response may have had the revocation already."""
    talk = Talk()
    talk.joins(ONE, TWO)
    talk.passes(INTERVAL_MS)
    first_ms = talk.now_ms
    talk.member.refused(talk.asks(), NotCoordinator("it has moved"), talk.now_ms)
    talk.passes(INTERVAL_MS)
    talk.member.is_polling = True
    end_ms = first_ms + int(POLL_MS * CERTAIN)
    talk.beats({ONE: b"id"})
    while talk.now_ms < end_ms - INTERVAL_MS:
        talk.passes(INTERVAL_MS)
        talk.beats()
    assert talk.member.holds_until_ms == end_ms
    assert talk.looks(end_ms - 1) is Phase.JOINED
    assert talk.looks(end_ms) is Phase.AWAY
    assert isinstance(talk.member.error, PollTooLate)


@pytest.mark.parametrize("is_repeated", [False, True])
def test_revoked_partition_is_released_after_the_response(is_repeated: bool) -> None:
    lease = MemberLease(back_ms=POLL_MS)
    lease.asks(1_000)
    lease.answered(sent_ms=1_000, session_ms=SESSION_MS, reported=[ONE, TWO], target=[ONE])
    assert lease.back_end_ms == 1_000 + int(POLL_MS * CERTAIN)
    if is_repeated:
        lease.asks(2_000)
        lease.answered(sent_ms=2_000, session_ms=SESSION_MS, reported=[ONE, TWO], target=[ONE])
        assert lease.back_end_ms == 1_000 + int(POLL_MS * CERTAIN)
    lease.asks(3_000)
    lease.answered(sent_ms=3_000, session_ms=SESSION_MS, reported=[ONE], target=[ONE])
    assert lease.back_end_ms >= FOREVER_MS
    lease.asks(4_000)
    lease.answered(sent_ms=4_000, session_ms=SESSION_MS, reported=[ONE], target=[THREE])
    assert lease.back_end_ms == 4_000 + int(POLL_MS * CERTAIN)
