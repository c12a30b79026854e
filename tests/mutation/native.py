"""The mutation run of the compiled modules: `python -m tests.mutation.native`.

Of the mutants of the Cython sources a sample is drawn, from each source in proportion to its
mutants, by a hash of the commit. The drawn ones are compiled together, and the tests that compare
the compiled modules with their twins in plain Python run against each. Survivors run the same
tests once more under AddressSanitizer and UBSan.

The score is the share of found mutants among those that are not excluded. Excluded are mutants that
no test reaches, and those that end with a TypeError or NameError inside of the compiled module.
Results go to build/mutation/native.json.
"""

import argparse
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from .native_build import MODULES, ROOT, Drawn, all_mutants, build
from .native_judge import TESTS
from .native_mutants import NativeMutant
from .simulated import FOLDER, NATIVE, SAMPLE, Ending, Result, row

WORK: Final = FOLDER / "native"
ENDINGS: Final = {
    "not reached": Ending.NOT_REACHED,
    "equal": Ending.EQUAL,
    "differs": Ending.FOUND,
    "crash": Ending.FOUND,
    "sanitizer": Ending.FOUND,
    "python": Ending.PYTHON_ERROR,
}
SANITIZED: Final = {
    # Python leaks on purpose at its end.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:hard_rss_limit_mb=4096",
    "PYTHONMALLOC": "malloc",
}


def sample(mutants: Drawn, size: int, commit: str, refused: Collection[int]) -> Drawn:
    """Return mutants of each source in proportion to their number, drawn by the commit."""

    def draw(number: int) -> bytes:
        each = mutants[number]
        text = f"{commit}|{each.file}|{each.unit.function}|{each.change}"
        return hashlib.sha256(text.encode()).digest()

    by_file: dict[str, list[int]] = {}
    for number, mutant in mutants.items():
        by_file.setdefault(mutant.file, []).append(number)
    drawn: list[int] = []
    for numbers in by_file.values():
        left = sorted(set(numbers) - set(refused), key=draw)
        drawn += left[: math.ceil(size * len(numbers) / len(mutants))]
    return {number: mutants[number] for number in sorted(drawn)}


def compiled(mutants: Drawn, size: int, commit: str) -> Drawn:
    """Draw a sample and compile it; mutants that a compiler refuses are replaced."""
    refused: set[int] = set()
    shutil.rmtree(WORK, ignore_errors=True)
    while True:
        drawn = sample(mutants, size, commit, refused)
        more = build(WORK / "usual", drawn, count=len(mutants))
        if not more:
            print(f"{len(drawn)} mutants compiled; {len(refused)} refused", flush=True)
            return drawn
        refused |= more


def judged(
    folder: Path,
    numbers: list[int],
    count: int,
    *,
    tests: Sequence[str] = TESTS,
    reached: Any = None,
    sanitized: bool = False,
    at_import: bool = False,
) -> dict[str, Any]:
    """Run the tests against mutants of a package; return the results."""
    path = folder / "work.json"
    work: dict[str, Any] = {"numbers": numbers, "count": count, "reached": reached}
    work |= {"tests": tests, "modules": list(MODULES), "sanitized": sanitized}
    path.write_text(json.dumps(work))
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    if sanitized:
        libraries = [
            subprocess.run(
                ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
            ).stdout.strip()
            for name in ("libasan.so", "libubsan.so")
        ]
        environment |= {**SANITIZED, "LD_PRELOAD": " ".join(libraries)}
    if at_import:
        environment["QL_MUTANT"] = str(numbers[0])
    command = [sys.executable, "-m", "tests.mutation.native_judge", str(path)]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def judged_at_import(number: int, count: int, reached: Any) -> dict[str, Any]:
    """Judge a mutant of what runs as a module is imported."""
    try:
        found = judged(WORK / "usual", [number], count, reached=reached, at_import=True)
    except subprocess.CalledProcessError:  # nothing can be imported, or collected
        return {"ending": "crash", "by": "import", "tests": 0}
    result: dict[str, Any] = found["results"][str(number)]
    return result


def result_of(mutant: NativeMutant, found: dict[str, Any]) -> Result:
    """Return a result in the form of the other runs."""
    return Result(
        module=mutant.file,
        place=f"{mutant.file}:{mutant.unit.function}",
        change=mutant.change,
        line=mutant.line,
        ending=ENDINGS[found["ending"]],
        by=" ".join(filter(None, (found["ending"], found["by"]))),
        seeds=found["tests"],
    )


def run(size: int, commit: str) -> list[Result]:
    """Judge a sample, then its survivors under the sanitizers."""
    mutants = all_mutants()
    drawn = compiled(mutants, size, commit)
    usual = judged(WORK / "usual", list(drawn), len(mutants))
    results = usual["results"]
    for number in drawn:
        if results[str(number)]["ending"] == "import":
            results[str(number)] = judged_at_import(number, len(mutants), usual["reached"])
    equal = [number for number in drawn if results[str(number)]["ending"] == "equal"]
    if equal:
        survivors = {number: drawn[number] for number in equal}
        refused = build(WORK / "sanitized", survivors, count=len(mutants), sanitized=True)
        assert not refused, f"compiled before: {refused}"
        again = judged(
            WORK / "sanitized", equal, len(mutants), reached=usual["reached"], sanitized=True
        )
        for number, found in again["results"].items():
            if found["ending"] != "equal":
                results[number] = {**found, "ending": "sanitizer"}
    return [result_of(mutant, results[str(number)]) for number, mutant in drawn.items()]


def main() -> int:
    """Run a sample and store the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=SAMPLE, help="number of mutants")
    options = parser.parse_args()
    os.chdir(ROOT)
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    commit = asked.stdout.strip()
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = run(options.sample, commit)
    for each in results:
        if each.ending in (Ending.EQUAL, Ending.NOT_REACHED):
            print(f"{each.ending}: {each.place}:{each.line} {each.change}", flush=True)
    stored = {"commit": commit, "results": [asdict(each) for each in results]}
    (FOLDER / f"{NATIVE}.json").write_text(json.dumps(stored, indent=1))
    print(row(NATIVE, results), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
