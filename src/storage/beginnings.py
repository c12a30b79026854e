"""The verified prefix of a segment, which recovery does not read.

While the active segment grows, its index is stored at intervals, together with a producer snapshot
of the same offset. Recovery starts after the newest snapshot at or below the recovery point: index
and snapshot cover the batches below. After any crash it reads the log above the recovery point and
at most one interval of the index below it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import CorruptionError
from ..records.batch import HEADER_SIZE
from .index import SegmentIndex
from .producer_state_manager import FoundFiles
from .segment import Segment, header_at, read_index

if TYPE_CHECKING:
    from ..runtime.ports import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The verified batches of a segment: those before `position`."""

    index: SegmentIndex  # of these batches only; the batch at `position` is the next to add
    position: int
    next_offset: int  # base offset of the batch at `position`
    offset: int  # end offset of a producer snapshot, at or above next_offset
    first_timestamp: int  # ms, largest of the segment's first batch


def known_beginning(
    files: "Files",
    segment: Segment,
    *,
    found: FoundFiles,
    recovery_point: int,
    interval_bytes: int,
) -> Beginning | None:
    """Return the verified prefix of a segment, None without one.

    Segments with aborted transactions are read completely, because their transaction index is
    rebuilt.
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
        return None  # the index belongs to other contents
    return Beginning(
        index=index,
        position=position,
        next_offset=at.base_offset,
        offset=offset,
        first_timestamp=first.max_timestamp,
    )
