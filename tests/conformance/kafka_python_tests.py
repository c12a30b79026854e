"""kafka-python's own integration tests, run against brokers that are up.

They come from the source distribution of the version that is installed here, by pip, into the
user's cache; nothing of them is part of the project. The distribution leaves out the file that
makes a package of them and the module that would start a broker: both are written beside them, the
second with what the tests ask of a broker that somebody else runs.

They are a plugin of pytest's process too: `pytest -p tests.conformance.kafka_python_tests` leaves
out what `EXCLUDED` names.
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
"""What the tests take the brokers for: the newest release of whose versions of requests we have
those that kafka-python looks at."""

NODES: Final = (0,)
"""One, as they expect it: a test wants the records of six partitions of one poll, which may bring
those of one broker alone. Another places replicas on broker 0."""

MIN_SESSION_MS: Final = 1_000
"""One test has members with sessions of three seconds, which is less than brokers take unless they
are told to."""

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
"""Files and tests that cannot pass, and why."""

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
    """What came of one test."""

    test: str  # "test_admin_integration.py::test_elect_leaders"
    what: Literal["passed", "failed", "excluded"]
    why: str  # it did not pass; empty: it did


def run(folder: Path, address: str) -> list[Outcome]:
    """Run them all in an empty folder against the broker at `address`, and through it its cluster;
    returns what came of each. Skips the test where they cannot be had."""
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
        "KAFKA_ROOT": str(folder),  # where a Kafka would be; it has to be there
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
    assert report.exists(), f"pytest made no report: {written[-3_000:]}"
    return outcomes(report.read_text())


def outcomes(report: str) -> list[Outcome]:
    """What a report of pytest's, of the kind of JUnit, says of each test."""
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
    """Why a test is left out; empty: it is not."""
    name = re.sub(r"\[.*", "", test)
    return EXCLUDED.get(name) or EXCLUDED.get(name.partition("::")[0], "")


def sources() -> Path:
    """The folder `test` of the distribution, fetched where that has not happened yet; one process
    at a time looks."""
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
    """In pytest's process: leave out what cannot pass."""
    for item in items:
        parts = item.nodeid.removeprefix("test/integration/").split("::")
        why = reason(f"{parts[0]}::{parts[-1]}")
        if why:
            item.add_marker(pytest.mark.skip(reason=why))
