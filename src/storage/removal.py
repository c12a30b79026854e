"""Removal of a log's oldest segments: renamed first, unlinked later.

Planned on the loop, performed in the write lane, completed on the loop. Each segment's .log is
renamed to `.deleted`, durably, before the next newer one is renamed. After a crash or a power cut
at any point, the log has lost some of its oldest segments and has no gap. The segment's other files
follow without a sync; the next opening removes them if their .log is gone, and it removes
`.deleted` files. Renames need no space; if a full disk rejects even a rename, the file is unlinked
at once.

Readers with an open file continue to read it after the unlink. The delay before the unlink lets an
operator restore a file; it is skipped when space is short.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .flush import OUT_OF_SPACE
from .layout import DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX

if TYPE_CHECKING:
    from ..runtime.ports import Files

BESIDE: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
"""The files of a segment besides its .log. Producer snapshots belong to no segment: storing a new
one removes the oldest."""

REMOVED_AT_ONCE: Final = 4
"""Segments per job: each waits for a sync of the folder, and all appends wait for the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A planned removal of the oldest segments of a log."""

    folder: str
    log_paths: tuple[str, ...]  # the new log start offset
    log_start_offset: int  # where the log starts without them


def perform_removal(files: "Files", removal: Removal) -> list[str]:
    """Rename the segments' files, durably; return the paths to unlink later.

    Waits for the device; raises OSError, after which an unknown part is done. May be repeated.
    """
    files.sync_folder(removal.folder)  # the next segment may be new
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
    """Rename a file to `.deleted`; return its new path, or nothing if it had to be unlinked."""
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
    """Unlink a renamed file, if it still exists; return its bytes. May take long for a large file;
    raises OSError.

    The file is not truncated in steps before: a reader may still have it open.
    """
    try:
        size = files.size(path)
        files.remove(path)
    except FileNotFoundError:
        return 0  # deleted with its log, or renamed twice
    return size
