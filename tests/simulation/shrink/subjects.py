"""The seeds that can be shrunk, by level: each records its run, and replays a plan.

Levels `core` and `partitions` replay single events. The levels on `SimWorld` replay the injected
faults, or the steps of a workload, and draw all else from the seed.
"""

import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, Final, Protocol

from ..checkers.violation import Violation
from ..hunt import finder
from ..levels.core.run import CoreRun
from ..levels.core.trace import TraceEvent
from ..levels.partitions.options import ReplicationOptions
from ..levels.partitions.run import PartitionsRun
from ..levels.storage.bounds import USUAL, StorageBounds
from ..runs import WORLD_LEVELS, faults_of, scenario_of
from .plan import OptionValue, PlanRefused, RunPlan
from .script import EventScript, ScriptedWorld, ScriptEnded
from .story import CoreStory, PartitionsStory, StoryLine, WorldStory

CPU_S_MAX: Final = 120  # of one run of a whole world
UNITS: Final = ("_ms", "_us", "_s", "_bytes", "_size", "_min", "_max", "_ppm")
"""The ends of the names of numbers that are no counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionEdit:
    """A simpler value of an option."""

    group: str
    path: str
    value: OptionValue


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedPlan:
    """The outcome of a recorded or replayed run."""

    plan: RunPlan  # with the events that had an effect
    rule: str  # the violated invariant, or the place of a failed assertion; "": the run passed
    detail: str
    events: int  # of the whole run
    virtual_us: int
    event_hash: str
    edits: tuple[OptionEdit, ...] = ()  # of the options that are not the usual ones
    durations: tuple[tuple[str, int], ...] = ()  # of the phases in milliseconds, by name
    story: tuple[StoryLine, ...] = ()
    trace: tuple[TraceEvent, ...] = ()
    nodes: tuple[str, ...] = ()  # the columns of a timeline


class Subject(Protocol):
    """A seed of a level."""

    @property
    def replays_events(self) -> bool:
        """True if a plan has every event of a run."""

    def play(self, plan: RunPlan | None, *, has_story: bool = False) -> PlayedPlan:
        """Record the seed, or replay a plan of it."""


def subject_of(level: str, seed: int) -> Subject:
    """Return a seed of a level; raises ValueError for an unknown level."""
    if level == "core":
        return CoreSubject(seed)
    if level == "partitions":
        return PartitionsSubject(seed)
    scenario_of(level)  # imported once, before the forks
    return WorldSubject(level, seed)


class CoreSubject:
    """A seed of level `core`."""

    replays_events = True

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def play(self, plan: RunPlan | None, *, has_story: bool = False) -> PlayedPlan:
        """Record the seed, or replay a plan of it."""

        trace: list[TraceEvent] = []
        story = CoreStory() if has_story else None
        script = EventScript(plan, observe=None if story is None else story.observe)
        run = CoreRun(self._seed, script=script, tracer=trace.append if has_story else None)
        if story is not None:
            story.members = run.harness.members
        rule, detail = _outcome(run.play, script)
        return PlayedPlan(
            plan=_played(script, "core", self._seed, rule),
            rule=rule,
            detail=detail,
            events=run.event_count,
            virtual_us=run.harness.now_us,
            event_hash=run.harness.recorder.hash(),
            edits=_edits(script),
            story=tuple(story.lines) if story is not None else (),
            trace=tuple(trace),
            nodes=tuple(f"node {member.number}" for member in run.harness.members),
        )


class PartitionsSubject:
    """A seed of level `partitions`."""

    replays_events = True

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def play(self, plan: RunPlan | None, *, has_story: bool = False) -> PlayedPlan:
        """Record the seed, or replay a plan of it."""

        story = PartitionsStory() if has_story else None
        script = EventScript(plan, observe=None if story is None else story.observe)
        run = PartitionsRun(self._seed, script=script)
        if story is not None:
            story.world = run.world
        rule, detail = _outcome(run.play, script)
        return PlayedPlan(
            plan=_played(script, "partitions", self._seed, rule),
            rule=rule,
            detail=detail,
            events=run.event_count,
            virtual_us=run.world.now_us,
            event_hash=run.world.hash(),
            edits=_edits(script),
            story=tuple(story.lines) if story is not None else (),
            trace=tuple(story.trace) if story is not None else (),
            nodes=tuple(f"broker {node}" for node in run.world.brokers),
        )


class WorldSubject:
    """A seed of a level on `SimWorld`; each run has a process of its own, since no crashed node may
    clean up."""

    replays_events = False

    def __init__(self, level: str, seed: int) -> None:
        assert level in WORLD_LEVELS, f"level {level} has no world"
        self._level = level
        self._seed = seed

    def play(self, plan: RunPlan | None, *, has_story: bool = False) -> PlayedPlan:
        """Record the seed, or replay a plan of it."""
        played = _in_child(partial(self._play, plan, has_story=has_story))
        if isinstance(played, PlanRefused):
            raise played
        return played or PlayedPlan(
            plan=plan or RunPlan(level=self._level, seed=self._seed),
            rule="Duration",
            detail=f"took over {CPU_S_MAX} s of processor time, or its process ended",
            events=0,
            virtual_us=0,
            event_hash="",
        )

    def _play(self, plan: RunPlan | None, *, has_story: bool) -> PlayedPlan:
        story = WorldStory() if has_story else None
        script = EventScript(plan, observe=None if story is None else story.observe)
        faults = script.options("faults", faults_of(self._level, self._seed))
        trace = None if story is None else story.take_line
        world = ScriptedWorld(self._seed, faults=faults, trace=trace)
        world.script = script
        with world:
            rule, detail = _outcome(partial(self._play_scenario, world), script)
            if story is not None:
                story.finish()
            return PlayedPlan(
                plan=_played(script, self._level, self._seed, rule),
                rule=rule,
                detail=detail,
                events=world.events.count,
                virtual_us=world.now_ms() * 1000,
                event_hash=world.event_hash(),
                edits=_edits(script),
                durations=tuple(script.durations.items()),
                story=tuple(story.lines) if story is not None else (),
                trace=tuple(story.trace) if story is not None else (),
                nodes=tuple(story.nodes) if story is not None else (),
            )

    def _play_scenario(self, world: ScriptedWorld) -> None:
        scenario_of(self._level)(world)
        if world.loop.unawaited_errors:
            raise Violation("UnawaitedError", world.loop.unawaited_errors[0])


def _outcome(play: Callable[[], object], script: EventScript) -> tuple[str, str]:
    """Play; return the violated rule and its detail, both empty if there is none."""
    try:
        play()
    except ScriptEnded:
        return "", ""
    except PlanRefused:
        raise
    except Exception as error:
        return finder(error), str(error)
    finally:
        script.end()
    return "", ""


def _played(script: EventScript, level: str, seed: int, rule: str) -> RunPlan:
    return RunPlan(
        level=level,
        seed=seed,
        violation=rule,
        options={} if script.plan is None else script.plan.options,
        continues=script.has_ended,
        events=tuple(script.events),
    )


def _in_child(play: Callable[[], PlayedPlan]) -> PlayedPlan | PlanRefused | None:
    """Return the result of a call in a child process, None if it ended without one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            signal.setitimer(signal.ITIMER_PROF, CPU_S_MAX)
            try:
                result: PlayedPlan | PlanRefused = play()
            except PlanRefused as error:
                result = error
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(result, pipe)
            status = 0
        finally:
            os._exit(status)  # no crashed node may clean up
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        return None
    played: PlayedPlan | PlanRefused = pickle.loads(content)
    return played


