"""Results of a check: findings of fixed kinds, a report per log, a report per directory.

This module has the table of kinds with severity and remedy. Programs read the names of kinds, so
they do not change; docs/checking.md has a paragraph for each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

FINDINGS_MAX: Final = 1000
"""Findings kept per log and for the directory itself; further ones are counted."""


class Severity(StrEnum):
    """The severity of a finding; a problem makes the result not ok."""

    PROBLEM = "problem"
    NOTE = "note"


class FindingKind(StrEnum):
    """The kinds of findings."""

    BATCH_DAMAGED = "batch-damaged"
    BATCH_MALFORMED = "batch-malformed"
    BATCH_UNPROVEN = "batch-unproven"
    OFFSET_ORDER = "offset-order"
    EPOCH_ORDER = "epoch-order"
    LOG_SHORT = "log-short"
    TORN_TAIL = "torn-tail"
    EPOCH_FILE_WRONG = "epoch-file-wrong"
    EPOCH_FILE_MISSING = "epoch-file-missing"
    INDEX_WRONG = "index-wrong"
    INDEX_STALE = "index-stale"
    INDEX_MISSING = "index-missing"
    INDEX_FOREIGN = "index-foreign"
    TIME_INDEX_WRONG = "time-index-wrong"
    TRANSACTION_INDEX_WRONG = "transaction-index-wrong"
    SNAPSHOT_WRONG = "snapshot-wrong"
    SNAPSHOT_STALE = "snapshot-stale"
    CHECKPOINT_WRONG = "checkpoint-wrong"
    METADATA_WRONG = "metadata-wrong"
    METADATA_SNAPSHOT_WRONG = "metadata-snapshot-wrong"
    METADATA_MISSING = "metadata-missing"
    CLEAN_MARKER_WRONG = "clean-marker-wrong"
    UNFINISHED = "unfinished"
    STRAY = "stray"
    IN_USE = "in-use"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class FindingRule:
    """Severity, short description and remedy of a kind."""

    severity: Severity
    title: str
    remedy: str


_RECOVERS: Final = "Nothing: the node's next start repairs it."
_REPAIR: Final = "Stop the node and run `quorumlog check DIR --repair`: it is rebuilt."
_DAMAGE: Final = (
    "Let the replica fetch the log from its leader again. If no other replica exists,"
    " `quorumlog check DIR --repair --cut-damage FOLDER` keeps the part before it."
)

RULES: Final[dict[FindingKind, FindingRule]] = {
    FindingKind.BATCH_DAMAGED: FindingRule(
        Severity.PROBLEM, "a batch below the recovery point is not as written", _DAMAGE
    ),
    FindingKind.BATCH_MALFORMED: FindingRule(
        Severity.PROBLEM, "a batch has a valid CRC but invalid records", _DAMAGE
    ),
    FindingKind.BATCH_UNPROVEN: FindingRule(
        Severity.NOTE,
        "a batch inflates beyond the limit, so its records were not checked",
        "Nothing, if producers may send such batches.",
    ),
    FindingKind.OFFSET_ORDER: FindingRule(
        Severity.PROBLEM,
        "offsets do not continue",
        _DAMAGE + " If the topic is or was compacted, pass --compacted: such logs may have gaps.",
    ),
    FindingKind.EPOCH_ORDER: FindingRule(
        Severity.PROBLEM, "a leader epoch is impossible or goes back", _DAMAGE
    ),
    FindingKind.LOG_SHORT: FindingRule(
        Severity.PROBLEM,
        "the log ends below its recovery point",
        _DAMAGE + " The missing part is lost.",
    ),
    FindingKind.TORN_TAIL: FindingRule(
        Severity.NOTE,
        "unsynced writes are incomplete",
        "Nothing: the node's next start truncates it, as --repair does.",
    ),
    FindingKind.EPOCH_FILE_WRONG: FindingRule(
        Severity.PROBLEM, "leader-epoch-checkpoint does not match the batches", _REPAIR
    ),
    FindingKind.EPOCH_FILE_MISSING: FindingRule(
        Severity.NOTE, "leader-epoch-checkpoint is missing", _RECOVERS
    ),
    FindingKind.INDEX_WRONG: FindingRule(
        Severity.PROBLEM, "an .index does not match its .log", _REPAIR
    ),
    FindingKind.INDEX_STALE: FindingRule(
        Severity.NOTE, "an index that the next start rebuilds does not match", _RECOVERS
    ),
    FindingKind.INDEX_MISSING: FindingRule(
        Severity.NOTE,
        "an index file is missing",
        "Nothing: it is built in memory when needed; --repair writes it.",
    ),
    FindingKind.INDEX_FOREIGN: FindingRule(
        Severity.NOTE,
        "an index entry is valid, but not as quorumlog writes it",
        "Nothing, if another server wrote the log; --repair rewrites it.",
    ),
    FindingKind.TIME_INDEX_WRONG: FindingRule(
        Severity.PROBLEM, "a .timeindex does not match its .log", _REPAIR
    ),
    FindingKind.TRANSACTION_INDEX_WRONG: FindingRule(
        Severity.PROBLEM, "a .txnindex does not match its .log", _REPAIR
    ),
    FindingKind.SNAPSHOT_WRONG: FindingRule(
        Severity.PROBLEM,
        "a .snapshot is damaged, or differs from the producer state at its offset",
        "Stop the node and run `quorumlog check DIR --repair`: it is removed, and the state is"
        " rebuilt from the log.",
    ),
    FindingKind.SNAPSHOT_STALE: FindingRule(
        Severity.NOTE, "a .snapshot lies above the part that is certain to stay", _RECOVERS
    ),
    FindingKind.CHECKPOINT_WRONG: FindingRule(
        Severity.PROBLEM,
        "a checkpoint file is damaged, or lies outside its log",
        "Stop the node and run `quorumlog check DIR --repair`: it is written from the logs.",
    ),
    FindingKind.METADATA_WRONG: FindingRule(
        Severity.PROBLEM,
        "a file with the owner of the data does not parse or names another owner",
        "Compare it with another node's, and with `quorumlog topics describe`; correct it by hand.",
    ),
    FindingKind.METADATA_SNAPSHOT_WRONG: FindingRule(
        Severity.PROBLEM,
        "a .checkpoint of the metadata is damaged or missing, or does not belong to the log",
        "If an older .checkpoint and the log cover its range, move it away; otherwise"
        " format a new data directory and let the node join the quorum with it.",
    ),
    FindingKind.METADATA_MISSING: FindingRule(
        Severity.NOTE,
        "a log's folder has no topic id",
        "Nothing, if the log was never flushed: the next start discards it.",
    ),
    FindingKind.CLEAN_MARKER_WRONG: FindingRule(
        Severity.NOTE,
        "the clean-shutdown marker is incomplete: a shutdown was interrupted at its last step",
        "Nothing: everything else was durable. --repair removes it, and the next start recovers.",
    ),
    FindingKind.UNFINISHED: FindingRule(
        Severity.NOTE,
        "a file of unfinished work",
        "Nothing: the node's next start completes or removes it, as --repair does.",
    ),
    FindingKind.STRAY: FindingRule(
        Severity.NOTE, "an unknown name", "Move it away if it is not yours."
    ),
    FindingKind.IN_USE: FindingRule(
        Severity.NOTE,
        "the directory is in use by a node",
        "Its concurrent writes may appear as torn or stale; stop it for a reliable result.",
    ),
    FindingKind.UNREADABLE: FindingRule(
        Severity.PROBLEM,
        "a file cannot be read",
        "Check its permissions and the disk (`dmesg`); then retry.",
    ),
}


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One finding."""

    kind: FindingKind
    file: str  # path
    what: str  # one sentence, with the values
    position: int | None = None  # byte in the file
    offset: int | None = None  # of a record

    @property
    def severity(self) -> Severity:
        """Problem or note."""
        return RULES[self.kind].severity

    @property
    def remedy(self) -> str:
        """The recommended action."""
        return RULES[self.kind].remedy

    def as_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return {
            "severity": str(self.severity),
            "kind": str(self.kind),
            "file": self.file,
            "position": self.position,
            "offset": self.offset,
            "what": self.what,
            "do": self.remedy,
        }


