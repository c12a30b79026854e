"""Deadlines that move: none is missed, and none comes too early."""

from hypothesis import given
from hypothesis import strategies as st

from quorumlog.broker.groups.consumer.timers import STALE_MAX, Timers


def test_a_deadline_that_moved_back_is_not_due_at_its_old_time() -> None:
    timers = Timers()
    timers.start("session", "a", 10)
    timers.start("session", "a", 20)
    assert timers.due(10) == []
    assert timers.next_ms() == 20
    assert timers.due(20) == [("session", "a")]
    assert timers.next_ms() is None


def test_a_deadline_that_moved_forward_is_due_at_its_new_time() -> None:
    timers = Timers()
    timers.start("session", "a", 20)
    timers.start("session", "a", 10)
    assert timers.next_ms() == 10
    assert timers.due(10) == [("session", "a")]
    assert timers.due(20) == []


def test_a_deadline_that_was_stopped_is_never_due() -> None:
    timers = Timers()
    timers.start("session", "a", 10)
    timers.start("revoke", "a", 10)
    timers.stop("session", member_id="a")
    assert timers.due(10) == [("revoke", "a")]
    assert not timers.runs("session", "a")


def test_deadlines_of_members_that_are_gone_are_not_kept_until_they_would_have_come() -> None:
    """A client may say to poll within 24 days, and be started anew every minute."""
    timers = Timers()
    timers.start("session", "stays", 5)
    for number in range(10_000):
        timers.start("sync", f"m{number}", 2**31 + number)
        timers.stop("sync", member_id=f"m{number}")
    assert len(timers._heap) <= 2 + STALE_MAX + 1
    assert len(timers._queued) <= len(timers._heap)
    assert timers.due(5) == [("session", "stays")]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 20), st.booleans()),
        max_size=30,
    )
)
def test_what_is_due_is_what_a_plain_table_says(
    steps: list[tuple[str, int | None, bool]],
) -> None:
    timers, table, now_ms = Timers(), dict[str, int](), 0
    for name, at_ms, passes in steps:
        if at_ms is None:
            timers.stop("k", member_id=name)
            table.pop(name, None)
        else:
            timers.start("k", name, now_ms + at_ms)
            table[name] = now_ms + at_ms
        now_ms += 3 if passes else 0
        next_ms = timers.next_ms()
        assert not table or (next_ms is not None and next_ms <= min(table.values()))
        due = sorted(each for each, time in table.items() if time <= now_ms)
        assert sorted(member for _, member in timers.due(now_ms)) == due
        for each in due:
            del table[each]
