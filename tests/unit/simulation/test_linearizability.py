"""The linearizability checker finds and names every planted anomaly.

It never rejects a history that a single register could have produced.
"""

import random
from collections.abc import Hashable, Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.checkers.linearizability import (
    Model,
    Operation,
    OperationHistory,
    Undecided,
    linearizability_anomalies,
)
from tests.simulation.checkers.models import (
    DONE,
    Allocate,
    BlockCounter,
    Read,
    Register,
    Swap,
    Write,
)


def operation(
    number: int, request: Hashable, result: Hashable, invoked: int, completed: int | None
) -> Operation:
    return Operation(
        number=number,
        client=f"c{number}",
        key="k",
        request=request,
        result=result,
        invoked=invoked,
        completed=completed,
    )


def history(*lines: tuple[Hashable, Hashable, int, int | None]) -> list[Operation]:
    """Return operations from (request, result, invoked, completed)."""
    return [operation(number, *line) for number, line in enumerate(lines)]


def verdict(operations: Sequence[Operation], model: Model | None = None) -> str:
    return "\n".join(linearizability_anomalies(operations, model or Register()))


A, B, C = Write(b"a"), Write(b"b"), Write(b"c")
READ = Read()


# --- allowed histories ---------------------------------------------------------------------------


def test_one_after_the_other_is_linearizable() -> None:
    assert not verdict(history((A, DONE, 1, 2), (READ, b"a", 3, 4), (B, DONE, 5, 6)))


def test_read_concurrent_with_a_write_may_return_either_value() -> None:
    for found in (b"a", b"b"):
        assert not verdict(history((A, DONE, 1, 2), (B, DONE, 3, 6), (READ, found, 4, 5)))


def test_a_write_of_unknown_outcome_may_take_effect_much_later() -> None:
    late = history(
        (A, None, 1, None),
        (B, DONE, 2, 3),
        (READ, b"b", 4, 5),
        (READ, b"a", 6, 7),
        (READ, b"a", 8, 9),
    )
    assert not verdict(late)


def test_a_write_of_unknown_outcome_may_never_have_happened() -> None:
    assert not verdict(history((A, None, 1, None), (READ, None, 2, 3)))


def test_read_of_unknown_outcome_allows_everything() -> None:
    assert not verdict(history((A, DONE, 1, 2), (READ, None, 3, None), (READ, b"a", 4, 5)))


def test_keys_are_independent_of_each_other() -> None:
    taken = OperationHistory()
    for key in ("x", "y"):
        taken.complete(taken.invoke("c", key, A), DONE)
    taken.complete(taken.invoke("c", "z", READ), None)
    assert not verdict(taken.operations())


def test_failed_operation_is_not_in_the_history() -> None:
    taken = OperationHistory()
    taken.fail(taken.invoke("c", "k", A))
    taken.complete(taken.invoke("c", "k", READ), None)
    assert [one.request for one in taken.operations()] == [READ]
    assert (len(taken), taken.completed_count) == (2, 1)


def test_a_swap_finds_the_value_and_replaces_the_expected_one_only() -> None:
    swaps = (
        (Swap(None, b"a"), None, 1, 2),
        (Swap(b"x", b"b"), b"a", 3, 4),
        (Swap(b"a", b"c"), b"a", 5, 6),
        (READ, b"c", 7, 8),
    )
    assert not verdict(history(*swaps))


# --- planted anomalies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("stale read", ((A, DONE, 1, 2), (B, DONE, 3, 4), (READ, b"b", 5, 6), (READ, b"a", 7, 8))),
        ("stale read", ((A, DONE, 1, 2), (READ, b"a", 3, 4), (READ, None, 5, 6))),
        ("stale read", ((A, DONE, 1, 2), (B, DONE, 3, 9), (READ, b"b", 4, 5), (READ, b"a", 6, 7))),
        ("lost write", ((A, DONE, 1, 2), (B, DONE, 3, 4), (READ, b"a", 5, 6))),
        ("lost write", ((A, DONE, 1, 2), (READ, None, 3, 4))),
        (
            "double apply",
            (
                (A, DONE, 1, 20),
                (READ, b"a", 2, 3),
                (B, DONE, 4, 5),
                (READ, b"b", 6, 7),
                (READ, b"a", 8, 9),
                (READ, b"a", 10, 11),
            ),
        ),
        (
            "reordered",
            (
                (A, DONE, 1, 20),
                (B, DONE, 2, 21),
                (READ, b"a", 3, 6),
                (READ, b"b", 4, 5),
                (READ, b"b", 7, 10),
                (READ, b"a", 8, 9),
                (READ, b"b", 11, 12),
            ),
        ),
        ("phantom", ((A, DONE, 1, 2), (READ, b"z", 3, 4))),
        ("future read", ((READ, b"a", 1, 2), (A, DONE, 3, 4))),
    ],
)
def test_a_planted_anomaly_is_found_and_named(
    name: str, planted: tuple[tuple[Hashable, Hashable, int, int | None], ...]
) -> None:
    assert verdict(history(*planted)).startswith(name)


