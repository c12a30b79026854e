"""A cluster of three nodes is upgraded, downgraded and upgraded again, node by node, under load."""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from tests.kit.distributions import Environment, build, copy_repository, install, succeed
from tests.kit.node_process import NodeProcess, free_port

import quorumlog
from quorumlog.cli.partitions.reassignment import wait_in_sync
from quorumlog.runtime.files import RealFiles
from quorumlog.server.addresses import id_text
from quorumlog.storage.inspect.directory_check import check

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

OLD = "307f1b05ec91ec01801b71b07fcf17df97441e87"
"""The oldest commit with the same formats of metadata, storage and calls between nodes as the next
release. Once there is a release, use the last one's."""

ROOT = Path(__file__).parents[2]
CLIENT = Path(__file__).with_name("upgrade_client.py")
NODES = (1, 2, 3)
WAIT_S = 120
RECORDS = 200  # acknowledged and read by each client between two restarts
PARTITIONS = 3
PAUSE_MS_MAX = 2_000


# --- releases ------------------------------------------------------------------------------------


def environment_of(folder: Path, source: Path) -> Environment:
    """Build a wheel and install it beside the packages of this environment; return its folder."""
    build(source, folder / "dist", "--wheel")
    (wheel,) = folder.glob("dist/*.whl")
    made = install(wheel, folder / "venv", dependencies=False)
    made.borrow(Path(pytest.__file__).parents[1])
    code = "import quorumlog, quorumlog.records as r; print(quorumlog.__file__, r.COMPILED)"
    file, compiled = succeed(made.python, "-P", "-c", code).split()
    assert Path(file).is_relative_to(made.site_packages)
    assert compiled == "True"
    return made


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return the environment of the old release, from the history of this repository."""
    known = ["git", "cat-file", "-e", f"{OLD}^{{commit}}"]
    if subprocess.run(known, cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip(f"no history with {OLD[:8]}")
    folder = tmp_path_factory.mktemp("old")
    (folder / "source").mkdir()
    archive = folder / "source.tar"
    succeed("git", "archive", "--output", archive, OLD, cwd=ROOT)
    succeed("tar", "-xf", archive, "-C", folder / "source")
    return environment_of(folder, folder / "source")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return the environment of the working tree."""
    folder = tmp_path_factory.mktemp("new")
    copy_repository(folder / "source")
    return environment_of(folder, folder / "source")


# --- the cluster and its clients -----------------------------------------------------------------