class Findings:
    """Findings in order of discovery, bounded."""

    def __init__(self) -> None:
        self.kept: list[CheckFinding] = []
        self.problem_count = 0
        self.note_count = 0

    def add(
        self,
        kind: FindingKind,
        file: str,
        what: str,
        *,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Add a finding."""
        if RULES[kind].severity is Severity.PROBLEM:
            self.problem_count += 1
        else:
            self.note_count += 1
        if len(self.kept) < FINDINGS_MAX:
            self.kept.append(CheckFinding(kind, file, what, position, offset))

    def __iter__(self) -> Iterator[CheckFinding]:
        return iter(self.kept)

    @property
    def unlisted(self) -> int:
        """Number of findings that are counted but not kept."""
        return self.problem_count + self.note_count - len(self.kept)


@dataclass(slots=True)
class LogReport:
    """The report of one log's folder."""

    name: str
    folder: str
    findings: Findings = field(default_factory=Findings)
    segments: int = 0
    batches: int = 0  # valid ones
    records: int = 0  # in valid batches
    bytes: int = 0  # of the .log files
    log_start_offset: int = 0
    log_end_offset: int = 0  # after the last valid batch
    good_end_offset: int = 0  # after the last valid batch before the first invalid one
    recovery_point: int | None = None  # None: unknown

    @property
    def is_ok(self) -> bool:
        """True if no problem was found."""
        return not self.findings.problem_count

    def as_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return {
            "log": self.name,
            "folder": self.folder,
            "ok": self.is_ok,
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "recovery_point": self.recovery_point,
            "problems": self.findings.problem_count,
            "notes": self.findings.note_count,
            "findings": [finding.as_dict() for finding in self.findings],
            "unlisted": self.findings.unlisted,
        }


@dataclass(slots=True)
class CheckReport:
    """The report of a data directory with its logs, or of a single log's folder."""

    path: str
    is_directory: bool  # a data directory
    is_clean: bool | None = None  # the clean-shutdown marker exists; None: a log's folder by itself
    is_in_use: bool = False  # a node holds the lock
    findings: Findings = field(default_factory=Findings)  # of the directory's own files
    logs: list[LogReport] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        """True if no problem was found anywhere."""
        return not self.findings.problem_count and all(log.is_ok for log in self.logs)

    def all_findings(self) -> Iterator[CheckFinding]:
        """Yield every kept finding: the directory's, then each log's."""
        yield from self.findings
        for log in self.logs:
            yield from log.findings

    def as_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        every = [self.findings, *(log.findings for log in self.logs)]
        return {
            "path": self.path,
            "ok": self.is_ok,
            "clean": self.is_clean,
            "in_use": self.is_in_use,
            "problems": sum(found.problem_count for found in every),
            "notes": sum(found.note_count for found in every),
            "findings": [finding.as_dict() for finding in self.findings],
            "unlisted": self.findings.unlisted,
            "logs": [log.as_dict() for log in self.logs],
        }
