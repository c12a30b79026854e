"""kafka-python's own integration tests, run against existing brokers.

They come from the source distribution of the installed version, fetched by pip into the user's
cache; no file of them is part of the project. The distribution lacks the package's `__init__.py`
and the module that starts a broker: both are written beside them, the second with the interface of
an external broker.

This module is a plugin of their pytest process too: `pytest -p
tests.conformance.kafka_python_tests` deselects the tests in `EXCLUDED`.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal
from xml.etree import ElementTree

import pytest

from ..foreign.node_packages import cannot

PACKAGE: Final = "kafka-python"
KAFKA_VERSION: Final = "4.3"
"""The broker version for the tests: the newest release with supported versions of the requests that
kafka-python checks."""

NODES: Final = (0,)
"""One node, as the tests expect: a test requires the records of six partitions in one poll, which
may return those of one broker only. Another places replicas on broker 0."""

MIN_SESSION_MS: Final = 1_000
"""One test has members with session timeouts of three seconds, less than the default minimum."""

PARTITIONS: Final = 2
"""Of a topic that a producer creates: a test commits an offset of its second partition."""

_OWN_BROKER: Final = "it starts a Kafka of its own"
EXCLUDED: Final[Mapping[str, str]] = {
    "test_admin_integration.py::test_alter_replica_log_dirs": (
        "a broker has one directory, and no request to move a partition to another"
    ),
    "test_admin_integration.py::test_create_describe_delete_acls": "the node has no authorizer",
    "test_admin_integration.py::test_describe_configs_broker_resource_returns_configs": (
        "a broker tells its settings by the names that they have here, as advertised.kafka"
    ),
    "test_sasl_integration.py": _OWN_BROKER,
    "test_ssl_integration.py": _OWN_BROKER,
}
"""Files and tests that cannot pass, with the reason."""

OUTSIDE_BROKER: Final = '''\
class ExternalService:
    """A broker that somebody else runs."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def stop(self):
        pass

    def dump_logs(self):
        pass


class SpawnedService:
    """No broker is started here."""
'''
FETCH_S: Final = 120
EACH_S: Final = 60
ALL_S: Final = 600
WAYS: Final[Mapping[str, Literal["failed", "excluded"]]] = {
    "failure": "failed",
    "error": "failed",
    "skipped": "excluded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one test."""

    test: str  # "test_admin_integration.py::test_elect_leaders"
    what: Literal["passed", "failed", "excluded"]
    why: str  # the reason unless it passed


def run(folder: Path, address: str) -> list[Outcome]:
    """Run all tests in an empty folder against the broker at `address` and its cluster; return
    their results. Skip the test if they cannot be fetched."""
    shutil.copytree(sources(), folder / "test")
    (folder / "test" / "__init__.py").touch()
    (folder / "test" / "service.py").write_text(OUTSIDE_BROKER)
    report, top = folder / "report.xml", Path(__file__).parents[2]
    command = [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", __name__),
        *("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)),
        *(f"--timeout={EACH_S}", f"--junitxml={report}", "test/integration"),
    ]
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{address}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_ROOT": str(folder),  # the home of a Kafka; the folder must exist
        "PYTHONPATH": f"{folder}{os.pathsep}{top}",
    }
    with (folder / "said.log").open("wb") as said:
        subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=said,
            timeout=ALL_S,
            check=False,
        )
    written = (folder / "said.log").read_text(errors="replace")
    assert report.exists(), f"pytest wrote no report: {written[-3_000:]}"
    return outcomes(report.read_text())


def outcomes(report: str) -> list[Outcome]:
    """Return the result of each test from a JUnit report."""
    found = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        module = case.get("classname", "").removeprefix("test.integration.")
        test = "::".join([f"{module.partition('.')[0]}.py", case.get("name", "")])
        ways = [part for part in case if part.tag in WAYS]
        if ways:
            why = reason(test) or ways[0].get("message", "")
            found.append(Outcome(test=test, what=WAYS[ways[0].tag], why=why))
        else:
            found.append(Outcome(test=test, what="passed", why=""))
    return found


def reason(test: str) -> str:
    """Return the reason for an exclusion; "": the test is not excluded."""
    name = re.sub(r"\[.*", "", test)
    return EXCLUDED.get(name) or EXCLUDED.get(name.partition("::")[0], "")


def sources() -> Path:
    """Return the folder `test` of the distribution, and fetch it if it is missing, one process at a
    time."""
    package = f"{PACKAGE}-{version(PACKAGE)}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "quorumlog" / "conformance" / package
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    fresh = folder.with_name(f"{folder.name}.fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-binary", PACKAGE, "--dest", str(fresh)]
    try:
        fetched = subprocess.run(
            [*command, f"{PACKAGE}=={version(PACKAGE)}"],
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        cannot(f"not here: pip did not bring the sources of {PACKAGE} within {FETCH_S} s")
    if fetched.returncode:
        cannot(f"not here: pip cannot bring the sources of {PACKAGE}: {fetched.stderr[-500:]}")
    (archive,) = fresh.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(fresh, filter="data")
    (tests,) = fresh.glob("*/test")
    tests.rename(folder)
    shutil.rmtree(fresh)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the process of the tests: deselect the excluded ones."""
    for item in items:
        parts = item.nodeid.removeprefix("test/integration/").split("::")
        why = reason(f"{parts[0]}::{parts[-1]}")
        if why:
            item.add_marker(pytest.mark.skip(reason=why))
