"""The cluster of the suites: three node processes with Kafka listeners."""

import os
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

from prometheus_client.parser import text_string_to_metric_families
from tests.kit.certificates import Certificates
from tests.kit.client_security import ClientSecurity
from tests.kit.node_process import NodeProcess, free_port

import quorumlog
from quorumlog.records import BatchHeader, iterate_batches
from quorumlog.server.addresses import id_text

from .driving import NewTopic

NUMBERS: Final = (1, 2, 3)
WITHIN_S: Final = 60.0
PAUSE_S: Final = 0.05  # between two polls

ALL: Final = "quorumlog_kafka_requests_total"
USUAL: Final = "quorumlog_kafka_usual_requests_total"


class Cluster(Protocol):
    """The operations of a cluster that the suites need."""

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap addresses of Kafka clients."""

    @property
    def addresses(self) -> Mapping[int, str]:
        """Return the Kafka listener of each broker."""

    @property
    def security(self) -> ClientSecurity | None:
        """Return the security settings of its clients; None for a plain listener."""

    @property
    def replication(self) -> int:
        """Return the number of replicas of a topic, 3 at most."""

    def create(self, topic: NewTopic) -> None:
        """Create a topic, and wait until every broker has it."""

    def leader(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition; -1: none."""

    def batches(self, topic: str, partition: int) -> list[BatchHeader]:
        """Return the headers of the batches in the leader's log."""

    def check(self) -> None:
        """Raise AssertionError if a broker has exited or failed."""

    def requests(self) -> Counter[tuple[str, str]]:
        """Return the number of requests by API and kind: `ALL`, or `USUAL` for those that took the
        fast path."""


class ThreeNodes:
    """Nodes 1, 2 and 3, all controllers and brokers; they run while the object is entered."""

    def __init__(
        self,
        folder: Path,
        *,
        numbers: Sequence[int] = NUMBERS,
        settings: Mapping[str, object] | None = None,
        listeners: Mapping[int, str] | None = None,
        advertised: Mapping[int, str] | None = None,
        is_secure: bool = False,
    ) -> None:
        """Kafka listeners are at free ports, and are advertised, unless others are given;
        `settings` precede the common settings. If `is_secure` the listeners are SASL_SSL, and
        clients log in as a super user."""
        controllers = {number: f"127.0.0.1:{free_port()}" for number in numbers}
        listeners = listeners or {number: f"127.0.0.1:{free_port()}" for number in numbers}
        self._kafka = advertised or listeners
        self._http = {number: f"127.0.0.1:{free_port()}" for number in numbers}
        self._security = _security(folder) if is_secure else None
        protocol = "SASL_SSL" if is_secure else "PLAINTEXT"
        cluster_id = id_text(os.urandom(16))
        voters = [f"{n}@{at}:{id_text(os.urandom(16))}" for n, at in controllers.items()]
        self.nodes = {
            number: NodeProcess(
                folder / f"node-{number}",
                settings={
                    "node.id": number,
                    "node.roles": ["controller", "broker"],
                    "cluster.id": cluster_id,
                    "controller.voters": voters,
                    "controller.bootstrap": [
                        at for other, at in controllers.items() if other != number
                    ],
                    "data.dir": str(folder / f"node-{number}" / "data"),
                    "listeners.grpc": f"127.0.0.1:{free_port()}",
                    "listeners.controller": controllers[number],
                    "listeners.http": self._http[number],
                    "listeners.kafka": [f"{protocol}://{listeners[number]}"],
                    "group.initial.rebalance.delay.ms": 200,
                    "group.consumer.heartbeat.interval.ms": 300,
                    **(
                        {"advertised.kafka": [f"{protocol}://{advertised[number]}"]}
                        if advertised
                        else {}
                    ),
                    **(_secure_settings(folder) if is_secure else {}),
                    **(settings or {}),
                },
            )
            for number in numbers
        }

    def __enter__(self) -> "ThreeNodes":
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda node: node.start(), self.nodes.values()))
            if self._security is not None:
                self._create_user(self._security)
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill_all()

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap addresses of Kafka clients."""
        return ",".join(self._kafka.values())

    @property
    def addresses(self) -> Mapping[int, str]:
        """Return the Kafka listener of each node."""
        return dict(self._kafka)

    @property
    def security(self) -> ClientSecurity | None:
        """Return the security settings of its Kafka clients."""
        return self._security

    def _create_user(self, security: ClientSecurity) -> None:
        """Set the user's password, and wait until each broker accepts it."""
        with self.log() as log:
            log.admin.set_password(security.user, security.password)
        for node in self.nodes.values():
            with quorumlog.connect(node.address) as log:
                until("the broker has the user", partial(_has_user, log, security.user))

    @property
    def grpc(self) -> str:
        """Return the bootstrap addresses of quorumlog clients."""
        return ",".join(node.address for node in self.nodes.values())

    def log(self) -> quorumlog.Log:
        """Return a quorumlog client."""
        return quorumlog.connect(self.grpc)

    @property
    def replication(self) -> int:
        return len(NUMBERS)

    def create(self, topic: NewTopic) -> None:
        with self.log() as log:
            log.admin.create_topic(
                topic.name,
                partitions=topic.partitions,
                replication=topic.replication,
                configs=topic.configs,
            )

    def leader(self, topic: str, partition: int) -> int:
        with self.log() as log:
            return log.admin.describe_topic(topic).partitions[partition].leader or -1

    def batches(self, topic: str, partition: int) -> list[BatchHeader]:
        leader = self.nodes[self.leader(topic, partition)]
        return headers_in(Path(leader.data_dir) / f"{topic}-{partition}")

    def kill_all(self) -> None:
        """Kill all nodes."""
        for node in self.nodes.values():
            node.kill()

    def check(self) -> None:
        """Raise AssertionError if a node has exited or wrote a traceback."""
        for number, node in self.nodes.items():
            said = node.complaints()
            assert node.ended() is None, f"node {number} has exited: {said[-3_000:]}"
            at = said.find("Traceback")
            assert at < 0, f"node {number}: {said[max(0, at - 500) : at + 3_000]}"

    def requests(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for address in self._http.values():
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=WITHIN_S) as answer:
                body = answer.read().decode()
            for family in text_string_to_metric_families(body):
                for sample in family.samples:
                    if sample.name in (ALL, USUAL):
                        found[sample.labels["api"], sample.name] += int(sample.value)
        return found


def _has_user(log: quorumlog.Log, user: str) -> bool:
    return user in [each.name for each in log.admin.describe_users()]


def _security(folder: Path) -> ClientSecurity:
    """Create the certificates of a cluster; return the security settings of its clients."""
    certificates = Certificates.create(folder / "ca")
    return ClientSecurity(ca=certificates.ca, user="conformance", password="secret")


def _secure_settings(folder: Path) -> dict[str, object]:
    """Return the settings of a node with a secure listener, and a plain one for quorumlog
    clients."""
    names = Certificates(folder / "ca").settings()
    return {
        **{name.replace("_", "."): value for name, value in names.items()},
        "grpc.security.protocol": "PLAINTEXT",
        "sasl.enabled.mechanisms": ["SCRAM-SHA-256", "PLAIN"],
        "super.users": ["User:conformance", "User:ANONYMOUS"],
    }


def headers_in(log: Path) -> list[BatchHeader]:
    """Return the headers of all batches in the folder of a log."""
    segments = sorted(log.glob("*.log"))
    assert segments, f"no segment in {log}"
    return [header for path in segments for _, header in iterate_batches(path.read_bytes())]


def until(what: str, holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Wait until a condition holds. Raise AssertionError with its name after the limit."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(PAUSE_S)
