"""A quorum of real processes, changed online by commands while clients put load on it.

The commands run in this process, since a process start takes longer than a command; one of them
runs as a process, and is interrupted.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.quorum_load import QuorumLoad
from typer.testing import CliRunner, Result

import quorumlog
from quorumlog.cli.cluster.formation import Shape, form, new_cluster
from quorumlog.cli.cluster.processes import ProcessIdentity, send
from quorumlog.cli.main import app
from quorumlog.clients.admin.quorum import Quorum
from quorumlog.runtime.files import RealFiles
from quorumlog.storage.inspect.directory_check import check as check_files

pytestmark = pytest.mark.slow

WAIT_S = 120.0
LOOK_S = 0.01
LOAD = 50  # responses that show that the quorum serves
SETTINGS = ("--set", "controller.election.timeout.ms=600")


class Cluster:
    """A cluster of `quorumlog cluster` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def up(self, *arguments: str) -> dict[str, Any]:
        text = self.run("cluster", "up", *arguments, *SETTINGS, "-o", "json")
        found: dict[str, Any] = json.loads(text)
        return found

    def run(self, *arguments: str) -> str:
        """Run a command of the cluster or of the quorum; return its output."""
        done = self.attempt(*arguments)
        assert done.exit_code == 0, f"{arguments}: {done.output}{self.complaints()}"
        return done.stdout

    def attempt(self, *arguments: str) -> Result:
        place = ["--data-dir", str(self.folder)] if arguments[0] == "cluster" else []
        environment = {"QUORUMLOG_BOOTSTRAP": ",".join(self.controllers())}
        return CliRunner().invoke(app, [*arguments, *place], env=environment)

    def interrupt_up(self) -> str:
        """Run `cluster up` in a process, press Ctrl-C once all nodes are started, and return its
        output."""
        command = [sys.executable, "-m", "quorumlog.cli", "cluster", "up", *SETTINGS]
        command += ["--data-dir", str(self.folder)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            end = time.monotonic() + WAIT_S
            while not (rows := self.state()["nodes"]) or any(not row["process"] for row in rows):
                assert process.poll() is None, "the command has ended"
                assert time.monotonic() < end, "the command starts no nodes"
                time.sleep(LOOK_S)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 130, said
        return said

    def state(self) -> dict[str, Any]:
        path = self.folder / "cluster.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"nodes": []}
        return found

    def controllers(self) -> list[str]:
        return [node["controller"] for node in self.state()["nodes"]]

    def status(self) -> dict[str, Any]:
        """Return the status once every running node has responded: a node that is briefly blocked
        is silent."""
        end = time.monotonic() + WAIT_S
        while True:
            found: dict[str, Any] = json.loads(self.run("cluster", "status", "-o", "json"))
            if all(node["state"] != "silent" for node in found["nodes"]):
                return found
            assert time.monotonic() < end, found

    def nodes(self) -> dict[int, str]:
        """Return the state of each node."""
        return {node["id"]: node["state"] for node in self.status()["nodes"]}

    def quorum(self, *, observed: Collection[int | None] = ()) -> Quorum:
        """Describe the quorum once the leader responds and has heartbeats from the observers
        `observed`. A node without a leader returns its own view, and a new leader has no observers
        yet."""
        end = time.monotonic() + WAIT_S
        with quorumlog.connect(",".join(self.controllers())) as log:
            while True:
                found = log.admin.describe_quorum()
                observers = {each.id for each in found.observers}
                if found.leader == found.answered_by and observers.issuperset(observed):
                    return found
                assert time.monotonic() < end, found
                time.sleep(LOOK_S)

    def load(self) -> QuorumLoad:
        return QuorumLoad(self.state()["cluster_id"], self.controllers())

    def prove(self) -> None:
        """Stop all nodes, and check their directories."""
        self.run("cluster", "down")
        for node in self.state()["nodes"]:
            folder = self.folder / f"node-{node['id']}" / "data"
            report = check_files(RealFiles(), str(folder))
            assert report.is_ok, [finding.as_dict() for finding in report.all_findings()]

    def complaints(self) -> str:
        logs = sorted(self.folder.glob("node-*/node.log"))
        return "".join(f"\n--- {log.parent.name}\n{log.read_text()[-2000:]}" for log in logs)


def end(cluster: Cluster) -> None:
    """Kill all node processes, even if the commands do not work."""
    for node in cluster.state()["nodes"]:
        if (process := node["process"]) is not None:
            send(ProcessIdentity(process["pid"], process["start"]), signal.SIGKILL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Return a cluster that is not started."""
    made = Cluster(tmp_path / "cluster")
    try:
        yield made
    finally:
        end(made)


@pytest.fixture(scope="module")
def voters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start three controllers for all tests: each test reverses its changes. At the end their
    directories are checked."""
    made = Cluster(tmp_path_factory.mktemp("voters") / "cluster")
    try:
        made.up("--controllers", "3")
        yield made
        made.prove()
    finally:
        end(made)


def ids(quorum: Quorum) -> list[int]:
    """Return the ids of the voters."""
    return [each.id for each in quorum.voters]


@pytest.mark.long
def test_the_leader_is_removed_under_load(voters: Cluster) -> None:
    with voters.load() as load:
        load.wait_for(LOAD)
        before = voters.quorum()
        removed = before.leader
        voters.run("quorum", "remove-voter", str(removed))
        load.wait_for(LOAD)
        quorum = voters.quorum(observed=[removed])
        left = [number for number in ids(before) if number != removed]
        assert quorum.leader in left
        assert ids(quorum) == left
        voters.run("quorum", "add-voter", str(removed))
        reply = json.loads(voters.run("quorum", "transfer", str(removed), "-o", "json"))
        assert reply["leader"] == removed
        load.wait_for(LOAD)
    load.check()


@pytest.mark.long
def test_a_node_whose_disk_was_wiped_is_replaced_under_load(voters: Cluster) -> None:
    with voters.load() as load:
        load.wait_for(LOAD)
        before = voters.quorum()
        lost = before.leader
        voters.run("cluster", "kill", str(lost))
        shutil.rmtree(voters.folder / f"node-{lost}" / "data")
        load.wait_for(LOAD)
        voters.run("cluster", "start", str(lost))
        observers = voters.quorum(observed=[lost]).observers
        (new,) = (each for each in observers if each.id == lost)
        (old,) = (each for each in before.voters if each.id == lost)
        assert new.directory_id != old.directory_id
        voters.run("quorum", "remove-voter", str(lost))
        voters.run("quorum", "add-voter", str(lost))
        load.wait_for(LOAD)
        quorum = voters.quorum()
        assert ids(quorum) == ids(before)
        disks = [each.directory_id for each in quorum.voters]
        assert new.directory_id in disks
        assert old.directory_id not in disks
        # The old disk stays listed until it was silent for a while: its removal was not reported.
        assert {each.directory_id for each in quorum.observers} <= {old.directory_id}
    load.check()


@pytest.mark.long
def test_a_fourth_and_a_fifth_voter_are_added_under_load(voters: Cluster) -> None:
    assert ids(voters.quorum()) == [1, 2, 3]
    with voters.load() as load:
        load.wait_for(LOAD)
        voters.up("--controllers", "5")
        voters.quorum(observed=[4, 5])
        for number in ("4", "5"):
            voters.run("quorum", "add-voter", number)
            load.wait_for(LOAD)
        quorum = voters.quorum()
        assert ids(quorum) == [1, 2, 3, 4, 5]
        away = next(number for number in (1, 2, 3) if number != quorum.leader)
        load.addresses[:] = voters.controllers()
        two = (str(quorum.leader), str(away))  # a quorum of five works without any two
        for number in two:
            voters.run("cluster", "pause", number)
        load.wait_for(LOAD)
        for number in two:
            voters.run("cluster", "resume", number)
        load.wait_for(LOAD)
    load.check()


# --- the processes -------------------------------------------------------------------------------


@pytest.mark.long
def test_commands_kill_start_pause_and_resume_nodes(cluster: Cluster) -> None:
    said = cluster.interrupt_up()  # three nodes with both roles
    assert "`quorumlog cluster down` stops them" in said
    started = [node["process"]["pid"] for node in cluster.state()["nodes"]]
    reply = cluster.up()
    assert cluster.nodes() == {1: "running", 2: "running", 3: "running"}
    assert [node["pid"] for node in reply["nodes"]] == started, "the nodes kept running"
    assert all(node["roles"] == ["controller", "broker"] for node in reply["nodes"])
    cluster.run("cluster", "kill", "1")
    paused = json.loads(cluster.run("cluster", "pause", "2", "-o", "json"))
    reply = json.loads(cluster.run("cluster", "status", "-o", "json"))
    for said in (paused, reply):
        said["nodes"][2].pop("state")  # it is alone now, and detects that between the two outputs
    assert paused == reply
    assert cluster.nodes() == {1: "down", 2: "paused", 3: "running"}
    refused = cluster.attempt("cluster", "kill", "1")
    assert refused.exit_code == 1
    assert "node 1 is down" in refused.stderr
    cluster.run("cluster", "resume", "2")
    cluster.run("cluster", "start", "1")
    assert cluster.nodes() == {1: "running", 2: "running", 3: "running"}
    again = cluster.up()
    ports = [(node["grpc"], node["controller"]) for node in reply["nodes"]]
    assert [(node["grpc"], node["controller"]) for node in again["nodes"]] == ports
    assert again["nodes"][2]["pid"] == reply["nodes"][2]["pid"], "the node kept running"
    cluster.run("cluster", "pause", "3")
    down = json.loads(cluster.run("cluster", "down", "-o", "json"))
    assert [(node["state"], node["pid"]) for node in down["nodes"]] == [("down", None)] * 3


def test_a_stale_state_file_ends_no_foreign_process(cluster: Cluster) -> None:
    """After a restart of the machine its process ids belong to other processes."""
    form(new_cluster(str(cluster.folder), Shape(controllers=1)))
    state = cluster.state()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        state["nodes"][0]["process"] = {"pid": stranger.pid, "start": "another boot/1"}
        (cluster.folder / "cluster.json").write_text(json.dumps(state))
        assert cluster.nodes() == {1: "down"}
        assert cluster.attempt("cluster", "kill", "1").exit_code == 1
        cluster.run("cluster", "down")
        cluster.up()
        assert cluster.nodes() == {1: "running"}
        assert stranger.poll() is None, "a foreign process was killed"
        stranger.kill()


def test_a_node_that_cannot_start_reports_the_reason(cluster: Cluster) -> None:
    form(new_cluster(str(cluster.folder), Shape(controllers=1)))
    properties = cluster.folder / "node-1" / "data" / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
    refused = cluster.attempt("cluster", "start", "1", "-o", "json")
    assert refused.exit_code == 1
    reply = json.loads(refused.stderr)
    assert reply["error"] == "DIRECTORY_MISMATCH"
    assert "node 1 exited" in reply["message"]