class Cluster:
    """Three nodes that are controllers and brokers, formatted by a release."""

    def __init__(self, folder: Path, release: Environment) -> None:
        controllers = {number: f"127.0.0.1:{free_port()}" for number in NODES}
        self._kafka = {number: f"127.0.0.1:{free_port()}" for number in NODES}
        voters = [f"{n}@{place}:{id_text(os.urandom(16))}" for n, place in controllers.items()]
        cluster_id = id_text(os.urandom(16))
        self.nodes = {
            number: NodeProcess(
                folder / f"node-{number}",
                settings={
                    "node.id": number,
                    "cluster.id": cluster_id,
                    "controller.voters": voters,
                    "listeners.controller": controllers[number],
                    "listeners.kafka": [self._kafka[number]],
                    "default.replication.factor": len(NODES),
                },
                environment={"PYTHONPATH": "", "QUORUMLOG_LOG": "INFO"},
                python=release.python,
            )
            for number in NODES
        }

    def __enter__(self) -> "Cluster":
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(NodeProcess.start, self.nodes.values()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            node.kill()

    @property
    def grpc(self) -> str:
        """Return the addresses for clients of gRPC."""
        return ",".join(node.address for node in self.nodes.values())

    @property
    def kafka(self) -> str:
        """Return the addresses for clients of the Kafka protocol."""
        return ",".join(self._kafka.values())

    def roll(self, release: Environment, clients: "list[Client]") -> None:
        """Restart all nodes with a release, one after the other, as docs/operations.md says."""
        for number, node in self.nodes.items():
            assert node.stop() == 0, f"node {number}: {node.complaints()[-5_000:]}"
            node.python = release.python
            node.start()
            with quorumlog.connect(self.grpc) as log:
                _, lagging = wait_in_sync(log, [], WAIT_S)
            assert not lagging, f"after the restart of node {number}"
            for client in clients:
                client.wait_for_progress()

    def stop(self) -> None:
        """Stop all nodes in order, and check their data and their logs."""
        for number, node in self.nodes.items():
            assert node.stop() == 0, f"node {number}: {node.complaints()[-5_000:]}"
        for number, node in self.nodes.items():
            report = check(RealFiles(), node.data_dir)
            assert report.is_ok, [found.as_dict() for found in report.all_findings()]
            said = node.complaints()
            at = said.find("Traceback")
            assert at < 0, f"node {number}: {said[max(0, at - 500) : at + 4_000]}"


class Client:
    """The process of a client of one release."""

    def __init__(self, folder: Path, release: Environment, kind: str, bootstrap: str) -> None:
        self.topic = folder.name
        folder.mkdir()
        self._report = folder / "report.json"
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._log = folder / "client.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [release.python, "-P", CLIENT, kind, bootstrap, self.topic, self._report],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": ""},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.seen = 0
        self.warm_up = 0  # records before the first restart

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def wait_for_progress(self) -> None:
        """Wait until more records were acknowledged and read."""
        goal = self.seen + RECORDS
        while self.seen < goal:
            try:
                line = self._lines.get(timeout=WAIT_S)
            except queue.Empty:
                raise AssertionError(f"{self.topic} makes no progress") from None
            assert line, f"{self.topic} ended: {self._log.read_text()[-5_000:]}"
            self.seen = int(line)

    def end(self) -> dict[str, Any]:
        """End the producer, let the consumer read the rest, and return the report."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(WAIT_S)
        said = self._log.read_text()
        assert (code, said) == (0, ""), said[-5_000:]
        found: dict[str, Any] = json.loads(self._report.read_text())
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """Yield a list of clients, and kill their processes at the end."""
    with ExitStack() as stack:
        yield stack


def stored(bootstrap: str, topic: str) -> list[tuple[int, int, int]]:
    """Return (partition, offset, number) of each record of a topic."""
    with quorumlog.connect(bootstrap) as log, log.consumer(topic, until_end=True) as consumer:
        return [(each.partition, each.offset, int(each.value or b"")) for each in consumer]


def finalize(bootstrap: str) -> dict[str, int]:
    """Raise each feature to the highest level that all nodes support; return the levels."""
    with quorumlog.connect(bootstrap) as log:
        features = log.admin.describe_features()
        raised = {n: row.level_max for n, row in features.items() if row.level < row.level_max}
        if raised:
            log.admin.update_features(raised)
        return {name: row.level for name, row in log.admin.describe_features().items()}


# --- the test ------------------------------------------------------------------------------------


def test_clients_get_no_error_from_upgrades_and_downgrades(
    old: Environment, new: Environment, tmp_path: Path, clients: ExitStack
) -> None:
    with Cluster(tmp_path, old) as cluster:
        kinds = {
            "python-old": (old, "python", cluster.grpc),
            "python-new": (new, "python", cluster.grpc),
            "librdkafka": (new, "kafka", cluster.kafka),
        }
        with quorumlog.connect(cluster.grpc) as log:
            for topic in kinds:
                log.admin.create_topic(topic, partitions=PARTITIONS)
        running = []
        for topic, (release, kind, bootstrap) in kinds.items():
            client = Client(tmp_path / topic, release, kind, bootstrap)
            clients.callback(client.kill)
            running.append(client)
        for client in running:
            client.wait_for_progress()
            client.warm_up = client.seen

        cluster.roll(new, running)
        cluster.roll(old, running)  # before the levels of features are raised
        cluster.roll(new, running)
        levels = finalize(cluster.grpc)
        for client in running:
            client.wait_for_progress()

        for client in running:
            report = client.end()
            judge(report, stored(cluster.grpc, client.topic))
            latencies = sorted(report["latencies_ms"][client.warm_up :])
            p99, longest = latencies[len(latencies) * 99 // 100], latencies[-1]
            print(f"{client.topic}: {len(latencies)} records, p99 {p99} ms, longest {longest} ms")
            assert p99 < PAUSE_MS_MAX
        with quorumlog.connect(cluster.grpc) as log:
            features = log.admin.describe_features()
        assert levels == {name: row.level_max for name, row in features.items()}
        cluster.stop()


def judge(report: dict[str, Any], records: list[tuple[int, int, int]]) -> None:
    """Raise AssertionError for an error that reached the client, and for a lost, doubled or
    reordered record."""
    assert report["errors"] == []
    assert report["acknowledged"] == report["sent"]
    wanted = [
        (partition, offset, number)
        for partition in range(PARTITIONS)
        for offset, number in enumerate(range(partition, report["sent"], PARTITIONS))
    ]
    assert sorted(records) == wanted
    for partition in range(PARTITIONS):
        read = [tuple(each) for each in report["read"] if each[0] == partition]
        assert read == [each for each in wanted if each[0] == partition]
