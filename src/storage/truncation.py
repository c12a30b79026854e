"""Cutting the end of a log off: what a replica does when its past parted from its leader's.

Planned on the loop, performed in the write lane, completed on the loop. The newest segments go
first, each removal durable before the next, then the file is cut: whatever moment a crash picks,
the log that is found again is contiguous.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .appends import Placed
from .layout import LOG_SUFFIX
from .segment import index_paths, walk

if TYPE_CHECKING:
    from ..runtime.ports import File, Files, Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """What to cut. Batches whose last offset is >= `offset` go."""

    offset: int
    folder: str
    file: "File"  # of the segment that is cut
    lease: "Lease"
    size: int  # its bytes now
    floor: int  # position of a batch that stays, or 0
    removed: tuple[str, ...]  # .log paths of the segments above, newest first


@dataclass(frozen=True, slots=True)
class Cut:
    """What was found and done."""

    size: int  # bytes left of the segment's file
    end_offset: int  # the log's end now
    tail: tuple[Placed, ...]  # the batches from the floor to the new end


def perform_truncation(files: "Files", truncation: Truncation) -> Cut:
    """Do it, durably. Waits for the device; raises OSError, CorruptionError."""
    for path in truncation.removed:
        remove_segment(files, path)
        files.sync_folder(truncation.folder)
    size, end_offset, tail = truncation.size, truncation.offset, []
    for position, header in walk(truncation.file, truncation.floor, truncation.size):
        if header.last_offset >= truncation.offset:
            size, end_offset = position, min(end_offset, header.base_offset)
            break
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
    _remove_indexes(files, truncation.file.path)  # they may point beyond the new end
    truncation.file.truncate(size)
    truncation.file.sync()
    return Cut(size, end_offset, tuple(tail))


def remove_segment(files: "Files", log_path: str) -> None:
    """Unlink a segment's files, the .log first: indexes without a log are swept away at the next
    open."""
    assert log_path.endswith(LOG_SUFFIX), log_path
    files.remove(log_path)
    _remove_indexes(files, log_path)


def _remove_indexes(files: "Files", log_path: str) -> None:
    for path in index_paths(log_path):
        if files.exists(path):
            files.remove(path)
