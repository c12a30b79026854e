"""Removal and replacement of segment files, atomic across crashes.

Planned on the loop, performed in the write lane, completed on the loop.

Removal: each segment's .log is renamed to `.deleted`, durably, before the next newer one is
renamed. After a crash or a power cut at any point, the log has lost some of its oldest segments and
has no gap. The segment's other files follow without a sync; the next opening removes them if their
.log is gone, and it removes `.deleted` files. Renames need no space; if a full disk rejects even a
rename, the file is unlinked at once. Readers with an open file continue to read it after the
unlink. The delay before the unlink lets an operator restore a file; it is skipped when space is
short.

Replacement of segments by a cleaned one:

    b.log.cleaned, b.index.cleaned, ...       written and synced by a cleaning run, not yet used
    1  b-e.index.swap, ...                    all but the .log renamed; folder synced
    2  b-e.log.swap                           the commit point: renamed; folder synced
    3  sources b .. e: .log -> .log.deleted   other files of the sources above b unlinked;
       b-e.index.swap, ... -> b.index, ...    folder synced
    4  b-e.log.swap -> b.log                  folder synced

b is the base offset of the first source and e the end offset of the last one. The name contains the
replaced range, since the cleaned content may have lost its last offsets. Before step 2 an opening
finds the sources, and removes the other files. From step 2 on it finds `b-e.log.swap`, and repeats
steps 3 and 4: each file beside the .log is either still to be renamed or already new, since each
has a `.swap`, even an empty one. The groups of a run are swapped in ascending order, one by one: a
tombstone must not be removed before the values it deletes.

A rename that fails before the commit point undoes the swap. A failure after it fails the log, and
the next opening completes the swap. Needs no space except for names.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .index import SegmentIndex
from .layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    join,
    segment_base,
    segment_file,
    swap_file,
    swap_range,
)
from .segment import walk
from .small_files import OUT_OF_SPACE
from .transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from ..runtime.ports import Files

INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
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
            renamed += mark_deleted(files, path)
        elif files.exists(path + DELETED_SUFFIX):
            renamed.append(path + DELETED_SUFFIX)
        files.sync_folder(removal.folder)
        for suffix in INDEX_SUFFIXES:
            beside = path.removesuffix(LOG_SUFFIX) + suffix
            if files.exists(beside):
                renamed += mark_deleted(files, beside)
    return renamed


def mark_deleted(files: "Files", path: str) -> list[str]:
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


SWAPPED_SUFFIXES: Final = (TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, INDEX_SUFFIX)
"""The files swapped besides the .log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """An inactive segment to be cleaned."""

    path: str  # of its .log
    base_offset: int
    end_offset: int  # exclusive: the base offset of the next segment
    size: int  # bytes of its batches


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """Consecutive segments, and the cleaned segment that replaces them.

    Its files lie beside theirs, synced: `<base>.log.cleaned`, `.index.cleaned`,
    `.timeindex.cleaned`, and `.txnindex.cleaned` if it has an aborted transaction.
    """

    sources: tuple[SourceSegment, ...]
    base_offset: int  # of the first source
    size: int  # bytes of the .log; may be 0
    index: SegmentIndex  # final, as in the files
    aborted: tuple[AbortedTransaction, ...]  # the entries of its transaction index

    @property
    def end_offset(self) -> int:
        """Exclusive: the base offset of the segment after the group."""
        return self.sources[-1].end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A planned replacement of consecutive inactive segments."""

    folder: str
    base_offset: int  # of the first source, and of the new segment
    end_offset: int  # exclusive: the base offset of the segment after them
    sources: tuple[int, ...]  # base offsets, ascending
    size: int  # bytes of the new .log; may be 0
    index: SegmentIndex  # final; for the loop only
    aborted: tuple[AbortedTransaction, ...] = ()  # the entries of its .txnindex; for the loop only


def perform_swap(files: "Files", swap: Swap) -> list[str] | OSError:
    """Swap, durably; return the paths to unlink later, or the error that left the log unchanged.

    Waits for the device. Raises OSError after the commit point: the next opening completes the
    swap.
    """
    try:
        _prepare(files, swap)
        _rename_cleaned(files, swap, LOG_SUFFIX)
    except OSError as error:
        _undo(files, swap)
        return error
    files.sync_folder(swap.folder)
    name = swap_file(swap.base_offset, swap.end_offset, LOG_SUFFIX)
    return _finish(files, swap.folder, name, swap.base_offset, swap.end_offset, swap.sources)


def finish_swaps(files: "Files", folder: str, names: list[str]) -> list[str]:
    """Complete swaps interrupted after the commit point, and remove files of others.

    For the opening of a log, before its segments are read; takes the names in its folder and
    returns the remaining ones. Raises OSError.
    """
    if not any(name.endswith(SWAP_SUFFIX) for name in names):
        return names
    bases = [base for name in names if (base := segment_base(name)) is not None]
    for name in names:
        found = swap_range(name)
        if found is None:
            continue
        # sometimes: an opening finds an interrupted swap
        base, end = found
        is_ours = end >= 0
        if not is_ours:  # left by Kafka's broker: it replaces the range of its batches
            end = _end_of(files, join(folder, name), base)
        sources = tuple(each for each in bases if base <= each < end)
        for path in _finish(files, folder, name, base, end if is_ours else None, sources):
            unlink(files, path)
    names = files.names(folder)
    for name in names:
        if name.endswith(SWAP_SUFFIX):
            files.remove(join(folder, name))
    return [name for name in names if not name.endswith(SWAP_SUFFIX)]


def _prepare(files: "Files", swap: Swap) -> None:
    for suffix in SWAPPED_SUFFIXES:
        cleaned = _cleaned(swap, suffix)
        if not files.exists(cleaned):
            files.open(cleaned, create=True).close()  # an opening must find one of each
        _rename_cleaned(files, swap, suffix)
    files.sync_folder(swap.folder)


def _rename_cleaned(files: "Files", swap: Swap, suffix: str) -> None:
    files.rename(_cleaned(swap, suffix), _swap(swap, suffix))


def _undo(files: "Files", swap: Swap) -> None:
    """Remove the prepared files; the next opening removes the others."""
    for suffix in (LOG_SUFFIX, *SWAPPED_SUFFIXES):
        for path in (_cleaned(swap, suffix), _swap(swap, suffix)):
            unlink(files, path)


def _finish(
    files: "Files", folder: str, name: str, base: int, end: int | None, sources: tuple[int, ...]
) -> list[str]:
    """Perform steps 3 and 4 for the .log of this name; return the renamed files. Without `end` the
    swap is Kafka's: only its transaction index is used, the other indexes are rebuilt."""
    renamed: list[str] = []
    for source in sources:
        path = join(folder, segment_file(source, LOG_SUFFIX))
        if files.exists(path):
            renamed += mark_deleted(files, path)
        for suffix in SWAPPED_SUFFIXES if source != base else ():
            unlink(files, join(folder, segment_file(source, suffix)))
    for suffix in SWAPPED_SUFFIXES:
        final = join(folder, segment_file(base, suffix))
        new = final + SWAP_SUFFIX if end is None else join(folder, swap_file(base, end, suffix))
        if end is None and suffix != TXN_INDEX_SUFFIX:
            unlink(files, final)
        elif files.exists(new):
            files.rename(new, final)
    files.sync_folder(folder)
    files.rename(join(folder, name), join(folder, segment_file(base, LOG_SUFFIX)))
    files.sync_folder(folder)
    transactions = join(folder, segment_file(base, TXN_INDEX_SUFFIX))
    if files.exists(transactions) and files.size(transactions) == 0:
        files.remove(transactions)
    return renamed


def _end_of(files: "Files", path: str, base: int) -> int:
    """Return the offset after the last batch of a file."""
    file = files.open_readonly(path)
    try:
        end = base
        for _, header in walk(file, 0, file.size()):
            end = header.next_offset
        return end
    finally:
        file.close()


def _cleaned(swap: Swap, suffix: str) -> str:
    return join(swap.folder, segment_file(swap.base_offset, suffix) + CLEANED_SUFFIX)


def _swap(swap: Swap, suffix: str) -> str:
    return join(swap.folder, swap_file(swap.base_offset, swap.end_offset, suffix))
