"""One Spark session and one broker for all tests of a file's process, and fixtures for topics."""

import itertools
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import quorumlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The command `quorumlog` of this Python, wherever its script is.
QUORUMLOG = (sys.executable, "-m", "quorumlog.cli")

HERE = Path(__file__).parent
START_SECONDS_MAX = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test in this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            # The first test of a process starts a JVM, which is slow on a busy machine. An
            # interrupted start breaks the session's connection for all following tests.
            item.add_marker(pytest.mark.timeout(600))


class Broker:
    """`quorumlog dev` on free ports, in a separate process."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.address = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it is ready; later starts use the same port."""
        port = self.address.rpartition(":")[2] or "0"
        self._process = subprocess.Popen(
            [
                *QUORUMLOG, "dev", "--data-dir", str(self._data_dir),
                "--grpc-port", port, "--controller-port", "0", "--output", "json",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the broker did not start: exit code {self._process.wait()}"
        self.address = json.loads(line)["grpc"]

    def kill(self) -> None:
        """Kill it, as a crash does."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Stop it in order."""
        assert self._process is not None
        self._process.terminate()
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.wait(START_SECONDS_MAX)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def broker(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Start a broker for all tests; each uses its own topics.

    The session comes first: PySpark starts its JVM by a fork, which gRPC in use would disturb.
    """
    held = Broker(tmp_path_factory.mktemp("broker") / "data")
    held.start()
    yield held
    held.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """Start a broker that the test may kill."""
    held = Broker(tmp_path / "data")
    held.start()
    yield held
    held.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Return a session as users get it from `quorumlog.spark.session`."""
    from quorumlog.spark import session

    made = session(
        "quorumlog tests",
        master="local[2,3]",  # a task has three attempts
        config={
            "spark.local.dir": str(tmp_path_factory.mktemp("local")),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.session.timeZone": "UTC",
            "spark.log.level": "ERROR",
        },
    )
    yield made
    with warnings.catch_warnings():  # after an interrupted test its JVM does not respond any more
        warnings.filterwarnings("default", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        made.stop()


@pytest.fixture(scope="session")
def log(broker: Broker) -> Iterator[quorumlog.Log]:
    """Return a client of the broker."""
    with quorumlog.connect(broker.address) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest, log: quorumlog.Log) -> Callable[..., str]:
    """Return a function that creates topics named after the test, without retention."""
    test = "".join(sign if sign.isalnum() else "-" for sign in request.node.name)[:150]
    numbers = itertools.count()

    def make(partitions: int = 1) -> str:
        name = f"{test}-{next(numbers)}-topic"
        log.admin.create_topic(name, partitions=partitions, configs={"retention.ms": "-1"})
        return name

    return make
