"""Sequential models for linearizability: a register and a block counter. Pure.

A *register* holds a value under a key: read, write, swap. A *counter* allocates blocks of numbers
that no two callers share. Both name the anomaly of a history without a valid order: *phantom* (a
value was read that was never written), *future read* (read before it was written), *lost write*
(acknowledged, and never seen afterwards), *stale read* (an older value after a newer one was
certain), *double apply* (an overwritten value is back), *reordered* (two values in one order for
one reader and in the other for another).

Values of a register must be unique for a key if the outcome of a write may be unknown: only then
does a read prove the write.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import TypeAlias

from .linearizability import NEVER, Operation

# --- a register ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """Read the value; None before the first write."""

    def __str__(self) -> str:
        return "read"


@dataclass(frozen=True, slots=True)
class Write:
    """Set a value; the result is DONE."""

    value: bytes

    def __str__(self) -> str:
        return f"write {self.value!r}"


@dataclass(frozen=True, slots=True)
class Swap:
    """Set a value if the current one is `expected`; the result is the previous value."""

    expected: bytes | None
    value: bytes

    def __str__(self) -> str:
        return f"swap {self.expected!r} for {self.value!r}"


RegisterRequest: TypeAlias = Read | Write | Swap
DONE = True
"""The result of a write."""


class Register:
    """One register per key."""

    def initial(self) -> Hashable:
        """Return None: no value."""
        return None

    def step(self, state: Hashable, request: Hashable) -> tuple[Hashable, Hashable]:
        """Apply a request."""
        match request:
            case Read():
                return state, state
            case Write():
                return request.value, DONE
            case Swap():
                return (request.value if state == request.expected else state), state
            case _:
                raise AssertionError(f"no request of a register: {request!r}")

    def prepared(self, operations: Sequence[Operation]) -> list[Operation]:
        """Drop unknown reads, and unknown writes and swaps with unobserved values.

        An unknown write of a unique observed value is completed before its first observation. An
        unobserved write can be dropped: only another write can follow it directly, since every
        completed read or swap would have returned its value.
        """
        writers = Counter(_written(operation) for operation in operations)
        seen = _first_seen(operations)
        kept = []
        for operation in operations:
            value, request = _written(operation), operation.request
            if operation.completed is not None:
                kept.append(operation)
            elif value is not None and value in seen:
                until = seen[value]
                if writers[value] == 1 and until > operation.invoked:
                    result = request.expected if isinstance(request, Swap) else DONE
                    kept.append(replace(operation, completed=until, result=result))
                else:
                    kept.append(operation)
        return kept

    def hides(self, request: Hashable) -> bool:
        """Return True for a write."""
        return isinstance(request, Write)

    def unseen(self, operations: Sequence[Operation]) -> set[int]:
        """Return the writes of values that no operation returned and no swap expected."""
        seen = {_observed(one) for one in operations}
        seen |= {one.request.expected for one in operations if isinstance(one.request, Swap)}
        return {
            one.number
            for one in operations
            if isinstance(one.request, Write) and one.request.value not in seen
        }

    def explain(self, operations: Sequence[Operation]) -> str:
        """Return the first anomaly of the reads and writes."""
        return next(_register_anomalies(operations), "")


def _written(operation: Operation) -> bytes | None:
    """Return the value that the operation writes, if any."""
    request = operation.request
    if isinstance(request, Write):
        return request.value
    if isinstance(request, Swap):
        is_done = operation.completed is None or operation.result == request.expected
        return request.value if is_done else None
    return None


def _observed(operation: Operation) -> bytes | None:
    """Return the value that the operation returned, if any."""
    if operation.completed is None or isinstance(operation.request, Write):
        return None
    found = operation.result
    assert found is None or isinstance(found, bytes), f"{operation} found {found!r}"
    return found


def _first_seen(operations: Sequence[Operation]) -> dict[bytes, int]:
    """Return the time by which each value was observed first.

    An unknown swap with an observed value has itself observed its expected value, before that.
    """
    seen: dict[bytes, int] = {}
    for operation in operations:
        value = _observed(operation)
        if value is not None and operation.completed is not None:
            seen[value] = min(seen.get(value, NEVER), operation.completed)
    swaps = {
        one.request.value: one.request.expected
        for one in operations
        if isinstance(one.request, Swap) and one.completed is None
    }
    waiting = list(seen)
    while waiting:
        value = waiting.pop()
        expected = swaps.get(value)
        if expected is not None and seen[value] < seen.get(expected, NEVER):
            seen[expected] = seen[value]
            waiting.append(expected)
    return seen


@dataclass(frozen=True, slots=True)
class _ValueHistory:
    """The operations on one value."""

    write: Operation
    reads: tuple[Operation, ...]

    @property
    def certain_from(self) -> int:
        """The time from which it was certainly written: the first completion of an operation."""
        ends = [one.completed for one in (self.write, *self.reads) if one.completed is not None]
        return min(ends, default=NEVER)

    @property
    def still_at(self) -> int:
        """The time until which it was certainly current: the last invocation of an operation."""
        return max(one.invoked for one in (self.write, *self.reads))


def _register_anomalies(operations: Sequence[Operation]) -> Iterator[str]:
    writes = {value: one for one in operations if (value := _written(one)) is not None}
    reads: dict[bytes, list[Operation]] = defaultdict(list)
    for operation in operations:
        value = _observed(operation)
        if value is None:
            continue
        if value not in writes:
            yield f"phantom: {operation}, which was never written"
            continue
        if operation.completed is not None and operation.completed < writes[value].invoked:
            yield f"future read: {operation}, written later by {writes[value]}"
        reads[value].append(operation)
    lives = [_ValueHistory(write, tuple(reads[value])) for value, write in writes.items()]
    pairs = [pair for pair in permutations(lives, 2) if pair[0].reads and pair[1].reads]
    for first, second in pairs:
        yield from _returned(first, second)
    for operation in operations:
        if operation.completed is not None and not isinstance(operation.request, Write):
            yield from _stale(operation, writes, lives)
    for first, second in pairs:
        if first.certain_from < second.still_at and second.certain_from < first.still_at:
            yield f"reordered: {first.write} and {second.write} came before each other"


def _returned(first: _ValueHistory, second: _ValueHistory) -> Iterator[str]:
    """Yield a double apply: a value was current, then another, then the first again, for several
    reads."""
    again = [one for one in first.reads if one.invoked > second.certain_from]
    is_between = first.certain_from < second.still_at
    if is_between and len(again) > 1 and second.still_at < min(one.invoked for one in again):
        yield f"double apply: {first.write} was in force before and after {second.write}"


def _stale(
    read: Operation, writes: dict[bytes, Operation], lives: list[_ValueHistory]
) -> Iterator[str]:
    """Yield the newer writes that a read missed."""
    value = _observed(read)
    write = None if value is None else writes.get(value)
    for life in lives:
        newer = life.write
        began_after = write is None or (
            write.completed is not None and write.completed < newer.invoked
        )
        if newer is write or not began_after or life.certain_from >= read.invoked:
            continue
        if life.reads:
            yield f"stale read: {read}, though {newer} was certain by then"
        else:
            yield f"lost write: {newer} was done, and {read} returned an earlier value"


# --- a counter -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate the next `count` numbers; the result is the first one."""

    count: int

    def __str__(self) -> str:
        return f"allocate {self.count}"


