"""Proves a data directory: its own files, and every log in it.

The checkpoints are read before the logs, so that a node which appends meanwhile cannot make them
look as if they were ahead. Read-only but for one thing: whether a node has the directory open is
asked by taking its lock for an instant, where the lock's file is there and may be opened.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ...errors import CorruptionError, InvalidRequest
from ...ids import DirectoryId, NodeId, TopicId
from ..disk.checkpoints import DirectoryMeta, encode_id
from ..disk.contents import read_file
from ..disk.layout import (
    CLEAN_MARKER,
    CLEANER_OFFSETS,
    DELETED_FOLDER_SUFFIX,
    HIGH_WATERMARKS,
    LOCK,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    TEMPORARY_SUFFIX,
    join,
    segment_base,
    split_log_name,
)
from .findings import CheckReport, Findings, Kind
from .folder import METADATA_LOG, LogCheck, Progress, Surroundings, check_log
from .small_files import quorum_checksum, strict_marker, strict_meta, strict_offsets

if TYPE_CHECKING:
    from ...runtime.ports import Files

QUORUM_STATE: Final = "quorum-state"
QUORUM_KEYS: Final = ("leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version")
QUORUM_CHECKSUM: Final = "crc32c"
OWN_QUORUM_KEYS: Final = (*QUORUM_KEYS, QUORUM_CHECKSUM)
REPEATS_MAX: Final = 5
"""How often a log is checked anew that a node changes meanwhile."""

CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """What the metadata log says of a topic."""

    topic_id: TopicId
    is_compacted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known besides the files: from the metadata log, or said by who checks."""

    topics: Mapping[str, KnownTopic] | None = None  # by name; None: the metadata is not at hand
    directories: Mapping[NodeId, DirectoryId] = field(default_factory=dict)  # of registered nodes
    compacted: frozenset[str] = frozenset()  # topics, or logs, whose offsets may have gaps

    def is_compacted(self, log: str, cleaner_offsets: Mapping[str, int]) -> bool:
        """Whether gaps in a log are right: the cleaner was there once, the topic's config says so
        now, or somebody said so."""
        topic = (split_log_name(log) or (log, 0))[0]
        known = self.topics.get(topic) if self.topics is not None else None
        return (
            log in cleaner_offsets
            or (known is not None and known.is_compacted)
            or not self.compacted.isdisjoint((log, topic))
        )


