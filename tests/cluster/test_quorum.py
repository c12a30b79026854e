"""A quorum of real processes, changed online by the command line while clients put load on it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.quorum_load import QuorumLoad

import quorumlog
from quorumlog.cli.cluster.processes import ProcessName, send
from quorumlog.clients import Quorum
from quorumlog.runtime.files import RealFiles
from quorumlog.storage.inspection.directory import check as check_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMMAND = [sys.executable, "-m", "quorumlog.cli"]
WAIT_S = 120.0
LOAD = 50  # answers that show that the quorum serves


class Cluster:
    """A cluster of `quorumlog cluster` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def up(self, *arguments: str) -> dict[str, Any]:
        settings = ("--set", "controller.election.timeout.ms=600")
        text = self.run("cluster", "up", *arguments, *settings, "-o", "json")
        found: dict[str, Any] = json.loads(text)
        return found

    def run(self, *arguments: str) -> str:
        """Run a command of the cluster or of the quorum; give what it prints."""
        done = self.attempt(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}{self.complaints()}"
        return done.stdout

    def attempt(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        place = ["--data-dir", str(self.folder)] if arguments[0] == "cluster" else []
        environment = {**os.environ, "QUORUMLOG_BOOTSTRAP": ",".join(self.controllers())}
        return subprocess.run(
            [*COMMAND, *arguments, *place],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env=environment,
            check=False,
        )

    def state(self) -> dict[str, Any]:
        path = self.folder / "cluster.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"nodes": []}
        return found

    def controllers(self) -> list[str]:
        return [node["controller"] for node in self.state()["nodes"]]

    def nodes(self) -> dict[int, str]:
        """State by node."""
        found = json.loads(self.run("cluster", "status", "-o", "json"))
        return {node["id"]: node["state"] for node in found["nodes"]}

    def quorum(self) -> Quorum:
        with quorumlog.connect(",".join(self.controllers())) as log:
            return log.admin.describe_quorum()

    def load(self) -> QuorumLoad:
        return QuorumLoad(self.state()["cluster_id"], self.controllers())

    def prove(self) -> None:
        """Stop all, and prove what lies on every disk."""
        self.run("cluster", "down")
        for node in self.state()["nodes"]:
            folder = self.folder / f"node-{node['id']}" / "data"
            report = check_files(RealFiles(), str(folder))
            assert report.is_ok, [finding.as_dict() for finding in report.all_findings()]

    def complaints(self) -> str:
        logs = sorted(self.folder.glob("node-*/node.log"))
        return "".join(f"\n--- {log.parent.name}\n{log.read_text()[-2000:]}" for log in logs)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """No cluster yet; whatever is made of it is gone afterwards."""
    made = Cluster(tmp_path / "cluster")
    try:
        yield made
    finally:
        for node in made.state()["nodes"]:  # also where the commands themselves do not work
            if (process := node["process"]) is not None:
                send(ProcessName(process["pid"], process["start"]), signal.SIGKILL)


def test_a_fourth_and_a_fifth_voter_are_added_under_load(cluster: Cluster) -> None:
    cluster.up("--controllers", "3")
    with cluster.load() as load:
        load.wait_for(LOAD)
        cluster.up("--controllers", "5")
        assert [each.id for each in cluster.quorum().observers] == [4, 5]
        for number in ("4", "5"):
            cluster.run("quorum", "add-voter", number)
            load.wait_for(LOAD)
        for number in ("1", "2"):  # five carry on without any two
            cluster.run("cluster", "kill", number)
        load.addresses[:] = cluster.controllers()
        load.wait_for(LOAD)
        assert [each.id for each in cluster.quorum().voters] == [1, 2, 3, 4, 5]
    load.check()
    cluster.prove()


def test_the_leader_is_removed_under_load(cluster: Cluster) -> None:
    cluster.up("--controllers", "3")
    with cluster.load() as load:
        load.wait_for(LOAD)
        removed = cluster.quorum().leader
        cluster.run("quorum", "remove-voter", str(removed))
        load.wait_for(LOAD)
        quorum = cluster.quorum()
        left = [number for number in (1, 2, 3) if number != removed]
        assert quorum.leader in left
        assert [each.id for each in quorum.voters] == left
        assert [each.id for each in quorum.observers] == [removed]
        cluster.run("quorum", "add-voter", str(removed))
        told = json.loads(cluster.run("quorum", "transfer", str(removed), "-o", "json"))
        assert told["leader"] == removed
        load.wait_for(LOAD)
    load.check()
    cluster.prove()


def test_a_node_whose_disk_was_wiped_is_replaced_under_load(cluster: Cluster) -> None:
    cluster.up("--controllers", "3")
    with cluster.load() as load:
        load.wait_for(LOAD)
        before = cluster.quorum()
        lost = before.leader
        cluster.run("cluster", "kill", str(lost))
        shutil.rmtree(cluster.folder / f"node-{lost}" / "data")
        load.wait_for(LOAD)
        cluster.run("cluster", "start", str(lost))
        (new,) = cluster.quorum().observers
        (old,) = (each for each in before.voters if each.id == lost)
        assert new.id == lost
        assert new.directory_id != old.directory_id
        cluster.run("quorum", "remove-voter", str(lost))
        cluster.run("quorum", "add-voter", str(lost))
        load.wait_for(LOAD)
        quorum = cluster.quorum()
        disks = [each.directory_id for each in quorum.voters]
        assert new.directory_id in disks
        assert old.directory_id not in disks
        assert quorum.observers == ()
    load.check()
    cluster.prove()


# --- the processes -------------------------------------------------------------------------------


def test_nodes_are_killed_started_paused_and_resumed(cluster: Cluster) -> None:
    told = cluster.up()  # three nodes with both roles
    assert [node["state"] for node in told["nodes"]] == ["running"] * 3
    assert all(node["roles"] == ["controller", "broker"] for node in told["nodes"])
    assert cluster.nodes() == {1: "running", 2: "running", 3: "running"}
    cluster.run("cluster", "kill", "1")
    cluster.run("cluster", "pause", "2")
    assert cluster.nodes() == {1: "down", 2: "paused", 3: "running"}
    refused = cluster.attempt("cluster", "kill", "1")
    assert refused.returncode == 1
    assert "node 1 is down" in refused.stderr
    cluster.run("cluster", "resume", "2")
    cluster.run("cluster", "start", "1")
    assert cluster.nodes() == {1: "running", 2: "running", 3: "running"}
    again = cluster.up()
    ports = [(node["grpc"], node["controller"]) for node in told["nodes"]]
    assert [(node["grpc"], node["controller"]) for node in again["nodes"]] == ports
    assert again["nodes"][2]["pid"] == told["nodes"][2]["pid"], "it ran all the time"
    cluster.run("cluster", "pause", "3")
    cluster.run("cluster", "down")
    assert cluster.nodes() == {1: "down", 2: "down", 3: "down"}
    assert [
        node["pid"] for node in json.loads(cluster.run("cluster", "status", "-o", "json"))["nodes"]
    ] == [None] * 3


def test_a_stale_state_file_harms_nobody(cluster: Cluster) -> None:
    """After the machine was switched off its ids belong to others."""
    cluster.up("--controllers", "1")
    cluster.run("cluster", "kill", "1")
    state = cluster.state()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        state["nodes"][0]["process"]["pid"] = stranger.pid
        (cluster.folder / "cluster.json").write_text(json.dumps(state))
        assert cluster.nodes() == {1: "down"}
        assert cluster.attempt("cluster", "kill", "1").returncode == 1
        cluster.run("cluster", "down")
        cluster.up()
        assert cluster.nodes() == {1: "running"}
        assert stranger.poll() is None, "a process that was not ours was ended"
        stranger.kill()


def test_a_node_that_cannot_start_says_why(cluster: Cluster) -> None:
    cluster.up("--controllers", "1")
    cluster.run("cluster", "down")
    log = cluster.folder / "node-1" / "data" / "meta.properties"
    log.write_text(log.read_text().replace("node.id=1", "node.id=2"))
    refused = cluster.attempt("cluster", "start", "1", "-o", "json")
    assert refused.returncode == 2  # `start` prints nothing for programs
    refused = cluster.attempt("cluster", "up", "-o", "json")
    assert refused.returncode == 1
    told = json.loads(refused.stderr)
    assert told["error"] == "DIRECTORY_MISMATCH"
    assert "node 1 does not run" in told["message"]
