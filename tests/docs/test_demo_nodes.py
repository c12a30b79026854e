"""The demo's cluster: its crash, the comparison afterwards, and the end of all its processes."""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quorumlog

EXAMPLES = Path(__file__).parents[2] / "examples"
WAIT_S = 120

pytestmark = pytest.mark.slow

INTERRUPTED = """
import signal, sys
from flights_nodes import Cluster

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
cluster = Cluster(sys.argv[1])
try:
    cluster.up()
    signal.pause()
finally:
    cluster.stop()
"""


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the demo's module of nodes."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("flights_nodes")


@pytest.fixture
def cluster(nodes: Any, tmp_path: Path) -> Iterator[Any]:
    cluster = nodes.Cluster(str(tmp_path / "c"))
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.long
def test_a_crash_loses_no_record_and_a_lost_replica_is_reported(
    cluster: Any, tmp_path: Path
) -> None:
    cluster.up()
    with quorumlog.connect(cluster.address) as log:
        victim = log.admin.create_topic("t", replication=3).partitions[0].leader
        with log.producer() as producer:
            producer.send("t", "before")
            producer.flush()
            cluster.kill(victim)
            producer.send("t", "while it is down")
            producer.flush()
        assert log.admin.describe_topic("t").partitions[0].leader not in (None, victim)
        cluster.start(victim)
        end = time.monotonic() + WAIT_S
        while len(log.admin.describe_topic("t").partitions[0].isr) < 3:
            assert time.monotonic() < end, "the broker did not catch up"
    cluster.stop()
    assert cluster.compare() == ({"t": 2}, [])
    assert cluster.check() == []

    replica = tmp_path / "c" / "node-3" / "data" / "t-0"
    (segment,) = replica.glob("*.log")
    stored = segment.read_bytes()
    segment.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    equal, unequal = cluster.compare()
    assert equal["t"] < 2
    assert unequal == [f"t-0 in {replica.parent}"]
    assert cluster.check() == [str(replica.parent)]


def test_a_command_that_fails_ends_the_demo_with_its_error(nodes: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"quorumlog cluster status .* has no cluster"):
        nodes.run_all([("cluster", "status", "--data-dir", str(tmp_path))])


def test_a_demo_that_is_stopped_during_the_start_leaves_no_node(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    demo = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path])},
        stderr=subprocess.PIPE,
    )
    try:
        end = time.monotonic() + WAIT_S
        while not (pids := started(folder)):
            assert time.monotonic() < end, "no node was started"
        demo.terminate()
        demo.communicate(timeout=WAIT_S)
    finally:
        demo.kill()
    assert demo.returncode != 0
    pids |= started(folder)
    assert [pid for pid in pids if is_alive(pid)] == []


def started(folder: Path) -> set[int]:
    """Return the processes in the cluster's state file."""
    try:
        rows = json.loads((folder / "cluster.json").read_text())["nodes"]
    except FileNotFoundError:
        return set()
    return {row["process"]["pid"] for row in rows if row["process"]}


def is_alive(pid: int) -> bool:
    """Return True if this user has a running process with this id."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