# --- options -------------------------------------------------------------------------------------


def _edits(script: EventScript) -> tuple[OptionEdit, ...]:
    """Return the simpler options of a run."""
    return tuple(
        OptionEdit(group=group, path=path, value=value)
        for group, drawn in script.drawn.items()
        for path, value in simpler_options(drawn, usual=_usual(drawn))
    )


def _usual(drawn: object) -> object:
    """Return the usual options of a class, None: the defaults of its fields."""
    if isinstance(drawn, ReplicationOptions):
        return ReplicationOptions(topics=1, partitions=1)
    return USUAL if isinstance(drawn, StorageBounds) else None


def simpler_options(
    options: Any, *, usual: Any = None, prefix: str = ""
) -> list[tuple[str, OptionValue]]:
    """Return simpler values of the fields of a dataclass by path: the value in `usual`, the
    field's default, one of several items, off."""
    found: list[tuple[str, OptionValue]] = []
    for each in fields(options):
        now, path = getattr(options, each.name), f"{prefix}{each.name}"
        default = each.default if usual is None else getattr(usual, each.name)
        if is_dataclass(now):
            inner = None if default is MISSING else default
            found += simpler_options(now, usual=inner, prefix=f"{path}.")
        elif isinstance(now, tuple) and now and all(is_dataclass(one) for one in now):
            found += [(path, 1)] if len(now) > 1 else []
            for index, one in enumerate(now):
                found += simpler_options(one, prefix=f"{path}.{index}.")
        elif default is not MISSING:
            if default != now and isinstance(default, bool | int | float | str | None):
                found.append((path, default))
        elif (simpler := _simpler_value(each.name, now)) is not None:
            found.append((path, simpler))
    return found


def _simpler_value(name: str, now: object) -> OptionValue:
    """Return a simpler value of a field without a default, None if there is none."""
    match now:
        case bool():
            return False if now else None
        case int():
            return 1 if now > 1 and not name.endswith(UNITS) else None
        case float():
            return 0.0 if now else None
        case _:
            return None
