"""Isolation levels of every way of reading, on a node's disk with transactions of all outcomes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S

from quorumlog.clients.log import make_log
from quorumlog.errors import InvalidConfig
from quorumlog.proto import log_pb2
from quorumlog.records import Record, decode_all, encode_batch
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.runtime import Runtime
from quorumlog.server.node import Node
from quorumlog.services import LOG_FETCH, LOG_LIST_OFFSETS, LOG_SUBSCRIBE
from quorumlog.storage import AppendOrigin, LogConfig
from quorumlog.storage.shell import DataDirectory

from .conftest import Client, node_config

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
Served: TypeAlias = Callable[[Runtime], AbstractAsyncContextManager[str]]

COMMITTED = [0, 3, 4, 7]
UNCOMMITTED = [0, 1, 2, 3, 4, 7, 9, 11, 12]
STABLE_END = 11  # an open transaction begins here
END = 13
LEVELS = {"read_committed": COMMITTED, "read_uncommitted": UNCOMMITTED}


def plain(offset: int) -> bytes:
    return encode_batch([Record(0, offset, b"k", b"%d" % offset)])


def written(producer: int, offset: int, sequence: int = 0) -> bytes:
    """Build a batch of a producer's transaction."""
    return encode_batch(
        [Record(0, offset, b"k", b"%d" % offset)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def ended(producer: int, kind: MarkerType, offset: int) -> bytes:
    return encode_marker(
        producer_id=producer,
        producer_epoch=0,
        kind=kind,
        coordinator_epoch=0,
        timestamp_ms=offset,
    )


BATCHES = [
    (written(1, 1), AppendOrigin.CLIENT),
    (written(1, 2, 1), AppendOrigin.CLIENT),
    (written(2, 3), AppendOrigin.CLIENT),
    (plain(4), AppendOrigin.CLIENT),
    (ended(1, MarkerType.ABORT, 5), AppendOrigin.INTERNAL),
    (ended(2, MarkerType.COMMIT, 6), AppendOrigin.INTERNAL),
    (written(1, 7, 2), AppendOrigin.CLIENT),
    (ended(1, MarkerType.COMMIT, 8), AppendOrigin.INTERNAL),
    (written(3, 9), AppendOrigin.CLIENT),
    (ended(3, MarkerType.ABORT, 10), AppendOrigin.INTERNAL),
    (written(4, 11), AppendOrigin.CLIENT),
    (plain(12), AppendOrigin.CLIENT),
]
"""The log after its first record: aborted, committed and open transactions, interleaved."""


@pytest.fixture
def served(tmp_path: Path, client: Client) -> Served:
    """The address of a node whose topic "t" has these batches."""

    @asynccontextmanager
    async def opened(runtime: Runtime) -> AsyncIterator[str]:
        config = node_config(tmp_path)
        async with client(runtime) as log:
            await log.admin.create_topic("t")
            async with log.producer() as producer:
                await producer.send_and_wait("t", b"0", key=b"k", timestamp_ms=0)
        async with runtime.tasks.scope("transactions") as scope:
            directory = await DataDirectory.open(runtime, scope, config.data_dir)
            topic_id = await directory.folders.topic_of("t-0")
            stored = await directory.open_log("t-0", LogConfig(), topic_id=topic_id)
            for batch, origin in BATCHES:
                await directory.append(stored, batch, leader_epoch=0, origin=origin, flush=True)
            await directory.close()
        async with Node(runtime, config) as node:
            assert node.addresses.grpc is not None
            yield node.addresses.grpc

    return opened


@pytest.mark.parametrize("level", LEVELS)
def test_consumer_reads_at_its_isolation_level(run: Run, served: Served, level: str) -> None:
    expected = LEVELS[level]
    end = STABLE_END if level == "read_committed" else END

    async def main(runtime: Runtime) -> None:
        async with served(runtime) as address, make_log(runtime, address) as log:
            async with log.consumer("t", until_end=True, isolation_level=level) as consumer:
                assert [record.offset async for record in consumer] == expected
                assert await consumer.position(("t", 0)) == end
                assert await consumer.end_offsets() == {("t", 0): end}
            async with log.consumer("t", until_end=True, isolation_level=level) as consumer:
                offsets: list[int] = []
                while await consumer.position(("t", 0)) < end:
                    rows = await consumer.poll_arrow(timeout_ms=AMPLE_MS)
                    offsets += rows.column("offset").to_pylist()
                assert offsets == expected
            for start in range(end):
                async with log.consumer(
                    "t", start=start, until_end=True, isolation_level=level
                ) as consumer:
                    found = [record.offset async for record in consumer]
                    assert found == [offset for offset in expected if offset >= start]

    run(main)


@pytest.mark.parametrize("level", LEVELS)
def test_arrow_scan_reads_at_its_isolation_level(run: Run, served: Served, level: str) -> None:
    expected = LEVELS[level]

    async def main(runtime: Runtime) -> None:
        async with served(runtime) as address, make_log(runtime, address) as log:
            table = await log.read_arrow("t", isolation_level=level)
            assert table.column("offset").to_pylist() == expected
            for start in range(STABLE_END):
                part = await log.read_arrow("t", start=start, end=start + 3, isolation_level=level)
                assert part.column("offset").to_pylist() == [
                    offset for offset in expected if start <= offset < start + 3
                ]

    run(main)


def test_readers_are_read_committed_by_default(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as address, make_log(runtime, address) as log:
            async with log.consumer("t", until_end=True) as consumer:
                assert [record.offset async for record in consumer] == COMMITTED
            assert (await log.read_arrow("t")).column("offset").to_pylist() == COMMITTED
            assert await log.list_offsets("t") == {0: END}
            found = await log.list_offsets("t", isolation_level="read_committed")
            assert found == {0: STABLE_END}

    run(main)


def test_consumer_at_the_last_stable_offset_waits_for_more(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            served(runtime) as address,
            make_log(runtime, address) as log,
            log.consumer("t", start=STABLE_END, fetch_max_wait_ms=50) as consumer,
        ):
            assert await consumer.poll(timeout_ms=200) == []
            assert consumer.positions() == {("t", 0): STABLE_END}
            fetches = consumer.statistics().fetches
            assert await consumer.poll(timeout_ms=200) == []
            assert consumer.statistics().fetches - fetches < 10

    run(main)


@pytest.mark.parametrize(
    ("isolation", "end", "expected"),
    [
        (log_pb2.ISOLATION_READ_COMMITTED, STABLE_END, COMMITTED),
        (log_pb2.ISOLATION_READ_UNCOMMITTED, END, UNCOMMITTED),
    ],
)
def test_calls_read_at_the_requested_isolation_level(
    run: Run, served: Served, isolation: log_pb2.Isolation, end: int, expected: list[int]
) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as address:
            channel = runtime.network.channel(address)
            offset, found, turns = 0, [], 0
            while offset < end:
                request = log_pb2.FetchRequest(isolation=isolation, max_wait_ms=1)
                request.partitions.add(topic="t", offset=offset, max_bytes=1)
                response = await channel.call(LOG_FETCH, request, timeout_ms=AMPLE_MS)
                (result,) = response.results
                assert (result.high_watermark, result.last_stable_offset) == (END, STABLE_END)
                assert result.next_offset > offset
                found += [
                    record.offset for record in decode_all(result.records, start_offset=offset)
                ]
                offset, turns = result.next_offset, turns + 1
            assert (found, offset, turns) == (expected, end, end)  # one batch each
            for decoded in (True, False):
                subscribed = log_pb2.SubscribeRequest(
                    topic="t", end_offset=end, isolation=isolation, decoded=decoded
                )
                assert await _subscribe(channel, subscribed) == (expected, end)
            listing = log_pb2.ListOffsetsRequest(isolation=isolation)
            listing.partitions.add(topic="t", timestamp_ms=-1)
            answer = await channel.call(LOG_LIST_OFFSETS, listing, timeout_ms=AMPLE_MS)
            assert answer.results[0].offset == end
            await channel.close()

    run(main)


async def _subscribe(channel: Any, request: log_pb2.SubscribeRequest) -> tuple[list[int], int]:
    """Return the offsets of all records of a stream, and its last next offset."""
    offsets, next_offset = [], 0
    async with asyncio.timeout(AMPLE_S):
        stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=AMPLE_MS)
        await stream.send(request)
        await stream.finish()
        while (response := await stream.receive()) is not None:
            offsets += [record.offset for record in response.records]
            offsets += [record.offset for record in decode_all(response.batches)]
            next_offset = response.next_offset
    return offsets, next_offset


def test_unknown_isolation_level_is_refused(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as address, make_log(runtime, address) as log:
            for level in ("committed", "READ_COMMITTED", ""):
                with pytest.raises(InvalidConfig, match="isolation_level"):
                    log.consumer("t", isolation_level=level)
                with pytest.raises(InvalidConfig, match="isolation_level"):
                    await log.read_arrow("t", isolation_level=level)
                with pytest.raises(InvalidConfig, match="isolation_level"):
                    await log.list_offsets("t", isolation_level=level)

    run(main)
