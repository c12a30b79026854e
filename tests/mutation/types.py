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

from .mutants import ROOT, SOURCE, Mutant, file_of

CACHE: Final = ROOT / "build" / "mypy-mutation"


def refused_by_types(mutants: Iterable[Mutant]) -> set[tuple[str, str]]:
    """Return the (place, change) of the mutants in which mypy finds an error."""
    by_module: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_module.setdefault(mutant.module, []).append(mutant)
    refused = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = folder / ".pkg" / "quorumlog"
        config = (ROOT / "pyproject.toml").read_text().replace(', "redundant-expr"', "")
        (folder / "pyproject.toml").write_text(config)
        shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        for module, found in by_module.items():
            problem = _problem(folder, module)
            assert not problem, f"mypy rejects {module} without a mutant: {problem}"
            file = package / file_of(module).relative_to(SOURCE)
            before = file.read_text()
            for mutant in found:
                file.write_text(mutant.whole())
                if _problem(folder, module):
                    refused.add((mutant.place, mutant.change))
            file.write_text(before)
    return refused


def _problem(folder: Path, module: str) -> str:
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--cache-dir", str(CACHE)),
            "--no-warn-unreachable",
            *("-m", f"quorumlog.{module}"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return checked.stdout + checked.stderr if checked.returncode else ""
