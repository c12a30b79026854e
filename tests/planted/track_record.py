"""Planted bugs: each patch breaks one rule, and a level of the simulation must find it.

A patch begins with two lines, `Rule:` and `Function:`: the rule that it breaks and the functions
that it changes, as `src/raftlog/leader.py:Leader.maybe_commit`. `git apply` may apply a patch to
similar lines of another function; a test compares the functions to detect this. A third line
`Scenario:` names the scripted scenario that finds the bug, which seeds seldom reach.

A patch is applied to a temporary copy of the package, which a separate process runs from seed 0 on.
`python -m tests.planted.track_record` runs all, or the given levels, and writes the tables into
docs/track-record.md; the test beside it runs each within a bound.
"""

import ast
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = Path(__file__).resolve().parent
PAGE: Final = ROOT / "docs" / "track-record.md"
LEVELS: Final = {
    "core": ("raftlog",),
    "partitions": ("broker", "metadata"),
    "node": ("broker", "metadata", "server", "storage"),
    "kafka": ("broker", "frontends", "storage"),
    "coordinator": ("broker",),
    "groups": ("broker",),
    "transactions": ("broker", "clients", "storage"),
    "intruder": ("broker", "metadata", "raftlog", "runtime"),
}
"""The packages that the patches change, by level of the simulation and folder of the patches."""
SEEDS_MAX: Final = 100  # the most that any planted bug may need
WALL_S_MAX: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A patch and the result of its simulation."""

    level: str
    name: str
    rule: str
    functions: list[str]  # that the patch changes
    scenario: str  # the scripted scenario; "": seeds
    seeds: int  # run until one failed, including that one; 0: none failed
    by: str  # the invariant, or the position of a failed assertion in the core
    detail: str
    events: int


def patches(level: str | None = None) -> list[Path]:
    """Return the patches of a level in order; None: of all levels."""
    levels = LEVELS if level is None else (level,)
    return [patch for name in levels for patch in sorted((FOLDER / name).glob("*.patch"))]


def level_of(patch: Path) -> str:
    """Return the level that must find a patch."""
    return patch.parent.name


def rule_of(patch: Path) -> str:
    """Return the rule that a patch breaks, from its first line."""
    first = patch.read_text().partition("\n")[0]
    assert first.startswith("Rule: "), f"{patch.name} does not begin with its rule"
    return first.removeprefix("Rule: ").removesuffix(".")


def functions_of(patch: Path) -> list[str]:
    """Return the functions that a patch must change, from its second line."""
    second = patch.read_text().splitlines()[1]
    assert second.startswith("Function: "), f"{patch.name} does not name its functions"
    return second.removeprefix("Function: ").split(", ")


def scenario_of(patch: Path) -> str:
    """Return the scenario that must find a bug, from the third line of its patch; "": seeds."""
    third = patch.read_text().splitlines()[2]
    return third.removeprefix("Scenario: ") if third.startswith("Scenario: ") else ""


def changed_functions(folder: Path) -> list[str]:
    """Return the functions in which a planted package, made by `plant`, differs from the
    original."""
    found: dict[str, None] = {}
    for new in sorted((folder / "src").rglob("*.py")):
        name = str(new.relative_to(folder))
        ours, planted = (ROOT / name).read_text(), new.read_text()
        if ours == planted:
            continue
        old_lines, new_lines = ours.splitlines(), planted.splitlines()
        changes = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False).get_opcodes()
        for tag, old_start, old_end, new_start, new_end in changes:
            if tag == "equal":
                continue
            places = [
                *(enclosing_function(ours, number) for number in range(old_start + 1, old_end + 1)),
                *(
                    enclosing_function(planted, number)
                    for number in range(new_start + 1, new_end + 1)
                ),
            ]
            found |= dict.fromkeys(f"{name}:{place}" for place in places if place)
    return list(found)


def enclosing_function(source: str, line: int) -> str:
    """Return the qualified name of the function around a line, "" at the level of the module."""
    names = [
        node.name
        for node in ast.walk(parsed(source))  # outer nodes come before inner ones
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return ".".join(names)


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def plant(patch: Path, folder: Path) -> None:
    """Create a package `quorumlog` below the folder with the patch applied. Raise
    CalledProcessError if it does not apply."""
    package = folder / "src"
    package.mkdir()
    for child in (ROOT / "src").iterdir():
        if child.name in LEVELS[level_of(patch)]:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(child, package / child.name, ignore=ignored)
        elif child.name not in ("__pycache__", "spark"):
            (package / child.name).symlink_to(child)
    (folder / "quorumlog").symlink_to("src")
    subprocess.run(
        ["git", "apply", "-C1", "--recount", str(patch)],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )


@contextmanager
def planted_package(patch: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of processes that import the package with the patch applied."""
    with tempfile.TemporaryDirectory() as name:
        plant(patch, Path(name))
        changed = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": name}
        yield os.environ | changed


