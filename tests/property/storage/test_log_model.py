"""The log compared with a list: appends, repeats, rolls, truncations, deleted records, removed
segments, reopens, lookups by offset and time."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.unit.storage import log_truncation

from quorumlog.errors import OffsetOutOfRange, QuorumlogError
from quorumlog.native import whole_batches
from quorumlog.records.batch import iterate_batches
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import AppendOrigin, Log, LogConfig, read
from quorumlog.storage.append import write_fully
from quorumlog.storage.checkpoints import encode_epochs
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.flush import perform_flush
from quorumlog.storage.index import IndexCache, SegmentIndex
from quorumlog.storage.leader_epochs import EpochCache
from quorumlog.storage.log import LogCleanup
from quorumlog.storage.producer_state import AlreadyStored
from quorumlog.storage.producer_state_manager import ProducerReplay, ProducerStateManager
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.segment_files import perform_removal, unlink
from quorumlog.storage.small_files import write_file
from quorumlog.storage.truncation import find_truncation_point

REMEMBERED = 5
"""Batches of a producer that are detected as repeats."""


@dataclass(frozen=True)
class Kept:
    """One record of the model."""

    value: bytes
    timestamp: int
    epoch: int
    batch: int  # number of its batch, which is truncated as a whole
    sequence: int = -1  # of the producer with an id; -1: of another one


def encoded(batch: list[Kept], *, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
    """Encode a batch as a producer, or as a leader."""
    has_id = batch[0].sequence >= 0
    return encode_batch(
        [
            Record(offset=0, timestamp_ms=k.timestamp, key=None, value=k.value, headers=())
            for k in batch
        ],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=1 if has_id else -1,
        producer_epoch=0 if has_id else -1,
        base_sequence=batch[0].sequence,
    )


class LogAgainstList(RuleBasedStateMachine):
    """Each rule does the same to the log and to a list of records."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.files = RealFiles()
        self.records: list[Kept] = []  # including deleted ones
        self.start = 0
        self.is_epoch_known = True  # False: truncated to its start, which has no epoch
        self.epoch = 0
        self.batches = 0
        self.read_up_to = 0  # by the last sequential reader
        self.small_reads = 0
        self.config = LogConfig()
        self.log: Log

    @initialize(
        segment_bytes=st.integers(560, 1_500),
        interval=st.integers(0, 400),
        segment_ms=st.sampled_from([50, 10**9]),
        index_bytes=st.sampled_from([30, 10**6]),
    )
    def begin(self, segment_bytes: int, interval: int, segment_ms: int, index_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_ms=segment_ms,
            index_bytes_max=index_bytes,
        )
        self._open(is_clean=True)

    def teardown(self) -> None:
        event(f"{min(self.small_reads, 1)} small reads")
        try:
            self.log.close("done")
        finally:
            self._folder.cleanup()

    @property
    def folder(self) -> str:
        return str(Path(self._folder.name) / "t-0")

    def _open(self, *, is_clean: bool, recovery_point: int = 0) -> None:
        recovery = Recovery(
            folder=self.folder,
            config=self.config,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            torn_bytes_max=None,
            wall_ms=0,
        )
        self.log = Log(
            FilePool(self.files, open_files_max=2),
            IndexCache(100),
            name="t-0",
            folder=self.folder,
            config=self.config,
            topic_id=None,
            state=recover(self.files, recovery),
        )

    # --- changes -------------------------------------------------------------------------------

    @rule(
        timestamps=st.lists(st.integers(0, 200), min_size=1, max_size=3),
        size=st.sampled_from([1, 60, 150]),
        replicated=st.booleans(),
        has_id=st.booleans(),
    )
    def append(self, timestamps: list[int], size: int, replicated: bool, has_id: bool) -> None:
        base = len(self.records)
        self.batches += 1
        sequence = max((kept.sequence for kept in self.records), default=-1) + 1
        new = [
            Kept(
                b"%d" % (base + i) + b"." * size,
                timestamp,
                self.epoch,
                self.batches,
                sequence + i if has_id else -1,
            )
            for i, timestamp in enumerate(timestamps)
        ]
        content = encoded(
            new,
            base_offset=base if replicated else 7,
            leader_epoch=self.epoch if replicated else -1,
        )
        write = self.log.appender.prepare(
            content,
            leader_epoch=self.epoch,
            wall_ms=0,
            origin=AppendOrigin.REPLICATED if replicated else AppendOrigin.CLIENT,
        )
        assert write is not None
        assert write.base_offset == base
        write_fully(write.file, write.position, write.buffers)
        self.log.appender.complete(write)
        self.records += new
        self.is_epoch_known = True

    @rule(place=st.integers(0, REMEMBERED - 1))
    def repeat(self, place: int) -> None:
        """The last batches of a producer are detected as repeats, independent of later changes of
        the log."""
        numbers = sorted({kept.batch for kept in self.records if kept.sequence >= 0})
        if place >= len(numbers):
            return
        number = numbers[-1 - place]
        batch = [kept for kept in self.records if kept.batch == number]
        base = next(o for o, kept in enumerate(self.records) if kept.batch == number)
        with pytest.raises(AlreadyStored) as found:
            self.log.appender.prepare(
                encoded(batch), leader_epoch=self.epoch, wall_ms=0, origin=AppendOrigin.CLIENT
            )
        assert found.value.base_offset == base

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.flush()
        self.start = data.draw(st.integers(self.start, len(self.records)))
        self.log.note_high_watermark(len(self.records))
        self.log.cleanup.advance_log_start(self.start)

    @rule(data=st.data())
    def remove_segments(self, data: st.DataObject) -> None:
        """Remove segments as retention does."""
        bases = self.log.segment_bases
        if len(bases) < 2:
            return
        self.flush()
        removal = self.log.cleanup.begin_remove(data.draw(st.integers(1, len(bases) - 1)))
        for path in perform_removal(self.files, removal):
            unlink(self.files, path)
        self.log.cleanup.complete_remove(removal)
        self.start = max(self.start, removal.log_start_offset)

    @rule()
    def raise_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        flush = self.log.flusher.begin()
        perform_flush(self.files, flush)
        self.log.flusher.complete(flush)
        assert self.log.flushed_end_offset == len(self.records)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, len(self.records)))
        if offset < len(self.records):
            cut = self.records[offset].batch
            left = [kept for kept in self.records if kept.batch < cut]
            if len(left) < self.start:
                return  # its batch was acknowledged and partly deleted
            self.is_epoch_known = self.is_epoch_known and len(left) > self.start
            self.records = left
        log_truncation.truncate(self.log, self.files, offset)

    @rule(is_clean=st.booleans(), has_checkpoint=st.booleans())
    def reopen(self, is_clean: bool, has_checkpoint: bool) -> None:
        point = 0
        if is_clean:
            flush = self.log.flusher.begin(is_last=True)
            perform_flush(self.files, flush)
            self.log.flusher.complete(flush)
        elif has_checkpoint or self.start:  # a start is stored only with a checkpoint
            self.flush()
            point = self.log.recovery_point
        if self.records and (is_clean or point):
            path = f"{self.folder}/leader-epoch-checkpoint"
            write_file(self.files, path, encode_epochs(self.log.epochs.entries()))
        self.log.close("reopened")
        self._open(is_clean=is_clean, recovery_point=point)

    # --- queries -------------------------------------------------------------------------------

    @precondition(lambda self: self.records)
    @rule(data=st.data(), max_bytes=st.integers(1, 3_000), min_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, min_one: bool) -> None:
        start = data.draw(st.integers(self.start, len(self.records)))
        end = data.draw(st.one_of(st.none(), st.integers(0, len(self.records))))
        found = self.log.read(start, max_bytes=max_bytes, end_offset=end, min_one=min_one)
        batch_ends = self._batch_ends()
        limit = len(self.records) if end is None else end
        fits = start < limit and min(e for e in batch_ends if e > start) <= limit
        if found is None:
            assert not (fits and min_one), f"[{start}, {limit}) has a whole batch"
            return
        content = found.read()
        headers = [header for _, header in iterate_batches(content)]
        found.release()
        if not headers:
            assert not (fits and min_one)
            return
        assert headers[0].base_offset <= start <= headers[0].last_offset
        assert headers[-1].next_offset == found.next_offset <= limit
        assert len(content) <= max_bytes or (min_one and len(headers) == 1)
        for record in decode_all(content):
            assert record.value == self.records[record.offset].value

    @precondition(lambda self: self.records)
    @rule(data=st.data(), sizes=st.lists(st.integers(1, 1_000), min_size=1, max_size=6))
    def read_on(self, data: st.DataObject, sizes: list[int]) -> None:
        """Read sequentially, in small pieces, without a search where possible."""
        offset = data.draw(st.integers(self.start, len(self.records)))
        if self.start <= self.read_up_to <= len(self.records):
            offset = data.draw(st.sampled_from([self.read_up_to, offset]))
        end = data.draw(st.sampled_from([len(self.records), offset + 1]))
        for max_bytes in sizes:
            small = self.log.reads.read_small(offset, max_bytes=max_bytes, end_offset=end)
            if small is not None:
                content, next_offset = small
                assert len(content) <= max_bytes
                self.small_reads += 1
            else:
                found = self.log.read(offset, max_bytes=max_bytes, end_offset=end)
                if found is None or not (content := found.read()):
                    return
                found.release()
                next_offset = found.next_offset
            headers = [header for _, header in iterate_batches(content)]
            assert headers[0].base_offset <= offset <= headers[0].last_offset
            assert headers[-1].next_offset == next_offset <= end
            for record in decode_all(content):
                assert record.value == self.records[record.offset].value
            offset = self.read_up_to = next_offset

    def _batch_ends(self) -> list[int]:
        """Return the offset after each batch."""
        following = [*self.records[1:], None]
        return [
            offset + 1
            for offset, (kept, after) in enumerate(zip(self.records, following, strict=True))
            if after is None or after.batch != kept.batch
        ]

    @rule(offset=st.sampled_from([-1, 1]))
    def read_outside(self, offset: int) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.log.read(self.start - 1 if offset < 0 else len(self.records) + 1, max_bytes=100)

    @rule(timestamp=st.integers(0, 201))
    def look_up_time(self, timestamp: int) -> None:
        found = self.log.time_lookup(timestamp).run(self.files)
        expected = next((o for o, k in self._there() if k.timestamp >= timestamp), None)
        assert (found.offset if found else None) == expected
        if found is not None:
            kept = self.records[found.offset]
            assert (found.timestamp, found.leader_epoch) == (kept.timestamp, kept.epoch)

    @rule()
    def look_up_largest_time(self) -> None:
        found = self.log.time_lookup(None).run(self.files)
        if not self._there():
            assert found is None
            return
        assert found is not None
        largest = max(kept.timestamp for _, kept in self._there())
        first = next(o for o, kept in self._there() if kept.timestamp == largest)
        assert (found.offset, found.timestamp) == (first, largest)

    @rule(epoch=st.integers(0, 6))
    def look_up_epoch(self, epoch: int) -> None:
        found = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        epochs = [(offset, kept.epoch) for offset, kept in self._there()]
        if not epochs and self.records:  # of deleted records
            if not self.is_epoch_known:
                return
            epochs = [(self.start, self.records[-1].epoch)]
        if not epochs or epoch > max(e for _, e in epochs):
            assert found == (-1, -1)
        elif epoch < min(e for _, e in epochs):
            assert found == (epoch, self.start)
        else:
            floor = max(e for _, e in epochs if e <= epoch)
            end = next((o for o, e in epochs if e > epoch), len(self.records))
            assert found == (floor, end)

    def _there(self) -> list[tuple[int, Kept]]:
        """Return (offset, record) of the records that are not deleted."""
        return [(o, kept) for o, kept in enumerate(self.records) if o >= self.start]

    # --- invariants ----------------------------------------------------------------------------

    @invariant()
    def has_the_same_ends(self) -> None:
        if not hasattr(self, "log"):
            return
        self.log.check_invariants()
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == len(self.records)
        assert self.log.flushed_end_offset <= self.log.log_end_offset
        bases = self.log.segment_bases
        assert bases == sorted(set(bases))
        if self.is_epoch_known:
            assert self.log.epochs.latest == (self.records[-1].epoch if self.records else -1)
        for offset, kept in self._there():
            assert self.log.epochs.epoch_at(offset) == kept.epoch


