"""Cutting a damaged log in front of its first bad batch, with a copy of all that is cut.

Only ever on request. The copy is durable before the first byte of the log goes, and the newest
segments go first: whatever moment a crash picks, the log that is left is contiguous.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import InvalidRequest
from ..layout import LOG_SUFFIX, join, parent_of, segment_file
from ..segment import remove_index
from ..truncation import remove_segment
from .folder import LogCheck

if TYPE_CHECKING:
    from ...runtime.ports import Files

COPY_SIZE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """What is cut of a log."""

    log: str
    folder: str
    aside: str  # folder that gets the copy
    end_offset: int  # the log's new end
    position: int  # in `path`, where it is cut; -1: nothing is cut, the log is too short already
    path: str  # .log that is cut
    removed: tuple[str, ...]  # .log paths of the segments behind it, ascending
    size: int  # bytes that go
    what: str  # says all this


def plan_cut(files: "Files", check: LogCheck, aside: str) -> CutPlan:
    """Plan to cut at the first fault. Raises InvalidRequest when the copy's folder is there."""
    if files.exists(aside):
        raise InvalidRequest(f"{aside} exists already: name a new folder for what is cut")
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
            path="",
            removed=(),
            size=0,
            what=f"{report.name}: go on at offset {end}; offsets [{end}, {point}) are lost, they"
            " are not there any more",
        )
    fault = course.faults[0]
    base = int(fault.file.rpartition("/")[2].partition(".")[0])
    behind = [other for other in check.bases if other > base]
    removed = tuple(join(report.folder, segment_file(other, LOG_SUFFIX)) for other in behind)
    size = files.size(fault.file) - fault.position + sum(files.size(path) for path in removed)
    last = max(course.next_offset, point, fault.offset)
    return CutPlan(
        log=report.name,
        folder=report.folder,
        aside=aside,
        end_offset=fault.offset,
        position=fault.position,
        path=fault.file,
        removed=removed,
        size=size,
        what=f"{report.name}: cut offsets [{fault.offset}, {last}), {size} bytes from byte"
        f" {fault.position} of {fault.file} on, and keep a copy in {aside}",
    )


def cut_damage(files: "Files", plan: CutPlan) -> None:
    """Copy aside, durably, then cut. Waits for the device; raises OSError."""
    if plan.position < 0:
        return
    files.make_folder(plan.aside)
    name = plan.path.rpartition("/")[2]
    _copy(files, plan.path, join(plan.aside, f"{name}.from-{plan.position}"), plan.position)
    for path in plan.removed:
        _copy(files, path, join(plan.aside, path.rpartition("/")[2]), 0)
    files.sync_folder(plan.aside)
    files.sync_folder(parent_of(plan.aside) or ".")
    for path in reversed(plan.removed):
        remove_segment(files, path)
        files.sync_folder(plan.folder)
    remove_index(files, plan.path)
    file = files.open(plan.path)
    try:
        file.truncate(plan.position)
        file.sync()
    finally:
        file.close()


def _copy(files: "Files", source: str, target: str, position: int) -> None:
    """Copy a file from a position on, and sync the copy."""
    old, new = files.open_readonly(source), files.open(target, create=True)
    try:
        at = 0
        while content := old.read(position + at, COPY_SIZE):
            written = 0
            while written < len(content):
                written += new.write(at + written, [content[written:]])
            at += len(content)
        new.sync()
    finally:
        old.close()
        new.close()
