"""A script of a run: it records the events of a run, or replays those of a plan.

A level passes each event to the script before it executes it, and draws from streams of the script.
While a run is recorded, the script stores the time, the key and the draws of each event. A replay
executes the events of a plan with their recorded draws: if an event is removed, all others draw the
same. An event that is not pending in a replay has no effect, and a draw beyond the recorded ones is
a constant.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from random import Random
from typing import Any, Final, Generic, TypeAlias, TypeVar

from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimWorld

from .plan import Draws, Options, OptionValue, PlannedEvent, PlanRefused, RunPlan

NO_FLOAT: Final = 0.999
"""A draw that was not recorded: no fault happens by chance."""
NO_BITS: Final = 0
PENDING_MAX: Final = 64  # of one key; those that were due first are dropped

MakeRandom: TypeAlias = Callable[[str, int], Random]
"""Makes the random stream of a name and a seed."""
T = TypeVar("T")


def plain_random(name: str, seed: int) -> Random:
    """Return the stream of a run without a script."""
    return Random(seed)


class ScriptEnded(Exception):
    """All events of a plan were executed without a violation."""


class ScriptRandom(Random):
    """A stream that records its draws in an event, or takes them from the plan.

    It advances at each draw, so that draws between events are those of the recorded run as well.
    """

    script: "EventScript"
    name: str

    def random(self) -> float:
        """Return a float of [0, 1)."""
        script, drawn = self.script, super().random()
        if script.draws is None:
            return drawn
        if script.is_recording:
            script.draws.setdefault(self.name, []).append(drawn)
            return drawn
        return script.take(self.name, float, NO_FLOAT)

    def getrandbits(self, k: int, /) -> int:
        """Return an int of `k` random bits."""
        script, bits = self.script, super().getrandbits(k)
        if script.draws is None:
            return bits
        if script.is_recording:
            script.draws.setdefault(self.name, []).append(bits)
            return bits
        return script.take(self.name, int, NO_BITS) & ((1 << k) - 1)


class EventScript:
    """The events of one run."""

    def __init__(
        self,
        plan: RunPlan | None = None,
        *,
        observe: Callable[[PlannedEvent], None] | None = None,
    ) -> None:
        """`plan`: the plan to replay; None: record. `observe` is called after each event."""
        self.plan = plan
        self.is_recording = plan is None
        self.is_replaying = plan is not None
        self.has_ended = False  # the part of the run after its events was reached
        self.events: list[PlannedEvent] = []  # recorded ones, or those that had an effect
        self.drawn: dict[str, Any] = {}  # the options of the run, by group
        self.durations: dict[str, int] = {}
        self.draws: Draws | None = None  # of the current event; None: between two events
        self._positions: dict[str, int] = {}
        self._next = 0  # the next event of the plan
        self._observe = observe

    # --- streams and options -------------------------------------------------------------------

    def random(self, name: str, seed: int) -> Random:
        """Return a stream of this script."""
        stream = ScriptRandom(seed)
        stream.script, stream.name = self, name
        return stream

    def adopt(self, name: str, entropy: SimEntropy) -> None:
        """Make a stream draw through this script."""
        entropy.draw_from(self.random(name, 0))

    def options(self, group: str, drawn: T) -> T:
        """Return the drawn options with those that the plan replaces."""
        self.drawn[group] = drawn
        if self.plan is None:
            return drawn
        for path, value in self.plan.options.get(group, {}).items():
            drawn = replace_option(drawn, path, value)
        return drawn

    def duration_ms(self, name: str, usual_ms: int) -> int:
        """Return a duration of the run."""
        self.durations[name] = usual_ms
        replaced = self._options("durations").get(name, usual_ms)
        assert isinstance(replaced, int), f"{name}: {replaced!r}"
        return replaced

    def _options(self, group: str) -> dict[str, OptionValue]:
        options: Options = {} if self.plan is None else self.plan.options
        return options.get(group, {})

    # --- events --------------------------------------------------------------------------------

    def begin(self, event: PlannedEvent) -> None:
        """Begin an event; the previous one has ended."""
        self.end()
        self.events.append(event)
        self.draws = event.draws
        self._positions.clear()

    def rename(self, key: str) -> None:
        """Replace the key of the current event, once a draw has determined it."""
        if self.draws is not None:
            self.events[-1] = replace(self.events[-1], key=key)

    def end(self) -> None:
        """End the current event."""
        if self.draws is not None:
            self.draws = None
            if self._observe is not None:
                self._observe(self.events[-1])

    def finish(self) -> None:
        """End the script; a run continues after it unless its plan ends here.

        Raises ScriptEnded if the plan ends.
        """
        self.end()
        self.has_ended = True
        self.is_recording = self.is_replaying = False
        if self.plan is not None and not self.plan.continues:
            raise ScriptEnded

    def due(self, until_us: int, *, prefix: str = "") -> Iterator[PlannedEvent]:
        """Yield the next events of the plan up to a time."""
        assert self.plan is not None, "a recorded run has no plan"
        events = self.plan.events
        while self._next < len(events) and events[self._next].at_us <= until_us:
            event = events[self._next]
            if not event.key.startswith(prefix):
                return
            self._next += 1
            yield event

    def take(self, name: str, kind: type[T], otherwise: T) -> T:
        """Return the next recorded draw of a stream."""
        assert self.draws is not None, "a draw outside of an event"
        draws, position = self.draws.get(name, ()), self._positions.get(name, 0)
        if position >= len(draws) or type(draws[position]) is not kind:
            return otherwise
        self._positions[name] = position + 1
        drawn = draws[position]
        assert isinstance(drawn, kind), f"{drawn!r}"
        return drawn


def replace_option(options: T, path: str, value: OptionValue) -> T:
    """Return options with one replaced; `path` is the path of its field, with "." between names.

    A number for a tuple of dataclasses keeps so many of them. Raises PlanRefused for an unknown
    field.
    """
    name, _, rest = path.partition(".")
    if isinstance(options, tuple):
        if not name.isdigit():
            raise PlanRefused(f"option {path}: no item; {len(options)} items; remove it")
        if int(name) >= len(options):
            return options  # that item is not kept
        items = list(options)
        items[int(name)] = replace_option(items[int(name)], rest, value)
        return tuple(items)  # type: ignore[return-value]
    if not is_dataclass(options) or isinstance(options, type):
        raise PlanRefused(f"option {path}: {type(options).__name__} has no fields; remove it")
    if name not in {field.name for field in fields(options)}:
        known = ", ".join(field.name for field in fields(options))
        raise PlanRefused(f"option {path}: unknown; {type(options).__name__} has {known}")
    before = getattr(options, name)
    if rest:
        return replace(options, **{name: replace_option(before, rest, value)})
    if isinstance(before, tuple) and isinstance(value, int):
        return replace(options, **{name: before[:value]})
    return replace(options, **{name: value})


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEvent(Generic[T]):
    """A scheduled event."""

    due_us: int
    since_us: int  # the time at which it was scheduled
    call: T


class PendingEvents(Generic[T]):
    """The scheduled events of a replay, by key."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[PendingEvent[T]]] = {}

    def add(self, key: str, due_us: int, since_us: int, call: T) -> None:
        """Schedule an event."""
        waiting = self._by_key.setdefault(key, [])
        waiting.append(PendingEvent(due_us=due_us, since_us=since_us, call=call))
        if len(waiting) > PENDING_MAX:
            waiting.remove(min(waiting, key=lambda each: each.due_us))

    def take(
        self, key: str, at_us: int, *, is_valid: Callable[[T], bool]
    ) -> PendingEvent[T] | None:
        """Remove and return the event of a key that is due next to a time; None without one."""
        waiting = self._by_key.get(key)
        if not waiting:
            return None
        waiting[:] = [each for each in waiting if is_valid(each.call)]
        if not waiting:
            return None
        found = min(waiting, key=lambda each: abs(each.due_us - at_us))
        waiting.remove(found)
        return found

    def drain(self) -> list[tuple[str, PendingEvent[T]]]:
        """Remove and return all events, in the order of their times."""
        every = [(key, each) for key, waiting in self._by_key.items() for each in waiting]
        self._by_key.clear()
        return sorted(every, key=lambda each: each[1].due_us)


class ScriptedWorld(SimWorld):
    """A simulated world with the script of its run."""

    script: EventScript


def script_of(world: SimWorld) -> EventScript | None:
    """Return the script of a run, None if it has none."""
    return world.script if isinstance(world, ScriptedWorld) else None


def options_of(world: SimWorld, group: str, drawn: T) -> T:
    """Return the options of a run: those of its plan in place of the drawn ones."""
    script = script_of(world)
    return drawn if script is None else script.options(group, drawn)


def duration_ms_of(world: SimWorld, name: str, usual_ms: int) -> int:
    """Return a duration of a run: that of its plan in place of the usual one."""
    script = script_of(world)
    return usual_ms if script is None else script.duration_ms(name, usual_ms)
