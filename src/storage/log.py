"""The partition log: offsets, epochs and positions of the batches in its segments.

`Log` is the state over the files port, owned by the loop thread, and the reads. Its parts make the
changes: `LogAppender`, `LogFlusher`, `LogTruncator`, and `LogCleanup` for retention and compaction.
Every change of the disk has two halves: the first decides and reserves (`prepare`, `begin`), the
second ends it (`complete`, `failed`, ...). Between them a shell performs the blocking part, a plain
function of handles, buffers and numbers. Readers see completed data only.

Offsets that only grow, except by truncation:

    log_start_offset <= recovery_point <= flushed_end_offset <= log_end_offset
    log_start_offset <= high_watermark <= log_end_offset

This module does not depend on leadership, commitment or scheduling.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import DiskFailed, DiskFull, MessageTooLarge, OffsetOutOfRange, QuorumlogError
from ..ids import TopicId
from ..native import RunTail
from ..records.batch import NO_PRODUCER
from ..records.record import INT64_MAX, INT64_MIN
from .append import (
    AppendOrigin,
    LogWrite,
    WriteFailed,
    accept_append,
    check_contiguous,
    check_epoch,
    extent,
    headers_of,
    place_batches,
    stamp_batches,
)
from .checkpoints import encode_partition_metadata
from .config import LogConfig
from .file_pool import OUT_OF_DESCRIPTORS, FilePool
from .flush import Flush, Unflushed
from .index import RELATIVE_OFFSET_MAX, TIME_ENTRY_SIZE, IndexCache, SegmentIndex
from .producer_state import Changes, ProducerEntry
from .producer_state_manager import ProducerStateManager
from .read import ReadPlanner, SegmentRange
from .recovery import LogState
from .segment import FileNames, Segment, SegmentAge, SegmentOutline, index_step
from .segment_files import CleanedGroup, Removal, Swap
from .segments import Segments, is_roll_due
from .small_files import OUT_OF_SPACE
from .time_lookup import TimeLookup
from .transaction_index import AbortedTransaction
from .truncation import Truncation, TruncationPoint

if TYPE_CHECKING:
    from ..runtime.ports import Buffer, File


class Log:
    """One log. `failure` is set once its disk failed: it then accepts no more appends."""

    def __init__(
        self,
        pool: FilePool,
        indexes: IndexCache,
        *,
        name: str,
        folder: str,
        config: LogConfig,
        topic_id: TopicId | None,
        state: LogState,
    ) -> None:
        self.name = name
        self.folder = folder
        self.topic_id = topic_id
        self.config = config
        self.unsynced_bytes_max = state.unsynced_bytes_max  # the config respects it
        self.epochs = state.epochs
        self.producers = state.producers or ProducerStateManager.empty(folder)
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset  # completed appends
        self.flushed_end_offset = state.log_end_offset  # durable appends
        self.high_watermark = state.log_start_offset  # committed, as reported to this node
        self.gaps_below = state.gaps_below  # as stored durably in the folder
        # now or earlier: offsets may have gaps
        self.was_compacted = config.compacted or state.gaps_below is not None
        self.failure: DiskFailed | None = None
        self.is_closed = False  # the reason of `failure`, rather than the disk
        unflushed = Unflushed()
        segments = Segments(pool, indexes, unflushed, folder=folder, found=state.segments)
        reads = ReadPlanner(pool, segments)
        self._segments = segments
        self._unflushed = unflushed
        self.reads = reads
        self.appender = LogAppender(self, pool, segments, unflushed)
        self.flusher = LogFlusher(self, segments, unflushed)
        self.truncator = LogTruncator(self, segments, unflushed, reads)
        self.cleanup = LogCleanup(self, pool, indexes, segments, reads)

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is fsynced: a recovery need not read it, and finds no
        torn batch there."""
        return self.flushed_end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of completed batches."""
        return self._segments.size_bytes

    @property
    def segment_bases(self) -> list[int]:
        """Base offsets of the segments, ascending."""
        return list(self._segments.bases)

    @property
    def segment_version(self) -> int:
        """Number of changes of the file contents behind the segments' names, counted at the
        start and at the end of each."""
        return self.reads.version

    @property
    def is_changing(self) -> bool:
        """True during a change of the file contents behind the segments' names."""
        return self.reads.is_changing

    def note_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to `offset`; a lower one is ignored."""
        assert offset <= self.log_end_offset, f"{offset} beyond the end {self.log_end_offset}"
        if offset > self.high_watermark:
            self.high_watermark = offset
        self.producers.states.undecided.replicated_to(offset)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which everything is committed and no transaction is undecided
        (KIP-98)."""
        stable = self.producers.states.undecided.last_stable_offset(self.high_watermark)
        return max(stable, self.log_start_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [start_offset, end_offset)."""
        return self.producers.transactions.aborted_in(start_offset, end_offset)

    # --- read ----------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        *,
        max_bytes: int,
        end_offset: int | None = None,
        min_one: bool = True,
    ) -> SegmentRange | None:
        """Return whole batches of [start_offset, end_offset), starting with the batch of
        `start_offset`; None if there are none, or their segment is being truncated.

        The range ends with its segment and has at most `max_bytes`, but always the first batch if
        `min_one`. Raises OffsetOutOfRange, CorruptionError, DiskFailed. The caller releases the
        range.
        """
        log_end = self.log_end_offset
        if not self.log_start_offset <= start_offset <= log_end:
            raise OffsetOutOfRange(
                f"offset {start_offset} is outside [{self.log_start_offset}, {log_end}]"
            )
        return self.reads.plan(
            start_offset,
            end_offset=log_end if end_offset is None or end_offset > log_end else end_offset,
            log_end_offset=log_end,
            interval_bytes=self.config.index_interval_bytes,
            max_bytes=max_bytes,
            min_one=min_one,
        )

    def time_lookup(self, timestamp_ms: int | None, *, end_offset: int | None = None) -> TimeLookup:
        """Plan a lookup by time below `end_offset`; run it in the read lane.

        None looks up the first record with the largest timestamp.
        """
        timed = [self.reads.lookup_input(segment, timestamp_ms) for segment in self._segments]
        return TimeLookup(
            timestamp=timestamp_ms,
            start_offset=self.log_start_offset,
            end_offset=self.log_end_offset if end_offset is None else end_offset,
            interval_bytes=self.config.index_interval_bytes,
            segments=tuple(timed),
        )

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self, *, is_complete: bool = True) -> None:
        """Raise AssertionError unless these hold, by number:

        1. Log start <= high watermark <= log end.
        2. Log start <= recovery point <= log end.
        3. A log without segments is empty. Otherwise the first segment starts at or below the log
           start, and the active one at or below the log end.
        4. The epochs; see `EpochCache.check_invariants`.
        5. The outstanding writes; see `LogAppender.check_invariants`.

        `is_complete`: also 6 to 8 of `Segments` and 9 to 15 of `ProducerStateManager`. Cost
        O(epochs) without them, otherwise O(segments + producers).
        """
        start, end = self.log_start_offset, self.log_end_offset
        # 1. Log start <= high watermark <= log end.
        assert start <= self.high_watermark <= end, (
            f"{self.name}: invariant 1: log start {start}, high watermark {self.high_watermark},"
            f" log end {end}"
        )
        # 2. Log start <= recovery point <= log end.
        assert start <= self.flushed_end_offset <= end, (
            f"{self.name}: invariant 2: log start {start}, recovery point"
            f" {self.flushed_end_offset}, log end {end}"
        )
        # 3. The segments hold the log; without segments it is empty.
        bases = self._segments.bases
        is_held = bases[0] <= start and bases[-1] <= end if bases else start == end
        assert is_held, (
            f"{self.name}: invariant 3: log start {start}, log end {end}, {len(bases)} segments"
            f" from {bases[:1]} to {bases[-1:]}"
        )
        self.epochs.check_invariants(start, end)
        self.appender.check_invariants()
        if is_complete:
            self._segments.check_invariants(end)
            self.producers.check_invariants(end, self.appender.reserved_changes())

    # --- failure and close ---------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise DiskFailed if the log failed or was closed."""
        if self.failure is not None:
            raise DiskFailed(self.failure.message)

    def give_up(self, error: OSError) -> DiskFailed:
        """Fail the log: its disk failed in a way that cannot be undone, and it accepts no more
        appends."""
        if self.failure is None or self.is_closed:
            reason = f"{error.strerror or error}; the log accepts no more appends"
            self.failure, self.is_closed = DiskFailed(f"{self.folder}: {reason}"), False
        return DiskFailed(self.failure.message)

    def open_error(self, error: OSError) -> DiskFull | DiskFailed:
        """Return the error for a file that could not be opened or created; nothing was written."""
        if error.errno in OUT_OF_SPACE:
            return _disk_full(self.folder)
        if error.errno in OUT_OF_DESCRIPTORS:
            return DiskFailed(f"{self.folder}: {error.strerror}; nothing was stored")
        return self.give_up(error)

    def close(self, reason: str) -> None:
        """Close the log's files; it accepts no more appends. Unflushed data is not made durable."""
        assert self.appender.segment is None, f"{self.name}: closed during a write"
        if self.failure is None:
            self.failure, self.is_closed = DiskFailed(f"{self.folder}: {reason}"), True
        self._segments.close()
        self._unflushed.abandon()


class LogAppender:
    """The appends of one log; `prepare` reserves the offsets of a write, several at a time."""

    def __init__(self, log: Log, pool: FilePool, segments: Segments, unflushed: Unflushed) -> None:
        self._log = log
        self._pool = pool
        self._segments = segments
        self._unflushed = unflushed
        self._outstanding: deque[LogWrite] = deque()  # prepared, oldest first; all in one segment
        # of the runs, made for one segment and config
        self._tail: RunTail | None = None
        self._tail_segment: Segment | None = None
        self._tail_config: LogConfig | None = None
        self._run_wall_ms = 0  # of the newest run

    @property
    def segment(self) -> Segment | None:
        """The segment of the outstanding writes, None without any."""
        return self._outstanding[-1].segment if self._outstanding else None

    def prepare(
        self,
        batches: "Buffer",
        *,
        leader_epoch: int,
        wall_ms: int,
        origin: AppendOrigin,
        is_validated: bool = False,
    ) -> LogWrite | None:
        """Check whole batches and reserve their offsets and position in the log.

        `complete` or `failed` ends the append. CLIENT and INTERNAL batches get the next offsets
        and `leader_epoch`; REPLICATED ones keep theirs, which must continue the log.
        `is_validated`: a lane has already checked the records. Return None if a new segment is due
        while writes are outstanding, or if the batch retries an outstanding write: end those first,
        then call again. Raises AlreadyStored for a retry of a stored batch, and the errors of
        `validate_batch`, InvalidRecord, MessageTooLarge, DiskFull, DiskFailed; nothing is
        reserved then.
        """
        log = self._log
        log.check_usable()
        if is_validated:
            headers = headers_of(batches)
        else:
            batches, headers = accept_append(batches, log.config, origin=origin, wall_ms=wall_ms)
        outstanding = self._outstanding
        next_offset = outstanding[-1].next_offset if outstanding else log.log_end_offset
        offsets, timestamp = extent(headers)
        end_offset = next_offset + offsets
        if origin is AppendOrigin.REPLICATED:
            check_contiguous(
                headers,
                next_offset,
                latest_epoch=self._outstanding_epoch(),
                may_have_gaps=log.config.compacted or log.was_compacted,
            )
            end_offset = headers[-1][1].next_offset
        else:
            self._check_new(len(batches), leader_epoch)
        changes: Changes | None = ()
        if len(headers) > 1 or headers[0][1].producer_id != NO_PRODUCER:
            changes = log.producers.states.plan(
                batches, headers, next_offset=next_offset, origin=origin, wall_ms=wall_ms
            )
            if changes is None:
                return None
        segment = self._room(len(batches), end_offset, timestamp, wall_ms)
        if segment is None:
            # sometimes: a roll waits for outstanding writes
            return None
        position = self._reserved_size(segment)
        if origin is AppendOrigin.REPLICATED:
            buffers: list[Buffer] = [batches]
            placed = place_batches(headers, position)
        else:
            buffers, placed = stamp_batches(batches, headers, position, next_offset, leader_epoch)
        write = LogWrite(
            segment,
            self._file_to_write(segment),
            position=position,
            size=len(batches),
            buffers=buffers,
            batches=placed,
        )
        outstanding.append(write)
        if changes:
            write.producers = changes
            log.producers.states.reserve(changes)
        return write

    def begin_run(
        self, owner: object, leader_epoch: int, bytes_max: int, wall_ms: int
    ) -> RunTail | None:
        """Return the tail of the log for a run of usual batches, at most `bytes_max` bytes; None
        if its next batch must be prepared: the first one of a segment, of an epoch or after an
        outstanding write, one that must be converted, or that begins a new segment by its time.

        Nothing is reserved: `complete_run` or `write_error` must follow before the log changes.
        """
        log, config, active = self._log, self._log.config, self._segments.newest
        if self._outstanding or active is None or not active.size:
            return None
        if self._tail_config is not config and config.converts:
            return None
        if log.failure is not None or log.epochs.latest != leader_epoch:
            return None
        timestamp_max = INT64_MAX
        if active.first_timestamp >= 0:
            timestamp_max = min(timestamp_max, active.first_timestamp + config.segment_ms)
        elif wall_ms - active.created_ms > config.segment_ms:
            return None
        index, tail = active.index, self._tail
        assert index is not None, f"{active.path} is active"
        if active.file is None:
            try:
                self._file_to_write(active)
            except QuorumlogError:
                return None
        if self._tail_segment is not active or self._tail_config is not config or tail is None:
            tail = self._new_tail(owner, active, config)
        self._run_wall_ms = wall_ms
        tail.begin(
            log.log_end_offset,
            active.size,
            leader_epoch,
            log.log_start_offset,
            bytes_max,
            max(INT64_MIN, wall_ms - config.timestamp_before_max_ms),
            min(INT64_MAX, wall_ms + config.timestamp_after_max_ms),
            timestamp_max,
            (config.index_bytes_max - index.size) // TIME_ENTRY_SIZE,
            index.bytes_since_entry,
            index.max_timestamp,
            index.max_timestamp_offset,
            index.last_time,
        )
        return tail

    @property
    def run_file(self) -> "File":
        """The file for the write of a run."""
        file = self._segments.active.file
        assert file is not None, f"{self._log.name}: no run has begun"
        return file

    def complete_run(self, tail: RunTail) -> None:
        """Make a run visible to readers after it reached the file."""
        log, active = self._log, self._segments.active
        assert (tail.base_offset, tail.position) == (log.log_end_offset, active.size), (
            f"{log.name}: a run from {tail.base_offset} at {tail.position}, the log ends with"
            f" {log.log_end_offset} at {active.size}"
        )
        assert active.index is not None, f"{active.path} is active"
        active.index.extend(tail)
        self._segments.add_bytes(active, tail.size)
        log.log_end_offset = tail.next_offset
        if tail.has_producers:
            log.producers.states.complete_run(tail)

    def complete(self, write: LogWrite) -> None:
        """Make a write visible to readers after it reached the file. Oldest outstanding write
        first."""
        oldest = self._outstanding.popleft()
        assert oldest is write, f"{write.base_offset} completed before {oldest.base_offset}"
        log, segment = self._log, write.segment
        assert write.position == segment.size, f"write at {write.position} of {segment.size}"
        index = segment.index
        assert index is not None, f"{segment.path} is not active"
        if segment.size == 0:
            segment.first_timestamp = write.batches[0].max_timestamp
        for batch in write.batches:
            index.note(
                position=batch.position,
                size=batch.size,
                last_offset=batch.last_offset,
                max_timestamp=batch.max_timestamp,
            )
            if batch.leader_epoch > log.epochs.latest:
                log.epochs.assign(batch.leader_epoch, batch.base_offset)
        self._segments.add_bytes(segment, write.size)
        log.log_end_offset = write.next_offset
        if write.producers:
            log.producers.complete(write.producers, segment.base_offset)

    def failed(self, write: LogWrite, failure: WriteFailed) -> DiskFull | DiskFailed:
        """Release the reservation of a failed write; return the error for the caller.

        Newest outstanding write first.
        """
        newest = self._outstanding.pop()
        log = self._log
        assert newest is write, f"{write.base_offset} failed before {newest.base_offset}"
        if write.producers:
            log.producers.states.failed(write.producers)
        return self.write_error(failure)

    def write_error(self, failure: WriteFailed) -> DiskFull | DiskFailed:
        """Return the error of a failed write: a full disk leaves the log usable if the partial
        write was undone; every other error is final."""
        log = self._log
        if failure.is_undone and failure.error.errno in OUT_OF_SPACE and log.failure is None:
            # sometimes: a write on a full disk is undone
            return _disk_full(log.folder)
        return log.give_up(failure.error)

    def reserved_changes(self) -> list[Changes]:
        """Return the changes of the producer states by the outstanding writes, oldest first."""
        return [write.producers for write in self._outstanding]

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds; cost O(outstanding writes).

        5. Outstanding writes follow each other from the end of the active segment and of the log.
        """
        if not self._outstanding:
            return
        log, active = self._log, self._segments.active
        offset, position = log.log_end_offset, active.size
        for write in self._outstanding:
            # 5. Outstanding writes follow each other. Replicated ones may leave a gap of offsets.
            is_next = write.segment is active and write.position == position
            is_next = is_next and write.base_offset >= offset
            assert is_next, (
                f"{log.name}: invariant 5: a write at {write.position} of {write.segment.path} with"
                f" offset {write.base_offset}; {position} of {active.path} with {offset} is next"
            )
            offset, position = write.next_offset, position + write.size

    def roll(self, wall_ms: int) -> bool:
        """Start a new segment, unless the active one is empty; return True if one was started.
        Raises DiskFull."""
        log = self._log
        log.check_usable()
        assert not self._outstanding, f"{log.name}: rolled during a write"
        if not self._segments or self._segments.active.size == 0:
            return False
        try:
            self._roll(wall_ms)
        except OSError as error:
            raise log.open_error(error) from error
        return True

    # --- inside --------------------------------------------------------------------------------

    def _new_tail(self, owner: object, active: Segment, config: LogConfig) -> RunTail:
        self._tail_segment, self._tail_config = active, config
        self._tail = RunTail(
            owner,
            self._entry_of,
            batch_bytes_max=config.message_bytes_max,
            keys_required=config.compacted,
            takes_compressed=config.keeps_compressed,
            position_max=config.segment_bytes,
            offset_max=active.base_offset + RELATIVE_OFFSET_MAX,
            index_base=active.base_offset,
            interval_bytes=config.index_interval_bytes,
        )
        return self._tail

    def _entry_of(self, producer_id: int) -> ProducerEntry | None:
        """Return the state of a producer at the time of the run."""
        states = self._log.producers.states
        states.begin_run(self._run_wall_ms)
        return states.entry(producer_id)

    def _check_new(self, size: int, leader_epoch: int) -> None:
        """Check the epoch and the size of batches stamped by this node."""
        log = self._log
        check_epoch(log.folder, leader_epoch, latest=log.epochs.latest)
        if size > log.config.segment_bytes:
            raise MessageTooLarge(
                f"the batches have {size} bytes; segment.bytes is {log.config.segment_bytes}"
            )

    def _outstanding_epoch(self) -> int:
        latest = self._log.epochs.latest
        if self._outstanding:
            return max(latest, self._outstanding[-1].batches[-1].leader_epoch)
        return latest

    def _file_to_write(self, segment: Segment) -> "File":
        try:
            return self._unflushed.hold(segment, self._pool)
        except OSError as error:
            raise self._log.open_error(error) from error

    def _reserved_size(self, active: Segment) -> int:
        """Return the size of the active segment after all outstanding writes."""
        if not self._outstanding:
            return active.size
        newest = self._outstanding[-1]
        return newest.position + newest.size

    def _room(self, size: int, end_offset: int, timestamp: int, wall_ms: int) -> Segment | None:
        """Return the segment to append to, after a roll if due; None if outstanding writes must end
        first."""
        log = self._log
        try:
            if not self._segments:
                self._create(wall_ms)
            active = self._segments.active
            used = self._reserved_size(active)
            is_first = used == 0 and end_offset - active.base_offset <= RELATIVE_OFFSET_MAX
            if is_first or not is_roll_due(
                active,
                log.config,
                size=used + size,
                end_offset=end_offset,
                timestamp=timestamp,
                wall_ms=wall_ms,
            ):
                return active
            if self._outstanding:
                return None
            return self._roll(wall_ms)
        except OSError as error:
            raise log.open_error(error) from error

    def _create(self, wall_ms: int) -> None:
        log, metadata = self._log, None
        if log.topic_id is not None:
            log.gaps_below = 0 if log.config.compacted or log.was_compacted else None
            bound = log.unsynced_bytes_max
            metadata = encode_partition_metadata(log.topic_id, bound, log.gaps_below)
        self._segments.create(log.log_end_offset, log.config, metadata=metadata, wall_ms=wall_ms)

    def _roll(self, wall_ms: int) -> Segment:
        log = self._log
        active = self._segments.roll(
            log.log_end_offset,
            log.config,
            wall_ms=wall_ms,
            is_flushed=log.flushed_end_offset > self._segments.bases[0],
        )
        log.producers.roll(log.log_end_offset)
        log.check_invariants(is_complete=False)
        return active


class LogFlusher:
    """The flushes of one log, one at a time."""

    def __init__(self, log: Log, segments: Segments, unflushed: Unflushed) -> None:
        self._log = log
        self._segments = segments
        self._unflushed = unflushed

    @property
    def is_dirty(self) -> bool:
        """True if a flush would have anything to do."""
        log = self._log
        return log.flushed_end_offset < log.log_end_offset or self._unflushed.has_changes

    def begin(self, *, is_last: bool = False) -> Flush:
        """Capture a flush of everything completed so far.

        `is_last`: the log is about to be closed, and its active segment's index is stored too.
        """
        log, segments = self._log, self._segments
        assert not self._unflushed.is_flushing, f"{log.name}: two flushes at once"
        if is_last and segments and not segments.active.has_index_files:
            self._unflushed.seal(segments.active)
        writing = log.appender.segment
        is_kept = writing is None and not is_last and self._keep_index()
        producers = log.producers.begin_flush(
            log.log_end_offset, is_last=is_kept or (is_last and len(segments) > 0)
        )
        return self._unflushed.take(log.log_end_offset, writing, producers)

    def complete(self, flush: Flush) -> None:
        """Apply a performed flush."""
        log = self._log
        self._unflushed.end(flush)
        log.producers.complete_flush(flush.producers)
        assert flush.end_offset <= log.log_end_offset, f"{flush.end_offset} beyond the log's end"
        log.flushed_end_offset = max(log.flushed_end_offset, flush.end_offset)

    def failed(self, flush: Flush, error: OSError) -> DiskFailed | None:
        """End a flush that failed. Return the error of the log, or None if a file could not be
        opened: nothing was lost then, and the next flush repeats it.

        Any other error is final: a repeated fsync would report success for lost data.
        """
        if error.errno in OUT_OF_DESCRIPTORS:
            self._unflushed.postpone(flush)
            return None
        self._unflushed.end(flush)
        return self._log.give_up(error)

    def _keep_index(self) -> bool:
        """Store the active segment's index with the next flush if the segment has grown by an index
        step: recovery then need not read below it. Return True if it is stored."""
        if not self._segments:
            return False
        active = self._segments.active
        if active.size - active.indexed_bytes < index_step(self._log.config.segment_bytes):
            return False
        self._unflushed.keep_index(active)
        return True


class LogTruncator:
    """Truncation of the end of one log, and its reset to an empty log."""

    def __init__(
        self, log: Log, segments: Segments, unflushed: Unflushed, reads: ReadPlanner
    ) -> None:
        self._log = log
        self._segments = segments
        self._unflushed = unflushed
        self._reads = reads

    def begin(self, offset: int) -> Truncation | None:
        """Plan a truncation of every batch that holds or follows `offset`; None if there is none.

        No write may be outstanding until `complete`. At the log start, the segment that ends there
        is cut, if it still exists: its last batch has the epoch of the log.
        """
        log, segments = self._log, self._segments
        log.check_usable()
        assert log.appender.segment is None, f"{log.name}: truncated during a write"
        assert not self._unflushed.is_flushing, f"{log.name}: truncated during a flush"
        if offset >= log.log_end_offset or not segments:
            return None
        assert offset >= log.log_start_offset, f"{offset} < log start {log.log_start_offset}"
        at = max(segments.find(offset), 0)
        if at > 0 and segments.bases[at] == offset == log.log_start_offset:
            # sometimes: a log is truncated to its start at a segment's base
            at -= 1
        segment, kept = segments[at], list(segments)[: at + 1]
        file = segments.file_of(segment)
        index = segments.index_of(segment)
        truncation = Truncation(
            offset=offset,
            folder=log.folder,
            base_offset=segment.base_offset,
            file=file,
            lease=file.lease(),
            size=segment.size,
            index=index,
            floor=index.truncation_floor(offset) if index is not None else 0,
            removed=tuple(segments[place].path for place in range(len(segments) - 1, at, -1)),
            below=tuple(one.path for one in reversed(kept[:-1])),
            log_start_offset=log.log_start_offset,
            producers=log.producers.begin_truncate(kept),
        )
        self._reads.begin_change(segment.base_offset)
        return truncation

    def complete(self, truncation: Truncation, cut: TruncationPoint) -> None:
        """Apply a truncation performed durably."""
        log, segments = self._log, self._segments
        self._reads.end_change()
        truncation.lease.release()
        kept = 0 if cut.is_empty else len(segments) - len(truncation.removed)
        segments.splice(kept, len(segments) - kept)
        if not cut.is_empty:
            segments.reactivate(self._index(truncation, cut), cut.size)
        log.log_end_offset = cut.end_offset
        # sometimes if cut.end_offset < log.flushed_end_offset: flushed records are truncated
        log.flushed_end_offset = min(log.flushed_end_offset, cut.end_offset)
        # sometimes if cut.end_offset < truncation.offset: a truncation falls into a batch
        log.high_watermark = min(log.high_watermark, cut.end_offset)
        cut.keep_epochs(log.epochs, log.log_start_offset)
        if truncation.producers is not None:
            log.producers.complete_truncate(truncation.producers, cut.end_offset)
        log.check_invariants(is_complete=False)

    def cancel(self, truncation: Truncation) -> None:
        """Cancel a truncation after its position could not be found; nothing was changed."""
        self._reads.end_change()
        truncation.lease.release()

    def begin_reset(self) -> tuple[str, ...]:
        """Plan to drop every segment; return their .log paths, newest first. Reads return nothing
        until the reset is complete. It may be called again."""
        log = self._log
        log.check_usable()
        self._reads.begin_change(log.log_start_offset)
        return tuple(segment.path for segment in reversed(list(self._segments)))

    def complete_reset(self, offset: int) -> None:
        """Continue at `offset` with an empty log, after the segments were dropped durably."""
        log, segments = self._log, self._segments
        self._reads.end_change()
        for segment in segments:
            segment.names.is_replaced = True
        segments.splice(0, len(segments))
        log.producers = log.producers.emptied()
        log.epochs.clear()
        log.log_start_offset = log.log_end_offset = log.flushed_end_offset = offset
        log.high_watermark = offset
        log.check_invariants(is_complete=False)

    def _index(self, truncation: Truncation, cut: TruncationPoint) -> SegmentIndex:
        """Return the index of the segment that was cut."""
        index = truncation.index
        if index is None or truncation.floor == 0:
            interval_bytes = self._log.config.index_interval_bytes
            index = SegmentIndex(truncation.base_offset, interval_bytes)
        else:
            index.truncate(truncation.floor)
        for batch in cut.tail:
            index.note(
                position=batch.position,
                size=batch.size,
                last_offset=batch.last_offset,
                max_timestamp=batch.max_timestamp,
            )
        return index


class LogCleanup:
    """Deletion of old records and segments of one log, and replacement of compacted segments."""

    def __init__(
        self,
        log: Log,
        pool: FilePool,
        indexes: IndexCache,
        segments: Segments,
        reads: ReadPlanner,
    ) -> None:
        self._log = log
        self._pool = pool
        self._indexes = indexes
        self._segments = segments
        self._reads = reads

    # --- plan ----------------------------------------------------------------------------------

    def ages(self) -> Iterator[SegmentAge]:
        """Yield the properties of each segment for retention, oldest first; valid until the log
        changes."""
        return map(self.age, range(len(self._segments)))

    def age(self, place: int) -> SegmentAge:
        """Return the properties of a segment for retention, by its index; 0 is the oldest."""
        segments = self._segments
        segment, is_active = segments[place], place == len(segments) - 1
        index = segment.index
        return SegmentAge(
            segment.base_offset,
            self._log.log_end_offset if is_active else segments.bases[place + 1],
            segment.size,
            segment.max_timestamp if index is None else index.max_timestamp,
            segment.created_ms,
            segment.first_timestamp,
        )

    def outline(self) -> SegmentOutline:
        """Return the properties of the segments for compaction; valid until the log changes."""
        return SegmentOutline(
            bases=self._segments.bases,
            sizes=[segment.size for segment in self._segments],
            end_offset=self._log.log_end_offset,
            age_of=self.age,
        )

    def set_timestamps(self, segment_base: int, first_ms: int, largest_ms: int) -> None:
        """Set the timestamps of an inactive segment (ms, below 0: none), if it still exists."""
        segments = self._segments
        place = segments.find(segment_base)
        if place >= 0 and segments.bases[place] == segment_base:
            segments[place].first_timestamp = first_ms
            segments[place].max_timestamp = largest_ms

    # --- delete --------------------------------------------------------------------------------

    def check_deletion(self, offset: int, *, is_replicated: bool = False) -> int:
        """Return the offset below which records may be deleted: `offset`, or the last stable offset
        for -1.

        `is_replicated`: the leader has deleted the records, so only the high watermark limits the
        offset: the marker that decided a transaction there may not be here yet. Raises
        OffsetOutOfRange, DiskFailed.
        """
        log = self._log
        log.check_usable()
        stable, high_watermark = log.last_stable_offset, log.high_watermark
        if offset == -1:
            return stable
        if not 0 <= offset <= (high_watermark if is_replicated else stable):
            raise OffsetOutOfRange(
                f"records cannot be deleted up to offset {offset}; the high watermark is"
                f" {high_watermark}, the last stable offset {stable}; use an offset in"
                f" [0, {stable}]"
            )
        return offset

    def advance_log_start(self, offset: int) -> None:
        """Raise the log start offset to `offset`; a lower one is ignored.

        The offsets below are unreadable at once, and for good once the checkpoint of log start
        offsets is stored. Everything below must be flushed before that.
        """
        log = self._log
        assert offset <= log.log_end_offset, f"{offset} beyond the end {log.log_end_offset}"
        if offset > log.log_start_offset:
            log.log_start_offset = offset
            log.high_watermark = max(log.high_watermark, offset)
            log.epochs.truncate_start(offset)

    def begin_remove(self, count: int) -> Removal:
        """Plan to remove the oldest `count` segments, and advance the log start offset past them;
        at least the active one stays. Their records must be flushed and stable."""
        log, segments = self._log, self._segments
        log.check_usable()
        assert 0 < count < len(segments), f"{count} of {len(segments)} segments are removed"
        removal = Removal(
            folder=log.folder,
            log_paths=tuple(segments[place].path for place in range(count)),
            log_start_offset=segments.bases[count],
        )
        assert removal.log_start_offset <= log.recovery_point, f"{log.name}: removed un-flushed"
        self._reads.begin_change()
        self.advance_log_start(removal.log_start_offset)
        return removal

    def complete_remove(self, removal: Removal) -> None:
        """Apply a removal performed durably."""
        count, segments = len(removal.log_paths), self._segments
        self._reads.end_change()
        for place in range(count):
            segments[place].names.is_replaced = True
        segments.splice(0, count)
        # Producer state stays until it expires: batches may still be retried (R22).
        self._log.producers.transactions.remove_below(removal.log_start_offset)
        self._log.check_invariants(is_complete=False)

    # --- replace -------------------------------------------------------------------------------

    def begin_replace(self, group: CleanedGroup) -> Swap | None:
        """Plan to replace segments by a cleaned one; None if they changed since they were read.
        Raises DiskFailed, OSError."""
        log, segments, sources = self._log, self._segments, group.sources
        log.check_usable()
        if group.end_offset > log.recovery_point:
            return None  # the log was truncated
        place = max(segments.find(group.base_offset), 0)
        end = place + len(sources)
        found = list(segments)[place:end]
        is_same = [(s.base_offset, s.size) for s in found] == [
            (s.base_offset, s.size) for s in sources
        ]
        if not is_same or end >= len(segments):
            return None
        self._pin([source.path for source in sources])
        for segment in found:
            segment.names.is_replaced = True
        self._reads.begin_change()
        return Swap(
            folder=log.folder,
            base_offset=group.base_offset,
            end_offset=segments.bases[end],
            sources=tuple(source.base_offset for source in sources),
            size=group.size,
            index=group.index,
            aborted=group.aborted,
        )

    def complete_replace(self, swap: Swap, *, is_done: bool = True) -> None:
        """Apply a swap performed durably, or with `is_done` False a rejected one that changed
        nothing."""
        log, segments = self._log, self._segments
        self._reads.end_change()
        place, count = segments.find(swap.base_offset), len(swap.sources)
        old = list(segments)[place : place + count]
        if not is_done:
            segments.splice(place, count, [replace(one, names=FileNames()) for one in old])
            return
        cleaned = Segment(
            log.folder,
            swap.base_offset,
            size=swap.size,
            first_timestamp=old[0].first_timestamp,
            max_timestamp=swap.index.max_timestamp,
            created_ms=max(segment.created_ms for segment in old),
        )
        segments.splice(place, count, [cleaned])
        self._indexes.put(cleaned.path, swap.index)
        log.producers.transactions.replace(swap.sources, swap.base_offset, swap.aborted)
        log.was_compacted = True
        log.check_invariants(is_complete=False)

    def _pin(self, paths: list[str]) -> None:
        """Keep files open while others take their names. Raises OSError; none is pinned then."""
        try:
            for path in paths:
                self._pool.pin(path)
        except OSError:
            for path in paths:
                self._pool.forget(path)
            raise


def _disk_full(folder: str) -> DiskFull:
    return DiskFull(f"{folder}: no space is left; nothing was stored; free some space")
