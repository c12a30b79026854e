"""A cluster of controllers and brokers, operated by commands."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

WAIT_S = 120.0


class Operator:
    """Runs commands against one cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = ["--data-dir", str(folder)]
        self.environment = {**os.environ}

    def run(self, *arguments: str, code: int = 0) -> Any:
        """Return the JSON output of a command, or its error."""
        done = subprocess.run(
            [sys.executable, "-m", "quorumlog.cli", *arguments, "--output", "json"],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=WAIT_S,
        )
        assert done.returncode == code, done
        return json.loads(done.stdout or done.stderr)

    def notes_of_cluster(self, *arguments: str) -> str:
        """Return the stderr of a command."""
        command = [sys.executable, "-m", "quorumlog.cli", "cluster", *arguments, *self.folder]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=self.environment
        )
        return done.stderr

    def cluster(self, *arguments: str, code: int = 0) -> Any:
        return self.run("cluster", *arguments, *self.folder, code=code)

    def until(self, condition: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        """Wait until the counts of partitions have these values."""
        end = time.monotonic() + WAIT_S
        while True:
            counts: dict[str, int] = self.run("partitions", "status")["counts"]
            if condition(counts):
                return counts
            assert time.monotonic() < end, counts


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Start a cluster of one controller, node 1, and three brokers, 2 to 4, in two racks."""
    operator = Operator(tmp_path_factory.mktemp("cluster") / "c")
    try:
        up = operator.cluster("up", "--controllers", "1", "--brokers", "3", "--racks", "a,b")
        assert [(node["id"], node["roles"], node["rack"]) for node in up["nodes"]] == [
            (1, ["controller"], None),
            (2, ["broker"], "a"),
            (3, ["broker"], "b"),
            (4, ["broker"], "a"),
        ]
        addresses = operator.cluster("bootstrap")["bootstrap"]
        assert addresses == ",".join(node["grpc"] for node in up["nodes"][1:])
        assert up["nodes"][0]["kafka"] is None
        kafka = operator.cluster("bootstrap", "--kafka")["bootstrap"]
        assert kafka == ",".join(node["kafka"] for node in up["nodes"][1:])
        operator.environment["QUORUMLOG_BOOTSTRAP"] = addresses
        yield operator
    finally:
        operator.cluster("down")


@pytest.mark.long
def test_commands_describe_reassign_and_repair_a_cluster(operator: Operator) -> None:
    made = operator.run("topics", "create", "t", "-p", "3")
    assert [sorted(each["replicas"]) for each in made["partitions"]] == [[2, 3, 4]] * 3
    listed = operator.run("brokers", "list")
    listening = [row["kafka"]["PLAINTEXT"] for row in listed]
    assert ",".join(listening) == operator.cluster("bootstrap", "--kafka")["bootstrap"]
    assert [(row["id"], row["rack"], row["state"]) for row in listed] == [
        (2, "a", "active"),
        (3, "b", "active"),
        (4, "a", "active"),
    ]
    assert operator.cluster("up", "--brokers", "2", code=1)["error"] == "INVALID_REQUEST"

    operator.cluster("kill", "4")
    operator.until(lambda counts: counts["under-replicated"] == 3 and not counts["offline"])
    waited = operator.run("partitions", "wait", "t", "--in-sync", "--timeout", "1", code=1)
    assert not waited["in_sync"]
    assert [(each["topic"], each["partition"]) for each in waited["partitions"]] == [
        ("t", index) for index in range(3)
    ]
    (found,) = operator.run("explain", "fenced")
    assert found["broker"] == 4
    assert "is down: nothing listens" in found["why"]
    assert {each["broker"] for each in operator.run("explain", "not-isr", "t")} == {4}
    assert operator.run("explain", "under-min-isr") == []

    moved = operator.run("partitions", "reassign", "t", "--replication", "2", "--wait")
    assert {tuple(sorted(each["replicas"])) for each in moved["partitions"]} == {(2, 3)}
    assert operator.run("partitions", "wait", "--in-sync")["in_sync"]
    counts = operator.until(lambda counts: not counts["under-replicated"])
    assert (counts["partitions"], counts["moving"]) == (3, 0)
    assert operator.run("brokers", "unregister", "4")["unregistered"] == 4
    assert [row["id"] for row in operator.run("brokers", "list")] == [2, 3]

    operator.cluster("start", "4")
    back = operator.run("brokers", "list")
    assert [(row["id"], row["state"]) for row in back][-1] == (4, "active")
    operator.run("partitions", "reassign", "t", "-p", "0", "--to", "4,3", "--wait")
    operator.run("partitions", "elect-leader", "t", "-p", "0")
    described = operator.run("topics", "describe", "t")["partitions"][0]
    assert (described["replicas"], described["leader"]) == ([4, 3], 4)
    assert described["states"] == []


@pytest.mark.long
def test_records_survive_the_loss_of_their_broker(operator: Operator) -> None:
    operator.run("topics", "create", "u", "--assignments", "3,2")
    command = [sys.executable, "-m", "quorumlog.cli"]
    for number in ("1", "2"):
        subprocess.run(
            [*command, "produce", "u"],
            input=number,
            text=True,
            env=operator.environment,
            check=True,
        )
        if number == "1":
            operator.cluster("kill", "3")
    kept = operator.run("topics", "describe", "u")["partitions"][0]
    assert (kept["leader"], kept["high_watermark"]) == (2, 2)
    read = subprocess.check_output([*command, "consume", "u", "-e"], env=operator.environment)
    assert read.split() == [b"1", b"2"]
    operator.cluster("start", "3")
    operator.until(lambda counts: not counts["under-replicated"])


@pytest.mark.long
def test_up_names_the_running_nodes_that_need_a_restart_for_new_settings(
    operator: Operator,
) -> None:
    assert operator.notes_of_cluster("up") == ""
    operator.cluster("kill", "3")
    notes = operator.notes_of_cluster("up", "--set", "num.partitions=2")
    assert "`quorumlog cluster restart ID`: 1, 2, 4" in notes
