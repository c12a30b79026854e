"""The beginning of a segment that a recovery need not read.

Now and then a log stores the index of its active segment while it grows, with a snapshot of its
producers of the same moment. What lies below a snapshot that the recovery point has passed is known
from both, so the recovery goes on behind it: after any crash it reads what lies above the recovery
point and at most one step of the index below.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import CorruptionError
from ...records.batch import HEADER_SIZE
from ..producers.book import FoundFiles
from .index import SegmentIndex
from .segment import Segment, header_at, read_index

if TYPE_CHECKING:
    from ...runtime.ports import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The first batches of a segment: those before `position`."""

    index: SegmentIndex  # of them alone: the batch at `position` is to be noted next
    position: int
    next_offset: int  # first offset of the batch at `position`
    offset: int  # a snapshot of producers has this end offset; it lies at or behind next_offset
    first_timestamp: int  # ms, largest of the segment's first batch


def known_beginning(
    files: "Files",
    segment: Segment,
    *,
    found: FoundFiles,
    recovery_point: int,
    interval_bytes: int,
) -> Beginning | None:
    """Return what need not be read of a segment, None when nothing is known to be good.

    Segments with aborted transactions are read as a whole: their index of those is made anew.
    """
    base = segment.base_offset
    snapshots = [offset for offset in found.snapshots if base < offset <= recovery_point]
    if not snapshots or base in found.indexed:
        return None
    index = read_index(
        files,
        segment.path,
        base_offset=base,
        size=segment.size,
        interval_bytes=interval_bytes,
    )
    if index is None:
        return None
    offset = max(snapshots)
    position = index.truncation_floor(offset)
    if position == 0:
        return None
    index.truncate(position)
    file = files.open_readonly(segment.path)
    try:
        first = header_at(file.read(0, HEADER_SIZE), 0, path=segment.path, position=0)
        at = header_at(file.read(position, HEADER_SIZE), 0, path=segment.path, position=position)
    except CorruptionError:
        return None
    finally:
        file.close()
    if (at.last_offset, position) != index.last_entry:
        return None  # the index speaks of another past
    return Beginning(
        index=index,
        position=position,
        next_offset=at.base_offset,
        offset=offset,
        first_timestamp=first.max_timestamp,
    )
