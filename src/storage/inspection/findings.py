"""What a check says: findings of fixed kinds, a report a log, a report a directory.

Owns the table of kinds: how bad each is, and what to do about it. The names are part of what
programs read, so they do not change; docs/checking.md has a paragraph for each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

FINDINGS_MAX: Final = 1000
"""Findings kept of one log, or of the directory itself; further ones are counted."""


class Severity(StrEnum):
    """Whether a finding makes the whole not ok."""

    PROBLEM = "problem"
    NOTE = "note"


class Kind(StrEnum):
    """What can be found."""

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
class Rule:
    """How bad a kind is, what it means in a few words, and what to do."""

    severity: Severity
    title: str
    remedy: str


_RECOVERS: Final = "Nothing: the node's next start mends it."
_REPAIR: Final = "Stop the node and run `quorumlog check DIR --repair`: it is built again."
_DAMAGE: Final = (
    "Let the replica fetch the log from its leader again. Where no other replica exists,"
    " `quorumlog check DIR --repair --cut-damage FOLDER` keeps what lies before it."
)

RULES: Final[dict[Kind, Rule]] = {
    Kind.BATCH_DAMAGED: Rule(
        Severity.PROBLEM, "a batch is not what was written, where a sync had completed", _DAMAGE
    ),
    Kind.BATCH_MALFORMED: Rule(
        Severity.PROBLEM, "a batch's CRC is right, its records are not", _DAMAGE
    ),
    Kind.BATCH_UNPROVEN: Rule(
        Severity.NOTE,
        "a batch inflates beyond the bound, so its records were not looked at",
        "Nothing, if producers may send such batches.",
    ),
    Kind.OFFSET_ORDER: Rule(
        Severity.PROBLEM,
        "offsets do not continue",
        _DAMAGE
        + " If the topic is or was compacted, say so with --compacted: gaps are right there.",
    ),
    Kind.EPOCH_ORDER: Rule(Severity.PROBLEM, "a leader epoch is impossible or goes back", _DAMAGE),
    Kind.LOG_SHORT: Rule(
        Severity.PROBLEM,
        "the log ends below what was fsynced",
        _DAMAGE + " What is missing here is lost.",
    ),
    Kind.TORN_TAIL: Rule(
        Severity.NOTE,
        "writes that no sync had covered were cut short",
        "Nothing: the node's next start cuts it off, as --repair does.",
    ),
    Kind.EPOCH_FILE_WRONG: Rule(
        Severity.PROBLEM, "leader-epoch-checkpoint does not say what the batches say", _REPAIR
    ),
    Kind.EPOCH_FILE_MISSING: Rule(Severity.NOTE, "there is no leader-epoch-checkpoint", _RECOVERS),
    Kind.INDEX_WRONG: Rule(Severity.PROBLEM, "an .index does not agree with its .log", _REPAIR),
    Kind.INDEX_STALE: Rule(
        Severity.NOTE, "an index that the next start builds again does not agree", _RECOVERS
    ),
    Kind.INDEX_MISSING: Rule(
        Severity.NOTE,
        "an index file is missing",
        "Nothing: it is built in memory when it is needed; --repair writes it.",
    ),
    Kind.INDEX_FOREIGN: Rule(
        Severity.NOTE,
        "an index entry is right, but not one that this software writes",
        "Nothing, if another server wrote the log; --repair writes our own.",
    ),
    Kind.TIME_INDEX_WRONG: Rule(
        Severity.PROBLEM, "a .timeindex does not agree with its .log", _REPAIR
    ),
    Kind.TRANSACTION_INDEX_WRONG: Rule(
        Severity.PROBLEM, "a .txnindex does not agree with its .log", _REPAIR
    ),
    Kind.SNAPSHOT_WRONG: Rule(
        Severity.PROBLEM,
        "a .snapshot is damaged, or is not the producers' state at its offset",
        "Stop the node and run `quorumlog check DIR --repair`: it is removed, and the state is read"
        " from the log again.",
    ),
    Kind.SNAPSHOT_STALE: Rule(
        Severity.NOTE, "a .snapshot lies above what is sure to stay", _RECOVERS
    ),
    Kind.CHECKPOINT_WRONG: Rule(
        Severity.PROBLEM,
        "a checkpoint file is damaged, or lies outside its log",
        "Stop the node and run `quorumlog check DIR --repair`: it is written from the logs.",
    ),
    Kind.METADATA_WRONG: Rule(
        Severity.PROBLEM,
        "a file that says whose data this is does not parse or names another",
        "Compare it with another node's, and with `quorumlog topics describe`; write it by hand.",
    ),
    Kind.METADATA_SNAPSHOT_WRONG: Rule(
        Severity.PROBLEM,
        "a .checkpoint of the metadata is damaged or missing, or does not belong to the log",
        "Where an older .checkpoint and the log reach as far, move the damaged one away; otherwise"
        " format a new data directory and let the node join the quorum with it.",
    ),
    Kind.METADATA_MISSING: Rule(
        Severity.NOTE,
        "a log's folder does not say which topic it holds",
        "Nothing, if the log was never flushed: the next start discards it.",
    ),
    Kind.CLEAN_MARKER_WRONG: Rule(
        Severity.NOTE,
        "the clean marker is not whole: a stop was cut short at its last step",
        "Nothing: all else was durable by then. --repair removes it, and the next start recovers.",
    ),
    Kind.UNFINISHED: Rule(
        Severity.NOTE,
        "unfinished work left a file behind",
        "Nothing: the node's next start finishes or removes it, as --repair does.",
    ),
    Kind.STRAY: Rule(
        Severity.NOTE, "a name that belongs to nothing known", "Move it away if it is not yours."
    ),
    Kind.IN_USE: Rule(
        Severity.NOTE,
        "a node has the directory open",
        "What it writes meanwhile may show up here as torn or stale; stop it for a sure answer.",
    ),
    Kind.UNREADABLE: Rule(
        Severity.PROBLEM,
        "a file cannot be read",
        "Look at its permissions and at the disk (`dmesg`); then check again.",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found."""

    kind: Kind
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
        """What to do."""
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
    """Findings in the order in which they were met, bounded."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.problem_count = 0
        self.note_count = 0

    def add(
        self,
        kind: Kind,
        file: str,
        what: str,
        *,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Take one in."""
        if RULES[kind].severity is Severity.PROBLEM:
            self.problem_count += 1
        else:
            self.note_count += 1
        if len(self.kept) < FINDINGS_MAX:
            self.kept.append(Finding(kind, file, what, position, offset))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.kept)

    @property
    def unlisted(self) -> int:
        """How many are counted, but not kept."""
        return self.problem_count + self.note_count - len(self.kept)


@dataclass(slots=True)
class LogReport:
    """One log's folder."""

    name: str
    folder: str
    findings: Findings = field(default_factory=Findings)
    segments: int = 0
    batches: int = 0  # good ones
    records: int = 0  # in good batches
    bytes: int = 0  # of the .log files
    log_start_offset: int = 0
    log_end_offset: int = 0  # behind the last good batch
    good_end_offset: int = 0  # behind the last good batch in front of the first bad one
    recovery_point: int | None = None  # None: nothing says

    @property
    def is_ok(self) -> bool:
        """No problem was found."""
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
    """A data directory with its logs, or a single log's folder."""

    path: str
    is_directory: bool  # a data directory
    is_clean: bool | None = None  # the clean marker is there; None: a log's folder by itself
    is_in_use: bool = False  # a node holds the lock
    findings: Findings = field(default_factory=Findings)  # of the directory's own files
    logs: list[LogReport] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        """No problem was found anywhere."""
        return not self.findings.problem_count and all(log.is_ok for log in self.logs)

    def all_findings(self) -> Iterator[Finding]:
        """Every finding that was kept: the directory's, then each log's."""
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
