"""The page on secure clusters, with producers and a consumer while it changes a cluster to TLS."""

import json
import os
import threading
from pathlib import Path

import pytest
from tests.docs.player import Player, blocks_of
from tests.kit.waits import AMPLE_MS

import quorumlog

PAGE = Path(__file__).parents[2] / "docs" / "secure_cluster.md"
NAMES = ("QUORUMLOG_CONFIG", "QUORUMLOG_BOOTSTRAP", "CLUSTER")
"""The variables that the page exports."""
TOPIC = "load"
ENOUGH = 100  # acknowledged records


class Load:
    """A producer of one partition of a cluster that waits for each record; the administrator if the
    cluster has one at its start."""

    def __init__(self, folder: Path) -> None:
        nodes = json.loads((folder / "cluster.json").read_text())["nodes"]
        self._bootstrap = ",".join(node["grpc"] for node in nodes)
        self._security = folder / "security"
        self._has_users = self._security.exists()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Create the topic, and produce until `end`."""
        with self._connect() as log:
            log.admin.create_topic(TOPIC, partitions=1, configs={"min.insync.replicas": "2"})
        self._thread.start()

    def end(self) -> None:
        """Stop producing; AssertionError after a failure or if a record is missing."""
        self.stop()
        assert self.failure is None
        with self._connect() as log:
            values = [int(record.value or b"") for record in log.consumer(TOPIC, until_end=True)]
        assert values == list(range(self.acknowledged))
        assert self.acknowledged > ENOUGH

    def stop(self) -> None:
        """Stop producing, if it has begun."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _connect(self) -> quorumlog.Log:
        if not self._has_users:
            return quorumlog.connect(self._bootstrap)
        password = f"file:{self._security / 'admin.password'}"
        return quorumlog.connect(
            self._bootstrap,
            tls=quorumlog.TLS(ca=str(self._security / "ca.pem")),
            credentials=quorumlog.SCRAM(user="admin", password=password),
        )

    def _run(self) -> None:
        try:
            with (
                self._connect() as log,
                log.producer(delivery_timeout_ms=AMPLE_MS) as producer,
            ):
                while not self._is_over.is_set():
                    producer.send(TOPIC, b"%d" % self.acknowledged).result()
                    self.acknowledged += 1
        except BaseException as error:
            self.failure = error


@pytest.mark.long
@pytest.mark.timeout(900)
def test_cluster_changes_to_tls_and_to_a_new_authority_without_an_error_at_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.setenv(name, "")  # restored at the end
        del os.environ[name]
    player, loads, blocks = Player(with_spark=False), dict[str, Load](), blocks_of(PAGE)
    started = {"quorumlog cluster up --data-dir plain\nexport": "plain"}
    started["quorumlog cluster up\nexport"] = "quorumlog-cluster"
    try:
        for block in blocks:
            if block.not_run:
                continue
            if "quorumlog cluster down" in block.text and loads:
                list(loads.values())[-1].end()
            player.play(block)
            for text, name in started.items():
                if block.text.startswith(text):
                    loads[name] = Load(tmp_path / name)
                    loads[name].start()
        assert set(loads) == set(started.values())
    finally:
        for load in loads.values():
            load.stop()
        for name in ("plain", "quorumlog-cluster"):
            if Path(name, "cluster.json").exists():
                player.shell(f"quorumlog cluster down --data-dir {name}")
        player.close()
