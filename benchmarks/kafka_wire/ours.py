"""Nodes of quorumlog with a Kafka listener each: both roles in one process, as for `Apache Kafka`.

All settings are defaults. Topics have `flush.policy=replicated`, as Kafka's brokers: an
acknowledgement waits for replicas and not for a disk. `fsync` has a separate row.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster.nodes import BOTH, Nodes
from benchmarks.kafka_wire.wire import answers
from benchmarks.raft.processes import free_ports

from quorumlog import native

NAME = "quorumlog"
FSYNC = "quorumlog, fsync"
ANSWER_S = 120.0


def build() -> str:
    """Return the build of the nodes, which are started with this interpreter's path."""
    return "its compiled requests" if native.COMPILED else "all requests in plain Python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A running cluster of quorumlog."""

    nodes: Nodes
    port: int
    tls_port: int = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the ids of its processes."""
        return self.nodes.pids

    def kill(self, number: int) -> None:
        """Kill a node (SIGKILL) without waiting for its end."""
        self.nodes.signal_kill(number)

    def start(self, number: int) -> None:
        """Start a killed node on its existing directory, without waiting for it."""
        self.nodes.kill(number)  # waits for the end of its process
        self.nodes.start(number)


@asynccontextmanager
async def nodes(
    folder: Path,
    brokers: int,
    settings: Mapping[str, Any] | None = None,
    certificates: Path | None = None,
    protocol: str = "SSL",
) -> AsyncIterator[Ours]:
    """Run nodes in a block; `settings` are added to the defaults. With a folder of certificates the
    only node also has a listener with TLS, SSL or SASL_SSL."""
    settings, tls_port = dict(settings or {}), 0
    if certificates is not None:
        plain_port, tls_port = free_ports(2)
        settings |= {
            "listeners.kafka": [
                f"127.0.0.1:{plain_port}",
                f"{protocol}://127.0.0.1:{tls_port}",
            ],
            "ssl.certificate.file": str(certificates / "server.pem"),
            "ssl.key.file": str(certificates / "server.key"),
        }
    async with Nodes(folder, (BOTH,) * brokers, settings=settings) as found:
        port = int(found.places[1].kafka.rpartition(":")[2]) if not tls_port else plain_port
        answers(port, within_s=ANSWER_S)
        yield Ours(nodes=found, port=port, tls_port=tls_port)