def test_impossible_operation_is_shown_with_the_state() -> None:
    found = verdict(history((A, DONE, 1, 2), (B, DONE, 3, 4), (READ, b"a", 5, 6)))
    assert "after 1 operations the state is b'a'" in found
    assert "[3, 4] c1: k write b'b' -> True" in found
    assert "[5, 6] c2: k read -> b'a'" in found


def test_an_unknown_write_that_was_seen_cannot_be_unseen() -> None:
    seen = ((A, DONE, 1, 2), (B, None, 3, None), (READ, b"b", 4, 5), (READ, b"a", 6, 7))
    assert verdict(history(*seen))


def test_a_write_that_took_effect_twice_is_found_though_its_outcome_is_unknown() -> None:
    twice = ((A, None, 1, None), (READ, b"a", 2, 3), (B, DONE, 4, 5), (READ, b"a", 6, 7))
    assert verdict(history(*twice))


def test_two_swaps_cannot_both_replace_one_value() -> None:
    both = ((A, DONE, 1, 2), (Swap(b"a", b"b"), b"a", 3, 5), (Swap(b"a", b"c"), b"a", 4, 6))
    assert verdict(history(*both))


def test_search_beyond_its_bound_gives_no_verdict() -> None:
    many = [(Allocate(1), None, 1 + n, None) for n in range(40)]
    sized = [(Allocate(2 + n % 20), None, 50 + n, None) for n in range(40)]
    impossible = history(*many, *sized, (Allocate(1), 1_000_000, 100, 101))
    with pytest.raises(Undecided, match="no verdict after 1000 states"):
        linearizability_anomalies(impossible, BlockCounter(), states_max=1_000)


# --- a counter -----------------------------------------------------------------------------------


def test_consecutive_blocks_are_linearizable() -> None:
    blocks = ((Allocate(5), 0, 1, 4), (Allocate(3), 5, 2, 3), (Allocate(1), 8, 5, 6))
    assert not verdict(history(*blocks), BlockCounter())


def test_an_unknown_allocation_accounts_for_a_gap() -> None:
    blocks = ((Allocate(5), None, 1, None), (Allocate(5), 5, 2, 3), (Allocate(5), 10, 4, 5))
    assert not verdict(history(*blocks), BlockCounter())


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("double apply", ((Allocate(5), 0, 1, 2), (Allocate(5), 0, 3, 4))),
        ("double apply", ((Allocate(5), 0, 1, 2), (Allocate(5), 3, 3, 4))),
        ("reordered", ((Allocate(5), 5, 1, 2), (Allocate(5), 0, 3, 4))),
        ("not linearizable", ((Allocate(5), 0, 1, 2), (Allocate(5), 10, 3, 4))),
    ],
)
def test_a_planted_anomaly_of_blocks_is_found_and_named(
    name: str, planted: tuple[tuple[Hashable, Hashable, int, int | None], ...]
) -> None:
    assert verdict(history(*planted), BlockCounter()).startswith(name)


# --- compared with the definition ----------------------------------------------------------------


def is_linearizable_slowly(operations: Sequence[Operation], model: Model) -> bool:
    """Try every order of every subset of the unknown operations."""
    known = [one for one in operations if one.completed is not None]
    unknown = [one for one in operations if one.completed is None]
    for chosen in range(1 << len(unknown)):
        taken = known + [one for bit, one in enumerate(unknown) if chosen >> bit & 1]
        if any(_explains(order, model) for order in permutations(taken)):
            return True
    return False


def _explains(order: Sequence[Operation], model: Model) -> bool:
    state = model.initial()
    latest = 0
    for one in order:
        if one.completed is not None and one.completed < latest:
            return False
        latest = max(latest, one.invoked)
        state, result = model.step(state, one.request)
        if one.completed is not None and result != one.result:
            return False
    return True


VALUES = st.sampled_from([None, b"0", b"1", b"2"])


