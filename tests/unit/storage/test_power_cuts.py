"""Crashes at every file operation of a small workload: recovery keeps acknowledged records.

It returns no record that was never written, and the recovered log accepts appends.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.simulation.checkers.data_directory import check_directory
from tests.unit.storage import log_truncation

from quorumlog.ids import ClusterId, Epoch, NodeId, TopicId
from quorumlog.raftlog import HardState
from quorumlog.raftlog.hard_state import encode_hard_state
from quorumlog.records.batch import iterate_batches
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.simulation import CrashPoint, Faults, NodeKilled, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.append import write_fully
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.flush import perform_flush
from quorumlog.storage.index import IndexCache
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.shell import DataDirectory

DATA = "/data"
TOPICS = {name: TopicId(name.encode().ljust(16, b".")) for name in ("sure-0", "fast-0")}
SMALL = DirectoryConfig(
    write_group_bytes_max=2_000, inline_write_bytes_max=600, checkpoint_interval_ms=5
)
CONFIGS = {
    "sure-0": LogConfig(
        flush_policy=FlushPolicy.FSYNC, segment_bytes=2_500, index_interval_bytes=200
    ),
    "fast-0": LogConfig(
        flush_policy=FlushPolicy.REPLICATED, segment_bytes=2_500, index_interval_bytes=200
    ),
}


@dataclass
class Expected:
    """The expected values of a log by offset: written ones and durable ones."""

    issued: dict[int, set[bytes]] = field(default_factory=dict)  # written there by any process
    durable: dict[int, bytes] = field(default_factory=dict)  # acknowledged after an fsync


@dataclass
class History:
    """The writes of all processes on one directory."""

    logs: dict[str, Expected] = field(
        default_factory=lambda: {name: Expected() for name in CONFIGS}
    )
    states: set[bytes | None] = field(
        default_factory=lambda: {None}
    )  # possible contents of the file
    life: int = 0
    count: int = 0

    def batch(self, size: int) -> tuple[bytes, list[bytes]]:
        self.count += 1
        values = [b"%d/%d/%d" % (self.life, self.count, i) for i in range(1 + self.count % 3)]
        records = [
            Record(offset=0, timestamp_ms=self.count, key=None, value=value.ljust(size), headers=())
            for value in values
        ]
        return encode_batch(records), [value.ljust(size) for value in values]


async def append(
    directory: DataDirectory, log: Log, story: History, *, size: int, flush: bool
) -> None:
    expected = story.logs[log.name]
    content, values = story.batch(size)
    for index, value in enumerate(values):
        expected.issued.setdefault(log.log_end_offset + index, set()).add(value)
    appended = await directory.append(
        log, content, leader_epoch=story.life, origin=AppendOrigin.CLIENT, flush=flush
    )
    if flush:
        for index, value in enumerate(values):
            expected.durable[appended.base_offset + index] = value


async def truncate(directory: DataDirectory, log: Log, story: History, offset: int) -> None:
    expected = story.logs[log.name]
    batch_start = offset - 2  # whole batches are truncated, and a batch has at most three records
    expected.durable = {o: v for o, v in expected.durable.items() if o < batch_start}
    await directory.truncation.truncate(log, offset)


async def run_process(runtime: Runtime, story: History) -> None:
    """Run one process: open, check, append, roll, truncate, store, close."""
    if not runtime.files.exists(f"{DATA}/meta.properties"):
        await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c"), node_id=NodeId(1))
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
        assert directory.small_files.load("quorum-state") in story.states
        logs = [await directory.open_log(n, c, topic_id=TOPICS[n]) for n, c in CONFIGS.items()]
        for log in logs:
            await check(directory, log, story.logs[log.name])
        for log in logs:
            for number in range(8):
                await append(directory, log, story, size=40 + 90 * (number % 4), flush=number != 3)
            await truncate(directory, log, story, log.log_end_offset - 3)
            await append(directory, log, story, size=700, flush=True)
        state = encode_hard_state(HardState(Epoch(story.life), None))
        story.states.add(state)  # uncertain until it is acknowledged
        await directory.small_files.store("quorum-state", state)
        story.states = {state}
        await directory.checkpoints.checkpoint()
        await append(directory, logs[0], story, size=10, flush=False)
        await directory.close()


async def check(directory: DataDirectory, log: Log, expected: Expected) -> None:
    """Check that the log is contiguous and has every durable record and no unwritten one."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        taken = log.read(offset, max_bytes=1_000)
        assert taken is not None, f"no batch at {offset} of {log.log_end_offset}"
        content = await directory.reader.read(taken)
        for _, header in iterate_batches(content):
            assert header.base_offset == offset, f"{header.base_offset} follows {offset}"
            assert log.epochs.epoch_at(offset) == header.leader_epoch, f"epoch at {offset}"
            offset = header.next_offset
        for record in decode_all(content):
            assert record.value is not None, record
            found[record.offset] = record.value
        assert offset == taken.next_offset, f"{offset} is not {taken.next_offset}"
    lost = {o: v for o, v in expected.durable.items() if found.get(o) != v}
    assert lost == {}, f"acknowledged and lost from {log.name}: {lost}"
    invented = {o: v for o, v in found.items() if v not in expected.issued.get(o, set())}
    assert invented == {}, f"never written to {log.name}: {invented}"
    assert log.flushed_end_offset == log.log_end_offset
    # Records that were read back are durable from here on: the recovery has synced them.
    expected.durable = found


async def reopen(runtime: Runtime, story: History) -> None:
    async with runtime.tasks.scope("look") as scope:
        directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
        assert directory.small_files.load("quorum-state") in story.states
        for name, config in CONFIGS.items():
            log = await directory.open_log(name, config, topic_id=TOPICS[name])
            await check(directory, log, story.logs[name])
        await directory.close()


