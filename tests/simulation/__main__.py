"""`python -m tests.simulation`: play seeds, each under two hash seeds and builds, and compare.

Two worker processes play the same seeds concurrently, each seed in a forked child that leaves by
os._exit, so that no crashed node's clean-up ever runs. They differ in PYTHONHASHSEED, and one has
the compiled modules, the other one their plain twins. A seed fails if its scenario fails, if its
two event hashes differ, or if it takes too long. With --twice only that many seeds are played by
both workers, which share the others: every scenario is played, and fewer of them are compared.
"""

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, Final

from quorumlog.records.codec import PLAIN_VARIABLE

from . import marks
from .runs import LEVELS, Outcome, player_of
from .shrink.report import replay_plan

WORKERS: Final = (
    {"PYTHONHASHSEED": "1", PLAIN_VARIABLE: ""},
    {"PYTHONHASHSEED": "2", PLAIN_VARIABLE: "1"},
)
"""The environment of each worker."""
CPU_S_MAX: Final = 120.0  # per seed; far more than a passing one takes
WALL_S_MAX: Final = 1_200.0  # per seed; for one that uses no processor time


def main() -> int:
    """Parse the command line, play, and return the exit code."""
    options = _parse()
    if options.worker is not None:
        _work(options)
        return 0
    if options.plan is not None:
        return replay_plan(options.level, options.seed, options.plan)
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    twice = len(seeds) if options.twice is None or options.seed is not None else options.twice
    return _play_all(options.level, seeds, twice=twice)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--level", choices=LEVELS, default="broker", help="level to simulate")
    parser.add_argument("--seeds", type=int, default=50, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, default=None, help="replay this seed alone")
    parser.add_argument("--plan", type=Path, default=None, help="replay this plan of a shrunk seed")
    parser.add_argument(
        "--twice", type=int, default=None, help="number of seeds played by both workers [all]"
    )
    parser.add_argument("--worker", type=int, default=None, help=argparse.SUPPRESS)  # its number
    parser.add_argument("--trace", default="", help=argparse.SUPPRESS)  # file for all events
    return parser.parse_args()


# --- the parent process ------------------------------------------------------------------------


def players_of(position: int, twice: int) -> range:
    """Return the workers, as positions in WORKERS, that play the seed at `position` >= 0 of a
    run.

    All play the first `twice` seeds; each plays every second one of the others.
    """
    if position < twice:
        return range(len(WORKERS))
    one = position % len(WORKERS)
    return range(one, one + 1)


def _play_all(level: str, seeds: range, *, twice: int) -> int:
    """Play the seeds, the first `twice` in both workers; print a line each and a summary."""
    began_s = time.monotonic()
    twice = max(0, min(twice, len(seeds)))
    workers = [_start_worker(level, seeds, worker, twice) for worker in range(len(WORKERS))]
    print(f"{'seed':>8} {'events':>8} {'virtual s':>9} {'wall s':>7}  {'event hash':<16}  result")
    failed: list[int] = []
    reached: list[list[str]] = []
    events, virtual_ms = 0, 0
    try:
        results = [_results(worker) for worker in workers]
        for seed in seeds:
            pair = [next(results[one], None) for one in players_of(seed - seeds.start, twice)]
            problem = judge(seed, pair, difference=partial(_first_difference, level, seed))
            first: dict[str, Any] = pair[0] or {}
            events += first.get("events", 0)
            virtual_ms += first.get("virtual_ms", 0)
            reached.append(first.get("reached", []))
            print(_line(seed, pair, problem), flush=True)
            if problem:
                failed.append(seed)
                print(explain(level, seed, pair, problem), flush=True)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    wall_s = time.monotonic() - began_s
    if len(seeds) > 1:
        marks.store(level, reached)
    compared = "each" if twice == len(seeds) else f"{twice} of them"
    print(
        f"\n{len(seeds)} seeds, {len(failed)} failed{f': {failed}' if failed else ''}; {compared} "
        f"under {len(WORKERS)} hash seeds and builds; {events:,} events, {virtual_ms / 1000:,.0f} "
        f"virtual seconds, {wall_s:.1f} s of wall time: {virtual_ms / 1000 / wall_s:,.1f} times "
        "real time"
    )
    return 1 if failed else 0


