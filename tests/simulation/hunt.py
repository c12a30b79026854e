"""`python -m tests.simulation.hunt`: play seeds of a level until one fails, and print the failure.

It runs on a patched package, in a process of its own, and prints one line of JSON.
"""

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final, Protocol

from quorumlog.simulation.world import NotReached

from .checkers.violation import Violation
from .runs import WORLD_LEVELS, WorldRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The first seed that failed, or the scenario."""

    seed: int  # 0: the scenario
    by: str  # the invariant's name, or the place of a failed assertion
    detail: str
    events: int  # of all seeds so far


class Run(Protocol):
    """A run of one seed."""

    def play(self) -> None:
        """Run the seed; raises Violation, or an error of the played code."""

    @property
    def event_count(self) -> int:
        """The number of events so far."""


def _core(seed: int) -> Run:
    from .levels.core.run import CoreRun

    return CoreRun(seed)


def _partitions(seed: int) -> Run:
    from .levels.partitions.run import PartitionsRun

    return PartitionsRun(seed)


RUNS: Final[Mapping[str, Callable[[int], Run]]] = {
    "core": _core,
    "partitions": _partitions,
    **{level: partial(WorldRun, level) for level in WORLD_LEVELS},
}


def hunt(level: str, seeds: range) -> Found | None:
    """Play seeds until one fails; return None if all pass."""
    events = 0
    for seed in seeds:
        run = RUNS[level](seed)
        try:
            run.play()
        except Exception as error:
            events += run.event_count
            return Found(seed=seed, by=finder(error), detail=str(error)[:500], events=events)
        events += run.event_count
    return None


def play_scenario(name: str) -> Found | None:
    """Play a named scenario of level `kafka` or `transactions`; return None if it passes."""
    from .levels.kafka.scenarios import PIPELINE_SCENARIOS
    from .levels.transactions.client_scenarios import CLIENT_SCENARIOS
    from .levels.transactions.scenarios import SCENARIOS
    from .levels.transactions.staged_scenarios import STAGED_SCENARIOS

    try:
        {**PIPELINE_SCENARIOS, **SCENARIOS, **CLIENT_SCENARIOS, **STAGED_SCENARIOS}[name]()
    except Exception as error:
        return Found(seed=0, by=finder(error), detail=str(error)[:500], events=0)
    return None


def finder(error: Exception) -> str:
    """Return the violated invariant, or the place of a failed assertion."""
    if isinstance(error, Violation):
        return error.invariant
    if isinstance(error, NotReached):
        return "Liveness"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = frame.filename.rpartition("/")[2]
    kind = "assertion" if isinstance(error, AssertionError) else type(error).__name__
    return f"{kind} in {where}, {frame.name}"


def main() -> None:
    """Parse the command line, hunt, print, and end the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", choices=tuple(RUNS), default="core")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--scenario", default="", help="play this scenario instead of seeds")
    options = parser.parse_args()
    if options.scenario:
        found = play_scenario(options.scenario)
    else:
        found = hunt(options.level, range(options.first, options.first + options.seeds))
    sys.stdout.write(json.dumps(None if found is None else asdict(found)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # no crashed node may clean up


if __name__ == "__main__":
    main()