def hunt(patch: Path, *, first: int = 0, seeds: int = SEEDS_MAX) -> Planted:
    """Run the package with the patch, from a first seed on, until a seed fails; or run its
    scenario."""
    level, scenario = level_of(patch), scenario_of(patch)
    with planted_package(patch) as environment:
        played = subprocess.run(
            [
                *(sys.executable, "-m", "tests.simulation.hunt"),
                *("--level", level, "--first", str(first), "--seeds", str(seeds)),
                *("--scenario", scenario),
            ],
            cwd=ROOT,  # its tests folder has the levels
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=WALL_S_MAX,
        )
    found: dict[str, Any] = json.loads(played.stdout) or {}
    return Planted(
        level=level,
        name=patch.stem,
        rule=rule_of(patch),
        functions=functions_of(patch),
        scenario=scenario,
        seeds=found.get("seed", -1) + 1,
        by=found.get("by", ""),
        detail=found.get("detail", ""),
        events=found.get("events", 0),
    )


def seeds_on_page(patch: Path) -> int:
    """Return the seeds that the page has for a planted bug; 0: no row, or not found."""
    begin, end = marks(level_of(patch))
    rows = PAGE.read_text().partition(begin)[2].partition(end)[0].splitlines()
    number, _, name = patch.stem.partition("_")
    for row in rows:
        cells = [cell.strip() for cell in row.split("|")]
        if cells[1:2] == [f"{number} {name.replace('_', ' ')}"]:
            played = re.match(r"(\d+) seeds?,", cells[3])
            return int(played[1]) if played else 0
    return 0


def table(found: list[Planted]) -> str:
    """Return the table of the page."""
    lines = [
        "| patch | the rule it breaks | found in | found by | function |",
        "|---|---|---|---|---|",
    ]
    for bug in found:
        number, _, name = bug.name.partition("_")
        lines.append(
            f"| {number} {name.replace('_', ' ')} | {bug.rule} | {found_in(bug)} |"
            f" {bug.by} | {function_cell(bug.functions)} |"
        )
    return "\n".join(lines)


def found_in(bug: Planted) -> str:
    """Return the scenario that found a bug, or the number of seeds and events."""
    if not bug.seeds:
        return "not found"
    if bug.scenario:
        return f"scenario: {bug.scenario.replace('_', ' ')}"
    return f"{bug.seeds} seed{'s' if bug.seeds > 1 else ''}, {bug.events:,} events"


def function_cell(functions: list[str]) -> str:
    """Return the cell of a table that names functions."""
    return ", ".join(f"`{each.removeprefix('src/')}`" for each in functions)


def write_page(found: list[Planted]) -> None:
    """Write the tables of the results into the page, each between its level's marks."""
    text = PAGE.read_text()
    for level in dict.fromkeys(bug.level for bug in found):
        begin, end = marks(level)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        of_level = [bug for bug in found if bug.level == level]
        text = f"{before}{begin}\n\n{table(of_level)}\n\n{end}{after}"
    PAGE.write_text(text)


def marks(level: str) -> tuple[str, str]:
    """Return the two marks around the table of a level."""
    begin = f"<!-- planted bugs of level {level}: generated by `make track-record` -->"
    return begin, f"<!-- end of planted bugs of level {level} -->"


def main() -> int:
    """Run planted bugs and write the page; return 1 if one was not found."""
    found = []
    levels = sys.argv[1:] or list(LEVELS)
    for patch in (patch for level in levels for patch in patches(level)):
        bug = hunt(patch)
        found.append(bug)
        sys.stdout.write(f"{bug.level} {bug.name:<36} {bug.seeds:>4} {bug.by}\n")
        sys.stdout.flush()
    write_page(found)
    return 0 if all(bug.seeds for bug in found) else 1


if __name__ == "__main__":
    sys.exit(main())
