"""Truncation of a damaged log at its first invalid batch, with a copy of the removed part.

Only on request, in two steps. `copy_aside` makes the copy durable, with every folder on the way to
it. Only then may a checkpoint contain the new end: a start that found a lower recovery point would
treat the damage as a torn tail, and truncate it. `cut_damage` removes the newest segments first:
after a crash at any point the remaining log is contiguous.
"""

import errno
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import InvalidRequest
from ..layout import LOG_SUFFIX, join, parent_of, segment_file
from ..segment import remove_index
from ..segment_files import finish_swaps
from ..small_files import remove_tree
from ..truncation import remove_segment
from .log_check import LogCheck

if TYPE_CHECKING:
    from ...runtime.ports import Files

COPY_SIZE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """A planned truncation of a damaged log."""

    log: str
    folder: str
    aside: str  # folder of the copy
    end_offset: int  # the new log end
    position: int  # of the truncation in the first segment; -1: it is too short already
    bases: tuple[int, ...]  # of the truncated segment and of the removed ones, ascending
    sources: tuple[str, ...]  # current paths of their bytes; a swap may be incomplete
    size: int  # removed bytes
    what: str  # description of the plan


def plan_cut(files: "Files", check: LogCheck, aside: str) -> CutPlan:
    """Plan a truncation at the first fault. Raises InvalidRequest if the copy's folder exists."""
    if files.exists(aside):
        raise InvalidRequest(f"{aside} exists already; name a new folder for the copy")
    report, course = check.report, check.course
    point = check.around.recovery_point or 0
    if not course.faults:
        end = report.log_end_offset
        return CutPlan(
            log=report.name,
            folder=report.folder,
            aside=aside,
            end_offset=end,
            position=-1,
            bases=(),
            sources=(),
            size=0,
            what=f"{report.name}: continue at offset {end}; offsets [{end}, {point}) are lost",
        )
    fault = course.faults[0]
    first = next(at for at, base in enumerate(check.bases) if check.path_of(base) == fault.file)
    bases = tuple(check.bases[first:])
    sources = tuple(check.path_of(base) for base in bases)
    size = sum(files.size(path) for path in sources) - fault.position
    last = max(course.next_offset, point, fault.offset)
    return CutPlan(
        log=report.name,
        folder=report.folder,
        aside=aside,
        end_offset=fault.offset,
        position=fault.position,
        bases=bases,
        sources=sources,
        size=size,
        what=f"{report.name}: truncate offsets [{fault.offset}, {last}), {size} bytes from byte"
        f" {fault.position} of {fault.file} on, and keep a copy in {aside}",
    )


def copy_aside(files: "Files", plan: CutPlan) -> None:
    """Copy all removed bytes, durably. Waits for the device; raises OSError, after which no copy
    exists."""
    if plan.position < 0:
        return
    try:
        _make_folder(files, plan.aside)
        copied, position = 0, plan.position
        for base, source in zip(plan.bases, plan.sources, strict=True):
            name = segment_file(base, LOG_SUFFIX)
            target = f"{name}.from-{position}" if base == plan.bases[0] else name
            copied += _copy(files, source, join(plan.aside, target), position)
            position = 0
        files.sync_folder(plan.aside)
        if copied != plan.size:
            raise OSError(errno.EIO, f"{copied} of {plan.size} bytes were copied")
    except OSError:
        with suppress(OSError):
            remove_tree(files, plan.aside)
        raise


def cut_damage(files: "Files", plan: CutPlan) -> None:
    """Truncate, durably. Waits for the device; raises OSError."""
    if plan.position < 0:
        return
    finish_swaps(files, plan.folder, files.names(plan.folder))
    for base in reversed(plan.bases[1:]):
        remove_segment(files, join(plan.folder, segment_file(base, LOG_SUFFIX)))
        files.sync_folder(plan.folder)
    path = join(plan.folder, segment_file(plan.bases[0], LOG_SUFFIX))
    remove_index(files, path)
    file = files.open(path)
    try:
        file.truncate(plan.position)
        file.sync()
    finally:
        file.close()


def _make_folder(files: "Files", path: str) -> None:
    """Make a folder and its missing parents, with durable names."""
    parents = []
    missing = path
    while missing and not files.exists(missing):
        parents.append(parent_of(missing) or ("/" if missing.startswith("/") else "."))
        missing = parent_of(missing)
    files.make_folder(path)
    for parent in reversed(parents):
        files.sync_folder(parent)


def _copy(files: "Files", source: str, target: str, position: int) -> int:
    """Copy a file from a position on, and sync the copy; return its size in bytes."""
    old, new = files.open_readonly(source), files.open(target, create=True)
    try:
        at = 0
        while content := old.read(position + at, COPY_SIZE):
            written = 0
            while written < len(content):
                written += new.write(at + written, [content[written:]])
            at += len(content)
        new.sync()
        return at
    finally:
        old.close()
        new.close()
