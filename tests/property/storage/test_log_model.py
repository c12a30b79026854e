"""The log against a list: appends, rolls, truncations, reopenings, lookups by offset and time."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorumlog.errors import OffsetOutOfRange
from quorumlog.records.batch import iterate_batches
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import Log, LogConfig, Origin
from quorumlog.storage.appends import write_fully
from quorumlog.storage.checkpoints import encode_epochs
from quorumlog.storage.contents import write_file
from quorumlog.storage.flushes import perform_flush
from quorumlog.storage.index import IndexCache
from quorumlog.storage.pool import FilePool
from quorumlog.storage.recovery import Recovery, recover


@dataclass(frozen=True)
class Kept:
    """One record of the model."""

    value: bytes
    timestamp: int
    epoch: int
    batch: int  # number of its batch, which is cut as a whole


class LogAgainstList(RuleBasedStateMachine):
    """Each rule does the same to the log and to a list of records."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.files = RealFiles()
        self.records: list[Kept] = []
        self.epoch = 0
        self.batches = 0
        self.config = LogConfig()
        self.log: Log

    @initialize(
        segment_bytes=st.integers(560, 1_500),
        interval=st.integers(0, 400),
        segment_ms=st.sampled_from([50, 10**9]),
    )
    def begin(self, segment_bytes: int, interval: int, segment_ms: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=interval, segment_ms=segment_ms
        )
        self._open(is_clean=True)

    def teardown(self) -> None:
        self.log.close("done")
        self._folder.cleanup()

    @property
    def folder(self) -> str:
        return str(Path(self._folder.name) / "t-0")

    def _open(self, *, is_clean: bool) -> None:
        recovery = Recovery(
            folder=self.folder,
            config=self.config,
            is_clean=is_clean,
            recovery_point=0,
            log_start_offset=0,
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
    )
    def append(self, timestamps: list[int], size: int, replicated: bool) -> None:
        base = len(self.records)
        self.batches += 1
        new = [
            Kept(b"%d" % (base + i) + b"." * size, timestamp, self.epoch, self.batches)
            for i, timestamp in enumerate(timestamps)
        ]
        content = encode_batch(
            [
                Record(offset=0, timestamp_ms=k.timestamp, key=None, value=k.value, headers=())
                for k in new
            ],
            base_offset=base if replicated else 7,
            leader_epoch=self.epoch if replicated else -1,
        )
        write = self.log.prepare(
            content,
            leader_epoch=self.epoch,
            wall_ms=0,
            origin=Origin.REPLICATED if replicated else Origin.CLIENT,
        )
        assert write is not None
        assert write.base_offset == base
        write_fully(write.file, write.position, write.buffers)
        self.log.complete(write)
        self.records += new

    @rule()
    def raise_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        flush = self.log.begin_flush()
        perform_flush(self.files, flush)
        self.log.complete_flush(flush)
        assert self.log.flushed_end_offset == len(self.records)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.records)))
        self.log.truncate_to(offset)
        if offset < len(self.records):
            cut = self.records[offset].batch
            self.records = [kept for kept in self.records if kept.batch < cut]

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        if is_clean:
            flush = self.log.begin_flush(is_last=True)
            perform_flush(self.files, flush)
            self.log.complete_flush(flush)
            if self.records:
                path = f"{self.folder}/leader-epoch-checkpoint"
                write_file(self.files, path, encode_epochs(self.log.epochs.entries()))
        self.log.close("reopened")
        self._open(is_clean=is_clean)

    # --- questions -----------------------------------------------------------------------------

    @precondition(lambda self: self.records)
    @rule(data=st.data(), max_bytes=st.integers(1, 3_000), min_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, min_one: bool) -> None:
        start = data.draw(st.integers(0, len(self.records)))
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

    def _batch_ends(self) -> list[int]:
        """Return the offset behind each batch."""
        following = [*self.records[1:], None]
        return [
            offset + 1
            for offset, (kept, after) in enumerate(zip(self.records, following, strict=True))
            if after is None or after.batch != kept.batch
        ]

    @rule(offset=st.sampled_from([-1, 1]))
    def read_outside(self, offset: int) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.log.read(-1 if offset < 0 else len(self.records) + 1, max_bytes=100)

    @rule(timestamp=st.integers(0, 201))
    def look_up_time(self, timestamp: int) -> None:
        found = self.log.offset_for_time(timestamp)
        expected = next((o for o, k in enumerate(self.records) if k.timestamp >= timestamp), None)
        assert (found.offset if found else None) == expected
        if found is not None:
            kept = self.records[found.offset]
            assert (found.timestamp, found.leader_epoch) == (kept.timestamp, kept.epoch)

    @rule()
    def look_up_largest_time(self) -> None:
        found = self.log.time_lookup(None).run(self.files)
        if not self.records:
            assert found is None
            return
        assert found is not None
        largest = max(kept.timestamp for kept in self.records)
        first = next(o for o, kept in enumerate(self.records) if kept.timestamp == largest)
        assert (found.offset, found.timestamp) == (first, largest)

    @rule(epoch=st.integers(0, 6))
    def look_up_epoch(self, epoch: int) -> None:
        epochs = [kept.epoch for kept in self.records]
        if not epochs or epoch > max(epochs):
            assert self.log.end_offset_for(epoch) == (-1, -1)
        elif epoch < min(epochs):
            assert self.log.end_offset_for(epoch) == (epoch, 0)
        else:
            floor = max(e for e in epochs if e <= epoch)
            end = next((o for o, e in enumerate(epochs) if e > epoch), len(epochs))
            assert self.log.end_offset_for(epoch) == (floor, end)

    # --- always --------------------------------------------------------------------------------

    @invariant()
    def has_the_same_ends(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_start_offset == 0
        assert self.log.log_end_offset == len(self.records)
        assert self.log.flushed_end_offset <= self.log.log_end_offset
        bases = self.log.segment_bases
        assert bases == sorted(set(bases))
        assert self.log.latest_epoch == (self.records[-1].epoch if self.records else -1)
        for offset, kept in enumerate(self.records):
            assert self.log.epoch_at(offset) == kept.epoch


LogAgainstList.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_a_log_does_what_a_list_does = pytest.mark.slow(LogAgainstList.TestCase)
