"""Nodes of ours with a Kafka listener each: both roles in one process, as `Apache Kafka` has them.

Everything is default. Topics have `flush.policy=replicated`, which is what Kafka's brokers do: an
acknowledgement waits for replicas and not for a disk. `fsync` has a row of its own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster.nodes import BOTH, Nodes
from benchmarks.kafka_wire.wire import answers

from quorumlog.storage import log

NAME = "quorumlog"
FSYNC = "quorumlog, fsync"
ANSWER_S = 30.0


def build() -> str:
    """What of ours is measured: nodes are started with this interpreter's path."""
    return "plain Python" if str(log.__file__).endswith(".py") else "hot modules compiled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A cluster of ours that runs."""

    nodes: Nodes
    port: int

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes."""
        return self.nodes.pids


@asynccontextmanager
async def nodes(folder: Path, brokers: int) -> AsyncIterator[Ours]:
    """Nodes that live as long as the block."""
    async with Nodes(folder, (BOTH,) * brokers) as found:
        port = int(found.places[1].kafka.rpartition(":")[2])
        answers(port, within_s=ANSWER_S)
        yield Ours(nodes=found, port=port)
