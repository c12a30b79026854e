"""Cutting the end of a log off: what a replica does when its past parted from its leader's.

Planned on the loop, performed in the write lane, completed on the loop. The newest segments go
first, each removal durable before the next, then the file is cut: whatever moment a crash picks,
the log that is found again is contiguous.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..appending.appends import Placed
from ..disk.checkpoints import encode_epochs
from ..disk.contents import replace_file
from ..disk.layout import LEADER_EPOCHS, LOG_SUFFIX, TXN_INDEX_SUFFIX, join
from ..producers.book import ProducerCut, cut_producers
from .epochs import EpochCache
from .index import SegmentIndex
from .segment import remove_index, walk

if TYPE_CHECKING:
    from ...runtime.ports import File, Files, Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """What to cut. Batches whose last offset is >= `offset` go."""

    offset: int
    folder: str
    base_offset: int  # of the segment that is cut
    file: "File"
    lease: "Lease"
    size: int  # its bytes now
    index: SegmentIndex | None  # the segment's, if it is in memory; for the loop alone
    floor: int  # position of a batch that stays, or 0
    removed: tuple[str, ...]  # .log paths of the segments above, newest first
    below: tuple[str, ...]  # .log paths of the segments below, newest first
    log_start_offset: int
    producers: ProducerCut | None = None  # what that means for what is known of producers


@dataclass(frozen=True, slots=True)
class Cut:
    """Where to cut: what stays."""

    size: int  # bytes left of the segment's file
    end_offset: int  # the log's new end: behind the last batch that stays
    tail: tuple[Placed, ...]  # the batches from the floor to the new end
    found_end: int  # what the disk says of the end: lower where no readable batch stays at all
    is_empty: bool = False  # no segment stays, the log goes on where it starts

    def keep_epochs(self, epochs: EpochCache, log_start_offset: int) -> None:
        """Drop the epochs of what was cut off. A log that ends where it starts now is of the epoch
        that its last batch below has."""
        epochs.truncate_end(self.found_end)
        if self.tail and self.tail[-1].leader_epoch > epochs.latest:
            epochs.assign(self.tail[-1].leader_epoch, log_start_offset)
        epochs.truncate_start(log_start_offset)


def find_cut(truncation: Truncation) -> Cut:
    """Find the batch to cut at. Changes nothing; waits for the device.

    In a gap, as compaction leaves them, the log ends with the batch before it: nothing on the disk
    would say that it reached further. Where the log starts in that gap no readable batch is left:
    all of it goes.
    """
    tail: list[Placed] = []
    size, end_offset = truncation.size, truncation.base_offset
    for position, header in walk(truncation.file, truncation.floor, truncation.size):
        if header.last_offset >= truncation.offset:
            size = position
            break
        end_offset = header.next_offset
        tail.append(
            Placed(
                position,
                header.size,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.leader_epoch,
            )
        )
    if end_offset < truncation.log_start_offset:
        return Cut(0, truncation.log_start_offset, tuple(tail), end_offset, is_empty=True)
    return Cut(size, end_offset, tuple(tail), end_offset)


def perform_truncation(files: "Files", truncation: Truncation, cut: Cut) -> None:
    """Cut, durably. The stored recovery point must not be above the cut any more, or the next
    recovery would miss what is cut here. Waits for the device; raises OSError. May be repeated
    where no file could be opened."""
    if truncation.producers is not None:
        cut_producers(files, truncation.producers, size=cut.size, end_offset=cut.end_offset)
    if cut.end_offset <= truncation.log_start_offset:
        _store_epoch_below(files, truncation, cut)
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
    files.sync_folder(truncation.folder)  # ... and must not come back beside another past
    truncation.file.truncate(cut.size)
    truncation.file.sync()


def _store_epoch_below(files: "Files", truncation: Truncation, cut: Cut) -> None:
    """Have the checkpoint of leader epochs say what a log will be that ends where it starts: of an
    empty log it is believed, so it must not speak of what is cut off."""
    folder, start = truncation.folder, truncation.log_start_offset
    epochs = EpochCache()
    cut.keep_epochs(epochs, start)
    if epochs.entries():
        replace_file(files, folder, LEADER_EPOCHS, encode_epochs(epochs.entries()))
    elif files.exists(join(folder, LEADER_EPOCHS)):
        files.remove(join(folder, LEADER_EPOCHS))
        files.sync_folder(folder)


def remove_segment(files: "Files", log_path: str) -> None:
    """Unlink a segment's files, the .log first: indexes without a log are swept away at the next
    open."""
    assert log_path.endswith(LOG_SUFFIX), log_path
    files.remove(log_path)
    remove_index(files, log_path)
    transactions = log_path.removesuffix(LOG_SUFFIX) + TXN_INDEX_SUFFIX
    if files.exists(transactions):
        files.remove(transactions)
