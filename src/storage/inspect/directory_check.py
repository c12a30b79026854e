"""Verification of a data directory: its own files, and every log in it.

The checkpoints are read before the logs, so that concurrent appends do not make them appear to be
ahead. Read-only, with one exception: to find out if a node has the directory open, the check takes
its lock for an instant, if the lock file exists and may be opened.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ...errors import CorruptionError, InvalidRequest
from ...ids import DirectoryId, NodeId, TopicId
from ..checkpoints import DirectoryMeta, encode_id
from ..layout import (
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
from ..small_files import read_file
from .findings import CheckReport, FindingKind, Findings
from .log_check import (
    METADATA_LOG,
    LogCheck,
    LogContext,
    Progress,
    check_log,
    quorum_checksum,
    strict_marker,
    strict_meta,
    strict_offsets,
)

if TYPE_CHECKING:
    from ...runtime.ports import Files

QUORUM_STATE: Final = "quorum-state"
QUORUM_KEYS: Final = ("leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version")
QUORUM_CHECKSUM: Final = "crc32c"
OWN_QUORUM_KEYS: Final = (*QUORUM_KEYS, QUORUM_CHECKSUM)
REPEATS_MAX: Final = 5
"""Number of repeated checks of a log that a node changes during the check."""

CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """The metadata log's entry of a topic."""

    topic_id: TopicId
    is_compacted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMetadata:
    """Facts from outside the files: from the metadata log or the caller."""

    topics: Mapping[str, KnownTopic] | None = None  # by name; None: no metadata available
    directories: Mapping[NodeId, DirectoryId] = field(default_factory=dict)  # of registered nodes
    compacted: frozenset[str] = frozenset()  # topics, or logs, that may have gaps

    def is_compacted(self, log: str, cleaner_offsets: Mapping[str, int]) -> bool:
        """Return True if a log may have gaps: the cleaner ran once, the topic's config is compacted
        now, or the caller declared it."""
        topic = (split_log_name(log) or (log, 0))[0]
        known = self.topics.get(topic) if self.topics is not None else None
        return (
            log in cleaner_offsets
            or (known is not None and known.is_compacted)
            or not self.compacted.isdisjoint((log, topic))
        )


