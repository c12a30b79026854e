"""Clients deliver no transaction markers, and all positions continue behind them.

The markers are on the disk of a whole node.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S

from quorumlog.clients.log import make_log
from quorumlog.proto import log_pb2
from quorumlog.records import Record, encode_batch
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.runtime import Runtime
from quorumlog.server.node import Node
from quorumlog.services import LOG_SUBSCRIBE
from quorumlog.storage import AppendOrigin, LogConfig
from quorumlog.storage.shell import DataDirectory

from .conftest import Client, node_config

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
Served: TypeAlias = Callable[[Runtime], AbstractAsyncContextManager[str]]

DATA = [0, 2, 3, 6, 9]
"""Offsets of records; between and behind them are markers, one and two in a row."""

END = 11


def batches() -> bytes:
    """Return the batches of the log behind its first record."""
    parts = []
    for offset in range(1, END):
        if offset in DATA:
            parts.append(encode_batch([Record(0, offset, b"k", b"%d" % offset)]))
        else:
            marker = encode_marker(
                producer_id=3,
                producer_epoch=0,
                kind=MarkerType.COMMIT,
                coordinator_epoch=0,
                timestamp_ms=offset,
            )
            parts.append(marker)
    return b"".join(parts)


@pytest.fixture
def served(tmp_path: Path, client: Client) -> Served:
    """The address of a node whose topic "t" has these batches."""

    @asynccontextmanager
    async def opened(runtime: Runtime) -> AsyncIterator[str]:
        config = node_config(tmp_path)
        async with client(runtime) as log:
            await log.admin.create_topic("t")
            async with log.producer() as producer:
                await producer.send_and_wait("t", b"0")
        async with runtime.tasks.scope("markers") as scope:
            directory = await DataDirectory.open(runtime, scope, config.data_dir)
            topic_id = await directory.folders.topic_of("t-0")
            stored = await directory.open_log("t-0", LogConfig(), topic_id=topic_id)
            await directory.append(
                stored, batches(), leader_epoch=0, origin=AppendOrigin.INTERNAL, flush=True
            )
            await directory.close()
        async with Node(runtime, config) as node:
            assert node.addresses.grpc is not None
            yield node.addresses.grpc

    return opened


def test_no_way_of_reading_returns_a_marker(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as address, make_log(runtime, address) as log:
            async with log.consumer("t", until_end=True) as consumer:
                assert [record.offset async for record in consumer] == DATA
                assert await consumer.position(("t", 0)) == END
            async with log.consumer("t", until_end=True) as consumer:
                offsets: list[int] = []
                while await consumer.position(("t", 0)) < END:
                    rows = await consumer.poll_arrow(timeout_ms=AMPLE_MS)
                    offsets += rows.column("offset").to_pylist()
                assert offsets == DATA
            table = await log.read_arrow("t")
            assert table.column("offset").to_pylist() == DATA
            assert table.column("value").to_pylist() == [b"%d" % offset for offset in DATA]
            for start in range(END):
                part = await log.read_arrow("t", start=start, end=start + 3)
                assert part.column("offset").to_pylist() == [
                    offset for offset in DATA if start <= offset < start + 3
                ]

    run(main)


def test_a_position_among_markers_continues_after_them(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as address, make_log(runtime, address) as log:
            for start in range(END):
                async with log.consumer("t", start=start, until_end=True) as consumer:
                    found = [record.offset async for record in consumer]
                    assert found == [offset for offset in DATA if offset >= start]
            async with log.consumer("t", start=END - 1) as consumer:  # only a marker is left
                reading = asyncio.ensure_future(anext(aiter(consumer)))
                async with log.producer() as producer:
                    await producer.send_and_wait("t", b"new")
                assert (await reading).offset == END

    run(main)


def test_reader_without_a_codec_skips_markers(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as address:
            channel = runtime.network.channel(address)
            request = log_pb2.SubscribeRequest(
                topic="t", partition=0, offset=0, end_offset=END, decoded=True
            )
            offsets, next_offset = [], 0
            async with asyncio.timeout(AMPLE_S):
                stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=AMPLE_MS)
                await stream.send(request)
                await stream.finish()
                while (response := await stream.receive()) is not None:
                    offsets += [record.offset for record in response.records]
                    next_offset = response.next_offset
            assert (offsets, next_offset) == (DATA, END)
            await channel.close()

    run(main)
