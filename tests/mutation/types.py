"""Which mutants the type checker refuses: no test needs to tell `None` from `False` for it.

Unreachable code and redundant conditions are no reason here: they are for a test to notice.
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
    """The (place, change) of those that mypy finds an error in."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        core = _copy(folder)
        problem = _problem(folder)
        assert not problem, f"mypy refuses the core without a mutant: {problem}"
        refused = set()
        for mutant in mutants:
            file = core / f"{mutant.module.rpartition('.')[2]}.py"
            before = file.read_text()
            file.write_text(mutant.whole())
            if _problem(folder):
                refused.add((mutant.place, mutant.change))
            file.write_text(before)
        problem = _problem(folder)
        assert not problem, f"mypy refuses something else by now, begin again: {problem}"
    return refused


def _copy(folder: Path) -> Path:
    """Lay the package out in the folder, its core copied, the rest linked; returns the core."""
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