@dataclass(slots=True)
class DirectoryCheck:
    """One check of one data directory; create it with `check_directory`."""

    files: "Files"
    path: str
    known: KnownMetadata
    report: CheckReport = field(init=False)
    meta: DirectoryMeta | None = None
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)  # by file, by log
    logs: dict[str, LogCheck] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.report = CheckReport(self.path, is_directory=True)

    @property
    def findings(self) -> Findings:
        """The findings about the directory's own files."""
        return self.report.findings

    def run(self, progress: Progress, *, only: str | None, ask_lock: bool) -> None:
        """Fill the report; with `only`, check just that log."""
        names = self.files.names(self.path)
        self.report.is_in_use = ask_lock and is_in_use(self.files, self.path)
        if self.report.is_in_use:
            self.findings.add(FindingKind.IN_USE, join(self.path, LOCK), "it is locked")
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
                self.findings.add(FindingKind.METADATA_WRONG, path, error.message)
        if CLEAN_MARKER in names:
            path = join(self.path, CLEAN_MARKER)
            try:
                strict_marker(read_file(self.files, path), path)
            except CorruptionError as error:
                self.findings.add(FindingKind.CLEAN_MARKER_WRONG, path, error.message)
        if QUORUM_STATE in names:
            path = join(self.path, QUORUM_STATE)
            wrong = _quorum_state_fault(read_file(self.files, path))
            if wrong is not None:
                self.findings.add(FindingKind.METADATA_WRONG, path, wrong)

    def _compare_meta(self, path: str, meta: DirectoryMeta) -> None:
        self.meta = meta
        directories = self.known.directories
        # A node without an entry is not registered yet; then no other node may have the directory.
        mine = directories.get(meta.node_id)
        is_other = mine is None and meta.directory_id in directories.values()
        if is_other or (mine is not None and mine != meta.directory_id):
            self.findings.add(
                FindingKind.METADATA_WRONG,
                path,
                f"the metadata log has no node {meta.node_id} with directory"
                f" {encode_id(meta.directory_id)}",
            )

    def _read_offsets(self, name: str) -> dict[str, int]:
        path = join(self.path, name)
        try:
            return strict_offsets(read_file(self.files, path), path)
        except CorruptionError as error:
            self.findings.add(FindingKind.CHECKPOINT_WRONG, path, error.message)
            return {}

    def _check_names(self, names: list[str]) -> list[str]:
        """Return the folders of logs; report unknown names."""
        folders = []
        own = {META_PROPERTIES, CLEAN_MARKER, LOCK, QUORUM_STATE, *CHECKPOINTS}
        for name in names:
            path = join(self.path, name)
            if name in own:
                continue
            if name.endswith(DELETED_FOLDER_SUFFIX):
                self.findings.add(FindingKind.UNFINISHED, path, "a deleted log's folder")
            elif name.endswith(TEMPORARY_SUFFIX):
                self.findings.add(
                    FindingKind.UNFINISHED, path, "a replacement file that was not renamed"
                )
            elif split_log_name(name) is not None and self.files.is_folder(path):
                folders.append(name)
            else:
                self.findings.add(FindingKind.STRAY, path, "not a file of a data directory")
        return folders

    # --- logs ----------------------------------------------------------------------------------

    def _check_log(self, name: str, progress: Progress) -> None:
        topic = (split_log_name(name) or (name, 0))[0]
        known = self.known.topics.get(topic) if self.known.topics is not None else None
        points = self.offsets[RECOVERY_POINTS]
        around = LogContext(
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
                    return  # deleted in between
                if check.report.is_ok or self.files.names(folder) == check.names:
                    break  # otherwise segments were added or removed during the check
                check = check_log(self.files, folder, around, progress=progress)
        self.logs[name] = check
        self.report.logs.append(check.report)
        if self.known.topics is not None and known is None and name != METADATA_LOG:
            check.report.findings.add(
                FindingKind.STRAY, folder, f"the metadata log has no topic {topic}: it was deleted"
            )

    def _check_checkpoints(self, folders: list[str]) -> None:
        for file, offsets in self.offsets.items():
            path = join(self.path, file)
            for log, offset in offsets.items():
                if log in self.logs:
                    wrong = self._outside(file, offset, self.logs[log])
                elif log in folders:
                    wrong = None  # removed during the check
                else:
                    wrong = "the log has no folder" if offset > 0 else None
                if wrong is not None:
                    what = f"it has {offset} for {log}: {wrong}"
                    self.findings.add(FindingKind.CHECKPOINT_WRONG, path, what, offset=offset)
        if self.report.is_clean:
            self._check_complete()

    def _outside(self, file: str, offset: int, log: LogCheck) -> str | None:
        """Return the reason why a checkpoint is wrong, None if it may be right.

        After an unclean shutdown a log start may be ahead of all others, since record deletions are
        durable at once. A power cut may also have lost unsynced records, which replicated logs
        commit all the same.
        """
        if not log.is_read:
            return None  # its end is unknown
        end, start = log.report.log_end_offset, log.report.log_start_offset
        if file == RECOVERY_POINTS:
            # otherwise reported for the log
            is_wrong = offset != end if self.report.is_clean else False
            return f"after a clean shutdown it must be the log end, {end}" if is_wrong else None
        is_sure = self.report.is_clean or (
            file != LOG_START_OFFSETS and log.unsynced_bytes_max is not None
        )
        if offset > end and is_sure:
            return f"the log ends at {end}"
        if file in (LOG_START_OFFSETS, HIGH_WATERMARKS) and self.report.is_clean and offset < start:
            return f"the log starts at {start}"
        return None

    def _check_topic_ids(self) -> None:
        """Check that every topic has one id, and every id one topic: a renamed or copied folder
        violates it."""
        topics: dict[TopicId, str] = {}
        ids: dict[str, TopicId] = {}
        for name, check in self.logs.items():
            topic = (split_log_name(name) or (name, 0))[0]
            if check.topic_id is None:
                continue
            other = topics.setdefault(check.topic_id, topic)
            path = join(check.folder, PARTITION_METADATA)
            if other != topic:
                what = f"its topic id is also that of {other}"
                check.report.findings.add(FindingKind.METADATA_WRONG, path, what)
            elif ids.setdefault(topic, check.topic_id) != check.topic_id:
                what = f"its topic id differs from that of other partitions of {topic}"
                check.report.findings.add(FindingKind.METADATA_WRONG, path, what)

    def _check_complete(self) -> None:
        """Check that after a clean shutdown every log is in the checkpoints that must contain
        it."""
        points, starts = self.offsets[RECOVERY_POINTS], self.offsets[LOG_START_OFFSETS]
        for name, check in self.logs.items():
            report = check.report
            if not check.is_read:
                continue
            if report.log_end_offset > 0 and name not in points:
                path = join(self.path, RECOVERY_POINTS)
                self.findings.add(FindingKind.CHECKPOINT_WRONG, path, f"{name} is not in it")
            if report.log_start_offset > 0 and name not in starts:
                path = join(self.path, LOG_START_OFFSETS)
                self.findings.add(FindingKind.CHECKPOINT_WRONG, path, f"{name} is not in it")


def _quorum_state_fault(content: bytes) -> str | None:
    """Return the fault of the file of epoch and vote, None without a visible one."""
    try:
        fields = json.loads(content)
        if not isinstance(fields, dict) or tuple(fields) not in (QUORUM_KEYS, OWN_QUORUM_KEYS):
            return f"its fields are not {', '.join(QUORUM_KEYS)}"
        is_canonical = json.dumps(fields).encode() == content
    except ValueError as error:
        return f"invalid JSON: {error}"
    checksum = fields.pop(QUORUM_CHECKSUM, None)
    if checksum is not None and checksum != quorum_checksum(fields):
        return f"its {QUORUM_CHECKSUM} is wrong"
    numbers = [fields[key] for key in ("leaderId", "leaderEpoch", "votedId", "data_version")]
    if not is_canonical or not all(type(number) is int and number >= -1 for number in numbers):
        return "its values are not in the form of its writer"
    return None if fields["data_version"] == 1 else f"version {fields['data_version']} is unknown"


def is_in_use(files: "Files", path: str) -> bool:
    """Return True if another process holds a data directory's lock; False if that cannot be
    tested."""
    lock = join(path, LOCK)
    if not files.exists(lock):
        return False
    try:
        files.lock(lock).release()
    except BlockingIOError:
        return True
    except OSError:
        return False  # read-only: no process writes, or the state is unknown
    return False


def check_directory(
    files: "Files",
    path: str,
    *,
    known: KnownMetadata | None = None,
    only: str | None = None,
    progress: Progress = lambda size: None,
    ask_lock: bool = True,
) -> DirectoryCheck:
    """Check a data directory; with `only`, just that log. Waits for the device.

    `ask_lock`: test if a node has it open; False for a caller that holds the lock.
    """
    found = DirectoryCheck(files, path, known or KnownMetadata())
    found.run(progress, only=only, ask_lock=ask_lock)
    return found


def check(
    files: "Files",
    path: str,
    *,
    known: KnownMetadata | None = None,
    progress: Progress = lambda size: None,
) -> CheckReport:
    """Check a data directory, or one log's folder; the checkpoints of its data directory apply to a
    log.

    Raises InvalidRequest for another path. Unreadable files are findings; OSError is raised only
    for the folder itself.
    """
    path = path.rstrip("/") or "/"
    if not files.is_folder(path):
        raise InvalidRequest(f"{path} is not a folder")
    if files.exists(join(path, META_PROPERTIES)):
        return check_directory(files, path, known=known, progress=progress).report
    if any(segment_base(name) is not None for name in files.names(path)):
        return _check_one(files, path, known or KnownMetadata(), progress)
    if any(name in CHECKPOINTS or split_log_name(name) for name in files.names(path)):
        report = check_directory(files, path, known=known, progress=progress).report
        report.findings.add(
            FindingKind.METADATA_WRONG, join(path, META_PROPERTIES), "it is missing"
        )
        return report
    raise InvalidRequest(
        f"{path} is neither a data directory (it has no {META_PROPERTIES}) nor a log's folder"
        " (it has no *.log)"
    )


def _check_one(files: "Files", path: str, known: KnownMetadata, progress: Progress) -> CheckReport:
    above, _, name = path.rpartition("/")
    above = above or ("/" if path.startswith("/") else "")
    parent = above or "."
    if files.exists(join(parent, META_PROPERTIES)):
        report = check_directory(files, parent, known=known, only=name, progress=progress).report
        kept = CheckReport(path, is_directory=False, is_clean=report.is_clean)
        kept.is_in_use, kept.logs = report.is_in_use, report.logs
        return kept
    around = LogContext(is_compacted=known.is_compacted(name, {}))
    alone = CheckReport(path, is_directory=False)
    alone.logs.append(check_log(files, path, around, progress=progress).report)
    return alone
