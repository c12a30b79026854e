"""Whether a concurrent history could be that of one thing doing one operation at a time. Pure.

An operation takes effect at one moment between its invocation and its completion (Herlihy and Wing
1990). One of unknown outcome takes effect at any moment since its invocation, or never. The search
is Wing and Gong's (1993): take an operation that no other one precedes, apply it to the model, go
on, or step back; with Lowe's memory (2017) of what was tried: the same operations done and the same
state are never looked at twice. Keys are independent of each other, so each has a search of its own
(the property is local): 10,000 operations over many keys take a second or less.

The search is exponential at worst. What keeps it short here: only operations that overlap are in
question; among those of unknown outcome and equal request, the earlier is always tried first; and a
model may say beforehand which unknown ones cannot matter. Beyond `states_max` it gives up with
`Undecided` and never with an answer.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

STATES_MAX: Final = 2_000_000  # looked at for one key
OPERATIONS_SHOWN: Final = 12


class Undecided(AssertionError):
    """The search for an order took too long: the history was not judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one client asked, when, and what it was told."""

    number: int  # in the history, ascending with `invoked`
    client: str
    key: str
    request: Hashable
    result: Hashable  # None while the outcome is unknown
    invoked: int  # moments of the history: whole numbers, of which no two are equal
    completed: int | None  # None: of unknown outcome

    def __str__(self) -> str:
        end = "..." if self.completed is None else self.completed
        told = "unknown" if self.completed is None else repr(self.result)
        return f"[{self.invoked}, {end}] {self.client}: {self.key} {self.request} -> {told}"


class Model(Protocol):
    """The thing that does one operation at a time."""

    def initial(self) -> Hashable:
        """Its state before the first operation."""

    def step(self, state: Hashable, request: Hashable) -> tuple[Hashable, Hashable]:
        """Return the state after an operation, and its result."""

    def prepared(self, operations: Sequence[Operation]) -> list[Operation]:
        """Return one key's operations without those that cannot matter, completions drawn in where
        another operation proves them. What is left is linearizable exactly when all are."""

    def explain(self, operations: Sequence[Operation]) -> str:
        """Name what is wrong with one key's operations, "" when it has no name."""


@dataclass(slots=True)
class History:
    """Takes down what clients do, as they do it."""

    _moment: int = 0
    _operations: list[Operation] = field(default_factory=list)
    _results: dict[int, tuple[int, Hashable]] = field(default_factory=dict)
    _failed: set[int] = field(default_factory=set)  # membership only

    def __len__(self) -> int:
        return len(self._operations)

    @property
    def completed_count(self) -> int:
        """How many operations have a result."""
        return len(self._results)

    def invoke(self, client: str, key: str, request: Hashable) -> int:
        """A client begins an operation; return its number. Its outcome is unknown until told."""
        number = len(self._operations)
        self._moment += 1
        self._operations.append(
            Operation(
                number=number,
                client=client,
                key=key,
                request=request,
                result=None,
                invoked=self._moment,
                completed=None,
            )
        )
        return number

    def complete(self, number: int, result: Hashable) -> None:
        """The client was told the result."""
        assert number not in self._results, f"operation {number} completed twice"
        assert number not in self._failed, f"operation {number} has failed"
        self._moment += 1
        self._results[number] = (self._moment, result)

    def fail(self, number: int) -> None:
        """The operation certainly had no effect, and never will."""
        assert number not in self._results, f"operation {number} was completed"
        self._failed.add(number)

    def operations(self) -> list[Operation]:
        """Every operation that may have had an effect or was answered."""
        return [
            self._with_result(operation)
            for operation in self._operations
            if operation.number not in self._failed
        ]

    def _with_result(self, operation: Operation) -> Operation:
        told = self._results.get(operation.number)
        if told is None:
            return operation
        return Operation(
            number=operation.number,
            client=operation.client,
            key=operation.key,
            request=operation.request,
            result=told[1],
            invoked=operation.invoked,
            completed=told[0],
        )


