"""Deadlines against a plain dictionary."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.broker.groups.classic.deadlines import STALE_MAX, Deadlines

NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(st.just("set"), NAMES, st.integers(0, 20))
    | st.tuples(st.just("drop"), NAMES, st.just(0))
    | st.tuples(st.just("due"), st.just(""), st.integers(0, 20)),
    max_size=60,
)


@settings(max_examples=50)
@given(STEPS)
def test_what_is_due_is_what_a_plain_dictionary_says(steps: list[tuple[str, str, int]]) -> None:
    deadlines, model = Deadlines(), dict[str, int]()
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
    deadlines = Deadlines()
    for name in "cab":
        deadlines.set(name, 5)
    assert deadlines.due(5) == ["c", "a", "b"]


def test_names_that_come_and_go_leave_nothing_behind() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.set(str(number), 1_000_000)
        deadlines.drop(str(number))
    assert len(deadlines._heap) <= STALE_MAX + 3


def test_a_name_that_changes_its_mind_leaves_nothing_behind() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.set("a", 1_000_000 - number)
    assert len(deadlines._heap) <= STALE_MAX + 3
    assert deadlines.due(1_000_000) == ["a"]
