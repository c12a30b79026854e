"""The levels, and the outcome of a seed as data for another process."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol

from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.fault_options import Faults
from quorumlog.simulation.world import NotReached, SimWorld

from .checkers.violation import Violation

LINES_SHOWN: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a seed."""

    level: str
    seed: int
    event_hash: str
    events: int
    virtual_ms: int
    facts: dict[str, int]  # counts of the scenario
    options: str  # the drawn faults
    failure: str  # "" if the seed passed
    error: str  # the class of the error that failed it; "" if none was raised
    last_events: list[str]  # of a failed seed


Play = Callable[[SimWorld], dict[str, int]]


class Player(Protocol):
    """A function that plays a seed of one level."""

    def __call__(self, seed: int, *, trace: Callable[[str], None] | None) -> Outcome:
        """Return the outcome; `trace` receives every event as a line."""


def play_seed(
    level: str, seed: int, scenario: Play, *, trace: Callable[[str], None] | None = None
) -> Outcome:
    """Play a seed; a failure of the scenario is part of the outcome."""
    faults = faults_of(level, seed)
    failure, error_name, facts = "", "", {}
    with SimWorld(seed, faults=faults, trace=trace) as world:
        try:
            facts = scenario(world)
        except Exception as error:
            shown = traceback.format_exception(error, limit=-6)
            failure, error_name = "".join(shown).strip(), type(error).__name__
        if not failure and world.loop.unawaited_errors:
            failure = "unawaited errors: " + "; ".join(world.loop.unawaited_errors[:3])
        return Outcome(
            level=level,
            seed=seed,
            event_hash=world.event_hash(),
            events=world.events.count,
            virtual_ms=world.now_ms(),
            facts=facts,
            options=repr(faults),
            failure=failure,
            error=error_name,
            last_events=list(world.events.last(LINES_SHOWN)) if failure else [],
        )


@dataclass(slots=True)
class WorldRun:
    """One seed of a level on `SimWorld`, for the hunt for planted bugs."""

    level: str
    seed: int
    event_count: int = 0

    def play(self) -> None:
        """Run the seed; raises Violation, or an error of the played code."""
        scenario = scenario_of(self.level)
        with SimWorld(self.seed, faults=faults_of(self.level, self.seed)) as world:
            try:
                scenario(world)
            except NotReached as error:
                raise Violation("Liveness", str(error)) from error
            finally:
                self.event_count = world.events.count
            if world.loop.unawaited_errors:
                raise Violation("UnawaitedError", world.loop.unawaited_errors[0])


def faults_of(level: str, seed: int) -> Faults:
    """Return the port faults of a seed."""
    return Faults.draw(SimEntropy(f"faults/{level}/{seed}"))


def player_of(level: str) -> Player:
    """Return the player of a level; imports its modules."""
    if level == "core":
        from .levels.core.level import play_core

        return play_core
    if level == "partitions":
        from .levels.partitions.level import play_partitions

        return play_partitions
    scenario = scenario_of(level)
    return lambda seed, *, trace: play_seed(level, seed, scenario, trace=trace)


def scenario_of(level: str) -> Play:
    """Return the scenario of a level; imported here, since some import the whole server."""
    module = WORLD_LEVELS.get(level)
    if module is None:
        raise ValueError(f"no level {level}: one of {', '.join(LEVELS)}")
    play: Play = import_module(f".levels.{module}", __package__).play
    return play


WORLD_LEVELS: Final = {
    "mini": "mini",
    "broker": "broker",
    "quorum": "quorum.level",
    "node": "node.level",
    "kafka": "kafka.level",
    "coordinator": "coordinator.level",
    "groups": "groups.level",
    "transactions": "transactions.level",
    "clients": "clients.level",
    "evil": "evil.level",
    "intruder": "intruder",
    "storage": "storage.level",
}
"""The modules of the levels that run in a `SimWorld`."""

LEVELS: Final = (
    "core",
    "partitions",
    "broker",
    "quorum",
    "node",
    "kafka",
    "coordinator",
    "groups",
    "transactions",
    "clients",
    "evil",
    "intruder",
    "storage",
    "mini",
)
