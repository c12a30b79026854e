"""Putting a cleaned segment in the place of its sources, whatever moment a crash picks.

    b.log.cleaned, b.index.cleaned, ...       written and synced by a round; nobody looks at them
    1  b-e.index.swap, ...                    all but the .log renamed; folder synced
    2  b-e.log.swap                           the commit point: renamed; folder synced
    3  sources b .. e: .log -> .log.deleted   what lies beside those above b unlinked;
       b-e.index.swap, ... -> b.index, ...    folder synced
    4  b-e.log.swap -> b.log                  folder synced

b is the base offset of the first source and e the offset behind the last one: the name says what is
replaced, since the cleaned content may have lost its last offsets. Before 2 an opening finds the
sources, and removes what is beside them. From 2 on it finds `b-e.log.swap`, and does 3 and 4 once
more: each file beside the .log is either still to be renamed or new already, for each has a
`.swap`, also the empty one. The groups of a round are swapped from the lowest up, one after the
other: a tombstone must not go before the values it deletes.

A rename that fails before the commit point undoes the swap; what fails behind it ends the log, and
the next opening finishes. Needs no space but for names.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..disk.layout import (
    CLEANED_SUFFIX,
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
from ..producers.transactions import AbortedTransaction
from ..segments.index import SegmentIndex
from ..segments.segment import walk
from .removal import set_aside, unlink

if TYPE_CHECKING:
    from ...runtime.ports import Files

SWAPPED_BESIDE: Final = (TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, INDEX_SUFFIX)
"""What is swapped beside the .log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Consecutive segments, none active, and what is to replace them."""

    folder: str
    base_offset: int  # of the first one, and of the new one
    end_offset: int  # exclusive: where the segment behind them starts
    sources: tuple[int, ...]  # base offsets, ascending
    size: int  # bytes of the new .log; may be 0
    index: SegmentIndex  # sealed; for the loop alone
    aborted: tuple[AbortedTransaction, ...] = ()  # what its .txnindex holds; for the loop alone


def perform_swap(files: "Files", swap: Swap) -> list[str] | OSError:
    """Swap, durably; return the paths to unlink later, or the error that let the log as it was.

    Waits for the device. Raises OSError behind the commit point: the next opening finishes then.
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
    """Finish what a crash left behind the commit point, and remove what it left before it.

    For the opening of a log, before anybody looks at its segments; takes the names in its folder
    and returns those that are there then. Raises OSError.
    """
    if not any(name.endswith(SWAP_SUFFIX) for name in names):
        return names
    bases = [base for name in names if (base := segment_base(name)) is not None]
    for name in names:
        found = swap_range(name)
        if found is None:
            continue
        base, end = found
        is_ours = end >= 0
        if not is_ours:  # the field's broker did not finish: it replaces what its batches span
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
    for suffix in SWAPPED_BESIDE:
        cleaned = _cleaned(swap, suffix)
        if not files.exists(cleaned):
            files.open(cleaned, create=True).close()  # an opening must find one of each
        _rename_cleaned(files, swap, suffix)
    files.sync_folder(swap.folder)


def _rename_cleaned(files: "Files", swap: Swap, suffix: str) -> None:
    files.rename(_cleaned(swap, suffix), _swap(swap, suffix))


def _undo(files: "Files", swap: Swap) -> None:
    """Remove what was prepared; what cannot be removed is removed at the next opening."""
    for suffix in (LOG_SUFFIX, *SWAPPED_BESIDE):
        for path in (_cleaned(swap, suffix), _swap(swap, suffix)):
            unlink(files, path)


def _finish(
    files: "Files", folder: str, name: str, base: int, end: int | None, sources: tuple[int, ...]
) -> list[str]:
    """Do steps 3 and 4 for the .log of this name; return what was set aside. Without an end it is
    the field's: of what is beside its .log only the transactions are taken, the rest is rebuilt."""
    renamed: list[str] = []
    for source in sources:
        path = join(folder, segment_file(source, LOG_SUFFIX))
        if files.exists(path):
            renamed += set_aside(files, path)
        for suffix in SWAPPED_BESIDE if source != base else ():
            unlink(files, join(folder, segment_file(source, suffix)))
    for suffix in SWAPPED_BESIDE:
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
    """Return the offset behind the last batch of a file."""
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
