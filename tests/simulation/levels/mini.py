"""Level `mini`: a log in a hundred lines, to test the simulation: it is correct, and each planted
bug is found.

One file, one partition. A record is its length, its checksum and its value. A publish writes at
once and is acknowledged after a sync in a lane; a start keeps the records before the first torn
one.
"""

import asyncio
import struct
import zlib
from dataclasses import dataclass
from typing import Final

from quorumlog.errors import (
    ConnectionFailed,
    OutcomeUnknown,
    QuorumlogError,
    StreamBroken,
    TimedOut,
)
from quorumlog.proto import log_pb2
from quorumlog.runtime import CallContext, Channel, File, Handler, Runtime
from quorumlog.services import LOG_FETCH, LOG_PUBLISH
from quorumlog.simulation.world import SimWorld
from quorumlog.testing.checkers import Ledger, Stored, anomalies, report

from ..faults.node_faults import draw_crashes, run_with_crashes

ADDRESS: Final = "127.0.0.1:9094"
FOLDER: Final = "/data"
PATH: Final = "/data/log"
HEADER: Final = struct.Struct(">II")  # length of the value, CRC-32 of the value
PRODUCERS: Final = 4
REQUESTS_EACH: Final = 40
RECORDS_MAX: Final = 5  # of one request
CALL_MS: Final = 2_000
BUGS: Final = ("", "ack-before-sync", "no-folder-sync", "no-checksum", "short-write")


class MiniLog:
    """The server; `bug` omits one step."""

    def __init__(self, runtime: Runtime, bug: str) -> None:
        self._runtime = runtime
        self._bug = bug
        self._values: list[bytes] = []
        self._size = 0
        self._file: File | None = None

    async def run(self) -> None:
        """Recover, then serve."""
        await self._runtime.tasks.offload("write:data", self._recover)
        await self._runtime.network.serve(
            ADDRESS,
            {
                LOG_PUBLISH.path: Handler(LOG_PUBLISH, self._publish),
                LOG_FETCH.path: Handler(LOG_FETCH, self._fetch),
            },
        )
        await asyncio.Event().wait()

    def _recover(self) -> None:
        files = self._runtime.files
        files.make_folder(FOLDER)
        self._file = files.open(PATH, create=True)
        if self._bug != "no-folder-sync":
            files.sync_folder("/")
            files.sync_folder(FOLDER)
        content = self._file.read(0, self._file.size())
        position = 0
        while position + HEADER.size <= len(content):
            size, checksum = HEADER.unpack_from(content, position)
            value = content[position + HEADER.size : position + HEADER.size + size]
            if len(value) < size or not size:
                break
            if zlib.crc32(value) != checksum and self._bug != "no-checksum":
                break
            self._values.append(value)
            position += HEADER.size + size
        self._size = position
        self._file.truncate(position)
        self._file.sync()

    async def _publish(
        self, request: log_pb2.PublishRequest, context: CallContext
    ) -> log_pb2.PublishResponse:
        assert self._file is not None, "published before the recovery"
        file, base = self._file, len(self._values)
        for record in request.records:
            framed = HEADER.pack(len(record.value), zlib.crc32(record.value)) + record.value
            self._values.append(record.value)
            self._write(file, framed)
        if self._bug != "ack-before-sync":
            await self._runtime.tasks.offload("write:data", file.sync)
        return log_pb2.PublishResponse(partition=0, base_offset=base)

    def _write(self, file: File, framed: bytes) -> None:
        written = file.write(self._size, [framed])
        while written < len(framed) and self._bug != "short-write":
            written += file.write(self._size + written, [framed[written:]])
        self._size += len(framed)

    async def _fetch(
        self, request: log_pb2.FetchRequest, context: CallContext
    ) -> log_pb2.FetchResponse:
        offset = request.partitions[0].offset
        records = b"".join(
            HEADER.pack(len(value), 0) + value for value in self._values[offset : offset + 100]
        )
        return log_pb2.FetchResponse(results=[log_pb2.FetchResult(records=records)])


