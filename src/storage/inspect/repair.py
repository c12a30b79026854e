"""Repair of a data directory that is not in use: safe steps, each with a description.

The start code of a node truncates the torn tail, completes unfinished work and rebuilds everything
above the recovery point. Indexes, leader epochs, snapshots and checkpoints are rebuilt from the
batches. Each step is atomic, or the next start (or repair) completes it: a crash at any point loses
no valid batch. A failed step ends the repair. The report lists the completed steps, the failed one,
and the ones not begun.

Batches damaged below the recovery point stay, unless the caller requests a truncation, which has
two halves. `copy_aside` makes a copy of the removed part durable, with every folder on the way to
it. Only then may a checkpoint contain the new end: a start that found a lower recovery point would
treat the damage as a torn tail, and truncate it. `truncate_damage` removes the newest segments
first: after a crash at any point the remaining log is contiguous.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...errors import DirectoryInUse, InvalidRequest, QuorumlogError
from ..checkpoints import encode_epochs, encode_offsets
from ..config import FlushPolicy, LogConfig
from ..data_directory_state import known_gaps
from ..layout import (
    CLEAN_MARKER,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOCK,
    LOG_START_OFFSETS,
    LOG_SUFFIX,
    META_PROPERTIES,
    RECOVERY_POINTS,
    join,
    parent_of,
    segment_file,
)
from ..leader_epochs import EpochCache
from ..recovery import Recovery, recover
from ..segment import build_index, index_paths, remove_index
from ..segment_files import finish_swaps
from ..small_files import remove_tree, replace_file
from ..truncation import remove_segment
from .directory_check import CHECKPOINTS, DirectoryCheck, KnownMetadata, check_directory
from .findings import CheckFinding, CheckReport, FindingKind
from .log_check import METADATA_LOG, LogCheck, Progress

if TYPE_CHECKING:
    from ...runtime.ports import FileLock, Files

COPY_SIZE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncationPlan:
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


def plan_truncation(files: "Files", check: LogCheck, aside: str) -> LogTruncationPlan:
    """Plan a truncation at the first fault. Raises InvalidRequest if the copy's folder exists."""
    if files.exists(aside):
        raise InvalidRequest(f"{aside} exists already; name a new folder for the copy")
    report, course = check.report, check.course
    point = check.around.recovery_point or 0
    if not course.faults:
        end = report.log_end_offset
        return LogTruncationPlan(
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
    return LogTruncationPlan(
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


def copy_aside(files: "Files", plan: LogTruncationPlan) -> None:
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


def truncate_damage(files: "Files", plan: LogTruncationPlan) -> None:
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


INDEX_INTERVAL_BYTES: Final = 4096
INDEX_KINDS: Final = frozenset(
    {
        FindingKind.INDEX_WRONG,
        FindingKind.TIME_INDEX_WRONG,
        FindingKind.INDEX_MISSING,
        FindingKind.INDEX_FOREIGN,
    }
)
RECOVERED_KINDS: Final = frozenset(
    {
        FindingKind.TORN_TAIL,
        FindingKind.UNFINISHED,
        FindingKind.INDEX_STALE,
        FindingKind.TRANSACTION_INDEX_WRONG,
    }
)
"""Kinds that the start code of a node repairs."""

DAMAGE_KINDS: Final = frozenset(
    {
        FindingKind.BATCH_DAMAGED,
        FindingKind.BATCH_MALFORMED,
        FindingKind.OFFSET_ORDER,
        FindingKind.EPOCH_ORDER,
        FindingKind.LOG_SHORT,
    }
)


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One step with its description."""

    what: str
    perform: Callable[[], None]


@dataclass(slots=True)
class RepairReport:
    """The result of a repair. `after` is a new check; None if a step failed before."""

    before: CheckReport
    done: list[str] = field(default_factory=list)
    failed: tuple[str, str] | None = None  # (step, error)
    not_begun: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # damage that stays, and the reason
    after: CheckReport | None = None

    @property
    def is_ok(self) -> bool:
        """True if the directory has no problem now."""
        return self.after is not None and self.after.is_ok

    def as_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        failed = self.failed
        return {
            "ok": self.is_ok,
            "done": self.done,
            "failed": None if failed is None else {"step": failed[0], "error": failed[1]},
            "not_begun": self.not_begun,
            "refused": self.refused,
            "before": self.before.as_dict(),
            "after": None if self.after is None else self.after.as_dict(),
        }


def repair(
    files: "Files",
    path: str,
    *,
    known: KnownMetadata | None = None,
    cut_to: str | None = None,
    progress: Progress = lambda size: None,
) -> RepairReport:
    """Check a data directory, repair it, check it again.

    `cut_to`: a folder outside of it. Damaged logs are truncated at their first invalid batch, after
    copying the removed part to that folder. Raises InvalidRequest if the path is not a data
    directory, DirectoryInUse, OSError of the check.
    """
    path = path.rstrip("/") or "/"
    if not files.exists(join(path, META_PROPERTIES)):
        raise InvalidRequest(
            f"{path} is not a data directory ({META_PROPERTIES} is missing); a repair needs the"
            " checkpoints and the lock of the whole directory"
        )
    if cut_to is not None and (cut_to == path or cut_to.startswith(path + "/")):
        raise InvalidRequest(f"{cut_to} is inside {path}; name a folder outside of it")
    lock = _lock(files, path)
    try:
        found = check_directory(files, path, known=known, progress=progress, ask_lock=False)
        report = RepairReport(found.report)
        _perform(list(_RepairPlan(files, found, report, cut_to).steps()), report)
        if report.failed is None:
            after = check_directory(files, path, known=known, progress=progress, ask_lock=False)
            report.after = after.report
        return report
    finally:
        lock.release()


def _lock(files: "Files", path: str) -> "FileLock":
    try:
        return files.lock(join(path, LOCK))
    except BlockingIOError:
        raise DirectoryInUse(
            f"{path} is in use by a node; stop it before a repair, or check without --repair"
        ) from None


def _perform(steps: list[RepairStep], report: RepairReport) -> None:
    for at, step in enumerate(steps):
        try:
            step.perform()
        except (OSError, QuorumlogError) as error:
            text = error.message if isinstance(error, QuorumlogError) else str(error)
            report.failed = (step.what, text)
            report.not_begun = [other.what for other in steps[at + 1 :]]
            return
        report.done.append(step.what)


class _RepairPlan:
    """The steps for the findings of one check, in order."""

    def __init__(
        self, files: "Files", found: DirectoryCheck, report: RepairReport, cut_to: str | None
    ) -> None:
        self._files = files
        self._found = found
        self._path = found.path
        self._report = report
        self._cut_to = cut_to
        self._ends: dict[str, int] = {}  # of logs truncated by a step
        self._recovered: dict[str, int] = {}  # log -> durable end, after its step
        points = join(self._path, RECOVERY_POINTS)
        # The flushed offsets of the logs are unknown, and so is the possible torn part.
        self._is_unsure = not found.report.is_clean and any(
            finding.file == points and not found.offsets[RECOVERY_POINTS]
            for finding in found.report.findings
        )

    def steps(self) -> Iterator[RepairStep]:
        """Yield every step."""
        found = self._found
        own: dict[FindingKind, list[CheckFinding]] = {}
        for finding in found.report.findings:
            own.setdefault(finding.kind, []).append(finding)
        cuts = list(self._cuts())
        for name in self._gone():
            self._report.refused.append(
                f"{name} has no folder; its checkpoints stay, so that no start treats it as new;"
                " restore the folder, or drop the log with --cut-damage FOLDER"
            )
        if FindingKind.CLEAN_MARKER_WRONG in own:
            yield RepairStep(
                "remove the clean-shutdown marker; the next start recovers", self._remove_marker
            )
        for finding in found.report.findings:
            if finding.kind is FindingKind.UNFINISHED:
                yield self._removal(finding.file)
        for cut in cuts:
            yield RepairStep(cut.what, partial(self._cut, cut))
        for name, check in found.logs.items():
            yield from self._log_steps(name, check, is_cut=any(cut.log == name for cut in cuts))
        is_recovered = any(
            finding.kind in RECOVERED_KINDS
            for check in found.logs.values()
            for finding in check.report.findings
        )
        if self._is_unsure and any(self._is_let_be(check) for check in found.logs.values()):
            return  # rewritten checkpoints would let a start truncate the kept damage
        # A finding without an offset is about a damaged file, or a missing log.
        is_due = FindingKind.CHECKPOINT_WRONG in own and (
            self._clamped() != self._found.offsets
            or any(one.offset is None for one in own[FindingKind.CHECKPOINT_WRONG])
        )
        if is_due or cuts or is_recovered:
            yield RepairStep("write the checkpoints from the logs", self._write_checkpoints)

    # --- damage --------------------------------------------------------------------------------

    def _cuts(self) -> Iterator[LogTruncationPlan]:
        for name, check in self._found.logs.items():
            if not check.is_read:
                self._report.refused.append(
                    f"{name} is unreadable and stays unchanged, with its checkpoints"
                )
            if not check.is_read or not self._is_damaged(check):
                continue
            if self._cut_to is None:
                self._report.refused.append(
                    f"{name} is damaged and stays unchanged; fetch it from its leader again, or"
                    " truncate it with --cut-damage FOLDER"
                )
            elif name == METADATA_LOG:
                self._report.refused.append(
                    f"{name} is damaged and stays unchanged: a voter that lost acknowledged records"
                    " must not vote; format a new directory for it"
                )
            else:
                yield plan_truncation(self._files, check, join(self._cut_to, name))

    def _gone(self) -> list[str]:
        """Return the fsynced logs without folders; their checkpoints must stay. A node
        removes a log's checkpoints before its folder."""
        if self._cut_to is not None:
            return []
        points = self._found.offsets[RECOVERY_POINTS]
        return [name for name in points if points[name] > 0 and name not in self._found.logs]

    def _is_damaged(self, check: LogCheck) -> bool:
        kinds = {finding.kind for finding in check.report.findings}
        return bool(kinds & DAMAGE_KINDS) or (self._is_unsure and FindingKind.TORN_TAIL in kinds)

    def _is_let_be(self, check: LogCheck) -> bool:
        is_cut = self._cut_to is not None and check.report.name != METADATA_LOG
        return not check.is_read or (self._is_damaged(check) and not is_cut)

    def _cut(self, plan: LogTruncationPlan) -> None:
        copy_aside(self._files, plan)
        self._remove_marker()
        self._store_offsets(self._lowered(plan.log, plan.end_offset))
        truncate_damage(self._files, plan)
        self._ends[plan.log] = plan.end_offset
        self._recover(self._found.logs[plan.log], recovery_point=plan.end_offset)

    def _lowered(self, log: str, end_offset: int) -> dict[str, dict[str, int]]:
        """Return the checkpoints with all offsets above a log's new end lowered to it."""
        lowered = {}
        for file, offsets in self._found.offsets.items():
            lowered[file] = dict(offsets)
            if offsets.get(log, 0) > end_offset:
                lowered[file][log] = end_offset
        self._found.offsets = lowered
        return lowered

    # --- logs ----------------------------------------------------------------------------------

    def _log_steps(self, name: str, check: LogCheck, *, is_cut: bool) -> Iterator[RepairStep]:
        kinds = {finding.kind for finding in check.report.findings}
        if is_cut or not check.is_read:
            return
        is_damaged = self._is_damaged(check)
        is_clean = bool(self._found.report.is_clean)
        for finding in check.report.findings:
            if finding.kind in (FindingKind.SNAPSHOT_WRONG, FindingKind.SNAPSHOT_STALE):
                yield self._removal(finding.file)
        if kinds & RECOVERED_KINDS and not is_damaged:
            what = f"{name}: complete unfinished work, truncate a torn tail at offset"
            yield RepairStep(
                f"{what} {check.report.log_end_offset}, rebuild what follows from the batches",
                lambda: self._recover(check, recovery_point=None),
            )
        logs = {
            finding.file.rpartition(".")[0] + ".log"
            for finding in check.report.findings
            if finding.kind in INDEX_KINDS
        }
        for path in sorted(logs):
            if self._files.exists(path) and not is_damaged:
                yield RepairStep(f"rebuild the indexes of {path}", partial(self._index, path))
        if (
            kinds & {FindingKind.EPOCH_FILE_WRONG, FindingKind.EPOCH_FILE_MISSING}
            and not is_damaged
        ):
            yield RepairStep(
                f"{name}: write {LEADER_EPOCHS} from the batches",
                lambda: self._write_epochs(check, is_clean=is_clean),
            )

    def _recover(self, check: LogCheck, *, recovery_point: int | None) -> None:
        """Open the log like a start after an unclean shutdown, and store the result."""
        around, name = check.around, check.report.name
        point = recovery_point
        if point is None:
            point = around.recovery_point or 0
        config = LogConfig(
            compacted=around.is_compacted,
            flush_policy=FlushPolicy.REPLICATED
            if check.unsynced_bytes_max is None
            else FlushPolicy.FSYNC,
        )
        recovery = Recovery(
            folder=check.folder,
            config=config,
            is_clean=False,
            recovery_point=point,
            log_start_offset=min(around.log_start_offset or 0, point)
            if recovery_point is not None
            else around.log_start_offset or 0,
            torn_bytes_max=check.unsynced_bytes_max,
            wall_ms=0,
            cleaned_to=around.cleaner_offset,
        )
        gaps_below = known_gaps(recovery, check.gaps_below)
        state = recover(self._files, replace(recovery, gaps_below=gaps_below))
        if state.segments:
            epochs = encode_epochs(state.epochs.entries())
            replace_file(self._files, check.folder, LEADER_EPOCHS, epochs)
            self._index(state.segments[-1].path)
        self._recovered[name] = state.log_end_offset

    def _index(self, path: str) -> None:
        """Write both index files of a segment, each atomically."""
        folder, _, name = path.rpartition("/")
        file = self._files.open_readonly(path)
        try:
            index = build_index(
                file,
                base_offset=int(name.partition(".")[0]),
                end=file.size(),
                interval_bytes=INDEX_INTERVAL_BYTES,
            )
        finally:
            file.close()
        index.seal()
        for target, content in zip(
            index_paths(path), (index.encode_offsets(), index.encode_times()), strict=True
        ):
            replace_file(self._files, folder, target.rpartition("/")[2], content)

    def _write_epochs(self, check: LogCheck, *, is_clean: bool) -> None:
        epochs = EpochCache()
        for run in check.course.runs:
            epochs.assign(run.epoch, run.first_offset)
        epochs.truncate_start(check.report.log_start_offset)
        if not is_clean:
            end = self._recovered.get(check.report.name, check.around.recovery_point or 0)
            epochs.truncate_end(end)
        replace_file(self._files, check.folder, LEADER_EPOCHS, encode_epochs(epochs.entries()))

    # --- the directory's own files -------------------------------------------------------------

    def _removal(self, path: str) -> RepairStep:
        def remove() -> None:
            if self._files.exists(path):
                remove_tree(self._files, path)
                self._files.sync_folder(path.rpartition("/")[0])

        return RepairStep(f"remove {path}", remove)

    def _remove_marker(self) -> None:
        path = join(self._path, CLEAN_MARKER)
        if self._files.exists(path):
            self._files.remove(path)
            self._files.sync_folder(self._path)

    def _write_checkpoints(self) -> None:
        self._store_offsets(self._clamped())

    def _clamped(self) -> dict[str, dict[str, int]]:
        """Return the stored offsets limited to the range of the logs, with every log that must be
        listed."""
        stored = {file: dict(self._found.offsets.get(file, {})) for file in CHECKPOINTS}
        there = {*self._found.logs, *self._gone()}
        for offsets in stored.values():
            for name in [name for name in offsets if name not in there]:
                del offsets[name]
        for name, check in self._found.logs.items():
            if self._is_let_be(check):
                continue
            report = check.report
            end = self._ends.get(name, report.log_end_offset)
            start = min(report.log_start_offset, end)
            if name in self._recovered:
                stored[RECOVERY_POINTS][name] = self._recovered[name]
            elif self._found.report.is_clean and report.is_ok and end > 0:
                stored[RECOVERY_POINTS][name] = end
            if start > 0:
                stored[LOG_START_OFFSETS][name] = max(start, stored[LOG_START_OFFSETS].get(name, 0))
            for file, low in ((HIGH_WATERMARKS, start), (CLEANER_OFFSETS, 0)):
                if name in stored[file]:
                    stored[file][name] = min(max(stored[file][name], low), end)
        return stored

    def _store_offsets(self, stored: dict[str, dict[str, int]]) -> None:
        """Replace the checkpoint files with changed content."""
        for file, offsets in stored.items():
            if offsets or self._files.exists(join(self._path, file)):
                replace_file(self._files, self._path, file, encode_offsets(offsets))
