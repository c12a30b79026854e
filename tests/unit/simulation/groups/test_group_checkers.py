"""The checkers of group histories detect each violation and accept allowed histories."""

import pytest
from tests.simulation.checkers.violation import Violation
from tests.simulation.levels.groups.checker import (
    check_found,
    check_offsets,
    check_owners,
    check_work,
    unserved,
)
from tests.simulation.levels.groups.history import NS_PER_MS, GroupHistory, MemberIncarnation
from tests.simulation.levels.groups.plan import GroupPlan

from quorumlog.testing.checkers import Place

PLACE: Place = ("t", 0)
SESSION_MS = 1_000
REBALANCE_MS = 2_000
PLAN = GroupPlan(
    name="g",
    topics=("t",),
    session_ms=SESSION_MS,
    rebalance_ms=REBALANCE_MS,
    beat_ms=100,
    members=(),
)


class RecordedHistory:
    """A group history with its clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.group_history = GroupHistory(now_ns=lambda: self.now_ms * NS_PER_MS)

    def member(self, name: str, *, instance_id: str = "") -> MemberIncarnation:
        """Add a member that just joined."""
        life = self.group_history.life(
            "g",
            name,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            instance_id=instance_id,
        )
        life.set_epoch(1, name)
        self.beat(life)
        return life

    def beat(
        self, life: MemberIncarnation, *, is_settled: bool = True, is_stored: bool = True
    ) -> None:
        """Record a heartbeat of the member and its response."""
        now_ns = self.now_ms * NS_PER_MS
        life.answered(now_ns, is_settled=is_settled, is_stored=is_stored)

    def commit(self, life: MemberIncarnation, offset: int, *, is_honest: bool = True) -> int:
        """Record an acknowledged commit."""
        number, _ = self.group_history.send_commit(
            "g", life.name, PLACE, offset, is_honest=is_honest
        )
        self.group_history.committed(number)
        return number

    def look(self, offset: int, note: str) -> None:
        """Record a fetch of committed offsets."""
        number = self.group_history.fetch_offset("g", "somebody", PLACE)
        self.group_history.offset_fetched(number, "g", PLACE, offset, note)

    def two_owners(self) -> bool:
        """Return True if a partition had two owners at one time."""
        try:
            check_owners(self.group_history.claims)
        except Violation as violation:
            return violation.invariant == "TwoOwners"
        return False

    def found(self) -> list[str]:
        """Return the names of the anomalies found so far."""
        return [one.partition(":")[0] for one in self.group_history.found]


# --- owners ---------------------------------------------------------------------------------------


def test_two_members_that_certainly_own_a_partition_are_two_owners() -> None:
    history = RecordedHistory()
    history.member("a").assign([PLACE])
    history.now_ms = 100
    history.member("b").assign([PLACE])
    assert history.two_owners()


def test_revoked_partition_has_one_owner_at_a_time() -> None:
    history = RecordedHistory()
    a = history.member("a")
    a.assign([PLACE])
    history.now_ms = 50
    a.revoke([PLACE])
    history.now_ms = 51
    history.member("b").assign([PLACE])
    assert not history.two_owners()


def test_partition_may_have_an_owner_in_each_group() -> None:
    history = RecordedHistory()
    history.member("a").assign([PLACE])
    other = history.group_history.life("h", "b", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
    other.answered(0, is_settled=True)
    other.assign([PLACE])
    assert not history.two_owners()


def test_member_silent_for_its_session_owns_nothing_certainly() -> None:
    history = RecordedHistory()
    history.member("a").assign([PLACE])
    history.now_ms = SESSION_MS - 40  # clocks differ slightly
    assert not history.two_owners()
    history.now_ms = SESSION_MS
    history.member("b").assign([PLACE])
    assert not history.two_owners()


def test_response_proves_the_silence_before_it() -> None:
    history = RecordedHistory()
    a = history.member("a")
    a.assign([PLACE])
    history.now_ms = SESSION_MS + 100
    history.member("b").assign([PLACE])
    history.now_ms = SESSION_MS + 200
    history.beat(a)
    assert history.two_owners()


def test_member_that_does_not_revoke_in_time_owns_nothing_certainly() -> None:
    history = RecordedHistory()
    a = history.member("a")
    a.assign([PLACE])
    for now_ms in range(500, REBALANCE_MS + 1, 500):
        history.now_ms = now_ms
        history.beat(a, is_settled=False)
    history.now_ms = REBALANCE_MS + 100
    history.member("b").assign([PLACE])
    assert not history.two_owners()


def test_member_that_left_owns_nothing_certainly() -> None:
    """It does not poll, and its notification comes after the callback in which it is."""
    history = RecordedHistory()
    a = history.member("a")
    a.assign([PLACE])
    history.now_ms = 100
    a.leaves()
    history.now_ms = 101
    history.member("b").assign([PLACE])
    assert not history.two_owners()


def test_leave_does_not_invalidate_earlier_ownership() -> None:
    history = RecordedHistory()
    a = history.member("a")
    a.assign([PLACE])
    history.now_ms = 100
    history.member("b").assign([PLACE])
    history.now_ms = 101
    a.leaves()
    assert history.two_owners()


def test_dead_member_owns_nothing() -> None:
    history = RecordedHistory()
    history.member("a").assign([PLACE])
    history.now_ms = 10
    history.group_history.process_ended("a")
    history.now_ms = 11
    history.member("b").assign([PLACE])
    assert not history.two_owners()


def test_rejoined_static_member_may_own_the_partitions_of_its_instance_id() -> None:
    history = RecordedHistory()
    history.member("a", instance_id="s").assign([PLACE])
    history.now_ms = 10
    again = history.group_history.life(
        "g", "b", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS, instance_id="s"
    )
    history.group_history.replaces_static_member("g", "s", again)
    history.now_ms = 11
    history.beat(again)
    again.assign([PLACE])
    assert not history.two_owners()


def test_late_response_to_a_replaced_static_member_does_not_count() -> None:
    history = RecordedHistory()
    old = history.member("m1", instance_id="one")
    young = history.member("m2", instance_id="one")
    history.group_history.replaces_static_member("g", "one", young)
    history.now_ms = 10
    history.beat(old)
    old.assign([PLACE])
    history.now_ms = 20
    history.beat(young)
    young.assign([PLACE])
    history.now_ms = 30
    old.revoke([PLACE])
    assert not history.two_owners()


def test_previous_holder_of_an_instance_id_is_not_its_member() -> None:
    history = RecordedHistory()
    old = history.member("m1", instance_id="one")
    young = history.member("m2", instance_id="one")
    history.group_history.replaces_static_member("g", "one", young)
    history.now_ms = 10
    history.beat(young, is_stored=False)  # its join: the next coordinator may lack it
    history.now_ms = 20
    history.beat(old)
    assert history.found() == []
    history.beat(young)
    history.now_ms = 30
    history.beat(old)
    assert history.found() == ["TwinServed"]


def test_either_of_two_concurrent_static_joins_may_win() -> None:
    history = RecordedHistory()
    old = history.member("m1", instance_id="one")
    young = history.member("m2", instance_id="one")
    history.group_history.replaces_static_member("g", "one", young)
    history.group_history.replaces_static_member("g", "one", old)
    history.now_ms = 10
    history.beat(young)
    history.now_ms = 20
    history.beat(old)
    history.now_ms = 30
    history.beat(young)
    assert history.found() == [], "the order of the two joins is unknown"


def replaced(history: RecordedHistory) -> tuple[MemberIncarnation, MemberIncarnation]:
    """Return an older member and the younger one that certainly has its instance id."""
    old = history.member("m1", instance_id="one")
    young = history.member("m2", instance_id="one")
    history.group_history.replaces_static_member("g", "one", young)
    history.now_ms = 10
    history.beat(young)
    history.now_ms = 20
    return old, young


def test_replaced_static_member_must_be_fenced_and_not_rejoin() -> None:
    history = RecordedHistory()
    old, _ = replaced(history)
    history.now_ms = 30
    old.evicted(20 * NS_PER_MS)
    assert history.found() == ["Unfenced"]


def test_member_with_a_request_before_its_replacement_may_have_been_removed() -> None:
    history = RecordedHistory()
    old, _ = replaced(history)
    old.evicted(5 * NS_PER_MS)
    assert history.found() == []


def test_no_member_is_fenced_for_one_that_may_be_removed_itself() -> None:
    history = RecordedHistory()
    old, _ = replaced(history)
    history.now_ms = 10 + SESSION_MS
    old.evicted(20 * NS_PER_MS)
    assert history.found() == []


# --- members --------------------------------------------------------------------------------------


def test_member_with_recent_heartbeats_is_not_removed() -> None:
    history = RecordedHistory()
    life = history.member("a")
    history.now_ms = SESSION_MS // 2
    life.evicted()
    assert history.found() == ["ShutOut"]


@pytest.mark.parametrize("silent_ms", [SESSION_MS, 10 * SESSION_MS])
def test_silent_member_may_be_removed(silent_ms: int) -> None:
    history = RecordedHistory()
    life = history.member("a")
    history.now_ms = silent_ms
    life.evicted()
    assert history.found() == []


def test_unstored_state_may_be_lost_with_its_coordinator() -> None:
    history = RecordedHistory()
    life = history.group_history.life("g", "a", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
    history.beat(life, is_stored=False)
    history.now_ms = 1
    life.evicted()
    assert history.found() == []


# --- offsets --------------------------------------------------------------------------------------


def worked(history: RecordedHistory, end: int) -> MemberIncarnation:
    """Return a member that has processed records up to an offset."""
    life = history.member("a")
    history.group_history.processed(life, PLACE, 0, end)
    return life


def test_an_acknowledged_commit_is_found() -> None:
    history = RecordedHistory()
    life = worked(history, 5)
    history.commit(life, 5)
    history.look(5, "c1")
    check_offsets(history.group_history)
    check_found(history.group_history)


@pytest.mark.parametrize("seen", [(-1, ""), (3, "c1")])
def test_fetch_that_misses_an_acknowledged_commit_is_a_lost_offset(seen: tuple[int, str]) -> None:
    history = RecordedHistory()
    life = worked(history, 5)
    history.commit(life, 3)
    history.commit(life, 5)
    history.look(*seen)
    with pytest.raises(Violation, match="LostOffset"):
        check_offsets(history.group_history)


def test_a_commit_of_unknown_outcome_may_be_found_or_not() -> None:
    for seen in ((-1, ""), (5, "c1")):
        history = RecordedHistory()
        life = worked(history, 5)
        history.group_history.send_commit("g", life.name, PLACE, 5)
        history.look(*seen)
        check_offsets(history.group_history)


def test_a_commit_that_was_found_is_found_again() -> None:
    history = RecordedHistory()
    life = worked(history, 5)
    history.group_history.send_commit("g", life.name, PLACE, 5)
    history.look(5, "c1")
    history.look(-1, "")
    with pytest.raises(Violation, match="LostOffset"):
        check_offsets(history.group_history)


def test_a_refused_commit_is_never_found() -> None:
    history = RecordedHistory()
    life = worked(history, 5)
    number, note = history.group_history.send_commit("g", life.name, PLACE, 5)
    history.group_history.refused(number)
    history.look(5, note)
    with pytest.raises(Violation, match="LostOffset"):
        check_offsets(history.group_history)


def test_commit_of_a_non_member_is_an_anomaly() -> None:
    history = RecordedHistory()
    life = worked(history, 5)
    history.commit(life, 1_000, is_honest=False)
    assert history.found() == ["FencedCommitTaken"]
    with pytest.raises(Violation, match="FencedCommitTaken"):
        check_found(history.group_history)


def test_unprocessed_record_is_neither_committed_nor_skipped() -> None:
    history = RecordedHistory()
    life = worked(history, 5)
    history.commit(life, 6)
    history.group_history.processed(life, PLACE, 7, 9)
    history.look(7, "somebody's")
    assert history.found() == ["CommittedAhead", "PassedOver", "CommittedAhead"]


# --- the end --------------------------------------------------------------------------------------


def test_every_record_is_processed_in_the_end() -> None:
    history = RecordedHistory()
    life = worked(history, 5)
    check_work(history.group_history, (PLAN,), {PLACE: [(4, b"")]})
    with pytest.raises(Violation, match="Unworked"):
        check_work(history.group_history, (PLAN,), {PLACE: [(5, b"")]})
    history.group_history.processed(life, PLACE, 5, 6)
    check_work(history.group_history, (PLAN,), {PLACE: [(5, b"")]})


def test_overlapping_processed_ranges_count() -> None:
    history = RecordedHistory()
    life = worked(history, 5)
    for start, end in ((3, 7), (7, 8), (0, 2)):
        history.group_history.processed(life, PLACE, start, end)
    assert history.group_history.done_to("g", PLACE) == 8


def test_a_group_is_served_once_each_partition_has_an_owner_who_has_committed_all() -> None:
    history = RecordedHistory()
    ends = {PLACE: 5, ("u", 0): 3}  # no member subscribes to the other topic

    def left() -> list[str]:
        return unserved(history.group_history, (PLAN,), ends)

    life = history.member("a")
    assert "0 owners" in left()[0]
    life.assign([PLACE])
    assert "processed up to 0 of 5" in left()[0]
    history.group_history.processed(life, PLACE, 0, 5)
    assert "committed up to 0 of 5" in left()[0]
    history.commit(life, 5)
    assert left() == []
    history.member("b").assign([PLACE])
    assert "2 owners" in left()[0]