LogAgainstList.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_a_log_does_what_a_list_does = pytest.mark.slow(LogAgainstList.TestCase)


def epochs_outlive_a_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochCache, "truncate_end", lambda cache, end_offset: False)


def producers_are_forgotten_by_a_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerReplay, "note", lambda replay, file, position, header: None)


def producers_are_not_rebuilt_by_a_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStateManager, "complete_truncate", lambda book, cut, end_offset: None)


def a_truncation_leaves_the_batch_that_holds_its_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        log_truncation,
        "find_truncation_point",
        lambda planned: find_truncation_point(replace(planned, offset=planned.offset + 1)),
    )


def an_index_notes_no_times(patch: pytest.MonkeyPatch) -> None:
    def note(index: SegmentIndex, *, max_timestamp: int, **batch: int) -> None:
        honest(index, max_timestamp=0, **batch)

    honest = SegmentIndex.note
    patch.setattr(SegmentIndex, "note", note)


def a_removal_leaves_the_log_where_it_started(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogCleanup, "advance_log_start", lambda cleanup, offset: None)


def a_small_read_ends_behind_its_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(read, "whole_batches", lambda window, end: whole_batches(window, end + 1))


@pytest.mark.long
@pytest.mark.parametrize(
    "plant",
    [
        epochs_outlive_a_truncation,
        producers_are_forgotten_by_a_recovery,
        producers_are_not_rebuilt_by_a_truncation,
        a_truncation_leaves_the_batch_that_holds_its_offset,
        an_index_notes_no_times,
        a_removal_leaves_the_log_where_it_started,
        a_small_read_ends_behind_its_end,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_difference_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    quick = settings(
        LogAgainstList.TestCase.settings,
        max_examples=2_000,  # examples depend on imports; the first failure ends the search
        phases=[Phase.generate],
        derandomize=True,
        report_multiple_bugs=False,
        database=None,
    )
    with pytest.raises((AssertionError, QuorumlogError, AlreadyStored)):
        run_state_machine_as_test(LogAgainstList, settings=quick)