class BlockCounter:
    """Allocates blocks [first, first + count) without gaps, starting at `first`."""

    def __init__(self, *, first: int = 0) -> None:
        self._first = first

    def initial(self) -> Hashable:
        """Return the first number."""
        return self._first

    def step(self, state: Hashable, request: Hashable) -> tuple[Hashable, Hashable]:
        """Allocate the next block."""
        assert isinstance(request, Allocate), f"no request of a counter: {request!r}"
        assert isinstance(state, int), f"no state of a counter: {state!r}"
        return state + request.count, state

    def prepared(self, operations: Sequence[Operation]) -> list[Operation]:
        """Return all operations: an unknown one may explain a gap."""
        return list(operations)

    def hides(self, request: Hashable) -> bool:
        """Return False: no block overwrites another."""
        return False

    def unseen(self, operations: Sequence[Operation]) -> set[int]:
        """Return the empty set: every block affects the next one."""
        return set()

    def explain(self, operations: Sequence[Operation]) -> str:
        """Return the first anomaly of the blocks."""
        return next(_counter_anomalies(operations), "")


def _counter_anomalies(operations: Sequence[Operation]) -> Iterator[str]:
    given = sorted((one for one in operations if one.completed is not None), key=_block)
    for before, after in pairwise(given):
        if _block(before)[1] > _block(after)[0]:
            yield f"double apply: {before} and {after} share numbers"
    latest: Operation | None = None  # the latest invocation among lower blocks
    for operation in given:
        completed = NEVER if operation.completed is None else operation.completed
        if latest is not None and completed < latest.invoked:
            yield f"reordered: {operation} was done before {latest} began"
        if latest is None or operation.invoked > latest.invoked:
            latest = operation


def _block(operation: Operation) -> tuple[int, int]:
    """Return [first, end) of a completed allocation."""
    assert isinstance(operation.result, int), f"{operation} has no block"
    assert isinstance(operation.request, Allocate), f"{operation} allocates nothing"
    return operation.result, operation.result + operation.request.count
