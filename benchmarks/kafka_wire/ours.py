"""Nodes of ours with a Kafka listener each: both roles in one process, as `Apache Kafka` has them.

Everything is default. Topics have `flush.policy=replicated`, which is what Kafka's brokers do: an
acknowledgement waits for replicas and not for a disk. `fsync` has a row of its own.
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
    """A cluster of ours that runs."""

    nodes: Nodes
    port: int
    tls_port: int = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes."""
        return self.nodes.pids

    def kill(self, number: int) -> None:
        """SIGKILL for a node, without waiting for its end."""
        self.nodes.signal_kill(number)

    def start(self, number: int) -> None:
        """Start a node that was killed, on the directory that it had, without waiting for it."""
        self.nodes.kill(number)  # its process is waited for
        self.nodes.start(number)


@asynccontextmanager
async def nodes(
    folder: Path,
    brokers: int,
    settings: Mapping[str, Any] | None = None,
    certificates: Path | None = None,
    protocol: str = "SSL",
) -> AsyncIterator[Ours]:
    """Run nodes in a block; `settings` besides the defaults. With a folder of certificates the only
    node has a listener with TLS, too, SSL or SASL_SSL."""
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
