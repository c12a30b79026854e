"""Cutting the end of a log off: what a replica does when its past parted from its leader's.

Planned on the loop, performed in the write lane, completed on the loop. The newest segments go
first, each removal durable before the next, then the file is cut: whatever moment a crash picks,
the log that is found again is contiguous.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .appends import Placed
from .index import SegmentIndex
from .layout import LOG_SUFFIX, TXN_INDEX_SUFFIX
from .producers.book import ProducerCut, cut_producers
from .segment import remove_index, walk

if TYPE_CHECKING:
    from ..runtime.ports import File, Files, Lease


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
    producers: ProducerCut | None = None  # what that means for what is known of producers


@dataclass(frozen=True, slots=True)
class Cut:
    """Where to cut: what stays."""

    size: int  # bytes left of the segment's file
    end_offset: int  # the log's new end: behind the last batch that stays
    tail: tuple[Placed, ...]  # the batches from the floor to the new end


def find_cut(truncation: Truncation) -> Cut:
    """Find the batch to cut at. Changes nothing; waits for the device.

    In a gap, as compaction leaves them, the log ends with the batch before it: nothing on the disk
    would say that it reached further.
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
    return Cut(size, end_offset, tuple(tail))


def perform_truncation(files: "Files", truncation: Truncation, cut: Cut) -> None:
    """Cut, durably. The stored recovery point must not be above the cut any more, or the next
    recovery would miss what is cut here. Waits for the device; raises OSError."""
    if truncation.producers is not None:
        cut_producers(files, truncation.producers, size=cut.size, end_offset=cut.end_offset)
    for path in truncation.removed:
        remove_segment(files, path)
        files.sync_folder(truncation.folder)
    if remove_index(files, truncation.file.path):  # they may point beyond the new end ...
        files.sync_folder(truncation.folder)  # ... and must not come back beside another past
    truncation.file.truncate(cut.size)
    truncation.file.sync()


def remove_segment(files: "Files", log_path: str) -> None:
    """Unlink a segment's files, the .log first: indexes without a log are swept away at the next
    open."""
    assert log_path.endswith(LOG_SUFFIX), log_path
    files.remove(log_path)
    remove_index(files, log_path)
    transactions = log_path.removesuffix(LOG_SUFFIX) + TXN_INDEX_SUFFIX
    if files.exists(transactions):
        files.remove(transactions)