def count_operations(lives: int) -> int:
    """Return the number of mutating file operations in the last of several undisturbed
    processes."""
    with SimWorld(0) as world:
        node, story = world.node("n"), History()
        for life in range(lives):
            story.life = life
            node.crash_at(None)
            node.spawn(lambda runtime: run_process(runtime, story))
            world.run_until(lambda: not node.alive, virtual_ms=600_000)
            assert node.exit_error is None, node.exit_error
        return node.device.operations


def crash_once(seed: int, point: CrashPoint, *, lives: int, faults: Faults | None = None) -> None:
    """Run processes undisturbed, crash the next one and check. Then run and check again."""
    with SimWorld(seed, faults=faults) as world:
        node, story = world.node("n"), History()

        def run(main: Any) -> None:
            node.spawn(main)
            world.run_until(lambda: not node.alive, virtual_ms=600_000)
            assert node.exit_error is None, f"seed {seed}, {point}: {node.exit_error!r}"

        for life in range(lives):
            story.life = life
            if life == lives - 1:
                node.crash_at(point)
            run(lambda runtime: run_process(runtime, story))
        node.crash_at(None)
        if not node.device.disk.exists(f"{DATA}/meta.properties"):
            return  # the crash came before the formatting ended
        check_directory(node, DATA)
        run(lambda runtime: reopen(runtime, story))
        story.life = lives
        run(lambda runtime: run_process(runtime, story))
        run(lambda runtime: reopen(runtime, story))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lives", "power", "moment", "step"),
    [
        pytest.param(1, True, "inside", 1, id="first-life-power-inside"),
        pytest.param(2, True, "inside", 1, id="power-inside"),
        pytest.param(2, True, "after", 3, id="power-after"),
        pytest.param(2, False, "inside", 3, id="process-inside"),
    ],
)
def test_crash_at_any_file_operation_loses_no_acknowledged_record(
    lives: int, power: bool, moment: str, step: int
) -> None:
    operations = count_operations(lives)
    assert operations > 80, f"only {operations} operations"
    for number in range(1, operations + 1, step):
        crash_once(number, CrashPoint(operations=number, power=power, moment=moment), lives=lives)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_power_cut_on_a_faulty_disk_loses_no_acknowledged_record(seed: int) -> None:
    """Short writes, cold reads and a hanging device in addition."""
    faults = Faults(cache_miss=0.4, short_write=0.2, lane_stall=0.02)
    point = CrashPoint(operations=1 + seed * 5 % 190, power=True, moment="inside")
    crash_once(seed, point, lives=2, faults=faults)


# --- without a directory: recovery and truncation by themselves ---------------------------------


class Sync:
    """A log on a simulated machine, without an event loop."""

    def __init__(self, world: SimWorld, config: LogConfig) -> None:
        self.node = world.node("n")
        self.config = config
        self.log: Log

    def start(self, *, recovery_point: int = 0) -> Log:
        """Start a process and open the log as after an unclean stop."""
        if not self.node.alive:
            self.node.start_process()
        files = self.node.runtime().files
        files.make_folder("/t-0")
        files.sync_folder("/")
        recovery = Recovery(
            folder="/t-0",
            config=self.config,
            is_clean=False,
            recovery_point=recovery_point,
            log_start_offset=0,
            torn_bytes_max=0 if self.config.flush_policy is FlushPolicy.FSYNC else None,
            wall_ms=0,
        )
        self.log = Log(
            FilePool(files, open_files_max=9),
            IndexCache(1_000),
            name="t-0",
            folder="/t-0",
            config=self.config,
            topic_id=None,
            state=recover(files, recovery),
        )
        return self.log

    def append(self, count: int) -> None:
        for number in range(count):
            record = Record(
                offset=0, timestamp_ms=number, key=None, value=b"v%d" % number, headers=()
            )
            write = self.log.appender.prepare(
                encode_batch([record]), leader_epoch=0, wall_ms=0, origin=AppendOrigin.CLIENT
            )
            assert write is not None
            write_fully(write.file, write.position, write.buffers)
            self.log.appender.complete(write)

    def flush(self) -> None:
        flush = self.log.flusher.begin()
        perform_flush(self.node.runtime().files, flush)
        self.log.flusher.complete(flush)


def test_log_end_reported_by_a_recovery_is_durable() -> None:
    """After a kill the page cache has bytes that the disk lacks."""
    for seed in range(20):
        with SimWorld(seed) as world:
            sync = Sync(world, LogConfig(segment_bytes=300))
            sync.start()
            sync.append(9)
            sync.node.crash()
            assert sync.start().flushed_end_offset == 9
            sync.node.power_cut()
            assert sync.start(recovery_point=9).log_end_offset == 9


def test_interrupted_truncation_over_segments_leaves_no_gap() -> None:
    """Segments behind a gap would look like damage of an fsync log."""
    config = LogConfig(segment_bytes=150, flush_policy=FlushPolicy.FSYNC)
    for seed in range(120):
        with SimWorld(seed) as world:
            sync = Sync(world, config)
            sync.start()
            sync.append(12)
            sync.flush()
            moment = ("before", "inside", "after")[seed % 3]
            sync.node.crash_at(CrashPoint(operations=1 + seed // 3, power=True, moment=moment))
            try:
                log_truncation.truncate(sync.log, sync.node.runtime().files, 3)
            except NodeKilled:
                assert 3 <= sync.start(recovery_point=3).log_end_offset <= 12
            else:
                sync.node.crash_at(None)
                sync.node.power_cut()
                assert sync.start(recovery_point=3).log_end_offset == 3
