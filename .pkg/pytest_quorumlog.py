"""The fixtures of quorumlog for pytest: brokers and clusters in processes of their own.

pytest loads this for every run in an environment where quorumlog is installed, most of which have
nothing to do with it. So it imports nothing of quorumlog before a test asks for a fixture, and does
nothing until then. How to use it: docs/testing_with_quorumlog.md.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from quorumlog import Log
    from quorumlog.testing import Broker, Cluster

T = TypeVar("T")

LINES_MAX = 200  # of what a node said during a test that failed


class Running:
    """What this run has started, by the name of its fixture."""

    def __init__(self) -> None:
        self.restores: dict[str, Callable[[], None]] = {}  # how a test's faults are undone
        self.logs: dict[str, dict[str, Path]] = {}  # by the node's name
        self.sizes: dict[Path, int] = {}  # bytes of each log before the test that runs


RUNNING = pytest.StashKey[Running]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin with nothing."""
    config.stash[RUNNING] = Running()


# --- fixtures ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def quorumlog_settings() -> Mapping[str, object]:
    """Settings of the nodes, by name: define a fixture of this name in conftest.py to give some."""
    return {}


@pytest.fixture(scope="session")
def quorumlog_broker(
    quorumlog_settings: Mapping[str, object], pytestconfig: pytest.Config
) -> "Iterator[Broker]":
    """A broker for all tests of this run: `.kafka` and `.grpc` are its addresses. A test may kill,
    stop or pause it; it runs again before the next one."""
    from quorumlog.testing import Broker

    broker = _started(lambda: Broker(settings=quorumlog_settings).__enter__())
    running = pytestconfig.stash[RUNNING]
    running.restores["quorumlog_broker"] = broker.restore
    running.logs["quorumlog_broker"] = {"the broker": broker.log_file}
    yield broker
    broker.close()


@pytest.fixture
def quorumlog_topic(request: pytest.FixtureRequest, quorumlog_broker: "Broker") -> str:
    """The name of a new topic of one partition on `quorumlog_broker`, which no other test has."""
    from quorumlog.testing.node_group import fresh_name

    return quorumlog_broker.create_topic(fresh_name(request.node.name))


@pytest.fixture
def quorumlog_log(quorumlog_broker: "Broker") -> "Iterator[Log]":
    """A client of `quorumlog_broker`, as `quorumlog.connect` returns one; closed after the test."""
    with quorumlog_broker.connect() as log:
        yield log


@pytest.fixture(scope="session")
def quorumlog_cluster(
    quorumlog_settings: Mapping[str, object], pytestconfig: pytest.Config
) -> "Iterator[Cluster]":
    """Three nodes for all tests of this run that ask for them. What a test does to them is undone
    after it."""
    from quorumlog.testing import Cluster

    cluster = _started(lambda: Cluster(settings=quorumlog_settings).__enter__())
    running = pytestconfig.stash[RUNNING]
    running.restores["quorumlog_cluster"] = cluster.restore
    running.logs["quorumlog_cluster"] = {
        f"node {number}": node.log_file for number, node in cluster.nodes.items()
    }
    yield cluster
    cluster.close()


def _started(start: Callable[[], T]) -> T:
    """Return what was started; a refusal fails the test in the node's words, without a traceback
    through this plugin."""
    from quorumlog.errors import QuorumlogError

    try:
        return start()
    except QuorumlogError as error:
        refusal = f"quorumlog: {error}"
    pytest.fail(refusal, pytrace=False)


# --- around each test ----------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note where logs end before the test."""
    running = item.config.stash[RUNNING]
    running.sizes = {
        path: path.stat().st_size for paths in running.logs.values() for path in paths.values()
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Undo what the test did to nodes that are there for others too, before anything of it is torn
    down; a node that ended by itself is an error of the test."""
    running = item.config.stash[RUNNING]
    errors = []
    for name in _used(item, running.restores):
        try:
            running.restores[name]()
        except Exception as error:  # whatever it is, the rest of the test is torn down
            errors.append(f"{name}: {error}")
    result = yield
    if errors:
        pytest.fail("\n".join(errors), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the nodes of the test have said since it began."""
    report = yield
    running = item.config.stash[RUNNING]
    if report.failed:
        for fixture in _used(item, running.logs):
            for name, path in running.logs[fixture].items():
                if said := _lines(path, running.sizes.get(path, 0)):
                    report.sections.append((f"log of {name} of {fixture}", said))
    return report


def _used(item: pytest.Item, fixtures: Mapping[str, object]) -> list[str]:
    """Return which of the fixtures a test uses, itself or by others."""
    names = getattr(item, "fixturenames", ())
    return [name for name in fixtures if name in names]


def _lines(path: Path, start: int) -> str:
    """Return the last lines of a file behind a position; "" where there are none any more."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-LINES_MAX:])