@dataclass(slots=True)
class MiniClient:
    """Concurrent producers that retry until they are acknowledged, and a reader."""

    runtime: Runtime
    ledger: Ledger
    done: bool = False

    async def run(self) -> None:
        """Produce everything, then wait."""
        async with self.runtime.tasks.scope("producers") as scope:
            for number in range(PRODUCERS):
                scope.spawn(self._produce(f"p{number}"), name=f"p{number}")
        self.done = True
        await asyncio.Event().wait()

    async def _produce(self, name: str) -> None:
        entropy = self.runtime.entropy.stream(name)
        channel = self.runtime.network.channel(ADDRESS)
        pause_s_max = entropy.uniform(0.0, 1.0) ** 4  # from sequential to a burst
        for number in range(REQUESTS_EACH):
            values = [
                f"{name}-{number}-{index}-".encode() + b"x" * entropy.below(4_000)
                for index in range(1 + entropy.below(RECORDS_MAX))
            ]
            for value in values:
                self.ledger.ask(name, value)
            base_offset = await self._repeat(channel, values)
            for index, value in enumerate(values):
                self.ledger.acknowledge(value, ("mini", 0), base_offset + index)
            await asyncio.sleep(entropy.uniform(0.0, pause_s_max))

    async def _repeat(self, channel: Channel, values: list[bytes]) -> int:
        entropy = self.runtime.entropy.stream("back-off")
        records = [log_pb2.Record(value=value) for value in values]
        request = log_pb2.PublishRequest(records=records)
        while True:
            try:
                self.ledger.sent.update(values)
                response = await channel.call(LOG_PUBLISH, request, timeout_ms=CALL_MS)
                return response.base_offset
            except (OutcomeUnknown, ConnectionFailed, TimedOut, StreamBroken) as error:
                self.ledger.failed[type(error).__name__] += 1
                await asyncio.sleep(entropy.uniform(0.05, 0.5))

    async def read_all(self) -> list[tuple[int, bytes]]:
        """Read from the start to the end."""
        channel = self.runtime.network.channel(ADDRESS)
        stored: list[tuple[int, bytes]] = []
        while True:
            wanted = log_pb2.FetchPartition(topic="mini", partition=0, offset=len(stored))
            try:
                response = await channel.call(
                    LOG_FETCH, log_pb2.FetchRequest(partitions=[wanted]), timeout_ms=CALL_MS
                )
            except QuorumlogError:
                await asyncio.sleep(0.2)
                continue
            records = response.results[0].records
            if not records:
                return stored
            position = 0
            while position < len(records):
                size, _ = HEADER.unpack_from(records, position)
                position += HEADER.size + size
                stored.append((len(stored), records[position - size : position]))


def play(world: SimWorld, *, bug: str = "") -> dict[str, int]:
    """Run the scenario; raises AssertionError with a violation."""
    assert bug in BUGS, f"{bug} is none of {BUGS}"
    ledger = Ledger()
    server, client_node = world.node("server"), world.node("client")
    clients: list[MiniClient] = []

    async def client_main(runtime: Runtime) -> None:
        clients.append(MiniClient(runtime, ledger))
        await clients[0].run()

    server.spawn(lambda runtime: MiniLog(runtime, bug).run())
    client_node.spawn(client_main)
    deaths = draw_crashes(world.entropy.stream("deaths"), span_ms=10_000, operations_max=300)
    happened = run_with_crashes(
        world, server, deaths, done=lambda: bool(clients and clients[0].done), virtual_ms=600_000
    )
    world.faults.end_all()
    server.power_cut()  # only durable data count
    server.restart()
    reading = client_node.attach(lambda runtime: clients[0].read_all(), name="reader")
    world.run_until(reading, virtual_ms=60_000, why="a read of everything")
    stored: Stored = {("mini", 0): reading.result()}
    found = anomalies(ledger, stored)
    assert not found, report(found)
    assert len(ledger.acknowledged) == len(ledger.asked), "a record was not acknowledged"
    return {
        "records": len(ledger.acknowledged),
        "repeats": ledger.failed.total(),
        "deaths": happened,
    }
