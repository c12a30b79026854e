"""The partition log: offsets, epochs and positions of the batches in its segments.

The state over the files port, owned by the loop thread. Every change of the disk has two halves:
the first decides and reserves (`prepare`, `begin_flush`, `begin_truncate`), the second ends it
(`complete`, `failed`, `complete_flush`, ...). Between them a shell performs the blocking part, a
plain function of handles, buffers and numbers. Readers see completed data only.

Offsets that only grow, except by truncation:

    log_start_offset <= recovery_point <= flushed_end_offset <= log_end_offset
    log_start_offset <= high_watermark <= log_end_offset

This module does not depend on leadership, commitment or scheduling.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import DiskFull, MessageTooLarge, OffsetOutOfRange, StorageError
from ..ids import TopicId
from ..records.batch import NO_PRODUCER
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
from .index import RELATIVE_OFFSET_MAX, IndexCache
from .producer_state import Changes
from .producer_state_manager import ProducerStateManager
from .read import ReadPlanner, SegmentRange
from .recovery import LogState
from .segment import Segment, SegmentAge, SegmentOutline
from .segment_files import CleanedGroup, Removal, Swap
from .segments import Segments, is_roll_due
from .small_files import OUT_OF_SPACE
from .time_lookup import TimedOffset, TimeLookup
from .transaction_index import AbortedTransaction
from .truncation import Truncation, TruncationPoint, find_truncation_point, perform_truncation

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
        self._cut_from: int | None = None  # base of the segment being truncated
        self.segment_version = 0  # changes of the file contents behind names; odd during one
        self.failure: StorageError | None = None
        self.is_closed = False  # the reason of `failure`, rather than the disk
        self._pool = pool
        self._outstanding: deque[LogWrite] = deque()  # prepared, oldest first; all in one segment
        self._unflushed = Unflushed()
        self._segments = Segments(
            pool, indexes, self._unflushed, folder=folder, found=state.segments
        )
        self._read_planner = ReadPlanner(pool, self._segments)

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

    # --- append --------------------------------------------------------------------------------

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
        `validate_batch`, InvalidRecord, MessageTooLarge, DiskFull, StorageError; nothing is
        reserved then.
        """
        self._check_usable()
        if is_validated:
            headers = headers_of(batches)
        else:
            batches, headers = accept_append(batches, self.config, origin=origin, wall_ms=wall_ms)
        outstanding = self._outstanding
        next_offset = outstanding[-1].next_offset if outstanding else self.log_end_offset
        offsets, timestamp = extent(headers)
        end_offset = next_offset + offsets
        if origin is AppendOrigin.REPLICATED:
            check_contiguous(
                headers,
                next_offset,
                latest_epoch=self._outstanding_epoch(),
                may_have_gaps=self.config.compacted or self.was_compacted,
            )
            end_offset = headers[-1][1].next_offset
        else:
            self._check_new(len(batches), leader_epoch)
        changes: Changes | None = ()
        if len(headers) > 1 or headers[0][1].producer_id != NO_PRODUCER:
            changes = self.producers.states.plan(
                batches, headers, next_offset=next_offset, origin=origin, wall_ms=wall_ms
            )
            if changes is None:
                return None
        segment = self._room(len(batches), end_offset, timestamp, wall_ms)
        if segment is None:
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
            self.producers.states.reserve(changes)
        return write

    def complete(self, write: LogWrite) -> None:
        """Make a write visible to readers after it reached the file. Oldest outstanding write
        first."""
        oldest = self._outstanding.popleft()
        assert oldest is write, f"{write.base_offset} completed before {oldest.base_offset}"
        segment = write.segment
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
            if batch.leader_epoch > self.epochs.latest:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self._segments.add_bytes(segment, write.size)
        self.log_end_offset = write.next_offset
        if write.producers:
            self.producers.complete(write.producers, segment.base_offset)

    def failed(self, write: LogWrite, failure: WriteFailed) -> DiskFull | StorageError:
        """Release the reservation of a failed write; return the error for the caller.

        Newest outstanding write first. A full disk leaves the log usable if the partial write was
        undone; every other error is final.
        """
        newest = self._outstanding.pop()
        assert newest is write, f"{write.base_offset} failed before {newest.base_offset}"
        if write.producers:
            self.producers.states.failed(write.producers)
        if failure.is_undone and failure.error.errno in OUT_OF_SPACE and self.failure is None:
            return _disk_full(self.folder)
        return self.give_up(failure.error)

    def give_up(self, error: OSError) -> StorageError:
        """Fail the log: its disk failed in a way that cannot be undone, and it accepts no more
        appends."""
        if self.failure is None or self.is_closed:
            reason = f"{error.strerror or error}; the log accepts no more appends"
            self.failure, self.is_closed = StorageError(f"{self.folder}: {reason}"), False
        return StorageError(self.failure.message)

    def note_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to `offset`; a lower one is ignored."""
        assert offset <= self.log_end_offset, f"{offset} beyond the end {self.log_end_offset}"
        self.high_watermark = max(self.high_watermark, offset)
        self.producers.states.replicated_to(offset)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which everything is committed and no transaction is undecided
        (KIP-98)."""
        stable = self.producers.states.last_stable_offset(self.high_watermark)
        return max(stable, self.log_start_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [start_offset, end_offset)."""
        return self.producers.transactions.aborted_in(start_offset, end_offset)

    # --- flush ---------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """True if a flush would have anything to do."""
        return self.flushed_end_offset < self.log_end_offset or self._unflushed.has_changes

    def begin_flush(self, *, is_last: bool = False) -> Flush:
        """Capture a flush of everything completed so far; one flush at a time.

        `is_last`: the log is about to be closed, and its active segment's index is stored too.
        """
        assert not self._unflushed.is_flushing, f"{self.name}: two flushes at once"
        if is_last and self._segments and not self._segments.active.has_index_files:
            self._unflushed.seal(self._segments.active)
        writing = self._outstanding[-1].segment if self._outstanding else None
        is_kept = writing is None and not is_last and self._segments.keep_index(self.config)
        producers = self.producers.begin_flush(
            self.log_end_offset, is_last=is_kept or (is_last and len(self._segments) > 0)
        )
        return self._unflushed.take(self.log_end_offset, writing, producers)

    def complete_flush(self, flush: Flush) -> None:
        """Apply a performed flush."""
        self._unflushed.end(flush)
        self.producers.complete_flush(flush.producers)
        assert flush.end_offset <= self.log_end_offset, f"{flush.end_offset} beyond the log's end"
        self.flushed_end_offset = max(self.flushed_end_offset, flush.end_offset)

    def postpone_flush(self, flush: Flush) -> None:
        """Postpone a flush for which a file could not be opened; nothing was lost, and the next
        flush repeats it."""
        self._unflushed.postpone(flush)

    def fail_flush(self, flush: Flush, error: OSError) -> StorageError:
        """Fail the log after a failed flush: a repeated fsync would report success for lost
        data."""
        self._unflushed.end(flush)
        return self.give_up(error)

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
        `min_one`. Raises OffsetOutOfRange, CorruptionError, StorageError. The caller releases the
        range.
        """
        log_end = self.log_end_offset
        if not self.log_start_offset <= start_offset <= log_end:
            raise OffsetOutOfRange(
                f"offset {start_offset} is outside [{self.log_start_offset}, {log_end}]"
            )
        end = log_end if end_offset is None or end_offset > log_end else end_offset
        if self._cut_from is not None:
            end = min(end, self._cut_from)
        return self._read_planner.plan(
            start_offset,
            end_offset=end,
            log_end_offset=log_end,
            interval_bytes=self.config.index_interval_bytes,
            max_bytes=max_bytes,
            min_one=min_one,
        )

    # --- lookups -------------------------------------------------------------------------------

    def time_lookup(self, timestamp_ms: int | None, *, end_offset: int | None = None) -> TimeLookup:
        """Plan a lookup by time below `end_offset`; run it in the read lane.

        None looks up the first record with the largest timestamp.
        """
        timed = [
            self._read_planner.lookup_input(segment, timestamp_ms) for segment in self._segments
        ]
        return TimeLookup(
            timestamp=timestamp_ms,
            start_offset=self.log_start_offset,
            end_offset=self.log_end_offset if end_offset is None else end_offset,
            interval_bytes=self.config.index_interval_bytes,
            segments=tuple(timed),
        )

    def offset_for_time(self, timestamp_ms: int) -> TimedOffset | None:
        """Return the first record at or after a time. May wait for the device."""
        return self.time_lookup(timestamp_ms).run(self._pool.files)

    @property
    def latest_epoch(self) -> int:
        """Leader epoch of the last batch, -1 without one."""
        return self.epochs.latest

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the batch with `offset`, -1 if unknown."""
        return self.epochs.epoch_at(offset)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, its end offset); (-1, -1) if it is unknown to this
        log."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # --- truncate ------------------------------------------------------------------------------

    def begin_truncate(self, offset: int) -> Truncation | None:
        """Plan a truncation of every batch that holds or follows `offset`; None if there is none.

        No write may be outstanding until `complete_truncate`.
        """
        self._check_usable()
        assert not self._outstanding, f"{self.name}: truncated during a write"
        assert not self._unflushed.is_flushing, f"{self.name}: truncated during a flush"
        if offset >= self.log_end_offset or not self._segments:
            return None
        assert offset >= self.log_start_offset, f"{offset} < log start {self.log_start_offset}"
        planned = self._segments.plan_truncation(offset, self.log_start_offset)
        kept = list(self._segments)[: len(self._segments) - len(planned.removed)]
        self._cut_from = kept[-1].base_offset
        self.segment_version += 1
        return replace(planned, producers=self.producers.begin_truncate(kept))

    def complete_truncate(self, truncation: Truncation, cut: TruncationPoint) -> None:
        """Apply a truncation performed durably."""
        self._cut_from = None
        self.segment_version += 1
        self._read_planner.clear()
        self._segments.truncate(truncation, cut, self.config)
        self.log_end_offset = cut.end_offset
        self.flushed_end_offset = min(self.flushed_end_offset, cut.end_offset)
        self.high_watermark = min(self.high_watermark, cut.end_offset)
        cut.keep_epochs(self.epochs, self.log_start_offset)
        if truncation.producers is not None:
            self.producers.complete_truncate(truncation.producers, cut.end_offset)

    def cancel_truncate(self, truncation: Truncation) -> None:
        """Cancel a truncation after its position could not be found; nothing was changed."""
        self._cut_from = None
        self.segment_version += 1
        truncation.lease.release()

    def truncate_to(self, offset: int) -> None:
        """Truncate every batch that holds or follows `offset`. Waits for the device."""
        truncation = self.begin_truncate(offset)
        if truncation is not None:
            cut = find_truncation_point(truncation)
            perform_truncation(self._pool.files, truncation, cut)
            self.complete_truncate(truncation, cut)

    def begin_reset(self) -> tuple[str, ...]:
        """Plan to drop every segment; return their .log paths, newest first. Reads return nothing
        until the reset is complete."""
        self._check_usable()
        self.segment_version += self._cut_from is None  # may be called again
        self._cut_from = self.log_start_offset
        return tuple(segment.path for segment in reversed(list(self._segments)))

    def complete_reset(self, offset: int) -> None:
        """Continue at `offset` with an empty log, after the segments were dropped durably."""
        self._cut_from = None
        self.segment_version += 1
        self._read_planner.clear()
        self._segments.clear()
        self.producers = ProducerStateManager.empty(self.folder)
        self.epochs.clear()
        self.log_start_offset = self.log_end_offset = self.flushed_end_offset = offset
        self.high_watermark = offset

    def check_deletion(self, offset: int) -> int:
        """Return the offset below which records may be deleted: `offset`, or the high watermark for
        -1. Raises OffsetOutOfRange, StorageError."""
        self._check_usable()
        if offset == -1:
            return self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"records cannot be deleted up to offset {offset}; the high watermark is"
                f" {self.high_watermark}; use an offset in [0, {self.high_watermark}]"
            )
        return offset

    def advance_log_start(self, offset: int) -> None:
        """Raise the log start offset to `offset`; a lower one is ignored.

        The offsets below are unreadable at once, and for good once the checkpoint of log start
        offsets is stored. Everything below must be flushed before that.
        """
        assert offset <= self.log_end_offset, f"{offset} beyond the end {self.log_end_offset}"
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.epochs.truncate_start(offset)

    # --- remove and replace --------------------------------------------------------------------

    def segment_ages(self) -> Iterator[SegmentAge]:
        """Yield the properties of each segment for retention, oldest first; valid until the log
        changes."""
        return map(self.segment_age, range(len(self._segments)))

    def segment_age(self, place: int) -> SegmentAge:
        """Return the properties of a segment for retention, by its index; 0 is the oldest."""
        return self._segments.age_of(place, self.log_end_offset)

    def outline(self) -> SegmentOutline:
        """Return the properties of the segments for compaction; valid until the log changes."""
        return self._segments.outline(self.log_end_offset)

    def set_timestamps(self, segment_base: int, first_ms: int, largest_ms: int) -> None:
        """Set the timestamps of an inactive segment (ms, below 0: none)."""
        self._segments.set_timestamps(segment_base, first_ms, largest_ms)

    def roll(self, wall_ms: int) -> bool:
        """Start a new segment, unless the active one is empty; return True if one was started.
        Raises DiskFull."""
        self._check_usable()
        assert not self._outstanding, f"{self.name}: rolled during a write"
        if not self._segments or self._segments.active.size == 0:
            return False
        try:
            self._roll(wall_ms)
        except OSError as error:
            raise self._refused(error) from error
        return True

    def begin_remove(self, count: int) -> Removal:
        """Plan to remove the oldest `count` segments, and advance the log start offset past them.
        Their records must be flushed and stable."""
        self._check_usable()
        removal = self._segments.plan_removal(count)
        assert removal.log_start_offset <= self.recovery_point, f"{self.name}: removed un-flushed"
        self.segment_version += 1
        self.advance_log_start(removal.log_start_offset)
        return removal

    def complete_remove(self, removal: Removal) -> None:
        """Apply a removal performed durably."""
        self._read_planner.clear()
        self._segments.apply_removal(removal)
        self.producers.remove_below(removal.log_start_offset)
        self.segment_version += 1

    def begin_replace(self, group: CleanedGroup) -> Swap | None:
        """Plan to replace segments by a cleaned one; None if they changed since they were read.
        Raises StorageError, OSError."""
        self._check_usable()
        is_cut = group.end_offset > self.recovery_point
        swap = None if is_cut else self._segments.plan_swap(group)
        self.segment_version += swap is not None
        return swap

    def complete_replace(self, swap: Swap, *, is_done: bool = True) -> None:
        """Apply a swap performed durably, or with `is_done` False a rejected one that changed
        nothing."""
        self._read_planner.clear()
        self._segments.apply_swap(swap, is_done=is_done)
        if is_done:
            self.producers.replace_segments(swap.sources, swap.base_offset, swap.aborted)
        self.was_compacted = self.was_compacted or is_done
        self.segment_version += 1

    def free_descriptors(self) -> None:
        """Close some of the pooled files of all logs."""
        self._pool.shed()

    def close(self, reason: str) -> None:
        """Close the log's files; it accepts no more appends. Unflushed data is not made durable."""
        assert not self._outstanding, f"{self.name}: closed during a write"
        if self.failure is None:
            self.failure, self.is_closed = StorageError(f"{self.folder}: {reason}"), True
        for segment in self._segments:
            self._segments.forget(segment)
        self._unflushed.abandon()

    # --- inside --------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise StorageError(self.failure.message)

    def _check_new(self, size: int, leader_epoch: int) -> None:
        """Check the epoch and the size of batches stamped by this node."""
        check_epoch(self.folder, leader_epoch, latest=self.epochs.latest)
        if size > self.config.segment_bytes:
            raise MessageTooLarge(
                f"the batches have {size} bytes; segment.bytes is {self.config.segment_bytes}"
            )

    def _outstanding_epoch(self) -> int:
        if self._outstanding:
            return max(self.epochs.latest, self._outstanding[-1].batches[-1].leader_epoch)
        return self.epochs.latest

    def _file_to_write(self, segment: Segment) -> "File":
        try:
            return self._unflushed.hold(segment, self._pool)
        except OSError as error:
            raise self._refused(error) from error

    def _reserved_size(self, active: Segment) -> int:
        """Return the size of the active segment after all outstanding writes."""
        if not self._outstanding:
            return active.size
        newest = self._outstanding[-1]
        return newest.position + newest.size

    def _room(self, size: int, end_offset: int, timestamp: int, wall_ms: int) -> Segment | None:
        """Return the segment to append to, after a roll if due; None if outstanding writes must end
        first."""
        try:
            if not self._segments:
                self._create(wall_ms)
            active = self._segments.active
            used = self._reserved_size(active)
            is_first = used == 0 and end_offset - active.base_offset <= RELATIVE_OFFSET_MAX
            if is_first or not is_roll_due(
                active,
                self.config,
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
            raise self._refused(error) from error

    def _create(self, wall_ms: int) -> None:
        metadata = None
        if self.topic_id is not None:
            self.gaps_below = 0 if self.config.compacted or self.was_compacted else None
            bound = self.unsynced_bytes_max
            metadata = encode_partition_metadata(self.topic_id, bound, self.gaps_below)
        self._segments.create(self.log_end_offset, self.config, metadata=metadata, wall_ms=wall_ms)

    def _roll(self, wall_ms: int) -> Segment:
        active = self._segments.roll(
            self.log_end_offset,
            self.config,
            wall_ms=wall_ms,
            is_flushed=self.flushed_end_offset > self._segments.bases[0],
        )
        self.producers.roll(self.log_end_offset)
        return active

    def _refused(self, error: OSError) -> DiskFull | StorageError:
        """Return the error for a file that could not be opened or created; nothing was written."""
        if error.errno in OUT_OF_SPACE:
            return _disk_full(self.folder)
        if error.errno in OUT_OF_DESCRIPTORS:
            return StorageError(f"{self.folder}: {error.strerror}; nothing was stored")
        return self.give_up(error)


def _disk_full(folder: str) -> DiskFull:
    return DiskFull(f"{folder}: no space is left; nothing was stored; free some space")