@dataclass(slots=True)
class DirectoryCheck:
    """One check of one data directory; make it with `check_directory`."""

    files: "Files"
    path: str
    known: Known
    report: CheckReport = field(init=False)
    meta: DirectoryMeta | None = None
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)  # by file, by log
    logs: dict[str, LogCheck] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.report = CheckReport(self.path, is_directory=True)

    @property
    def findings(self) -> Findings:
        """Of the directory's own files."""
        return self.report.findings

    def run(self, progress: Progress, *, only: str | None, ask_lock: bool) -> None:
        """Fill the report in; `only`: of the logs just this one."""
        names = self.files.names(self.path)
        self.report.is_in_use = ask_lock and is_in_use(self.files, self.path)
        if self.report.is_in_use:
            self.findings.add(Kind.IN_USE, join(self.path, LOCK), "it is locked")
        self._check_own_files(names)
        self.report.is_clean = CLEAN_MARKER in names
        folders = self._check_names(names)
        for name in folders:
            if only is None or name == only:
                self._check_log(name, progress)
        if only is None:
            self._check_checkpoints(folders)
            self._check_topic_ids()

    # --- its own files -------------------------------------------------------------------------

    def _check_own_files(self, names: list[str]) -> None:
        for name in CHECKPOINTS:
            self.offsets[name] = self._read_offsets(name) if name in names else {}
        if META_PROPERTIES in names:
            path = join(self.path, META_PROPERTIES)
            try:
                self._compare_meta(path, strict_meta(read_file(self.files, path), path))
            except CorruptionError as error:
                self.findings.add(Kind.METADATA_WRONG, path, error.message)
        if CLEAN_MARKER in names:
            path = join(self.path, CLEAN_MARKER)
            try:
                strict_marker(read_file(self.files, path), path)
            except CorruptionError as error:
                self.findings.add(Kind.CLEAN_MARKER_WRONG, path, error.message)
        if QUORUM_STATE in names:
            path = join(self.path, QUORUM_STATE)
            wrong = _quorum_state_fault(read_file(self.files, path))
            if wrong is not None:
                self.findings.add(Kind.METADATA_WRONG, path, wrong)

    def _compare_meta(self, path: str, meta: DirectoryMeta) -> None:
        self.meta = meta
        directories = self.known.directories
        mine = directories.get(meta.node_id)  # None: it has not registered, as long as
        is_other = mine is None and meta.directory_id in directories.values()  # nobody else did
        if is_other or (mine is not None and mine != meta.directory_id):
            self.findings.add(
                Kind.METADATA_WRONG,
                path,
                f"the metadata log knows no node {meta.node_id} with directory"
                f" {encode_id(meta.directory_id)}",
            )

    def _read_offsets(self, name: str) -> dict[str, int]:
        path = join(self.path, name)
        try:
            return strict_offsets(read_file(self.files, path), path)
        except CorruptionError as error:
            self.findings.add(Kind.CHECKPOINT_WRONG, path, error.message)
            return {}

    def _check_names(self, names: list[str]) -> list[str]:
        """Return the folders of logs; tell what belongs to nothing."""
        folders = []
        own = {META_PROPERTIES, CLEAN_MARKER, LOCK, QUORUM_STATE, *CHECKPOINTS}
        for name in names:
            path = join(self.path, name)
            if name in own:
                continue
            if name.endswith(DELETED_FOLDER_SUFFIX):
                self.findings.add(Kind.UNFINISHED, path, "a deleted log's folder")
            elif name.endswith(TEMPORARY_SUFFIX):
                self.findings.add(Kind.UNFINISHED, path, "a file that was to replace another one")
            elif split_log_name(name) is not None and self.files.is_folder(path):
                folders.append(name)
            else:
                self.findings.add(Kind.STRAY, path, "not a file of a data directory")
        return folders

    # --- logs ----------------------------------------------------------------------------------

    def _check_log(self, name: str, progress: Progress) -> None:
        topic = (split_log_name(name) or (name, 0))[0]
        known = self.known.topics.get(topic) if self.known.topics is not None else None
        points = self.offsets[RECOVERY_POINTS]
        around = Surroundings(
            is_clean=self.report.is_clean,
            recovery_point=points.get(name, 0),
            log_start_offset=self.offsets[LOG_START_OFFSETS].get(name),
            high_watermark=self.offsets[HIGH_WATERMARKS].get(name),
            cleaner_offset=self.offsets[CLEANER_OFFSETS].get(name),
            is_compacted=self.known.is_compacted(name, self.offsets[CLEANER_OFFSETS]),
            topic_id=known.topic_id if known is not None else None,
        )
        folder = join(self.path, name)
        check = check_log(self.files, folder, around, progress=progress)
        if self.report.is_in_use:
            for _ in range(REPEATS_MAX):
                if not self.files.exists(folder):
                    return  # deleted meanwhile
                if check.report.is_ok or self.files.names(folder) == check.names:
                    break  # else segments came or went under the check
                check = check_log(self.files, folder, around, progress=progress)
        self.logs[name] = check
        self.report.logs.append(check.report)
        if self.known.topics is not None and known is None and name != METADATA_LOG:
            check.report.findings.add(
                Kind.STRAY, folder, f"the metadata log has no topic {topic}: it was deleted"
            )

    def _check_checkpoints(self, folders: list[str]) -> None:
        for file, offsets in self.offsets.items():
            path = join(self.path, file)
            for log, offset in offsets.items():
                if log in self.logs:
                    wrong = self._outside(file, offset, self.logs[log])
                elif log in folders:
                    wrong = None  # it went away meanwhile
                else:
                    wrong = "it has no folder here" if offset > 0 else None
                if wrong is not None:
                    what = f"it says {offset} for {log}: {wrong}"
                    self.findings.add(Kind.CHECKPOINT_WRONG, path, what, offset=offset)
        if self.report.is_clean:
            self._check_complete()

    def _outside(self, file: str, offset: int, log: LogCheck) -> str | None:
        """Return why a checkpoint cannot be right.

        After an unclean stop a log start may be ahead of all others, for records are deleted
        durably at once; and a power cut may have taken what no sync had covered, which replicated
        logs commit all the same.
        """
        if not log.is_read:
            return None  # nobody knows where it ends
        end, start = log.report.log_end_offset, log.report.log_start_offset
        if file == RECOVERY_POINTS:
            is_wrong = offset != end if self.report.is_clean else False  # else told of the log
            return f"after a clean stop it is the log's end, {end}" if is_wrong else None
        is_sure = self.report.is_clean or (
            file != LOG_START_OFFSETS and log.unsynced_bytes_max is not None
        )
        if offset > end and is_sure:
            return f"the log ends at {end}"
        if file in (LOG_START_OFFSETS, HIGH_WATERMARKS) and self.report.is_clean and offset < start:
            return f"the log starts at {start}"
        return None

    def _check_topic_ids(self) -> None:
        """A topic has one id, and an id one topic: a folder that was renamed or copied in is
        another's."""
        topics: dict[TopicId, str] = {}
        ids: dict[str, TopicId] = {}
        for name, check in self.logs.items():
            topic = (split_log_name(name) or (name, 0))[0]
            if check.topic_id is None:
                continue
            other = topics.setdefault(check.topic_id, topic)
            path = join(check.folder, PARTITION_METADATA)
            if other != topic:
                what = f"its topic id is that of {other} too"
                check.report.findings.add(Kind.METADATA_WRONG, path, what)
            elif ids.setdefault(topic, check.topic_id) != check.topic_id:
                what = f"its topic id is not that of the other partitions of {topic}"
                check.report.findings.add(Kind.METADATA_WRONG, path, what)

    def _check_complete(self) -> None:
        """After a clean stop every log is in the checkpoints that must have it."""
        points, starts = self.offsets[RECOVERY_POINTS], self.offsets[LOG_START_OFFSETS]
        for name, check in self.logs.items():
            report = check.report
            if not check.is_read:
                continue
            if report.log_end_offset > 0 and name not in points:
                path = join(self.path, RECOVERY_POINTS)
                self.findings.add(Kind.CHECKPOINT_WRONG, path, f"{name} is not in it")
            if report.log_start_offset > 0 and name not in starts:
                path = join(self.path, LOG_START_OFFSETS)
                self.findings.add(Kind.CHECKPOINT_WRONG, path, f"{name} is not in it")


