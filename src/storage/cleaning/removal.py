"""Removing a log's oldest segments: renamed first, unlinked later.

Planned on the loop, performed in the write lane, completed on the loop. Each segment's .log is
renamed to `.deleted`, durably, before the next newer one is touched: whatever moment a crash picks
and whatever names a power cut keeps, what is found again has lost some of its oldest segments and
has no hole. Its other files follow without a sync; without their .log they are swept away at the
next opening, as `.deleted` files are. Nothing of this needs space: where a full disk refuses even a
rename, the file is unlinked at once.

Readers that have a file open read on: what is unlinked stays theirs. The delay before the unlinking
serves people, who may want a file back, so it is left out when space is short.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..disk.layout import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from ..segments.flushes import OUT_OF_SPACE

if TYPE_CHECKING:
    from ...runtime.ports import Files

BESIDE: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
"""What a segment has beside its .log. Snapshots of producers are no segment's: who takes a new one
removes the oldest."""

REMOVED_AT_ONCE: Final = 4
"""Segments in one job: each waits for a sync of the folder, and appends to any log wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The oldest segments of a log, to be removed."""

    folder: str
    log_paths: tuple[str, ...]  # oldest first; none is active
    log_start_offset: int  # where the log starts without them


def perform_removal(files: "Files", removal: Removal) -> list[str]:
    """Take the segments out of the log, durably; return the paths to unlink later.

    Waits for the device; raises OSError, and what was done by then is unknown: it may be repeated.
    """
    files.sync_folder(removal.folder)  # the segment that stays may be new
    renamed: list[str] = []
    for path in removal.log_paths:
        if files.exists(path):
            renamed += set_aside(files, path)
        elif files.exists(path + DELETED_SUFFIX):
            renamed.append(path + DELETED_SUFFIX)
        files.sync_folder(removal.folder)
        for suffix in BESIDE:
            beside = path.removesuffix(LOG_SUFFIX) + suffix
            if files.exists(beside):
                renamed += set_aside(files, beside)
    return renamed


def set_aside(files: "Files", path: str) -> list[str]:
    """Rename a file to `.deleted`; return its new path, or nothing when it had to be unlinked."""
    new = path + DELETED_SUFFIX
    try:
        files.rename(path, new)
    except OSError as error:
        if error.errno not in OUT_OF_SPACE:
            raise
        files.remove(path)
        return []
    return [new]


def unlink(files: "Files", path: str) -> int:
    """Unlink a file that was set aside, if it is still there; return its bytes. May wait long for a
    large one; raises OSError.

    It is not shortened before, in steps: somebody may still be reading it.
    """
    try:
        size = files.size(path)
        files.remove(path)
    except FileNotFoundError:
        return 0  # its log was deleted meanwhile, or it was set aside twice
    return size