def anomalies(
    operations: Sequence[Operation], model: Model, *, states_max: int = STATES_MAX
) -> list[str]:
    """Return a text for each key whose operations no order explains; none when all is well.

    Raises Undecided when a key's search looks at more than `states_max` states.
    """
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_key[operation.key].append(operation)
    found = []
    for key, of_key in by_key.items():
        prepared = model.prepared(of_key)
        search = _Search(prepared, model, states_max)
        if not search.succeeds():
            named = model.explain(of_key)
            found.append(f"{named or 'not linearizable'} (key {key})\n{search.stuck()}")
    return found


# --- the search ----------------------------------------------------------------------------------

NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class _Place:
    """Which operations are done, and what state they led to.

    Of the known operations, in the order of their invocations, all below `first` are done, and
    those at first + n for the bits n of `ahead`. Of each group of unknown ones the first so many.
    """

    first: int
    ahead: int
    unknown: tuple[int, ...]
    state: Hashable


class _Search:
    """Looks for an order of one key's operations."""

    def __init__(self, operations: Sequence[Operation], model: Model, states_max: int) -> None:
        self._model = model
        self._states_max = states_max
        ordered = sorted(operations, key=lambda operation: operation.invoked)
        self._known = [one for one in ordered if one.completed is not None]
        groups: dict[Hashable, list[Operation]] = defaultdict(list)
        for operation in ordered:
            if operation.completed is None:
                groups[operation.request].append(operation)
        self._groups = list(groups.values())  # of unknown outcome and one request each
        self._furthest = 0  # how many of the known operations were done at best ...
        self._stuck: _Place | None = None  # ... and where

    def succeeds(self) -> bool:
        """Whether there is an order."""
        start = _Place(0, 0, (0,) * len(self._groups), self._model.initial())
        tried = {start}
        path = [self._next_places(start)]
        while path:
            place = next(path[-1], None)
            if place is None:
                path.pop()
            elif place.first == len(self._known):
                return True
            elif place not in tried:
                if len(tried) >= self._states_max:
                    raise Undecided(f"no verdict after {len(tried)} states\n{self.stuck()}")
                tried.add(place)
                path.append(self._next_places(place))
        return not self._known

    def stuck(self) -> str:
        """The operations that had no place after the longest order found, with its state."""
        place = self._stuck or _Place(0, 0, (0,) * len(self._groups), self._model.initial())
        left = [one for _, _, one in self._candidates(place)]
        lines = [f"  {operation}" for operation in left[:OPERATIONS_SHOWN]]
        done = place.first + place.ahead.bit_count()
        head = f"  after {done} operations the state is {place.state!r}; none of these can follow:"
        return "\n".join([head, *lines])

    def _next_places(self, place: _Place) -> Iterator[_Place]:
        """Every place that one more operation leads to, the likeliest first."""
        done = place.first + place.ahead.bit_count()
        if self._stuck is None or done > self._furthest:
            self._furthest, self._stuck = done, place
        for _, index, operation in self._candidates(place):
            state, result = self._model.step(place.state, operation.request)
            if operation.completed is not None and result == operation.result:
                yield self._with_known(place, index, state)
            elif operation.completed is None and state != place.state:
                counts = list(place.unknown)
                counts[index] += 1
                yield _Place(place.first, place.ahead, tuple(counts), state)

    def _candidates(self, place: _Place) -> list[tuple[int, int, Operation]]:
        """(completion, index, operation) of what nothing undone precedes, the earliest completion
        first; an index is that of a known operation, or of a group."""
        found: list[tuple[int, int, Operation]] = []
        bound = NEVER  # the earliest completion of what is not done
        for index in range(place.first, len(self._known)):
            if place.ahead >> (index - place.first) & 1:
                continue
            operation = self._known[index]
            if operation.invoked > bound:
                break
            completed = NEVER if operation.completed is None else operation.completed
            bound = min(bound, completed)
            insort(found, (completed, index, operation), key=_completion)
        for index, group in enumerate(self._groups):
            count = place.unknown[index]
            if count < len(group) and group[count].invoked < bound:
                found.append((NEVER, index, group[count]))
        return found

    @staticmethod
    def _with_known(place: _Place, index: int, state: Hashable) -> _Place:
        ahead = place.ahead | 1 << (index - place.first)
        skip = (~ahead & (ahead + 1)).bit_length() - 1  # ones at the low end
        return _Place(place.first + skip, ahead >> skip, place.unknown, state)


def _completion(candidate: tuple[int, int, Operation]) -> int:
    return candidate[0]
