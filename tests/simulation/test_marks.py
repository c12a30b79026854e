"""Marks of rare situations: where they may be, and what they note."""

from collections import Counter

import pytest

from .marks import CALLED, all_marks, marked, marks_of

FUNCTION = """
def elect(leader, alive):
    # sometimes if leader not in alive: an election
    if leader in alive:
        return leader
    for broker in alive:
        # sometimes: a new leader
        return broker
    # sometimes: no leader
    return None
"""


@pytest.mark.parametrize(
    ("leader", "alive", "expected"),
    [
        (1, [1, 2], []),
        (1, [2], ["an election", "a new leader"]),
        (1, [], ["an election", "no leader"]),
    ],
)
def test_a_mark_is_noted_where_its_statement_is_reached_and_its_condition_holds(
    leader: int, alive: list[int], expected: list[str]
) -> None:
    plain: dict[str, object] = {}
    exec(FUNCTION, plain)
    noted: list[str] = []
    instrumented: dict[str, object] = {CALLED: noted.append}
    exec(compile(marked(FUNCTION, "elect.py"), "elect.py", "exec"), instrumented)

    results = [module["elect"](leader, alive) for module in (plain, instrumented)]  # type: ignore[operator]
    assert results[0] == results[1]
    assert noted == expected


def test_a_mark_without_a_statement_after_it_is_refused() -> None:
    with pytest.raises(ValueError, match=r"core\.py:3: no statement follows the mark 'the end'"):
        marked("def f():\n    return 1\n    # sometimes: the end\n", "core.py")


@pytest.mark.long
def test_every_mark_of_the_cores_is_valid_and_has_its_own_name() -> None:
    names = Counter(mark.name for _, mark in all_marks())
    assert [name for name, count in names.items() if count > 1] == []
    for path in {path for path, _ in all_marks()}:
        text = path.read_text()
        tree = marked(text, str(path))
        compile(tree, str(path), "exec")
        assert text.count("# sometimes") == len(marks_of(text)), f"{path}: a mark of another form"
