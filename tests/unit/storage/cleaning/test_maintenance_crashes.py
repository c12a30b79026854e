"""A crash during retention or compaction loses no key's last acknowledged value."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.simulation import CrashPoint, Faults, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.shell import DataDirectory

DATA = "/data"
KEYS = 3
NAME, TOPIC = "t-0", TopicId(b"t" * 16)
DIRECTORY = DirectoryConfig(
    retention_check_interval_ms=20, clean_slice_bytes=500, checkpoint_interval_ms=10
)
CONFIG = LogConfig(
    segment_bytes=300,
    index_interval_bytes=60,
    flush_policy=FlushPolicy.FSYNC,
    compacted=True,
    min_cleanable_dirty_ratio=0.1,
    retention_bytes=1_000,
    file_delete_delay_ms=30,
)


@dataclass
class History:
    """The records that all runs of the process wrote, and the acknowledged offsets."""

    issued: dict[int, set[tuple[bytes, bytes]]] = field(default_factory=dict)
    last: dict[bytes, int] = field(default_factory=dict)  # key: acknowledged offset
    count: int = 0
    cleaned: bool = False


async def open_log(runtime: Runtime, scope: Any) -> tuple[DataDirectory, Log]:
    directory = await DataDirectory.open(runtime, scope, DATA, config=DIRECTORY)
    log = await directory.open_log(NAME, CONFIG, topic_id=TOPIC)
    log.note_high_watermark(log.log_end_offset)
    return directory, log


async def run_process(runtime: Runtime, story: History) -> None:
    await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c" * 22), node_id=NodeId(1))
    async with runtime.tasks.scope("life") as scope:
        directory, log = await open_log(runtime, scope)
        await check(directory, log, story)
        for _ in range(3):
            for _ in range(8):
                story.count += 1
                key, value = b"k%d" % (story.count % KEYS), b"%d" % story.count
                story.issued.setdefault(log.log_end_offset, set()).add((key, value))
                appended = await directory.append(
                    log,
                    encode_batch([Record(0, runtime.clock.wall_ms(), key, value, ())]),
                    leader_epoch=0,
                    origin=AppendOrigin.CLIENT,
                    flush=True,
                )
                story.last[key] = appended.base_offset
                log.note_high_watermark(log.log_end_offset)
            await asyncio.sleep(0.1)
        story.cleaned = story.cleaned or log.size_bytes < 73 * 20
        await check(directory, log, story)
        await directory.close()
        scope.cancel()


async def reopen(runtime: Runtime, story: History) -> None:
    async with runtime.tasks.scope("look") as scope:
        directory, log = await open_log(runtime, scope)
        endings = (".swap", ".cleaned", ".deleted")
        if log.segment_bases:
            names = runtime.files.names(f"{DATA}/{NAME}")
            assert [name for name in names if name.endswith(endings)] == []
        await check(directory, log, story)
        await directory.close()
        scope.cancel()


async def check(directory: DataDirectory, log: Log, story: History) -> None:
    found: dict[bytes, int] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        taken = log.read(offset, max_bytes=1_000)
        if taken is None:
            break
        for record in decode_all(await directory.reader.read(taken)):
            assert record.key is not None
            assert record.value is not None
            assert (record.key, record.value) in story.issued[record.offset], record
            found[record.key] = record.offset
        offset = taken.next_offset
    lost = {k: o for k, o in story.last.items() if found.get(k, -1) < o >= log.log_start_offset}
    assert lost == {}, f"acknowledged and lost: {lost} of {found}"
    assert log.log_end_offset > max(story.last.values(), default=-1)


def run(world: SimWorld, main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    node = world.node("n")
    node.spawn(main)
    world.run_until(lambda: not node.alive, virtual_ms=600_000)
    assert node.exit_error is None, repr(node.exit_error)


def crash_once(seed: int, point: CrashPoint, faults: Faults | None = None) -> None:
    with SimWorld(seed, faults=faults) as world:
        story = History()
        run(world, lambda runtime: run_process(runtime, story))
        assert story.cleaned or faults is not None, "no compaction finished"
        world.node("n").crash_at(point)
        run(world, lambda runtime: run_process(runtime, story))
        world.node("n").crash_at(None)
        run(world, lambda runtime: reopen(runtime, story))
        run(world, lambda runtime: run_process(runtime, story))


def operations() -> int:
    with SimWorld(0) as world:
        story = History()
        run(world, lambda runtime: run_process(runtime, story))
        world.node("n").crash_at(None)
        run(world, lambda runtime: run_process(runtime, story))
        return world.node("n").device.operations


@pytest.mark.long
@pytest.mark.parametrize(("power", "moment"), [(True, "inside"), (False, "before")])
def test_crash_during_maintenance_keeps_the_last_value_of_each_key(
    power: bool, moment: str
) -> None:
    count = operations()
    assert count > 150
    for number in range(1 + power, count, 5):
        crash_once(number, CrashPoint(operations=number, power=power, moment=moment))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_disk_faults_during_maintenance_keep_the_last_value_of_each_key(seed: int) -> None:
    faults = Faults(cache_miss=0.4, short_write=0.2, lane_stall=0.02)
    point = CrashPoint(operations=30 + seed * 17, power=True, moment="inside")
    crash_once(seed, point, faults)
