"""A data directory on the simulated runtime with retention and compaction."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from quorumlog import simulation
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.shell import DataDirectory

DATA = "/data"
TOPIC = TopicId(b"t" * 16)
INTERVAL_MS = 1_000
CONFIG = DirectoryConfig(retention_check_interval_ms=INTERVAL_MS, clean_slice_bytes=2_000)
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=60, flush_policy=FlushPolicy.FSYNC)
COMPACT = replace(SMALL, compacted=True, delete_enabled=False, min_cleanable_dirty_ratio=0.1)


@asynccontextmanager
async def opened(
    runtime: Runtime, config: DirectoryConfig = CONFIG
) -> AsyncIterator[DataDirectory]:
    await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c" * 22), node_id=NodeId(1))
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, DATA, config=config)
        yield directory
        await directory.close()
        scope.cancel()


async def fill(
    runtime: Runtime,
    directory: DataDirectory,
    log: Log,
    count: int,
    *,
    keys: int = 2,
    age_ms: int = 0,
    commit: bool = True,
) -> None:
    """Append records, one to a batch. A segment holds two or three of them."""
    for number in range(count):
        record = Record(
            0, runtime.clock.wall_ms() - age_ms, b"k%d" % (number % keys), b"v%d" % number, ()
        )
        await directory.append(
            log, encode_batch([record]), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
        )
    if commit:
        log.note_high_watermark(log.log_end_offset)


async def values(directory: DataDirectory, log: Log) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        taken = log.read(offset, max_bytes=5_000)
        if taken is None:
            break
        content = await directory.reader.read(taken)
        found |= {record.offset: record.value for record in decode_all(content)}
        offset = taken.next_offset
    return found


async def until(claim: Callable[[], bool], *, within_ms: int = 10 * INTERVAL_MS) -> None:
    """Wait on the virtual clock until a condition is true."""
    for _ in range(within_ms // 50):
        if claim():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the condition never became true")


def run(main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    simulation.run(main)
