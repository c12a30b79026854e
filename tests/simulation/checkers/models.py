"""What the clients of a simulated or a real quorum talk to, one operation at a time. Pure.

A *register* holds a value under a key: read, write, swap. A *counter* gives out blocks of numbers
that no two callers may share. Both name what is wrong with a history that no order explains, by the
names of the field: *phantom* (read, and nobody wrote it), *future read* (read before it was
written), *lost write* (acknowledged, and from then on never seen), *stale read* (an older value
after a newer one was certain), *double apply* (a value that was overwritten is back), *reordered*
(two values in one order for one reader and in the other for another).

Values of a register must be unique over its key wherever a write's outcome may be unknown: that is
what lets a read prove the write.
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
    """Return the value, None before the first write."""

    def __str__(self) -> str:
        return "read"


@dataclass(frozen=True, slots=True)
class Write:
    """Put a value; the result is DONE."""

    value: bytes

    def __str__(self) -> str:
        return f"write {self.value!r}"


@dataclass(frozen=True, slots=True)
class Swap:
    """Put a value if the present one is `expected`; the result is the one that was found."""

    expected: bytes | None
    value: bytes

    def __str__(self) -> str:
        return f"swap {self.expected!r} for {self.value!r}"


RegisterRequest: TypeAlias = Read | Write | Swap
DONE = True
"""Result of a write."""


class Register:
    """One register a key."""

    def initial(self) -> Hashable:
        """No value."""
        return None

    def step(self, state: Hashable, request: Hashable) -> tuple[Hashable, Hashable]:
        """Carry out a request."""
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
        """Without unknown reads, and unknown writes and swaps whose values nobody saw. One whose
        unique value somebody saw was done, before whoever saw it completed.

        What nobody saw can be left out: right behind it only another write can have come, for every
        completed read or swap would have named its value.
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
        """Whether it is a write."""
        return isinstance(request, Write)

    def unseen(self, operations: Sequence[Operation]) -> set[int]:
        """Writes whose values nobody found, and no swap expected."""
        seen = {_observed(one) for one in operations}
        seen |= {one.request.expected for one in operations if isinstance(one.request, Swap)}
        return {
            one.number
            for one in operations
            if isinstance(one.request, Write) and one.request.value not in seen
        }

    def explain(self, operations: Sequence[Operation]) -> str:
        """Name the first thing that is wrong with the reads and writes."""
        return next(_register_anomalies(operations), "")


def _written(operation: Operation) -> bytes | None:
    """The value that the operation puts, if it does."""
    request = operation.request
    if isinstance(request, Write):
        return request.value
    if isinstance(request, Swap):
        is_done = operation.completed is None or operation.result == request.expected
        return request.value if is_done else None
    return None


def _observed(operation: Operation) -> bytes | None:
    """The value that the operation found, if it was told one."""
    if operation.completed is None or isinstance(operation.request, Write):
        return None
    found = operation.result
    assert found is None or isinstance(found, bytes), f"{operation} found {found!r}"
    return found


def _first_seen(operations: Sequence[Operation]) -> dict[bytes, int]:
    """By when each value was found for the first time at the latest.

    An unknown swap whose value was found has itself found what it expected, before that.
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
class _Life:
    """All that is known of one value."""

    write: Operation
    reads: tuple[Operation, ...]

    @property
    def certain_from(self) -> int:
        """From when it was in force for certain: the first completion of any of them."""
        ends = [one.completed for one in (self.write, *self.reads) if one.completed is not None]
        return min(ends, default=NEVER)

    @property
    def still_at(self) -> int:
        """Until when it was in force for certain: the last invocation of any of them."""
        return max(one.invoked for one in (self.write, *self.reads))


def _register_anomalies(operations: Sequence[Operation]) -> Iterator[str]:
    writes = {value: one for one in operations if (value := _written(one)) is not None}
    reads: dict[bytes, list[Operation]] = defaultdict(list)
    for operation in operations:
        value = _observed(operation)
        if value is None:
            continue
        if value not in writes:
            yield f"phantom: {operation}, which nobody wrote"
            continue
        if operation.completed is not None and operation.completed < writes[value].invoked:
            yield f"future read: {operation}, written later by {writes[value]}"
        reads[value].append(operation)
    lives = [_Life(write, tuple(reads[value])) for value, write in writes.items()]
    pairs = [pair for pair in permutations(lives, 2) if pair[0].reads and pair[1].reads]
    for first, second in pairs:
        yield from _returned(first, second)
    for operation in operations:
        if operation.completed is not None and not isinstance(operation.request, Write):
            yield from _stale(operation, writes, lives)
    for first, second in pairs:
        if first.certain_from < second.still_at and second.certain_from < first.still_at:
            yield f"reordered: {first.write} and {second.write} came before each other"


def _returned(first: _Life, second: _Life) -> Iterator[str]:
    """A value was in force, then another one, then it again, for more than one stale reader."""
    again = [one for one in first.reads if one.invoked > second.certain_from]
    is_between = first.certain_from < second.still_at
    if is_between and len(again) > 1 and second.still_at < min(one.invoked for one in again):
        yield f"double apply: {first.write} was in force before and after {second.write}"


def _stale(read: Operation, writes: dict[bytes, Operation], lives: list[_Life]) -> Iterator[str]:
    """What a read should not have found any more."""
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
            yield f"lost write: {newer} was done, and {read} found what was before"


# --- a counter -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allocate:
    """Take the next `count` numbers; the result is the first of them."""

    count: int

    def __str__(self) -> str:
        return f"allocate {self.count}"


class BlockCounter:
    """Gives out the blocks [first, first + count) without gaps, from `first` of the counter on."""

    def __init__(self, *, first: int = 0) -> None:
        self._first = first

    def initial(self) -> Hashable:
        """The first number to be given."""
        return self._first

    def step(self, state: Hashable, request: Hashable) -> tuple[Hashable, Hashable]:
        """Give out the next block."""
        assert isinstance(request, Allocate), f"no request of a counter: {request!r}"
        assert isinstance(state, int), f"no state of a counter: {state!r}"
        return state + request.count, state

    def prepared(self, operations: Sequence[Operation]) -> list[Operation]:
        """All: an unknown one may account for a gap."""
        return list(operations)

    def hides(self, request: Hashable) -> bool:
        """No block hides another one."""
        return False

    def unseen(self, operations: Sequence[Operation]) -> set[int]:
        """None: every block leaves its mark on the next one."""
        return set()

    def explain(self, operations: Sequence[Operation]) -> str:
        """Name the first thing that is wrong with the blocks."""
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
    """[first, end) of a completed allocation."""
    assert isinstance(operation.result, int), f"{operation} has no block"
    assert isinstance(operation.request, Allocate), f"{operation} allocates nothing"
    return operation.result, operation.result + operation.request.count
