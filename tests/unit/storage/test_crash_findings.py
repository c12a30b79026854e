"""Regressions that crashes at every file operation found, each reduced to its smallest form."""

import asyncio
from collections.abc import Sequence

from tests.unit.storage.log_truncation import truncate

from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.simulation import Faults, SimWorld
from quorumlog.storage import AppendOrigin, Log, LogConfig
from quorumlog.storage.append import write_fully
from quorumlog.storage.checkpoints import encode_partition_metadata
from quorumlog.storage.data_directory_state import recover_log
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.flush import perform_flush
from quorumlog.storage.index import IndexCache
from quorumlog.storage.layout import PARTITION_METADATA, join
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.shell import DataDirectory
from quorumlog.storage.small_files import read_file, write_file

GAPS = LogConfig(compacted=True)


class Machine:
    """A log on a simulated disk, without an event loop."""

    def __init__(self, world: SimWorld, config: LogConfig) -> None:
        self.config = config
        self.node = world.node("node")

    def open(self, *, recovery_point: int = 0, is_clean: bool = False) -> Log:
        if not self.node.alive:
            self.node.start_process()
        files = self.node.runtime().files
        files.make_folder("/t-0")
        state = recover(
            files,
            Recovery(
                folder="/t-0",
                config=self.config,
                is_clean=is_clean,
                recovery_point=recovery_point,
                log_start_offset=0,
                torn_bytes_max=None,
                wall_ms=0,
            ),
        )
        self.log = Log(
            FilePool(files, open_files_max=9),
            IndexCache(1_000),
            name="t-0",
            folder="/t-0",
            config=self.config,
            topic_id=None,
            state=state,
        )
        return self.log

    def append(self, offsets: Sequence[int], *, is_flushed: bool = True) -> None:
        """Append a replicated batch of one record at each of these offsets."""
        for offset in offsets:
            record = Record(offset=0, timestamp_ms=0, key=b"k", value=b"v", headers=())
            content = encode_batch([record], base_offset=offset, leader_epoch=0)
            write = self.log.appender.prepare(
                content, leader_epoch=0, wall_ms=0, origin=AppendOrigin.REPLICATED
            )
            assert write is not None
            write_fully(write.file, write.position, write.buffers)
            self.log.appender.complete(write)
        if not is_flushed:
            return
        flush = self.log.flusher.begin()
        perform_flush(self.node.runtime().files, flush)
        self.log.flusher.complete(flush)


def test_a_log_cut_in_a_gap_ends_with_its_last_batch() -> None:
    """No file stores the end of a gap. An end inside it would be lost in a crash, and the recovery
    point above the recovered end would look like damage."""
    with SimWorld(0) as world:
        machine = Machine(world, GAPS)
        log = machine.open()
        machine.append([0, 5, 9])
        truncate(log, machine.node.runtime().files, 8)
        assert log.log_end_offset == 6
        machine.node.power_cut()
        assert machine.open(recovery_point=log.recovery_point).log_end_offset == 6


def test_a_log_cut_down_to_a_gap_at_the_start_of_a_segment_ends_there() -> None:
    with SimWorld(0) as world:
        machine = Machine(world, GAPS)
        log = machine.open()
        machine.append([3])
        truncate(log, machine.node.runtime().files, 2)
        assert log.log_end_offset == 0
        machine.node.power_cut()
        assert machine.open(recovery_point=log.recovery_point).log_end_offset == 0


DATA = "/data"
NAMES = ("a-0", "b-0")


def test_concurrent_first_appends_share_the_removal_of_the_clean_marker() -> None:
    """The first append of a second log removed the marker again, which stopped the writer."""

    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c" * 22), node_id=NodeId(1))
        for life in range(2):
            async with runtime.tasks.scope("life") as scope:
                directory = await DataDirectory.open(runtime, scope, DATA)
                logs = [await directory.open_log(n, LogConfig(), topic_id=None) for n in NAMES]
                assert directory.was_clean == (life == 1)
                first = directory.append_nowait(
                    logs[0], batch(), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
                )
                await asyncio.sleep(0.0005)  # virtual: the lane is removing the marker
                second = directory.append_nowait(
                    logs[1], batch(), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
                )
                await asyncio.gather(first, second)
                await directory.close()

    for seed in range(10):
        with SimWorld(seed, faults=Faults(lane_us=(900, 1_000))) as world:
            node = world.node("node")
            node.spawn(main)
            world.run_for(60_000)
            assert node.exit_error is None, node.exit_error


def batch() -> bytes:
    return encode_batch([Record(offset=0, timestamp_ms=0, key=b"k", value=b"v", headers=())])


def test_a_log_whose_first_segment_was_lost_unsynced_does_not_begin_with_the_second() -> None:
    """A power cut loses names in any order: the remaining log seemed to start at offset 4."""
    for seed in range(40):
        with SimWorld(seed) as world:
            machine = Machine(world, LogConfig(segment_bytes=300))
            machine.open()
            machine.node.runtime().files.sync_folder("/")
            machine.append(range(9), is_flushed=False)
            assert len(machine.log.segment_bases) > 1
            machine.node.power_cut()
            assert machine.open().log_start_offset == 0


def test_recovery_replaces_a_torn_partition_metadata_with_a_whole_topic_id() -> None:
    """The first of two writes was lost. The recovery accepted the values and synced the zeros."""
    topic = TopicId(b"t" * 16)
    whole = encode_partition_metadata(topic)
    with SimWorld(0) as world:
        machine = Machine(world, LogConfig())
        machine.open()
        machine.append([0])
        files = machine.node.runtime().files
        path = join("/t-0", PARTITION_METADATA)
        write_file(files, path, bytes(7) + whole[7:])
        recovery = Recovery(
            folder="/t-0",
            config=LogConfig(),
            is_clean=False,
            recovery_point=0,
            log_start_offset=0,
            torn_bytes_max=None,
            wall_ms=0,
        )
        assert recover_log(files, recovery, topic).log_end_offset == 1
        machine.node.power_cut()
        machine.node.start_process()
        assert read_file(machine.node.runtime().files, path) == whole
