"""Mutants that the type checker rejects: no test must distinguish `None` from `False` for it.

Errors about unreachable code and redundant conditions do not count: tests must find those mutants.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .mutants import MODULES, ROOT, SOURCE, Mutant

CACHE: Final = ROOT / "build" / "mypy-mutation"


def refused_by_types(mutants: Iterable[Mutant]) -> set[tuple[str, str]]:
    """Return the (place, change) of the mutants in which mypy finds an error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        core = _copy(folder)
        problem = _problem(folder)
        assert not problem, f"mypy rejects the core without a mutant: {problem}"
        refused = set()
        for mutant in mutants:
            file = core / f"{mutant.module.rpartition('.')[2]}.py"
            before = file.read_text()
            file.write_text(mutant.whole())
            if _problem(folder):
                refused.add((mutant.place, mutant.change))
            file.write_text(before)
        problem = _problem(folder)
        assert not problem, f"the tree changed during the run, repeat it: {problem}"
    return refused


def _copy(folder: Path) -> Path:
    """Create the package in the folder, with its core copied and the rest linked; return the
    core."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    package = folder / ".pkg" / "quorumlog"
    core = package / "raftlog"
    core.mkdir(parents=True)
    for child in (ROOT / "src").iterdir():
        if child.name not in ("raftlog", "__pycache__"):
            (package / child.name).symlink_to(child)
    for child in (SOURCE / "raftlog").iterdir():
        if f"raftlog.{child.stem}" in MODULES:
            shutil.copy(child, core)
        elif child.name != "__pycache__":
            (core / child.name).symlink_to(child)
    return core


def _problem(folder: Path) -> str:
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--cache-dir", str(CACHE)),
            *("--no-warn-unreachable", "--disable-error-code", "redundant-expr"),
            *(word for module in MODULES for word in ("-m", f"quorumlog.{module}")),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return checked.stdout + checked.stderr if checked.returncode else ""
