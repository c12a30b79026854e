"""Every way of reading returns the records of a compacted topic once, in order, to the end.

The topic has gaps, batches without records and markers, on the disk of a whole node.
"""

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S, run_patiently

from quorumlog.clients.log import make_log
from quorumlog.clients.offsets import TimestampMs
from quorumlog.proto import log_pb2
from quorumlog.records import Record, encode_batch
from quorumlog.records.batch import iterate_batches, parse_header
from quorumlog.records.codec import decode_all
from quorumlog.records.compression import Codec
from quorumlog.records.control import MarkerType, encode_marker, parse_marker
from quorumlog.runtime import Runtime
from quorumlog.server.node import Node
from quorumlog.services import LOG_SUBSCRIBE
from quorumlog.spark.source import QuorumlogSource
from quorumlog.storage import AppendOrigin, DirectoryConfig, LogConfig
from quorumlog.storage.shell import DataDirectory
from quorumlog.storage.small_files import read_file, write_file

from .conftest import Client, node_config

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
Served: TypeAlias = Callable[..., AbstractAsyncContextManager["Kept"]]

pytestmark = pytest.mark.slow

KEYS = 7
ROUNDS = 3
TOPIC_CONFIGS = {"segment.bytes": "1024", "index.interval.bytes": "100"}
CONFIG = LogConfig(
    segment_bytes=1024,
    index_interval_bytes=100,
    compacted=True,
    delete_enabled=False,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=0,
)


def written(turn: int) -> list[bytes]:
    """Build the batches of one round: all codecs, tombstones, producers and transactions."""
    codecs = list(Codec)
    batches = []
    for at in range(24):
        stamp = 1_000 * turn + 10 * at
        keys = [b"k%d" % ((at * 3 + n) % KEYS) for n in range(3)]
        values = [None if (at + n) % 5 == turn else b"%d.%d.%d" % (turn, at, n) for n in range(3)]
        records = [
            Record(0, stamp + n, key, value, (("h", b"1"),))
            for n, (key, value) in enumerate(zip(keys, values, strict=True))
        ]
        in_transaction = at % 4 == 3
        producer = 3 if in_transaction else 50 + turn if at == 1 else -1
        batches.append(
            encode_batch(
                records,
                codec=codecs[at % len(codecs)],
                is_transactional=in_transaction,
                producer_id=producer,
                producer_epoch=min(producer, 0),
                base_sequence=(24 * turn + at) * 3 if in_transaction else min(producer, 0),
            )
        )
        if in_transaction:
            kind = MarkerType.ABORT if at % 8 == 3 else MarkerType.COMMIT
            batches.append(
                encode_marker(
                    producer_id=3,
                    producer_epoch=0,
                    kind=kind,
                    coordinator_epoch=0,
                    timestamp_ms=stamp + 5,
                )
            )
    return batches


@dataclass(frozen=True, slots=True)
class Kept:
    """The remaining records of the topic's only partition, and the node that serves it."""

    address: str
    records: list[Record]  # as in the log files
    end: int
    markers: list[tuple[int, int]]  # timestamp and offset

    @property
    def offsets(self) -> list[int]:
        return [record.offset for record in self.records]

    @property
    def times(self) -> list[tuple[int, int]]:
        """Return timestamp and offset of all batches that a timestamp lookup may find, with
        markers."""
        return [(record.timestamp_ms, record.offset) for record in self.records] + self.markers


@pytest.fixture
def served(tmp_path: Path, client: Client) -> Served:
    """A node whose topic "t" was compacted."""

    @asynccontextmanager
    async def opened(runtime: Runtime, policy: str = "compact") -> AsyncIterator[Kept]:
        config = node_config(tmp_path)
        async with client(runtime) as log:
            await log.admin.create_topic("t", configs={**TOPIC_CONFIGS, "cleanup.policy": policy})
            async with log.producer() as producer:
                await producer.send_and_wait("t", b"0", key=b"k0")
        await compact(runtime, config.data_dir)
        if policy == "delete":  # as in a folder that another broker wrote
            runtime.files.remove(f"{config.data_dir}/cleaner-offset-checkpoint")
            metadata = f"{config.data_dir}/t-0/partition.metadata"
            lines = read_file(runtime.files, metadata).splitlines(keepends=True)
            write_file(runtime.files, metadata, b"".join(lines[:2]))
        content = stored(runtime, f"{config.data_dir}/t-0")
        async with Node(runtime, config) as node:
            assert node.addresses.grpc is not None
            markers = [
                (header.max_timestamp, header.base_offset)
                for _, header in iterate_batches(content)
                if header.is_control
            ]
            end = check_left(content)
            yield Kept(node.addresses.grpc, decode_all(content), end, markers)

    return opened


def stored(runtime: Runtime, folder: str) -> bytes:
    """Return all batches of a log."""
    names = sorted(name for name in runtime.files.names(folder) if name.endswith(".log"))
    return b"".join(read_file(runtime.files, f"{folder}/{name}") for name in names)


