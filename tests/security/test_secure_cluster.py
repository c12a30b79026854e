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


class Load:
    """A producer of one partition that waits for each record."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Create the topic, and produce until `end`."""
        with quorumlog.connect(self._bootstrap) as log:
            log.admin.create_topic(TOPIC, partitions=1, configs={"min.insync.replicas": "2"})
        self._thread.start()

    def end(self) -> None:
        """Stop producing."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with (
                quorumlog.connect(self._bootstrap) as log,
                log.producer(delivery_timeout_ms=AMPLE_MS) as producer,
            ):
                while not self._is_over.is_set():
                    producer.send(TOPIC, b"%d" % self.acknowledged).result()
                    self.acknowledged += 1
        except BaseException as error:
            self.failure = error


def bootstrap_of(folder: Path) -> str:
    """The brokers of the local cluster in a folder."""
    nodes = json.loads((folder / "cluster.json").read_text())["nodes"]
    return ",".join(node["grpc"] for node in nodes)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cluster_changes_to_tls_and_to_a_new_authority_without_an_error_at_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.setenv(name, "")  # restored at the end
        del os.environ[name]
    player, load = Player(with_spark=False), None
    try:
        for block in blocks_of(PAGE):
            if block.not_run:
                continue
            player.play(block)
            if load is None and "cluster up --data-dir plain" in block.text:
                load = Load(bootstrap_of(tmp_path / "plain"))
                load.start()
        assert load is not None
        load.end()
        assert load.failure is None
        with quorumlog.connect(bootstrap_of(tmp_path / "plain")) as log:
            values = [int(record.value or b"") for record in log.consumer(TOPIC, until_end=True)]
        assert values == list(range(load.acknowledged))
        assert load.acknowledged > 100
    finally:
        if load is not None:
            load.end()
        for name in ("plain", "quorumlog-cluster"):
            if Path(name, "cluster.json").exists():
                player.shell(f"quorumlog cluster down --data-dir {name}")
        player.close()
