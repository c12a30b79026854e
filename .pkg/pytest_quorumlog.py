"""pytest fixtures of quorumlog: brokers and clusters in processes of their own.

pytest loads this module in every environment with quorumlog installed. So it imports nothing of
quorumlog, and does nothing, until a test requests a fixture. Usage: docs/testing_with_quorumlog.md.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from quorumlog import Log
    from quorumlog.testing import Broker, ClientHistory, Cluster

T = TypeVar("T")

LINES_MAX = 200  # of a node's log, in the report of a failed test


class Running:
    """The nodes started in this run, by fixture."""

    def __init__(self) -> None:
        self.restores: dict[str, Callable[[], None]] = {}  # undo a test's faults
        self.logs: dict[str, dict[str, Path]] = {}  # by the node's name
        self.sizes: dict[Path, int] = {}  # bytes of each log before the test that runs


RUNNING = pytest.StashKey[Running]()


def pytest_configure(config: pytest.Config) -> None:
    """Create the state of the run."""
    config.stash[RUNNING] = Running()


# --- fixtures ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def quorumlog_settings() -> Mapping[str, object]:
    """Settings of the nodes, by name; override this fixture in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def quorumlog_broker(
    quorumlog_settings: Mapping[str, object], pytestconfig: pytest.Config
) -> "Iterator[Broker]":
    """A broker shared by all tests of the run; `.kafka` and `.grpc` are its addresses. A test may
    kill, stop or pause it: it runs again before the next test."""
    yield from _shared_broker(quorumlog_settings, pytestconfig)


@pytest.fixture(scope="session")
def quorumlog_secure_broker(
    quorumlog_settings: Mapping[str, object], pytestconfig: pytest.Config
) -> "Iterator[Broker]":
    """As `quorumlog_broker`, with TLS, passwords and ACLs: `.connect()` is the administrator's
    client, `.kafka_config()` configures a Kafka client."""
    yield from _shared_broker(quorumlog_settings, pytestconfig, secure=True)


@pytest.fixture
def quorumlog_topic(request: pytest.FixtureRequest, quorumlog_broker: "Broker") -> str:
    """The name of a new topic of one partition on `quorumlog_broker`, for this test alone."""
    from quorumlog.testing.node_group import fresh_name

    return quorumlog_broker.create_topic(fresh_name(request.node.name))


@pytest.fixture
def quorumlog_log(quorumlog_broker: "Broker") -> "Iterator[Log]":
    """A client of `quorumlog_broker`, as `quorumlog.connect` returns one; closed after the test."""
    with quorumlog_broker.connect() as log:
        yield log


@pytest.fixture
def quorumlog_history() -> "ClientHistory":
    """An empty history of what this test sends and its applications process; its `check` finds
    lost, repeated and reordered records."""
    from quorumlog.testing import ClientHistory

    return ClientHistory()


@pytest.fixture(scope="session")
def quorumlog_cluster(
    quorumlog_settings: Mapping[str, object], pytestconfig: pytest.Config
) -> "Iterator[Cluster]":
    """Three nodes shared by the tests of the run. Faults of a test are undone after it."""
    yield from _shared_cluster(quorumlog_settings, pytestconfig)


@pytest.fixture(scope="session")
def quorumlog_secure_cluster(
    quorumlog_settings: Mapping[str, object], pytestconfig: pytest.Config
) -> "Iterator[Cluster]":
    """As `quorumlog_cluster`, with TLS between nodes and for clients, passwords and ACLs."""
    yield from _shared_cluster(quorumlog_settings, pytestconfig, secure=True)


def _shared_broker(
    settings: Mapping[str, object], config: pytest.Config, *, secure: bool = False
) -> "Iterator[Broker]":
    """Run a broker until the end of the run."""
    from quorumlog.testing import Broker

    fixture, name = "quorumlog_broker", "the broker"
    if secure:
        fixture, name = "quorumlog_secure_broker", "the secure broker"
    broker = _started(lambda: Broker(settings=settings, secure=secure).__enter__())
    running = config.stash[RUNNING]
    running.restores[fixture] = broker.restore
    running.logs[fixture] = {name: broker.log_file}
    yield broker
    broker.close()


def _shared_cluster(
    settings: Mapping[str, object], config: pytest.Config, *, secure: bool = False
) -> "Iterator[Cluster]":
    """Run three nodes until the end of the run."""
    from quorumlog.testing import Cluster

    fixture, name = "quorumlog_cluster", "node"
    if secure:
        fixture, name = "quorumlog_secure_cluster", "secure node"
    cluster = _started(lambda: Cluster(settings=settings, secure=secure).__enter__())
    running = config.stash[RUNNING]
    running.restores[fixture] = cluster.restore
    running.logs[fixture] = {
        f"{name} {number}": node.log_file for number, node in cluster.nodes.items()
    }
    yield cluster
    cluster.close()


def _started(start: Callable[[], T]) -> T:
    """Return the started object; fail the test with the node's error, without a traceback."""
    from quorumlog.errors import QuorumlogError

    try:
        return start()
    except QuorumlogError as error:
        refusal = f"quorumlog: {error}"
    pytest.fail(refusal, pytrace=False)


# --- around each test ----------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record the sizes of the logs before the test."""
    running = item.config.stash[RUNNING]
    running.sizes = {
        path: path.stat().st_size for paths in running.logs.values() for path in paths.values()
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Undo the test's faults on shared nodes before its teardown. A node that ended unexpectedly is
    an error of the test."""
    running = item.config.stash[RUNNING]
    errors = []
    for name in _used(item, running.restores):
        try:
            running.restores[name]()
        except Exception as error:  # the teardown continues after any error
            errors.append(f"{name}: {error}")
    result = yield
    if errors:
        pytest.fail("\n".join(errors), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of the test's nodes, since its start, to a failure."""
    report = yield
    running = item.config.stash[RUNNING]
    if report.failed:
        for fixture in _used(item, running.logs):
            for name, path in running.logs[fixture].items():
                if said := _lines(path, running.sizes.get(path, 0)):
                    report.sections.append((f"log of {name} of {fixture}", said))
    return report


def _used(item: pytest.Item, fixtures: Mapping[str, object]) -> list[str]:
    """Return the fixtures that a test uses, directly or indirectly."""
    names = getattr(item, "fixturenames", ())
    return [name for name in fixtures if name in names]


def _lines(path: Path, start: int) -> str:
    """Return the last lines of a file after a position; "" if it was removed."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-LINES_MAX:])
