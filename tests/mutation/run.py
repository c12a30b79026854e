"""The mutation run of the consensus core: `python -m tests.mutation.run`, or `make mutate`.

The quick tests of the core run once, with the lines that each of them reaches. Then each mutant
gets a process forked from this one, which replaces the function's code by the mutant's and runs the
tests that reach the changed lines until one fails. Only the results and the page are written. To
change the tree during a run, run it in a copy, with that copy's .pkg on PYTHONPATH. `--again`
repeats the survivors of the last run only, `--no-page` does not change the page.
"""

import argparse
import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

import coverage
import pytest
from _pytest.runner import runtestprotocol

from .mutants import MODULES, ROOT, SOURCE, Mutant, mutants_of
from .page import Outcome, report
from .types import refused_by_types

TESTS: Final = ("tests/unit/raftlog/core", "tests/scenarios", "tests/property/raftlog")
RESULTS: Final = ROOT / "build" / "mutation.json"
CPU_S_MIN: Final = 1.0  # CPU time of a test before it counts as endless, or ten times its own


@dataclass(frozen=True, slots=True)
class Reached:
    """The lines that each test reaches, and its duration."""

    tests: dict[str, pytest.Item]
    seconds: dict[str, float]
    by_line: dict[tuple[str, int], set[str]]

    def of(self, mutant: Mutant) -> set[str]:
        """Return the tests that reach the lines of a mutant."""
        first, last = mutant.lines
        lines = range(first, last + 1)
        return set().union(*(self.by_line.get((mutant.module, line), ()) for line in lines))


class Run:
    """A pytest plugin that runs mutants in place of tests."""

    def __init__(self, mutants: list[Mutant]) -> None:
        self.mutants = mutants
        self.outcomes: list[Outcome] = []

    def pytest_collection(self) -> None:
        """Use the same examples in every run, and no stored failures."""
        from hypothesis import settings  # pytest must rewrite it before the import

        settings.register_profile(
            "mutation", settings.get_profile("quorumlog"), derandomize=True, database=None
        )
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests once, then each mutant."""
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        reached = _reach(session)
        gc.collect()
        gc.freeze()
        killers: Counter[tuple[str, str]] = Counter()
        began = time.monotonic()
        for number, mutant in enumerate(self.mutants, 1):
            tests = sorted(
                reached.of(mutant),
                key=lambda name: (-killers[mutant.place, name], reached.seconds[name], name),
            )
            by = _hunt(mutant, tests, reached)
            killers[mutant.place, by] += 1
            self.outcomes.append(
                Outcome(
                    module=mutant.module,
                    place=mutant.place,
                    change=mutant.change,
                    line=mutant.lines[0],
                    killed_by=by,
                )
            )
            if not by:
                print(f"survived: {mutant.place}:{mutant.lines[0]} {mutant.change}", flush=True)
            if number % 100 == 0:
                left_s = (time.monotonic() - began) / number * (len(self.mutants) - number)
                print(f"{number} of {len(self.mutants)}, {left_s:.0f} s left", flush=True)
        if by := _hunt(None, sorted(reached.tests), reached):
            raise SystemExit(f"{by} fails without a mutant now: a file changed during the run")
        return True


def _reach(session: pytest.Session) -> Reached:
    """Run every test without a mutant. Raise SystemExit if one fails."""
    recorder = coverage.Coverage(
        data_file=None, config_file=False, include=[str(SOURCE / "raftlog" / "*")]
    )
    seconds: dict[str, float] = {}
    recorder.start()
    for item, following in _pairs(session.items):
        recorder.switch_context(item.nodeid)
        reports = runtestprotocol(item, log=False, nextitem=following)
        failed = [report for report in reports if report.failed]
        if failed:
            raise SystemExit(f"{item.nodeid} fails without a mutant:\n{failed[0].longreprtext}")
        seconds[item.nodeid] = sum(report.duration for report in reports)
    recorder.stop()
    by_line: dict[tuple[str, int], set[str]] = {}
    data = recorder.get_data()
    for file in data.measured_files():
        for line, names in data.contexts_by_lineno(file).items():
            by_line[f"raftlog.{Path(file).stem}", line] = {name for name in names if name}
    return Reached({item.nodeid: item for item in session.items}, seconds, by_line)


def _pairs(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _hunt(mutant: Mutant | None, tests: list[str], reached: Reached) -> str:
    """Run the tests in a process with the mutant. Return the failed test, "" if none failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(reading)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            os.write(writing, _first_failure(mutant, tests, reached).encode())
            os._exit(0)
        os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGPROF, f"{mutant} ended by {os.WTERMSIG(status)}"
        return "endless"
    return said if status == 0 else "an error of the process"


def _first_failure(mutant: Mutant | None, tests: list[str], reached: Reached) -> str:
    if mutant is not None:
        infect(mutant)
    items = [reached.tests[name] for name in tests]
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for item, following in _pairs(items):
        limit_s = max(CPU_S_MIN, 10 * reached.seconds[item.nodeid])
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        if any(r.failed for r in runtestprotocol(item, log=False, nextitem=following)):
            return item.nodeid
    return ""


def infect(mutant: Mutant) -> None:
    """Replace the code of the function in this process by the mutant's."""
    found: Any = importlib.import_module(f"quorumlog.{mutant.module}")
    for name in mutant.function.split("."):
        found = vars(found)[name]
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    code = _code_of(compile(mutant.code, found.__code__.co_filename, "exec"), mutant.function)
    assert code is not None, f"no {mutant.function} in the mutant"
    found.__code__ = code


def _code_of(code: CodeType, name: str) -> CodeType | None:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found = each if each.co_qualname == name else _code_of(each, name)
            if found is not None:
                return found
    return None


def main() -> int:
    """Run, print the survivors, and write the page; return 1 if a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="of the core; all when none is named")
    parser.add_argument("--again", action="store_true", help="only what survived last time")
    parser.add_argument("--no-page", action="store_true", help="leave docs/track-record.md alone")
    chosen = parser.parse_args()
    os.chdir(ROOT)
    modules = chosen.modules or MODULES
    mutants = [mutant for module in modules for mutant in mutants_of(module)]
    known = _known()
    keys = {(mutant.place, mutant.change) for mutant in mutants}
    if chosen.again:
        done = {key for key, outcome in known.items() if outcome.killed_by}
        mutants = [mutant for mutant in mutants if (mutant.place, mutant.change) not in done]
    run = Run(mutants)
    arguments = [*TESTS, "-q", "-s", "-p", "no:cacheprovider", "-m", "not slow and not long"]
    if pytest.main(arguments, plugins=[run]) not in (0, 5):
        return 1
    by_types = refused_by_types(
        [m for m, o in zip(mutants, run.outcomes, strict=True) if not o.killed_by]
    )
    for outcome in run.outcomes:
        key = (outcome.place, outcome.change)
        if not outcome.killed_by and key in by_types:
            outcome = Outcome(**{**asdict(outcome), "killed_by": "types"})
        known[key] = outcome
    outcomes = [o for key, o in known.items() if o.module not in modules or key in keys]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return report(outcomes, write=not chosen.no_page)


def _known() -> dict[tuple[str, str], Outcome]:
    if not RESULTS.exists():
        return {}
    outcomes = [Outcome(**each) for each in json.loads(RESULTS.read_text())]
    return {(outcome.place, outcome.change): outcome for outcome in outcomes}


if __name__ == "__main__":
    sys.exit(main())