def check_left(content: bytes) -> int:
    """Return the log end. Check that the log has gaps, empty batches, markers and all last
    values."""
    gaps = headers_alone = markers = end = 0
    for _, header in iterate_batches(content):
        gaps += header.base_offset > end
        headers_alone += not header.record_count
        markers += header.is_control
        end = header.next_offset
    assert min(gaps, headers_alone, markers) > 0, (gaps, headers_alone, markers)
    model: dict[bytes | None, bytes | None] = {}
    for turn in range(ROUNDS):
        for batch, behind in pairwise([*written(turn), b""]):
            ended = parse_header(behind) if behind else None
            if ended is not None and ended.is_control:
                marker = parse_marker(behind, 0, ended)
                if marker is not None and marker.kind is MarkerType.ABORT:
                    continue
            model |= {record.key: record.value for record in decode_all(batch)}
    found = {record.key: record.value for record in decode_all(content)}
    assert {k: v for k, v in found.items() if v} == {k: v for k, v in model.items() if v}
    return end


def checkpoint(runtime: Runtime, path: str) -> bytes:
    """Return the stored cleaner checkpoint of a directory."""
    name = "cleaner-offset-checkpoint"
    is_there = name in runtime.files.names(path)
    return read_file(runtime.files, f"{path}/{name}") if is_there else b""


async def compact(runtime: Runtime, path: str) -> None:
    """Append to the topic's log and run the cleaner until it is clean, several times."""
    async with runtime.tasks.scope("compacting") as scope:
        settings = DirectoryConfig(retention_check_interval_ms=10)
        directory = await DataDirectory.open(runtime, scope, path, config=settings)
        topic_id = await directory.folders.topic_of("t-0")
        log = await directory.open_log("t-0", CONFIG, topic_id=topic_id)
        for turn in range(ROUNDS):
            for batch in written(turn):
                await directory.append(
                    log, batch, leader_epoch=0, origin=AppendOrigin.INTERNAL, flush=True
                )
            log.note_high_watermark(log.log_end_offset)
            wanted = f"t 0 {log.segment_bases[-1]}".encode()
            async with asyncio.timeout(AMPLE_S):
                while wanted not in checkpoint(runtime, path):  # noqa: ASYNC110 (there is no event)
                    await asyncio.sleep(0.01)
        await directory.close()
        scope.cancel()


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_every_way_of_reading_returns_the_remaining_records(
    run: Run, served: Served, policy: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime, policy) as kept, make_log(runtime, kept.address) as log:
            async with asyncio.timeout(60):
                async with log.consumer("t", start="earliest", until_end=True) as consumer:
                    found = [
                        Record(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers))
                        async for r in consumer
                    ]
                    assert found == kept.records
                    assert await consumer.position(("t", 0)) == kept.end
                    (lag,) = (await consumer.lag()).values()
                    assert (lag.position, lag.high_watermark) == (kept.end, kept.end)
                async with log.consumer("t", start="earliest", until_end=True) as consumer:
                    offsets: list[int] = []
                    while await consumer.position(("t", 0)) < kept.end:
                        rows = await consumer.poll_arrow(timeout_ms=AMPLE_MS)
                        offsets += rows.column("offset").to_pylist()
                    assert offsets == kept.offsets
                table = await log.read_arrow("t")
                assert table.column("offset").to_pylist() == kept.offsets
                assert table.column("key").to_pylist() == [r.key for r in kept.records]
                assert table.column("value").to_pylist() == [r.value for r in kept.records]

    run(main)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_reading_begins_and_ends_in_gaps(run: Run, served: Served, policy: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            asyncio.timeout(100),
            served(runtime, policy) as kept,
            make_log(runtime, kept.address) as log,
            log.consumer("t") as consumer,
        ):
            for start in range(0, kept.end, 5):
                await consumer.seek(("t", 0), start)
                rest = [offset for offset in kept.offsets if offset >= start]
                record = await consumer.next(timeout_ms=AMPLE_MS) if rest else None
                assert (record.offset if record else None) == (rest[0] if rest else None)
                end = min(start + 7, kept.end)
                part = await log.read_arrow("t", start=start, end=end)
                assert part.column("offset").to_pylist() == [each for each in rest if each < end]

    run(main)


def test_timestamp_lookup_returns_the_first_remaining_offset(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as kept, make_log(runtime, kept.address) as log:
            for time in range(0, 1_000 * ROUNDS + 300, 37):
                found = (await log.list_offsets("t", at=TimestampMs(time)))[0]
                assert found == min([o for t, o in kept.times if t >= time], default=kept.end)

    run(main)


def test_reader_without_a_codec_passes_gaps(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as kept:
            channel = runtime.network.channel(kept.address)
            request = log_pb2.SubscribeRequest(
                topic="t", partition=0, offset=0, end_offset=kept.end, decoded=True, max_bytes=500
            )
            offsets, next_offset = [], 0
            async with asyncio.timeout(AMPLE_S):
                stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=AMPLE_MS)
                await stream.send(request)
                await stream.finish()
                while (response := await stream.receive()) is not None:
                    offsets += [record.offset for record in response.records]
                    assert next_offset <= response.next_offset
                    next_offset = response.next_offset
            assert (offsets, next_offset) == (kept.offsets, kept.end)
            await channel.close()

    run(main)


def test_spark_reader_returns_the_remaining_records(served: Served) -> None:
    def read(address: str) -> list[int]:
        made = QuorumlogSource({"bootstrap": address, "subscribe": "t"})
        reader = made.reader(made.schema())
        return [
            offset
            for partition in pickle.loads(pickle.dumps(reader.partitions()))
            for batch in pickle.loads(pickle.dumps(reader)).read(partition)
            for offset in batch.column("offset").to_pylist()
        ]

    async def main(runtime: Runtime) -> None:
        async with served(runtime) as kept:
            assert await asyncio.to_thread(read, kept.address) == kept.offsets

    run_patiently(main)
