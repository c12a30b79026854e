"""A follower's compacted log compared with a dict: gaps in the offsets, deleted beginnings, rolls
by size, by index and by the span of offsets, truncations into gaps, clean and unclean reopens."""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.unit.storage.log_truncation import truncate

from quorumlog.errors import InvalidRecord
from quorumlog.records.batch import iterate_batches
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.record import Record
from quorumlog.simulation import SimWorld
from quorumlog.storage import AppendOrigin, Log, LogConfig
from quorumlog.storage.append import write_fully
from quorumlog.storage.checkpoints import encode_epochs
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.flush import perform_flush
from quorumlog.storage.index import RELATIVE_OFFSET_MAX, IndexCache
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.small_files import write_file


@dataclass(frozen=True)
class Kept:
    """One record of the model."""

    value: bytes
    timestamp: int
    epoch: int
    batch: int


class GappedLog(RuleBasedStateMachine):
    """Each rule does the same to the log and to a dict of records by offset."""

    def __init__(self) -> None:
        super().__init__()
        self.world = SimWorld(0)
        self.world.__enter__()
        node = self.world.node("node")
        node.start_process()
        self.files = node.runtime().files
        self.records: dict[int, Kept] = {}
        self.end = self.start = self.epoch = self.batches = 0
        self.flushed = 0

    @initialize(
        segment_bytes=st.integers(400, 1_500),
        interval=st.integers(0, 300),
        index_bytes=st.sampled_from([40, 10**6]),
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            index_bytes_max=index_bytes,
            compacted=True,
        )
        self._open(is_clean=True)

    def teardown(self) -> None:
        self.world.__exit__(None, None, None)

    def _open(self, *, is_clean: bool) -> None:
        state = recover(
            self.files,
            Recovery(
                folder="/t-0",
                config=self.config,
                is_clean=is_clean,
                recovery_point=self.flushed,
                log_start_offset=self.start,
                torn_bytes_max=None,
                wall_ms=0,
            ),
        )
        self.log = Log(
            FilePool(self.files, open_files_max=2),
            IndexCache(100),
            name="t-0",
            folder="/t-0",
            config=self.config,
            topic_id=None,
            state=state,
        )
        self.flushed = self.end

    @rule(
        gap=st.sampled_from([0, 0, 1, 5, RELATIVE_OFFSET_MAX - 3, RELATIVE_OFFSET_MAX]),
        timestamps=st.lists(st.integers(0, 200), min_size=1, max_size=3),
        size=st.sampled_from([1, 120]),
    )
    def append(self, gap: int, timestamps: list[int], size: int) -> None:
        base = self.end + gap
        self.batches += 1
        new = [
            Kept(b"%d" % (base + i) + b"." * size, timestamp, self.epoch, self.batches)
            for i, timestamp in enumerate(timestamps)
        ]
        content = encode_batch(
            [
                Record(offset=0, timestamp_ms=k.timestamp, key=b"k", value=k.value, headers=())
                for k in new
            ],
            base_offset=base,
            leader_epoch=self.epoch,
        )
        if gap == RELATIVE_OFFSET_MAX:
            with pytest.raises(InvalidRecord, match="an index spans 2147483647"):
                self.log.appender.prepare(
                    content, leader_epoch=self.epoch, wall_ms=0, origin=AppendOrigin.REPLICATED
                )
            return
        write = self.log.appender.prepare(
            content, leader_epoch=self.epoch, wall_ms=0, origin=AppendOrigin.REPLICATED
        )
        assert write is not None
        write_fully(write.file, write.position, write.buffers)
        self.log.appender.complete(write)
        self.records.update({base + i: kept for i, kept in enumerate(new)})
        self.end = base + len(new)

    @rule()
    def raise_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        flush = self.log.flusher.begin()
        perform_flush(self.files, flush)
        self.log.flusher.complete(flush)
        self._store_epochs()
        self.flushed = self.end

    def _store_epochs(self) -> None:
        """Store the epochs, as a directory does before it stores a recovery point."""
        if self.records:
            epochs = encode_epochs(self.log.epochs.entries())
            write_file(self.files, "/t-0/leader-epoch-checkpoint", epochs)

    @precondition(lambda self: self.records)
    @rule(back=st.integers(1, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.start, self.end - back)
        cut = {self.records[o].batch for o in self.records if o >= offset}
        left = {o: kept for o, kept in self.records.items() if kept.batch not in cut}
        end = max(left) + 1 if left else 0
        if offset >= self.end or end < self.start:
            return
        truncate(self.log, self.files, offset)
        self.records, self.end = left, end
        self.flushed = min(self.flushed, end)

    @rule(part=st.integers(0, 4))
    def delete_records(self, part: int) -> None:
        self.flush()
        offset = self.start + (self.end - self.start) * part // 8
        self.log.note_high_watermark(self.end)
        self.log.cleanup.advance_log_start(offset)
        self.start = max(self.start, offset)

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        if is_clean:
            flush = self.log.flusher.begin(is_last=True)
            perform_flush(self.files, flush)
            self.log.flusher.complete(flush)
            self._store_epochs()
        self.log.close("reopened")
        self._open(is_clean=is_clean)

    @rule(start=st.integers(0, 10_000), max_bytes=st.integers(1, 900))
    def read(self, start: int, max_bytes: int) -> None:
        """Read from any offset; gaps are skipped, and whole batches returned."""
        known = [o for o in self.records if o >= self.start]
        offset = known[start % len(known)] if known else self.start
        found = self.log.read(offset, max_bytes=max_bytes)
        if not known:
            assert found is None
            return
        assert found is not None
        content = found.read()
        found.release()
        headers = [header for _, header in iterate_batches(content)]
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        for record in decode_all(content):
            assert record.value == self.records[record.offset].value

    @rule(timestamp=st.integers(0, 201))
    def look_up_time(self, timestamp: int) -> None:
        found = self.log.time_lookup(timestamp).run(self.files)
        late = (o for o, k in self.records.items() if o >= self.start and k.timestamp >= timestamp)
        assert (found.offset if found else None) == min(late, default=None)

    @invariant()
    def has_the_same_ends(self) -> None:
        if not hasattr(self, "log"):
            return
        self.log.check_invariants()
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        for offset, kept in self.records.items():
            if offset >= self.start:
                assert self.log.epochs.epoch_at(offset) == kept.epoch


SETTINGS = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
GappedLog.TestCase.settings = SETTINGS
test_a_gapped_log_does_what_a_dict_does = pytest.mark.slow(GappedLog.TestCase)


class PlantedDifference(GappedLog):
    """A model that truncates within a batch."""

    @precondition(lambda self: self.records)
    @rule(back=st.integers(1, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.start, self.end - back)
        if offset < self.end:
            truncate(self.log, self.files, offset)
            self.records = {o: kept for o, kept in self.records.items() if o < offset}
            self.end = offset


@pytest.mark.slow
def test_a_planted_difference_is_found() -> None:
    found_at_once = settings(
        SETTINGS, database=None, derandomize=True, phases=[Phase.generate], print_blob=False
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(PlantedDifference, settings=found_at_once)
