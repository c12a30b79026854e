"""Source and sink through Spark Connect, on `local-cluster` and on a standalone cluster, each in
separate processes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.standalone import cluster, environment

import quorumlog

PROGRAM = Path(__file__).parent / "cluster_program.py"
SECONDS_MAX = 300
ROWS = 3_000
PARTITIONS = 3


@pytest.fixture
def run(
    broker: Any, log: quorumlog.Log, topic: Callable[..., str], tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """Run the program on a master; return what it found."""
    name, written, streamed = (topic(partitions=PARTITIONS) for _ in range(3))
    with log.producer() as producer:
        for row in range(ROWS):
            producer.send(name, value=str(row), partition=row % PARTITIONS)

    def run(master: str) -> dict[str, Any]:
        plan = {"master": master, "bootstrap": broker.address, "topic": name}
        plan |= {"written": written, "streamed": streamed, "folder": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, str(PROGRAM), json.dumps(plan)],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            cwd=tmp_path,
            env=environment(),
        )
        assert done.returncode == 0, done.stderr[-5_000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def check(found: dict[str, Any], *, executors: int | None) -> None:
    last = ROWS // PARTITIONS - 1
    expected = [
        [partition, ROWS // PARTITIONS, 0, last, sum(range(partition, ROWS, PARTITIONS))]
        for partition in range(PARTITIONS)
    ]
    assert found["by itself"] == expected
    assert found["batch"] == expected
    assert found["ends"]
    assert "option 'kafka.sasl.jaas.config' needs 'securityProtocol'" in found["refused"]
    assert "hunter2-top" not in found["refused"]
    assert found["stream"] == expected
    assert found.get("executors") == executors


@pytest.mark.long
def test_spark_connect_reads_and_writes(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    check(run("connect"), executors=None)
    events = "".join(path.read_text() for path in (tmp_path / "events").iterdir())
    assert "kafka.sasl.jaas.config" in events
    assert "hunter2-top" not in events, "the UI of the server shows the password"


@pytest.mark.long  # the standalone cluster has the same processes, and more
def test_a_local_cluster_reads_and_writes(run: Callable[..., dict[str, Any]]) -> None:
    check(run("local-cluster[2,1,1024]"), executors=2)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """Start a master with two workers; return its address."""
    with cluster(tmp_path) as master:
        yield master


@pytest.mark.long
def test_a_standalone_cluster_reads_and_writes(
    run: Callable[..., dict[str, Any]], standalone: str
) -> None:
    check(run(standalone), executors=2)