@st.composite
def small_histories(draw: st.DrawFn) -> list[Operation]:
    """Return up to five operations with any results; the values of writes are unique."""
    count = draw(st.integers(1, 5))
    ends = draw(st.permutations(range(2 * count)))
    operations = []
    for number in range(count):
        invoked, completed = sorted(ends[2 * number : 2 * number + 2])
        is_known = draw(st.booleans()) or draw(st.booleans())
        value = f"{number}".encode()
        match draw(st.integers(0, 3)):
            case 0:
                request: Hashable = Write(value)
                result: Hashable = DONE
            case 1:
                request, result = Swap(draw(VALUES), value), draw(VALUES)
            case _:
                request, result = Read(), draw(VALUES)
        if not is_known:
            operations.append(operation(number, request, None, invoked, None))
        else:
            operations.append(operation(number, request, result, invoked, completed))
    return operations


@given(small_histories())
def test_the_search_agrees_with_trying_every_order(operations: list[Operation]) -> None:
    assert bool(linearizability_anomalies(operations, Register())) != is_linearizable_slowly(
        operations, Register()
    )


@st.composite
def small_allocations(draw: st.DrawFn) -> list[Operation]:
    count = draw(st.integers(1, 5))
    ends = draw(st.permutations(range(2 * count)))
    operations = []
    for number in range(count):
        invoked, completed = sorted(ends[2 * number : 2 * number + 2])
        request = Allocate(draw(st.integers(1, 2)))
        if draw(st.integers(0, 3)) == 0:
            operations.append(operation(number, request, None, invoked, None))
        else:
            first = draw(st.integers(0, 5))
            operations.append(operation(number, request, first, invoked, completed))
    return operations


@given(small_allocations())
def test_the_search_of_blocks_agrees_with_trying_every_order(operations: list[Operation]) -> None:
    model = BlockCounter()
    assert bool(linearizability_anomalies(operations, model)) != is_linearizable_slowly(
        operations, model
    )


# --- large histories -----------------------------------------------------------------------------


def played(seed: int, *, count: int, keys: int, clients: int) -> OperationHistory:
    """Return the history of clients of a real register, a tenth of them without a response."""
    drawn = random.Random(seed)
    taken, values = OperationHistory(), dict[str, bytes]()
    waiting: list[tuple[int, str, Hashable]] = []
    for number in range(count):
        if len(waiting) == clients:
            _finish(taken, values, waiting.pop(drawn.randrange(clients)), drawn)
        key = f"k{drawn.randrange(keys)}"
        request: Hashable = Write(f"{number}".encode()) if drawn.random() < 0.5 else Read()
        waiting.append((taken.invoke(f"c{len(waiting)}", key, request), key, request))
    return taken


def _finish(
    taken: OperationHistory,
    values: dict[str, bytes],
    one: tuple[int, str, Hashable],
    drawn: random.Random,
) -> None:
    number, key, request = one
    is_unknown = drawn.random() < 0.1
    if isinstance(request, Write) and (not is_unknown or drawn.random() < 0.5):
        values[key] = request.value
    if not is_unknown:
        taken.complete(number, DONE if isinstance(request, Write) else values.get(key))


@pytest.mark.parametrize("keys", [1, 200])
def test_ten_thousand_operations_need_no_long_search(keys: int) -> None:
    """The number of states is near the number of operations: linear time on any machine."""
    operations = played(1, count=10_000, keys=keys, clients=20).operations()
    assert not linearizability_anomalies(
        operations, Register(), states_max=3 * len(operations) // keys + 1_000
    )


def test_hundreds_of_concurrent_unread_writes_need_no_long_search() -> None:
    """Found by simulation (level quorum, seed 80): no verdict after two million states."""
    for last, is_right in ((b"200", True), (b"100", False)):
        lines: list[tuple[Hashable, Hashable, int, int | None]] = [
            (Write(f"{number}".encode()), DONE, number, 1_000 + number) for number in range(200)
        ]
        lines += [(Write(b"200"), DONE, 2_000, 2_001), (READ, last, 2_002, 2_003)]
        assert (
            bool(linearizability_anomalies(history(*lines), Register(), states_max=1_000))
            != is_right
        )


def test_one_stale_response_among_ten_thousand_is_found() -> None:
    taken = played(2, count=10_000, keys=200, clients=20)
    taken.complete(taken.invoke("late", "k7", Read()), None)
    found = linearizability_anomalies(taken.operations(), Register())
    assert len(found) == 1
    assert "late: k7 read -> None" in found[0]
