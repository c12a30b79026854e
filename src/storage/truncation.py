"""Truncation of the end of a log, by a replica that diverged from its leader.

Planned on the loop, performed in the write lane, completed on the loop. The newest segments are
removed first, each removal durable before the next; then the file is truncated. After a crash at
any point the log is contiguous.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .append import BatchLocation
from .checkpoints import encode_epochs
from .index import SegmentIndex
from .layout import LEADER_EPOCHS, LOG_SUFFIX, TXN_INDEX_SUFFIX, join
from .leader_epochs import EpochCache
from .producer_state_manager import ProducerTruncation, truncate_producers
from .segment import remove_index, walk
from .small_files import replace_file

if TYPE_CHECKING:
    from ..runtime.ports import File, Files, Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """A planned truncation. Batches with a last offset >= `offset` are removed."""

    offset: int
    folder: str
    base_offset: int  # of the segment that is cut
    file: "File"
    lease: "Lease"
    size: int  # its current size in bytes
    index: SegmentIndex | None  # the segment's, if in memory; for the loop only
    floor: int  # position of a batch that stays, or 0
    removed: tuple[str, ...]  # .log paths of the segments above, newest first
    below: tuple[str, ...]  # .log paths of the segments below, newest first
    log_start_offset: int
    producers: ProducerTruncation | None = None  # its effect on the producer state


@dataclass(frozen=True, slots=True)
class TruncationPoint:
    """The position of a truncation and the batches that stay."""

    size: int  # new size of the segment's file
    end_offset: int  # the new log end, after the last batch that stays
    tail: tuple[BatchLocation, ...]  # the batches from the floor to the new end
    found_end: int  # end offset on the disk: lower if no readable batch stays
    is_empty: bool = False  # no segment stays; the log continues at its start

    def keep_epochs(self, epochs: EpochCache, log_start_offset: int) -> None:
        """Drop the epochs above the cut. A log that is now empty has the epoch of the last batch
        below its start."""
        epochs.truncate_end(self.found_end)
        if self.tail and self.tail[-1].leader_epoch > epochs.latest:
            epochs.assign(self.tail[-1].leader_epoch, log_start_offset)
        epochs.truncate_start(log_start_offset)


def find_truncation_point(truncation: Truncation) -> TruncationPoint:
    """Find the batch to cut at. Changes nothing; waits for the device.

    In a gap, left by compaction, the log ends with the batch before the gap: no file would record a
    higher end. If the log starts inside that gap, no readable batch is left, and all segments go.
    """
    tail: list[BatchLocation] = []
    size, end_offset = truncation.size, truncation.base_offset
    for position, header in walk(truncation.file, truncation.floor, truncation.size):
        if header.last_offset >= truncation.offset:
            size = position
            break
        end_offset = header.next_offset
        tail.append(
            BatchLocation(
                position,
                header.size,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.leader_epoch,
            )
        )
    if end_offset < truncation.log_start_offset:
        # sometimes: a truncation leaves no readable batch
        return TruncationPoint(
            0, truncation.log_start_offset, tuple(tail), end_offset, is_empty=True
        )
    return TruncationPoint(size, end_offset, tuple(tail), end_offset)


def perform_truncation(files: "Files", truncation: Truncation, cut: TruncationPoint) -> None:
    """Truncate, durably. The stored recovery point must already be at or below the cut, or the next
    recovery would miss it. Waits for the device; raises OSError. May be repeated if a file could
    not be opened."""
    if truncation.producers is not None:
        truncate_producers(files, truncation.producers, size=cut.size, end_offset=cut.end_offset)
    if cut.end_offset <= truncation.log_start_offset:
        # sometimes: a truncation empties a log
        _store_epoch_below(files, truncation, cut)
    # sometimes if truncation.removed: a truncation removes whole segments
    gone = truncation.removed
    if cut.is_empty:
        gone = (*gone, truncation.file.path, *truncation.below)
    for path in gone:
        if files.exists(path):
            remove_segment(files, path)
        files.sync_folder(truncation.folder)
    if cut.is_empty:
        return
    remove_index(files, truncation.file.path)  # it may point beyond the new end ...
    files.sync_folder(truncation.folder)  # ... and must not reappear beside other contents
    truncation.file.truncate(cut.size)
    truncation.file.sync()


def _store_epoch_below(files: "Files", truncation: Truncation, cut: TruncationPoint) -> None:
    """Store the leader epoch checkpoint of a log that is empty after the cut. An empty log takes
    its epochs from the checkpoint, so the file must not contain removed epochs."""
    folder, start = truncation.folder, truncation.log_start_offset
    epochs = EpochCache()
    cut.keep_epochs(epochs, start)
    if epochs.entries():
        replace_file(files, folder, LEADER_EPOCHS, encode_epochs(epochs.entries()))
    elif files.exists(join(folder, LEADER_EPOCHS)):
        files.remove(join(folder, LEADER_EPOCHS))
        files.sync_folder(folder)


def remove_segment(files: "Files", log_path: str) -> None:
    """Unlink a segment's files, the .log first: the next opening removes indexes without a log."""
    assert log_path.endswith(LOG_SUFFIX), log_path
    files.remove(log_path)
    remove_index(files, log_path)
    transactions = log_path.removesuffix(LOG_SUFFIX) + TXN_INDEX_SUFFIX
    if files.exists(transactions):
        files.remove(transactions)
