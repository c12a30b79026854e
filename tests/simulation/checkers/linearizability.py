"""A checker of linearizability. Pure.

An operation takes effect at one moment between its invocation and its completion (Herlihy and Wing
1990). One of unknown outcome takes effect at any moment after its invocation, or never. The search
is Wing and Gong's (1993): choose an operation that no other one precedes, apply it to the model,
continue, or backtrack. It remembers visited configurations (Lowe 2017): the same set of linearized
operations with the same state is never searched twice. Keys are independent (linearizability is
local), so each key has its own search: 10,000 operations over many keys take a second or less.

The search is exponential in the worst case. Four measures bound it: only overlapping operations are
candidates; of unknown operations with equal requests, the earlier is tried first; a model may drop
unknown operations that cannot matter; and unobserved writes are linearized together, as many as
possible, right before an observed one. Beyond `states_max` it raises `Undecided` and never returns
a verdict.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

STATES_MAX: Final = 2_000_000  # visited for one key
OPERATIONS_SHOWN: Final = 12


class Undecided(AssertionError):
    """The search exceeded its bound: there is no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of a client: request, times and result."""

    number: int  # position in the history, ascending with `invoked`
    client: str
    key: str
    request: Hashable
    result: Hashable  # None for an unknown outcome
    invoked: int  # logical times of the history: distinct integers
    completed: int | None  # None: unknown outcome

    def __str__(self) -> str:
        end = "..." if self.completed is None else self.completed
        result = "unknown" if self.completed is None else repr(self.result)
        return f"[{self.invoked}, {end}] {self.client}: {self.key} {self.request} -> {result}"


class Model(Protocol):
    """The sequential specification."""

    def initial(self) -> Hashable:
        """Return the state before the first operation."""

    def step(self, state: Hashable, request: Hashable) -> tuple[Hashable, Hashable]:
        """Return the state after an operation, and its result."""

    def prepared(self, operations: Sequence[Operation]) -> list[Operation]:
        """Return one key's operations without those that cannot matter. Completions are moved
        earlier if another operation proves them. The result is linearizable exactly if the input
        is."""

    def hides(self, request: Hashable) -> bool:
        """Return True if the request takes effect in every state and overwrites it."""

    def unseen(self, operations: Sequence[Operation]) -> set[int]:
        """Return the numbers of overwriting operations with an effect that no other result
        shows; each can be placed right before another overwriting operation, or at the end."""

    def explain(self, operations: Sequence[Operation]) -> str:
        """Return the name of the anomaly in one key's operations, "" if it has none."""


@dataclass(slots=True)
class OperationHistory:
    """A recorder of clients' operations."""

    _moment: int = 0
    _operations: list[Operation] = field(default_factory=list)
    _results: dict[int, tuple[int, Hashable]] = field(default_factory=dict)
    _failed: set[int] = field(default_factory=set)  # membership only

    def __len__(self) -> int:
        return len(self._operations)

    @property
    def completed_count(self) -> int:
        """The number of operations with a result."""
        return len(self._results)

    def invoke(self, client: str, key: str, request: Hashable) -> int:
        """Record the start of an operation and return its number; its outcome is unknown until
        reported."""
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
        """Record the result of an operation."""
        assert number not in self._results, f"operation {number} completed twice"
        assert number not in self._failed, f"operation {number} has failed"
        self._moment += 1
        self._results[number] = (self._moment, result)

    def fail(self, number: int) -> None:
        """Record that the operation had no effect and never will."""
        assert number not in self._results, f"operation {number} was completed"
        self._failed.add(number)

    def operations(self) -> list[Operation]:
        """Return every operation that was answered or may have had an effect."""
        return [
            self._with_result(operation)
            for operation in self._operations
            if operation.number not in self._failed
        ]

    def _with_result(self, operation: Operation) -> Operation:
        result = self._results.get(operation.number)
        if result is None:
            return operation
        return Operation(
            number=operation.number,
            client=operation.client,
            key=operation.key,
            request=operation.request,
            result=result[1],
            invoked=operation.invoked,
            completed=result[0],
        )