def _quorum_state_fault(content: bytes) -> str | None:
    """Return what is wrong with the file of epoch and vote, as far as it shows."""
    try:
        fields = json.loads(content)
        if not isinstance(fields, dict) or tuple(fields) not in (QUORUM_KEYS, OWN_QUORUM_KEYS):
            return f"it has not the fields {', '.join(QUORUM_KEYS)}"
        is_canonical = json.dumps(fields).encode() == content
    except ValueError as error:
        return f"it is no JSON: {error}"
    checksum = fields.pop(QUORUM_CHECKSUM, None)
    if checksum is not None and checksum != quorum_checksum(fields):
        return f"its {QUORUM_CHECKSUM} is wrong"
    numbers = [fields[key] for key in ("leaderId", "leaderEpoch", "votedId", "data_version")]
    if not is_canonical or not all(type(number) is int and number >= -1 for number in numbers):
        return "its values are not those that a writer of such files writes"
    return None if fields["data_version"] == 1 else f"version {fields['data_version']} is unknown"


def is_in_use(files: "Files", path: str) -> bool:
    """Whether another process holds a data directory's lock; False where that cannot be asked."""
    lock = join(path, LOCK)
    if not files.exists(lock):
        return False
    try:
        files.lock(lock).release()
    except BlockingIOError:
        return True
    except OSError:
        return False  # read-only: then nobody writes, or we may not know
    return False


def check_directory(
    files: "Files",
    path: str,
    *,
    known: Known | None = None,
    only: str | None = None,
    progress: Progress = lambda size: None,
    ask_lock: bool = True,
) -> DirectoryCheck:
    """Check a data directory; `only`: the one log of this name. Waits for the device.

    `ask_lock`: find out whether a node has it open; not for one who holds the lock.
    """
    found = DirectoryCheck(files, path, known or Known())
    found.run(progress, only=only, ask_lock=ask_lock)
    return found


def check(
    files: "Files",
    path: str,
    *,
    known: Known | None = None,
    progress: Progress = lambda size: None,
) -> CheckReport:
    """Check a data directory, or one log's folder; in a data directory that one's checkpoints
    count for it.

    Raises InvalidRequest when it is neither. What cannot be read is a finding; OSError is raised
    only for the folder itself.
    """
    path = path.rstrip("/") or "/"
    if not files.is_folder(path):
        raise InvalidRequest(f"{path} is no folder")
    if files.exists(join(path, META_PROPERTIES)):
        return check_directory(files, path, known=known, progress=progress).report
    if any(segment_base(name) is not None for name in files.names(path)):
        return _check_one(files, path, known or Known(), progress)
    if any(name in CHECKPOINTS or split_log_name(name) for name in files.names(path)):
        report = check_directory(files, path, known=known, progress=progress).report
        report.findings.add(Kind.METADATA_WRONG, join(path, META_PROPERTIES), "it is not there")
        return report
    raise InvalidRequest(
        f"{path} is neither a data directory (it has no {META_PROPERTIES}) nor a log's folder"
        " (it has no *.log)"
    )


def _check_one(files: "Files", path: str, known: Known, progress: Progress) -> CheckReport:
    above, _, name = path.rpartition("/")
    above = above or ("/" if path.startswith("/") else "")
    parent = above or "."
    if files.exists(join(parent, META_PROPERTIES)):
        report = check_directory(files, parent, known=known, only=name, progress=progress).report
        kept = CheckReport(path, is_directory=False, is_clean=report.is_clean)
        kept.is_in_use, kept.logs = report.is_in_use, report.logs
        return kept
    around = Surroundings(is_compacted=known.is_compacted(name, {}))
    alone = CheckReport(path, is_directory=False)
    alone.logs.append(check_log(files, path, around, progress=progress).report)
    return alone
