"""The nodes of the demo in flights.py: a single broker, and a cluster of three.

The cluster is operated by commands that an operator can enter: see the `--help` of each. Only the
crash of a node is a signal from this program, so that it is immediate.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

# The command `quorumlog` of this Python, wherever its script is. With -P, Python does not import
# modules of the current folder.
QUORUMLOG: Final = (sys.executable, "-P", "-m", "quorumlog.cli")

NODES: Final = 3
START_SECONDS_MAX: Final = 120
COMMAND_SECONDS_MAX: Final = 240
STOP_SECONDS_MAX: Final = 60
METADATA_LOG: Final = "__cluster_metadata-0"


class Broker:
    """A broker in a separate process: `quorumlog dev` on free ports."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._process: subprocess.Popen[str] | None = None
        self.address = ""  # "host:port" of gRPC, the same after a restart

    def start(self) -> None:
        """Start it and wait until it is ready."""
        port = self.address.rpartition(":")[2] or "0"
        command = [*QUORUMLOG, "dev", "--data-dir", self._data_dir]
        command += ["--grpc-port", port, "--controller-port", "0", "--output", "json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        deadline = threading.Timer(START_SECONDS_MAX, self._process.kill)
        deadline.start()
        try:
            line = self._process.stdout.readline()
        finally:
            deadline.cancel()
        if not line:
            self._process.communicate()
            raise SystemExit(
                f"the broker did not start within {START_SECONDS_MAX} s: "
                f"exit code {self._process.returncode}"
            )
        self.address = json.loads(line)["grpc"]

    def kill(self) -> None:
        """Kill it, as a crash does: no clean-up runs."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> None:
        """Stop it in order, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.communicate(timeout=START_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()


class Cluster:
    """Three nodes, each of them controller and broker, with a data directory each."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pids: dict[int, int] = {}  # by node
        self.address = ""  # "host:port,..." of gRPC, the same after a restart

    def up(self) -> None:
        """Start all nodes; return when they serve."""
        nodes = self._cluster("up", "--nodes", str(NODES))["nodes"]
        self._pids = {node["id"]: node["pid"] for node in nodes}
        self.address = ",".join(node["grpc"] for node in nodes)

    def kill(self, node: int) -> None:
        """Kill a node, as a crash does: kill -9."""
        os.kill(self._pids[node], signal.SIGKILL)

    def start(self, node: int) -> None:
        """Start a node that is down; return when it serves."""
        nodes = self._cluster("start", str(node))["nodes"]
        self._pids = {each["id"]: each["pid"] for each in nodes}

    def stop(self) -> None:
        """Stop all nodes in order, and kill those that do not stop. Repeated calls are
        permitted."""
        if not Path(self._folder, "cluster.json").exists():
            return  # it was never created, so nothing runs
        try:
            self._cluster("down")
        except SystemExit:
            for node in range(1, NODES + 1):
                with contextlib.suppress(SystemExit):  # that node is down
                    self._cluster("kill", str(node))
            raise

    def compare(self) -> tuple[dict[str, int], list[str]]:
        """Compare the first node's partitions with the others'; return the records of each topic
        that are equal in all of them, and the partitions that differ. The nodes must be down:
        records written during the comparison differ.

        Nodes stop in sequence, so the last ones have more of the metadata.
        """
        first, *others = self._directories()
        differences = run_all(("diff", first, other) for other in others)
        equal: dict[str, int] = {}  # by partition
        unequal: list[str] = []
        for other, found in zip(others, differences, strict=True):
            logs = [log for log in found["logs"] if log["log"] != METADATA_LOG]
            unequal += [f"{log['log']} in {other}" for log in logs if not log["same"]]
            unequal += found["only_in_a"] + found["only_in_b"]
            for log in logs:
                name, records = log["log"], log["equal_records"]
                equal[name] = min(records, equal.get(name, records))
        topics: dict[str, int] = {}
        for name, records in equal.items():
            topic = name.rpartition("-")[0]
            topics[topic] = topics.get(topic, 0) + records
        return topics, unequal

    def check(self) -> list[str]:
        """Check every batch and file of all directories; return the directories with problems."""
        directories = self._directories()
        found = run_all(("check", directory) for directory in directories)
        return [name for name, result in zip(directories, found, strict=True) if not result["ok"]]

    def _directories(self) -> list[str]:
        return [os.path.join(self._folder, f"node-{n}", "data") for n in range(1, NODES + 1)]

    def _cluster(self, *arguments: str) -> Any:
        (result,) = run_all([("cluster", *arguments, "--data-dir", self._folder)])
        return result


def run_all(commands: Iterable[tuple[str, ...]]) -> list[Any]:
    """Run commands concurrently; return the JSON output of each. Raise SystemExit with the error of
    a failed one."""
    with contextlib.ExitStack() as stack:
        running = [(command, stack.enter_context(started(command))) for command in commands]
        return [result_of(command, process) for command, process in running]


@contextlib.contextmanager
def started(command: tuple[str, ...]) -> Iterator["subprocess.Popen[str]"]:
    """Start a command. After an interrupt it is stopped in order: it may be about to store the
    process that it has started."""
    with subprocess.Popen(
        [*QUORUMLOG, *command, "--output", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process only
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=STOP_SECONDS_MAX)
                process.kill()


def result_of(command: tuple[str, ...], process: "subprocess.Popen[str]") -> Any:
    """Return the JSON output of a command; exit code 1 with output is a result too."""
    try:
        output, complaint = process.communicate(timeout=COMMAND_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        complaint, output = f"not done within {COMMAND_SECONDS_MAX} s", ""
    if not output:
        raise SystemExit(f"quorumlog {' '.join(command)}: {complaint.strip()}")
    return json.loads(output)