def linearizability_anomalies(
    operations: Sequence[Operation], model: Model, *, states_max: int = STATES_MAX
) -> list[str]:
    """Return a text for each key without a valid order; none if the history is linearizable.

    Raises Undecided if the search of a key visits more than `states_max` states.
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
class _Done:
    """A set of operations, by index in order of invocation: all below `first`, and first + n for
    each bit n of `ahead`."""

    first: int = 0
    ahead: int = 0

    def __contains__(self, index: int) -> bool:
        return index < self.first or bool(self.ahead >> (index - self.first) & 1)

    def adding(self, index: int) -> "_Done":
        """Return the set with one more operation."""
        ahead = self.ahead | 1 << (index - self.first)
        skip = (~ahead & (ahead + 1)).bit_length() - 1  # trailing ones
        return _Done(self.first + skip, ahead >> skip)

    @property
    def count(self) -> int:
        """The number of operations in the set."""
        return self.first + self.ahead.bit_count()


@dataclass(frozen=True, slots=True)
class _Place:
    """A configuration: the linearized operations and the resulting state."""

    known: _Done
    unseen: _Done
    unknown: tuple[int, ...]  # the number linearized of each group
    state: Hashable


class _Search:
    """A search for an order of one key's operations."""

    def __init__(self, operations: Sequence[Operation], model: Model, states_max: int) -> None:
        self._model = model
        self._states_max = states_max
        ordered = sorted(operations, key=lambda operation: operation.invoked)
        groups: dict[Hashable, list[Operation]] = defaultdict(list)
        for operation in ordered:
            if operation.completed is None:
                groups[operation.request].append(operation)
        self._groups = list(groups.values())  # unknown operations, by request
        known = [one for one in ordered if one.completed is not None]
        # An unknown write may also overwrite at any time: then no writes are grouped.
        unseen = set() if groups else model.unseen(operations)
        self._unseen = [one for one in known if one.number in unseen]
        self._known = [one for one in known if one.number not in unseen]
        self._furthest = -1  # the most known operations linearized ...
        self._stuck = self._start()  # ... and that configuration

    def succeeds(self) -> bool:
        """Return True if an order exists."""
        start = self._start()
        tried = {start}
        path = [self._next_places(start)]
        while path:
            place = next(path[-1], None)
            if place is None:
                path.pop()
            elif place.known.first == len(self._known):
                return True
            elif place not in tried:
                if len(tried) >= self._states_max:
                    raise Undecided(f"no verdict after {len(tried)} states\n{self.stuck()}")
                tried.add(place)
                path.append(self._next_places(place))
        return not self._known

    def stuck(self) -> str:
        """Return the operations that cannot follow the longest order found, with its state."""
        place = self._stuck
        left = [self._known[index] for index in self._open(self._known, place.known)]
        left += [self._unseen[index] for index in self._open(self._unseen, place.unseen)]
        left.sort(key=lambda operation: operation.invoked)
        lines = [f"  {operation}" for operation in left[:OPERATIONS_SHOWN]]
        done = place.known.count + place.unseen.count
        head = f"  after {done} operations the state is {place.state!r}; none of these can follow:"
        return "\n".join([head, *lines])

    def _start(self) -> _Place:
        return _Place(_Done(), _Done(), (0,) * len(self._groups), self._model.initial())

    def _next_places(self, place: _Place) -> Iterator[_Place]:
        """Yield the configurations after one more operation, most likely first."""
        if place.known.count > self._furthest:
            self._furthest, self._stuck = place.known.count, place
        known_bound = self._bound(self._known, place.known)
        bound = min(known_bound, self._bound(self._unseen, place.unseen))
        candidates = self._open(self._known, place.known)
        candidates.sort(key=lambda index: _completion(self._known[index]))
        for index in candidates:
            operation, unseen = self._known[index], place.unseen
            if self._unseen and self._model.hides(operation.request):
                unseen = self._taking_unseen(unseen, known_bound)
                if operation.invoked > self._bound(self._unseen, unseen):
                    continue
            elif operation.invoked > bound:
                continue
            state, result = self._model.step(place.state, operation.request)
            if result == operation.result:
                yield _Place(place.known.adding(index), unseen, place.unknown, state)
        yield from self._with_unknown(place, bound)

    def _with_unknown(self, place: _Place, bound: int) -> Iterator[_Place]:
        for index, group in enumerate(self._groups):
            count = place.unknown[index]
            if count < len(group) and group[count].invoked < bound:
                state, _ = self._model.step(place.state, group[count].request)
                if state != place.state:
                    counts = (*place.unknown[:index], count + 1, *place.unknown[index + 1 :])
                    yield _Place(place.known, place.unseen, counts, state)

    def _taking_unseen(self, unseen: _Done, known_bound: int) -> _Done:
        """Add every unobserved write that can be linearized now: they have no observable effect."""
        while True:
            found = [
                index
                for index in self._open(self._unseen, unseen)
                if self._unseen[index].invoked <= known_bound
            ]
            if not found:
                return unseen
            for index in found:
                unseen = unseen.adding(index)

    @staticmethod
    def _open(operations: Sequence[Operation], done: _Done) -> list[int]:
        """Return the indices of the remaining operations that no other remaining one precedes."""
        found: list[int] = []
        bound = NEVER
        for index in range(done.first, len(operations)):
            if index in done:
                continue
            if operations[index].invoked > bound:
                break
            bound = min(bound, _completion(operations[index]))
            found.append(index)
        return found

    def _bound(self, operations: Sequence[Operation], done: _Done) -> int:
        """Return the earliest completion of a remaining operation."""
        left = self._open(operations, done)
        return min((_completion(operations[index]) for index in left), default=NEVER)


def _completion(operation: Operation) -> int:
    return NEVER if operation.completed is None else operation.completed
