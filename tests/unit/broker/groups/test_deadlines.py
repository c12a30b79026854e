"""Deadlines, compared with a plain dictionary."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.broker.coordinator.deadlines import STALE_MAX, DeadlineQueue

NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(st.just("set"), NAMES, st.integers(0, 20))
    | st.tuples(st.just("drop"), NAMES, st.just(0))
    | st.tuples(st.just("due"), st.just(""), st.integers(0, 20)),
    max_size=60,
)


@settings(max_examples=50)
@given(STEPS)
def test_due_names_equal_those_of_a_plain_dictionary(steps: list[tuple[str, str, int]]) -> None:
    deadlines, model = DeadlineQueue[str](), dict[str, int]()
    for step, name, at_ms in steps:
        if step == "set":
            deadlines.set(name, at_ms)
            model[name] = at_ms
        elif step == "drop":
            deadlines.drop(name)
            model.pop(name, None)
        else:
            due = deadlines.due(at_ms)
            times = [model.pop(name) for name in due]
            assert times == sorted(times)
            assert all(time <= at_ms for time in times)
            assert all(time > at_ms for time in model.values())
        assert deadlines.next_ms() == min(model.values(), default=None)
        assert deadlines.names() == model.keys()


def test_equal_times_are_due_in_the_order_in_which_they_came() -> None:
    deadlines = DeadlineQueue[str]()
    for name in "cab":
        deadlines.set(name, 5)
    assert deadlines.due(5) == ["c", "a", "b"]


def test_added_and_dropped_names_leave_no_memory() -> None:
    deadlines = DeadlineQueue[str]()
    for number in range(10_000):
        deadlines.set(str(number), 1_000_000)
        deadlines.drop(str(number))
    assert len(deadlines._heap) <= STALE_MAX + 3


def test_moved_deadlines_leave_no_memory() -> None:
    deadlines = DeadlineQueue[str]()
    for number in range(10_000):
        deadlines.set("a", 1_000_000 - number)
    assert len(deadlines._heap) <= STALE_MAX + 3
    assert deadlines.due(1_000_000) == ["a"]


def test_a_deadline_that_moved_later_is_not_due_at_its_old_time() -> None:
    deadlines = DeadlineQueue[str]()
    deadlines.set("a", 10)
    deadlines.set("a", 20)
    assert deadlines.due(10) == []
    assert deadlines.next_ms() == 20
    assert deadlines.due(20) == ["a"]
    assert deadlines.next_ms() is None


def test_a_deadline_that_moved_earlier_is_due_at_its_new_time() -> None:
    deadlines = DeadlineQueue[str]()
    deadlines.set("a", 20)
    deadlines.set("a", 10)
    assert deadlines.next_ms() == 10
    assert deadlines.due(10) == ["a"]
    assert deadlines.due(20) == []


def test_a_dropped_deadline_is_never_due() -> None:
    deadlines = DeadlineQueue[tuple[str, str]]()
    deadlines.set(("session", "a"), 10)
    deadlines.set(("revoke", "a"), 10)
    deadlines.drop(("session", "a"))
    assert deadlines.due(10) == [("revoke", "a")]
    assert ("session", "a") not in deadlines


def test_dropped_far_deadlines_leave_the_near_ones_in_place() -> None:
    """A client may ask for a poll interval of 24 days, and restart every minute."""
    deadlines = DeadlineQueue[str]()
    deadlines.set("stays", 5)
    for number in range(10_000):
        deadlines.set(f"m{number}", 2**31 + number)
        deadlines.drop(f"m{number}")
    assert len(deadlines._heap) <= 2 + STALE_MAX + 1
    assert deadlines.due(5) == ["stays"]


def test_a_limit_leaves_the_later_deadlines() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    for at_ms, name in ((3, "c"), (1, "a"), (2, "b")):
        queue.set(name, at_ms)
    assert queue.due(9, limit=2) == ["a", "b"]
    assert queue.next_ms() == 3
    assert queue.due(9) == ["c"]
