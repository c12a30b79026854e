"""The tests that compare the compiled modules with their twins, run against each mutant.

`python -m tests.mutation.native_judge work.json` runs with the package of `native_build` ahead of
the tested one. Each test first runs without a mutant, and the mutants that it reaches are recorded.
Each mutant then runs the tests that reach it until one fails, first the quick ones that have found
others. Every run is a forked process with a limit of CPU time. The results replace the work in the
file.
"""

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

TESTS: Final = (
    "tests/property/native",
    "tests/property/records",
    "tests/unit/records",
    "tests/unit/runtime/test_range_sender.py",
)
LEFT_OUT: Final = (
    "tests/unit/records/test_gil_release.py",  # time
    "tests/property/native/test_planted_bugs.py",  # other binaries
)
CPU_S_MIN: Final = 5  # of a test before it counts as endless, or ten times its own
IDLE_S: Final = 60  # without CPU time before it counts as endless
IDLE_CPU_S: Final = 0.2
SLOWNESS: Final = 8  # of the sanitizers
MEMORY_MAX: Final = 6 << 30  # bytes of addresses
PYTHON_ERRORS: Final = (TypeError, AttributeError, NameError, UnboundLocalError)


class Judge:
    """A plugin of pytest that replaces the loop over the tests."""

    def __init__(self, work: dict[str, Any], modules: Sequence[str], results: Path) -> None:
        self._work = work
        self._modules = modules
        self._results = results
        self._libraries: list[ctypes.CDLL] = []
        self._error: BaseException | None = None
        self._file = ""  # in which the error was raised

    @staticmethod
    def pytest_sessionstart() -> None:
        """Make every run of a property test the same; a failure is not shrunk."""
        profile = settings(
            settings.get_profile("quorumlog"),
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            report_multiple_bugs=False,
        )
        settings.register_profile("judge", profile)
        settings.load_profile("judge")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """Keep the error of a failed test."""
        if call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception):
            self._error = call.excinfo.value
            self._file = str(call.excinfo.traceback[-1].path)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge each mutant."""
        for module in self._modules:
            found = importlib.import_module(f"quorumlog.{module}")
            assert found.__file__ is not None
            self._libraries.append(ctypes.CDLL(found.__file__))
        at_import = set() if "QL_MUTANT" in os.environ else self._seen()
        items = {item.nodeid: item for item in session.items}
        reached = self._work["reached"] or self._reach(items)
        results: dict[str, Any] = {}
        cpu_s = {test: each["cpu_s"] for test, each in reached.items()}
        found_by: Counter[str] = Counter()
        began_s = time.monotonic()
        for count, number in enumerate(self._work["numbers"], 1):
            tests = [test for test, each in reached.items() if number in each["seen"]]
            tests.sort(key=lambda test: (-found_by[test] / (0.1 + cpu_s[test]), cpu_s[test]))
            ending = "not reached"
            by = ""
            if tests:
                played = _in_child(partial(self._play, number, tests, items, reached))
                ending, by = (played["ending"], played["by"]) if played else ("crash", "")
                found_by[by] += 1
                if ending == "equal" and number in at_import:
                    ending = "import"  # to be selected before
            results[str(number)] = {"ending": ending, "by": by, "tests": len(tests)}
            if ending in ("equal", "not reached"):
                print(f"{number} {ending}", flush=True)
            if count % 25 == 0:
                left_s = (time.monotonic() - began_s) / count * (len(self._work["numbers"]) - count)
                print(f"{count} of {len(self._work['numbers'])}, {left_s:.0f} s left", flush=True)
        self._results.write_text(json.dumps({"reached": reached, "results": results}))
        return True

    def _reach(self, items: dict[str, pytest.Item]) -> dict[str, Any]:
        """Run each test without a mutant; return its time and the mutants that it reaches."""
        reached = {}
        for test, item in items.items():
            found = _in_child(partial(self._run_alone, item))
            assert found is not None, f"{test} ends without a mutant"
            assert not found["error"], f"{test} fails without a mutant: {found['error']}"
            reached[test] = found
        taken_s = sum(each["cpu_s"] for each in reached.values())
        print(f"{len(reached)} tests, {taken_s:.0f} s of CPU", flush=True)
        return reached

    def _run_alone(self, item: pytest.Item) -> dict[str, Any]:
        began_s = time.process_time()
        self._run(item)
        return {
            "error": repr(self._error) if self._error else "",
            "cpu_s": time.process_time() - began_s,
            "seen": sorted(self._seen()),
        }

    def _seen(self) -> set[int]:
        seen: set[int] = set()
        for library in self._libraries:
            kind = ctypes.c_ubyte * (self._work["count"] + 1)
            content = bytes(kind.in_dll(library, "ql_seen"))
            seen.update(number for number, is_seen in enumerate(content) if is_seen)
        return seen

    def _play(
        self, number: int, tests: list[str], items: dict[str, pytest.Item], reached: dict[str, Any]
    ) -> dict[str, Any]:
        if not self._work["sanitized"]:  # which reserves far more
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        for library in self._libraries:
            ctypes.c_int.in_dll(library, "ql_mutant").value = number
        slowness = SLOWNESS if self._work["sanitized"] else 1
        for test in tests:
            cpu_s = slowness * max(CPU_S_MIN, 10 * reached[test]["cpu_s"])
            signal.setitimer(signal.ITIMER_PROF, cpu_s)
            self._run(items[test])
            if self._error is not None:
                is_inside = self._file.endswith((".pyx", ".pxd", ".pxi"))
                is_python = is_inside and isinstance(self._error, PYTHON_ERRORS)
                return {"ending": "python" if is_python else "differs", "by": test}
        return {"ending": "equal", "by": ""}

    def _run(self, item: pytest.Item) -> None:
        self._error = None
        runtestprotocol(item, log=False, nextitem=None)


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return the result of a function in a forked process; None if it ended in another way."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.close(reading)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            found = json.dumps(work())
            with os.fdopen(writing, "w") as pipe:
                pipe.write(found)
            status = 0
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        used_s = 0.0
        while not select.select([pipe], [], [], IDLE_S)[0]:
            before_s, used_s = used_s, _cpu_s(child)
            if used_s - before_s < IDLE_CPU_S:
                os.kill(child, signal.SIGKILL)
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if status == 0 else None


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(path: Path) -> int:
    """Judge the mutants of the file."""
    work = json.loads(path.read_text())
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--tb=no", "--assert=plain"]
    options += ["-m", "not long and not plain"]
    options += [f"--ignore={each}" for each in LEFT_OUT]
    judge = Judge(work, work["modules"], path)
    return int(pytest.main([*options, *work["tests"]], plugins=[judge]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
