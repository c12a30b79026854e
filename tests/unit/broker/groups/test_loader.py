"""A load of an offsets partition reads all records across the gaps of compaction."""

import asyncio

from quorumlog.broker.coordinator.shell.loader import ShardLoader
from quorumlog.broker.groups.formats import decode, encode
from quorumlog.broker.groups.records import OffsetCommitted
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.simulation import Faults, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, LogConfig
from quorumlog.storage.shell import DataDirectory

TOPIC = TopicId(b"o" * 16)
DIRECTORY = DirectoryConfig(retention_check_interval_ms=20, checkpoint_interval_ms=10)
CLEANED = LogConfig(segment_bytes=400, compacted=True, min_cleanable_dirty_ratio=0.1)
COMMITS = 60
BUSY = 1_000
"""The partition of which something is committed all the time: most of that is taken out."""


async def write(directory: DataDirectory, log_name: str) -> dict[int, int]:
    """Commit offsets until compaction leaves gaps. Return the expected offsets."""
    log = await directory.open_log(log_name, CLEANED, topic_id=TOPIC)
    committed = {}
    for at in range(COMMITS):
        partition = at if at % 3 == 0 else BUSY
        committed[partition] = at
        record = OffsetCommitted(group="g", topic="t", partition=partition, offset=at, commit_ms=1)
        key, value = encode(record)
        batch = encode_batch([Record(0, 1, key, value)])
        await directory.append(log, batch, leader_epoch=0, origin=AppendOrigin.INTERNAL, flush=True)
    log.note_high_watermark(log.log_end_offset)
    await asyncio.sleep(1)
    return committed


def test_load_continues_across_gaps_with_a_cold_page_cache() -> None:
    async def main(runtime: Runtime) -> tuple[int, dict[int, int], dict[int, int]]:
        await DataDirectory.format(runtime, "/data", cluster_id=ClusterId("c"), node_id=NodeId(1))
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, "/data", config=DIRECTORY)
            committed = await write(directory, "o-0")
            log = await directory.open_log("o-0", CLEANED, topic_id=TOPIC)
            end_offset = log.log_end_offset
            stored = ShardLoader(
                directory,
                log,
                end_offset=end_offset,
                partition=0,
                kind="groups",
                decode=lambda record: decode(record.key, record.value),
            )
            count, found = 0, {}
            while (records := await stored.take()) is not None:
                count += len(records)
                for entry in records:
                    record, producer = entry[:2]
                    assert isinstance(record, OffsetCommitted)
                    assert producer is None
                    found[record.partition] = record.offset
            await directory.close()
            scope.cancel()
        return count, found, committed

    with SimWorld(0, faults=Faults(cache_miss=1.0)) as world:
        task = world.node("n").spawn(main)
        world.run_until(task, virtual_ms=60_000)
        count, found, committed = task.result()
    assert found == committed
    assert count < COMMITS  # it was compacted
