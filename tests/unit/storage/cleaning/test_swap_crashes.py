"""Recovery after a crash in a swap or a segment deletion finds the state before or after it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.storage.log_truncation import truncate

from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.record import Record
from quorumlog.simulation import SimWorld
from quorumlog.simulation.crash_states import DiskOperation, Recording, crash_states
from quorumlog.simulation.disk import Disk
from quorumlog.storage import AppendOrigin, Log, LogConfig
from quorumlog.storage.append import write_fully
from quorumlog.storage.cleaner import CleaningPlan, CleaningRun
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.flush import perform_flush
from quorumlog.storage.index import IndexCache
from quorumlog.storage.layout import segment_file
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.segment_files import (
    CleanedGroup,
    SourceSegment,
    perform_removal,
    perform_swap,
)
from quorumlog.storage.small_files import write_file

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=60, compacted=True)
RECORDS = 14

Content = tuple[tuple[int, bytes | None, bytes | None], ...]


@dataclass
class Machine:
    """A log on a simulated disk, without an event loop."""

    world: SimWorld
    log: Log

    @classmethod
    def start(cls, world: SimWorld, *, recovery_point: int, name: str = "n") -> "Machine":
        node = world.node(name)
        node.start_process()
        files = node.runtime().files
        files.make_folder("/t-0")
        files.sync_folder("/")
        state = recover(
            files,
            Recovery(
                folder="/t-0",
                config=CONFIG,
                is_clean=False,
                recovery_point=recovery_point,
                log_start_offset=0,
                torn_bytes_max=None,
                wall_ms=0,
            ),
        )
        log = Log(
            FilePool(files, open_files_max=9),
            IndexCache(10_000),
            name="t-0",
            folder="/t-0",
            config=CONFIG,
            topic_id=None,
            state=state,
        )
        return cls(world, log)

    @property
    def node(self) -> Any:
        return self.world.node("n")

    @property
    def files(self) -> Any:
        return self.node.runtime().files

    def fill(self) -> None:
        """Append records of two keys, one to a batch, and make them durable."""
        for number in range(RECORDS):
            record = Record(0, 1_000 + number, b"k%d" % (number % 2), b"v%d" % number, ())
            write = self.log.appender.prepare(
                encode_batch([record]), leader_epoch=0, wall_ms=0, origin=AppendOrigin.CLIENT
            )
            assert write is not None
            write_fully(write.file, write.position, write.buffers)
            self.log.appender.complete(write)
        flush = self.log.flusher.begin()
        perform_flush(self.files, flush)
        self.log.flusher.complete(flush)
        self.log.note_high_watermark(self.log.log_end_offset)

    def content(self) -> Content:
        """Read the whole log."""
        found: list[tuple[int, bytes | None, bytes | None]] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            taken = self.log.read(offset, max_bytes=1_000)
            if taken is None:
                break
            found += [(r.offset, r.key, r.value) for r in decode_all(taken.read())]
            offset = taken.next_offset
            taken.release()
        return tuple(found)

    def groups(self, *, segment_bytes: int) -> list[CleanedGroup]:
        """Clean all inactive segments."""
        sources = tuple(
            SourceSegment(
                path=f"/t-0/{segment_file(each.base_offset, '.log')}",
                base_offset=each.base_offset,
                end_offset=each.end_offset,
                size=each.size,
            )
            for each in list(self.log.cleanup.ages())[:-1]
        )
        cleaning = CleaningRun(
            CleaningPlan(
                segments=sources,
                first_dirty_offset=0,
                end_offset=sources[-1].end_offset,
                wall_ms=0,
                seed=b"s" * 16,
                map_bytes=1 << 16,
                segment_bytes=segment_bytes,
                index_bytes_max=1 << 16,
                index_interval_bytes=60,
                delete_retention_ms=0,
                inflate_bytes_max=1 << 20,
            )
        )
        while not cleaning.finished:
            cleaning.step(self.files, budget_bytes=1 << 20)
        return cleaning.groups

    def swap(self, group: CleanedGroup) -> None:
        swap = self.log.cleanup.begin_replace(group)
        assert swap is not None
        done = perform_swap(self.files, swap)
        assert isinstance(done, list), done
        self.log.cleanup.complete_replace(swap)


def recover_machine(
    disk: Disk, check: Callable[[Machine], None], *, recorded: bool
) -> Sequence[DiskOperation]:
    """Recover the log as after an unclean stop. Return the disk operations of the recovery."""
    with SimWorld(0) as world:
        node = world.node("n")
        node.device.disk = disk
        recording = Recording.attach(node.device)
        machine = Machine.start(world, recovery_point=RECORDS)
        check(machine)
        return recording.operations if recorded else ()


def crash_everywhere(
    world: SimWorld,
    operations: Sequence[DiskOperation],
    check: Callable[[Machine, DiskOperation], None],
    *,
    deeper: int,
) -> int:
    """Recover from every state that a crash at an operation may leave. Return the recoveries.

    Every `deeper`-th recovery is also crashed at its own operations.
    """
    looks = 0
    for operation in operations:
        entropy = world.entropy.stream(f"{operation.number}")

        def at(machine: Machine, operation: DiskOperation = operation) -> None:
            check(machine, operation)

        for wreck in crash_states(operation.disk, entropy, draws=2, choices_max=8):
            looks += 1
            try:
                recovery = recover_machine(wreck.disk, at, recorded=looks % deeper == 0)
                for again in recovery[1:]:
                    for worse in crash_states(again.disk, entropy, draws=1, choices_max=2):
                        recover_machine(worse.disk, at, recorded=False)
                        looks += 1
            except Exception as error:
                error.add_note(f"{operation}; {wreck.name}")
                raise
    return looks


def leftover_files(machine: Machine) -> list[str]:
    endings = (".swap", ".cleaned", ".deleted", ".tmp")
    return [name for name in machine.files.names("/t-0") if name.endswith(endings)]


@pytest.mark.long
@pytest.mark.parametrize("segment_bytes", [10_000, 300], ids=["into-one", "groups"])
def test_crash_during_a_swap_leaves_the_old_or_the_new_segments(segment_bytes: int) -> None:
    with SimWorld(1) as world:
        machine = Machine.start(world, recovery_point=0)
        machine.fill()
        groups = machine.groups(segment_bytes=segment_bytes)
        assert any(len(group.sources) > 1 for group in groups)
        contents = [machine.content()]
        recording = Recording.attach(machine.node.device)
        ends = []
        for group in groups:
            machine.swap(group)
            contents.append(machine.content())
            ends.append(len(recording.operations))
        assert len(set(contents)) == len(contents), "every swap changes the content"
        assert len(contents[-1]) < RECORDS / 2
        assert leftover_files(machine), "the old files are unlinked later"
        places = {op.number: at for at, op in enumerate(recording.operations)}

        def check(found: Machine, operation: DiskOperation) -> None:
            before = sum(end <= places[operation.number] for end in ends)
            assert found.content() in contents[before : before + 2]
            assert found.log.log_end_offset == RECORDS
            assert leftover_files(found) == []

        assert crash_everywhere(world, recording.operations, check, deeper=11) > 100


@pytest.mark.slow
def test_crash_during_a_deletion_removes_whole_segments_from_the_start() -> None:
    with SimWorld(2) as world:
        machine = Machine.start(world, recovery_point=0)
        machine.fill()
        bases, before = machine.log.segment_bases, machine.content()
        removal = machine.log.cleanup.begin_remove(3)
        recording = Recording.attach(machine.node.device)
        perform_removal(machine.files, removal)

        def check(found: Machine, _: DiskOperation) -> None:
            start = found.log.log_start_offset
            assert start in bases[:4]
            assert found.log.segment_bases == [base for base in bases if base >= start]
            assert found.content() == tuple(row for row in before if row[0] >= start)
            assert leftover_files(found) == []

        assert crash_everywhere(world, recording.operations, check, deeper=9) > 60
        machine.log.cleanup.complete_remove(removal)
        assert machine.log.segment_bases == bases[3:]
        assert machine.content() == tuple(row for row in before if row[0] >= bases[3])


def test_emptied_idle_log_keeps_its_end_offset() -> None:
    for power in (False, True):
        with SimWorld(3) as world:
            machine = Machine.start(world, recovery_point=0)
            machine.fill()
            assert machine.log.appender.roll(wall_ms=5)
            flush = machine.log.flusher.begin()
            perform_flush(machine.files, flush)
            machine.log.flusher.complete(flush)
            removal = machine.log.cleanup.begin_remove(len(machine.log.segment_bases) - 1)
            perform_removal(machine.files, removal)
            machine.log.cleanup.complete_remove(removal)
            assert not machine.log.appender.roll(wall_ms=6), "the log is empty"
            if power:
                machine.node.power_cut()
            else:
                machine.node.crash()
            log = Machine.start(world, recovery_point=RECORDS).log
            assert (log.log_start_offset, log.log_end_offset) == (RECORDS, RECORDS)


def test_rejected_swap_leaves_the_log_unchanged() -> None:
    """Any rename before the commit point may fail with ENOSPC."""
    for failing in range(4):
        with SimWorld(4) as world:
            machine = Machine.start(world, recovery_point=0)
            machine.fill()
            before, bases = machine.content(), machine.log.segment_bases
            (group,) = machine.groups(segment_bytes=10_000)
            swap = machine.log.cleanup.begin_replace(group)
            assert swap is not None
            suffix = (".timeindex", ".txnindex", ".index", ".log")[failing]
            machine.node.device.fail("rename", 28, path_part=f"{suffix}.cleaned")
            refused = perform_swap(machine.files, swap)
            assert isinstance(refused, OSError)
            machine.log.cleanup.complete_replace(swap, is_done=False)
            assert leftover_files(machine) == []
            assert (machine.content(), machine.log.segment_bases) == (before, bases)
            machine.swap(machine.groups(segment_bytes=10_000)[0])
            assert len(machine.content()) < len(before)


def test_round_over_truncated_segments_is_not_swapped_in() -> None:
    with SimWorld(5) as world:
        machine = Machine.start(world, recovery_point=0)
        machine.fill()
        (group,) = machine.groups(segment_bytes=10_000)
        truncate(machine.log, machine.files, machine.log.segment_bases[2])
        assert machine.log.cleanup.begin_replace(group) is None
        assert not machine.log.is_changing


def test_leased_reader_continues_across_a_swap_and_a_deletion() -> None:
    """The index must be read from its file, which a swap has replaced by another one."""
    with SimWorld(6) as world:
        machine = Machine.start(world, recovery_point=0)
        machine.fill()
        machine.node.crash()
        machine = Machine.start(world, recovery_point=RECORDS)  # no index is in memory
        old = machine.log.read(0, max_bytes=1_000)
        behind = machine.log.read(machine.log.segment_bases[1], max_bytes=1_000)
        assert old is not None
        assert behind is not None
        expected = [offset for offset, *_ in machine.content()]
        machine.swap(machine.groups(segment_bytes=10_000)[0])
        for taken in (old, behind):
            offsets = [record.offset for record in decode_all(taken.read())]
            assert offsets == expected[offsets[0] :][: len(offsets)]
            assert taken.cacheable_index is None
            taken.release()


def test_unfinished_swap_of_kafka_is_completed() -> None:
    """Its file names do not give the end of the replaced segments; the batches do."""
    with SimWorld(7) as world:
        machine = Machine.start(world, recovery_point=0)
        machine.fill()
        bases = machine.log.segment_bases
        (group,) = machine.groups(segment_bytes=10_000)
        stem = f"/t-0/{segment_file(0, '')}"
        for suffix in (".log", ".index", ".timeindex"):
            machine.files.rename(f"{stem}{suffix}.cleaned", f"{stem}{suffix}.swap")
        write_file(machine.files, f"{stem}.txnindex.swap", b"")
        machine.files.sync_folder("/t-0")
        machine.node.crash()
        found = Machine.start(world, recovery_point=RECORDS)
        assert found.log.segment_bases[0] == 0
        assert found.log.segment_bases[-1] == bases[-1]
        assert found.log.size_bytes < machine.log.size_bytes
        assert len(found.content()) < RECORDS / 2
        assert leftover_files(found) == []
        assert group.size <= found.log.size_bytes