def _start_worker(
    level: str, seeds: range, worker: int, twice: int, trace: str = ""
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.simulation", "--worker", str(worker)]
    command += ["--level", level, "--first", str(seeds.start), "--seeds", str(len(seeds))]
    command += ["--twice", str(twice), "--trace", trace]
    environment = os.environ | WORKERS[worker]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _results(worker: "subprocess.Popen[str]") -> Iterator[dict[str, Any]]:
    assert worker.stdout is not None, "a worker without a pipe"
    for line in worker.stdout:
        yield json.loads(line)


def judge(
    seed: int, pair: Sequence[dict[str, Any] | None], *, difference: Callable[[], str]
) -> str:
    """Return the problem of a seed, "" if it passed; `difference` locates nondeterminism.

    `pair` has the outcome of each worker that was to play it, None of a worker that ended before.
    """
    outcomes = [outcome for outcome in pair if outcome is not None]
    if not outcomes or len(outcomes) < len(pair):
        return "a worker ended early"
    for outcome in outcomes:
        assert outcome["seed"] == seed, f"seed {outcome['seed']} where {seed} was due"
        if outcome["failure"]:
            return str(outcome["failure"])
    hashes = [outcome["event_hash"] for outcome in outcomes]
    if len(set(hashes)) > 1:
        return f"the two workers differ: event hashes {hashes}\n{difference()}"
    return ""


def _line(seed: int, pair: Sequence[dict[str, Any] | None], problem: str) -> str:
    outcome = pair[0]
    if outcome is None:
        return f"{seed:>8} no result"
    facts = " ".join(f"{name}={count}" for name, count in outcome["facts"].items())
    return (
        f"{seed:>8} {outcome['events']:>8} {outcome['virtual_ms'] / 1000:>9.1f} "
        f"{outcome['wall_s']:>7.2f}  {outcome['event_hash'][:16]:<16}  "
        f"{'FAILED' if problem else 'ok ' + facts}"
    )


def explain(level: str, seed: int, pair: Sequence[dict[str, Any] | None], problem: str) -> str:
    """Return the report of a failed seed: problem, options, last events, replay command."""
    outcome = next((one for one in pair if one is not None and one["failure"]), pair[0]) or {}
    events = "\n".join(f"  {line}" for line in outcome.get("last_events", []))
    return (
        f"--- seed {seed} of level {level} failed\n{problem}\n"
        f"options: {outcome.get('options', 'unknown')}\nlast events:\n{events}\n"
        f"replay:  make simulate LEVEL={level} SEED={seed}\n---"
    )


def _first_difference(level: str, seed: int) -> str:
    """Play a seed again in both workers with a full trace; return the first difference."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{worker}" for worker in range(len(WORKERS))]
        for worker, path in enumerate(paths):
            _start_worker(level, range(seed, seed + 1), worker, 1, path).communicate()
        with open(paths[0]) as first, open(paths[1]) as second:
            return _compare(first, second)


def _compare(first: IO[str], second: IO[str]) -> str:
    for number, (one, other) in enumerate(zip_longest(first, second, fillvalue="(the end)\n")):
        if one != other:
            return f"event {number} differs:\n  {one}  {other}"
    return "the two runs agreed when they were repeated"


# --- a worker process ------------------------------------------------------------------------


def _work(options: argparse.Namespace) -> None:
    """Play seeds one after the other, each in a child process; print a line of JSON each."""
    logging.getLogger().addHandler(logging.NullHandler())
    marks.install()
    player_of(options.level)  # imported once, before the forks
    for seed in range(options.first, options.first + options.seeds):
        if options.worker not in players_of(seed - options.first, options.twice):
            continue
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _play_in_child(options, seed, writing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        print(text or json.dumps(_without_result(options.level, seed, status)), flush=True)


def _play_in_child(options: argparse.Namespace, seed: int, writing: int) -> None:
    """Play one seed and leave the process; never returns."""
    status = 1
    try:
        signal.setitimer(signal.ITIMER_PROF, CPU_S_MAX)
        signal.setitimer(signal.ITIMER_REAL, WALL_S_MAX)
        began_s = time.monotonic()
        with open(options.trace or os.devnull, "w") as file:
            play = player_of(options.level)
            outcome = play(
                seed,
                trace=(lambda line: print(line, file=file)) if options.trace else None,
            )
        result = asdict(outcome) | {"wall_s": time.monotonic() - began_s}
        result["reached"] = marks.reached()
        with os.fdopen(writing, "w") as pipe:
            json.dump(result, pipe)
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)  # no crashed node may clean up


def _without_result(level: str, seed: int, status: int) -> dict[str, Any]:
    failures: dict[int, str] = {
        signal.SIGPROF: f"took over {CPU_S_MAX:g} s of processor time",
        signal.SIGALRM: f"took over {WALL_S_MAX:g} s of wall time, not of processor time",
    }
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    failure = failures.get(ended_by, f"its process ended with status {status}")
    outcome = Outcome(
        level=level,
        seed=seed,
        event_hash="",
        events=0,
        virtual_ms=0,
        facts={},
        options="unknown",
        failure=failure,
        error="",
        last_events=[],
    )
    return asdict(outcome) | {"wall_s": WALL_S_MAX}


if __name__ == "__main__":
    sys.exit(main())
