"""Whether a concurrent history could be that of one thing doing one operation at a time. Pure.

An operation takes effect at one moment between its invocation and its completion (Herlihy and Wing
1990). One of unknown outcome takes effect at any moment since its invocation, or never. The search
is Wing and Gong's (1993): take an operation that no other one precedes, apply it to the model, go
on, or step back; with Lowe's memory (2017) of what was tried: the same operations done and the same
state are never looked at twice. Keys are independent of each other, so each has a search of its own
(the property is local): 10,000 operations over many keys take a second or less.

The search is exponential at worst. What keeps it short here: only operations that overlap are in
question; among those of unknown outcome and equal request, the earlier is always tried first; a
model may say beforehand which unknown ones cannot matter; and writes that nobody saw are done
together, as many as can be, right before one that somebody saw. Beyond `states_max` it gives up
with `Undecided` and never with an answer.
"""

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

    def hides(self, request: Hashable) -> bool:
        """Whether the request takes effect whatever the state, and leaves nothing of that."""

    def unseen(self, operations: Sequence[Operation]) -> set[int]:
        """The numbers of those that hide and have left nothing in any other result: each can be
        anywhere right before another one that hides, or at the end."""

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
class _Done:
    """Which of a list of operations, in the order of their invocations, are done: all below
    `first`, and those at first + n for the bits n of `ahead`."""

    first: int = 0
    ahead: int = 0

    def __contains__(self, index: int) -> bool:
        return index < self.first or bool(self.ahead >> (index - self.first) & 1)

    def adding(self, index: int) -> "_Done":
        """This and one more."""
        ahead = self.ahead | 1 << (index - self.first)
        skip = (~ahead & (ahead + 1)).bit_length() - 1  # ones at the low end
        return _Done(self.first + skip, ahead >> skip)

    @property
    def count(self) -> int:
        """How many are done."""
        return self.first + self.ahead.bit_count()


@dataclass(frozen=True, slots=True)
class _Place:
    """Which operations are done, and what state they led to."""

    known: _Done
    unseen: _Done
    unknown: tuple[int, ...]  # of each group the first so many
    state: Hashable


class _Search:
    """Looks for an order of one key's operations."""

    def __init__(self, operations: Sequence[Operation], model: Model, states_max: int) -> None:
        self._model = model
        self._states_max = states_max
        ordered = sorted(operations, key=lambda operation: operation.invoked)
        groups: dict[Hashable, list[Operation]] = defaultdict(list)
        for operation in ordered:
            if operation.completed is None:
                groups[operation.request].append(operation)
        self._groups = list(groups.values())  # of unknown outcome and one request each
        known = [one for one in ordered if one.completed is not None]
        # What is unknown may hide as well, at any time: then nothing is taken together.
        unseen = set() if groups else model.unseen(operations)
        self._unseen = [one for one in known if one.number in unseen]
        self._known = [one for one in known if one.number not in unseen]
        self._furthest = -1  # how many of the known operations were done at best ...
        self._stuck = self._start()  # ... and where

    def succeeds(self) -> bool:
        """Whether there is an order."""
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
        """The operations that had no place after the longest order found, with its state."""
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
        """Every place that one more operation leads to, the likeliest first."""
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
        """Everything unseen that can be done now: the sooner the better, for it is of no effect."""
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
        """Indices of what is not done and nothing else undone of the list precedes."""
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
        """The earliest completion of what is not done."""
        left = self._open(operations, done)
        return min((_completion(operations[index]) for index in left), default=NEVER)


def _completion(operation: Operation) -> int:
    return NEVER if operation.completed is None else operation.completed
