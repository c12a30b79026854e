"""What crashing the storage at every file operation has found, each as small as it can be."""

from collections.abc import Sequence

from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.simulation import SimWorld
from quorumlog.storage import Log, LogConfig, Origin
from quorumlog.storage.appends import write_fully
from quorumlog.storage.flushes import perform_flush
from quorumlog.storage.index import IndexCache
from quorumlog.storage.pool import FilePool
from quorumlog.storage.recovery import Recovery, recover

GAPS = LogConfig(compacted=True)


class Machine:
    """A log on a simulated disk, without a loop."""

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

    def append(self, offsets: Sequence[int]) -> None:
        """Append a batch of one record at each of these offsets, as a leader placed them."""
        for offset in offsets:
            record = Record(offset=0, timestamp_ms=0, key=b"k", value=b"v", headers=())
            content = encode_batch([record], base_offset=offset, leader_epoch=0)
            write = self.log.prepare(content, leader_epoch=0, wall_ms=0, origin=Origin.REPLICATED)
            assert write is not None
            write_fully(write.file, write.position, write.buffers)
            self.log.complete(write)
        flush = self.log.begin_flush()
        perform_flush(self.node.runtime().files, flush)
        self.log.complete_flush(flush)


def test_a_log_cut_in_a_gap_ends_with_its_last_batch() -> None:
    """Nothing on the disk says where a gap ends: an end inside it would be lost by a crash, and
    the recovery point above what is found would look like damage."""
    with SimWorld(0) as world:
        machine = Machine(world, GAPS)
        log = machine.open()
        machine.append([0, 5, 9])
        log.truncate_to(8)
        assert log.log_end_offset == 6
        machine.node.power_cut()
        assert machine.open(recovery_point=log.recovery_point).log_end_offset == 6


def test_a_log_cut_down_to_a_gap_at_the_start_of_a_segment_ends_there() -> None:
    with SimWorld(0) as world:
        machine = Machine(world, GAPS)
        log = machine.open()
        machine.append([3])
        log.truncate_to(2)
        assert log.log_end_offset == 0
        machine.node.power_cut()
        assert machine.open(recovery_point=log.recovery_point).log_end_offset == 0
