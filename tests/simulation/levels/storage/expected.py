"""The expected state of a data directory at each moment of a run, by its acknowledgements.

Every log has a sequence of expectations, each valid from a file operation on: the possible
contents, the least end offset after a power cut and after a crash, the possible start offsets. The
workload reports requests and responses; a check of a reopened log raises AssertionError with lost
or unexpected records. This module is independent of files.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from quorumlog.ids import TopicId
from quorumlog.records import MarkerType
from quorumlog.records.batch import NO_PRODUCER


@dataclass(frozen=True, slots=True)
class ExpectedRecord:
    """A record as it was appended."""

    value: bytes | None  # None: a tombstone
    key: bytes | None
    epoch: int
    batch: int  # number of its batch: found whole or not at all
    producer: int = NO_PRODUCER
    sequence: int = -1
    is_transactional: bool = False
    marker: MarkerType | None = None  # it ends its producer's transaction


Content: TypeAlias = tuple[ExpectedRecord | None, ...]
"""A log's records by offset; None for an offset without a record (a leader's compaction)."""


class FolderState(Enum):
    """The states of a log's folder."""

    NEVER = "never"  # before the first append
    THERE = "there"
    DELETING = "deleting"  # it may exist or not
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expectation of a log at a moment."""

    topic_id: TopicId
    life: FolderState = FolderState.NEVER
    # possible contents: any prefix of one of them; newest last
    versions: tuple[Content, ...] = ((),)
    durable_end: int = 0  # least end offset after a power cut
    written_end: int = 0  # least end offset after a process crash
    start_least: int = 0  # acknowledged log start offset
    start_most: int = 0  # ... and the largest requested
    is_compacted: bool = False  # a compaction may have removed superseded records
    lost_end: int = 0  # ... and a truncation later ones of their keys: these were below it

    @property
    def newest(self) -> Content:
        """The current content, by the responses."""
        return self.versions[-1]


@dataclass(slots=True)
class LogExpectations:
    """The expectations of one log over time."""

    first: Expectation
    _moments: list[int] = field(default_factory=list)
    _expectations: list[Expectation] = field(default_factory=list)

    def at(self, operation: int) -> Expectation:
        """Return the expectation after a file operation."""
        index = bisect_right(self._moments, operation)
        return self._expectations[index - 1] if index else self.first

    @property
    def now(self) -> Expectation:
        """The current expectation."""
        return self._expectations[-1] if self._expectations else self.first

    def write(self, operation: int, expectation: Expectation) -> None:
        """Add an expectation, valid from an operation on."""
        self._moments.append(operation)
        self._expectations.append(expectation)

    # --- reports of the workload ---

    def asked(self, operation: int, records: Sequence[ExpectedRecord | None]) -> None:
        """Record an append request: its records may be found from now on."""
        now = self.now
        versions = (*now.versions[:-1], now.newest + tuple(records))
        life = FolderState.DELETING if now.life is FolderState.DELETING else FolderState.THERE
        self.write(operation, replace(now, versions=versions, life=life))

    def refused(self, operation: int, batch: int) -> None:
        """Record a failed append: later ones take its offsets, and its bytes may still be found."""
        now = self.now
        without = tuple(kept for kept in now.newest if kept is None or kept.batch != batch)
        self.write(operation, replace(now, versions=(*now.versions, without)))

    def written(self, operation: int, end_offset: int) -> None:
        """Record an acknowledged append; it need not be durable."""
        now = self.now
        self.write(operation, replace(now, written_end=max(now.written_end, end_offset)))

    def durable(self, operation: int, end_offset: int) -> None:
        """Record that everything below an offset is durable."""
        now = self.now
        end = max(now.durable_end, min(end_offset, len(now.newest)))  # a truncation may be pending
        if end > now.durable_end:
            same = tuple(one for one in now.versions if one[:end] == now.newest[:end])
            written = max(now.written_end, end)
            self.write(operation, replace(now, versions=same, durable_end=end, written_end=written))

    def truncating(self, operation: int, offset: int) -> None:
        """Record a requested truncation: batches that contain or follow `offset` may be removed."""
        now = self.now
        end = cut_at(now.newest, offset)
        self.write(
            operation,
            replace(
                now,
                versions=(*now.versions, now.newest[:end]),
                durable_end=min(now.durable_end, end),
                written_end=min(now.written_end, end),
            ),
        )

    def truncating_compacted(self, operation: int, offset: int) -> None:
        """Record a requested truncation of a compacted log: the batches before `offset` may be
        missing, or shorter, and the log may end before them."""
        now = self.now
        self.write(
            operation,
            replace(
                now,
                versions=(*now.versions, now.newest[:offset]),
                durable_end=min(now.durable_end, now.start_least),
                written_end=min(now.written_end, now.start_least),
                lost_end=max(now.lost_end, offset),
            ),
        )

    def truncated(self, operation: int, end_offset: int) -> None:
        """Record a completed truncation; the log ends at `end_offset`."""
        now = self.now
        self.write(operation, replace(now, versions=(now.newest[:end_offset],)))

    def not_truncated(self, operation: int, before: Expectation) -> None:
        """Record that the requested truncation changed nothing: the log is as `before` it."""
        now = self.now
        self.write(
            operation,
            replace(
                now,
                versions=before.versions,
                durable_end=max(now.durable_end, before.durable_end),
                written_end=max(now.written_end, before.written_end),
            ),
        )

    def starting(self, operation: int, offset: int) -> None:
        """Record that records below an offset may be removed from now on."""
        now = self.now
        self.write(operation, replace(now, start_most=max(now.start_most, offset)))

    def settled(self, operation: int, offset: int) -> None:
        """Record that a removal is complete: the log starts here."""
        least = max(self.now.start_least, offset)
        self.write(operation, replace(self.now, start_least=least, start_most=least))

    def started(self, operation: int, offset: int) -> None:
        """Record that records below an offset are removed."""
        now = self.now
        least = max(now.start_least, offset)
        self.write(
            operation, replace(now, start_least=least, start_most=max(now.start_most, least))
        )

    def compacting(self, operation: int) -> None:
        """Record that superseded records may be removed from now on."""
        self.write(operation, replace(self.now, is_compacted=True))

    def reopened(self, operation: int, content: Content) -> None:
        """Record the durable content found at an opening."""
        self.write(operation, replace(self.now, versions=(content,)))

    def deleting(self, operation: int) -> None:
        """Record a requested deletion."""
        self.write(operation, replace(self.now, life=FolderState.DELETING))

    def deleted(self, operation: int, next_topic: TopicId) -> None:
        """Record a completed deletion; the next log of this name belongs to another topic."""
        self.write(operation, Expectation(topic_id=next_topic, life=FolderState.GONE))


def cut_at(content: Content, offset: int) -> int:
    """Return the log end after a truncation to `offset`: the end of a whole batch."""
    cut = None if offset >= len(content) else content[offset]
    end = min(offset, len(content))
    while end > 0:
        last = content[end - 1]
        if last is not None and (cut is None or last.batch != cut.batch):
            break
        end -= 1
    return end


class ReadRecord(NamedTuple):
    """A record as it was read."""

    key: bytes | None
    value: bytes | None
    epoch: int
    marker: MarkerType | None = None
    producer: int = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of a log as it was read."""

    start_offset: int
    end_offset: int
    records: Mapping[int, ReadRecord]


SHOWN: Final = 5


def check_kept(
    name: str, expectation: Expectation, found: Stored, *, is_power_cut: bool
) -> Content:
    """Raise AssertionError unless a log is in a possible state after a crash; return its content
    as it was appended."""
    need = expectation.durable_end if is_power_cut else expectation.written_end
    assert found.end_offset >= need, (
        f"acknowledged and lost from {name}: it ends at {found.end_offset}, not {need}"
    )
    most = max(expectation.start_least, min(expectation.start_most, found.end_offset))
    assert expectation.start_least <= found.start_offset <= most, (
        f"{name} starts at {found.start_offset}, not in"
        f" [{expectation.start_least}, {expectation.start_most}]"
    )
    problems = []
    for version in reversed(expectation.versions):
        problem = _difference(expectation, version, found)
        if not problem:
            return version[: found.end_offset]
        problems.append(problem)
    raise AssertionError(f"lost from or invented in {name}: {'; or '.join(problems[:SHOWN])}")


def _difference(expectation: Expectation, version: Content, found: Stored) -> str:
    """Return the difference between the log and a prefix of this version, "" if there is none."""
    end = found.end_offset
    if end > len(version):
        return f"it ends at {end}, beyond {len(version)}"
    if expectation.lost_end < end < len(version):
        last, following = version[end - 1], version[end]
        if last is not None and following is not None and last.batch == following.batch:
            return f"it ends at {end}, inside a batch"
    there_now = {offset: kept for offset, kept in enumerate(version[:end]) if kept is not None}
    aborted = aborted_offsets(there_now)
    latest = latest_of(there_now, aborted)
    for offset in range(found.start_offset, end):
        kept = version[offset]
        there = found.records.get(offset)
        if kept is None:
            if there is not None:
                return f"{there!r} at {offset}, an offset without a record"
        elif there is None:
            may_go = kept.value is None or offset in aborted or latest[kept.key] > offset
            if not (expectation.is_compacted and (may_go or offset < expectation.lost_end)):
                return f"nothing at {offset}, where {kept!r} was"
        elif there != (kept.key, kept.value, kept.epoch, kept.marker, kept.producer):
            return f"{there!r} at {offset}, not {kept!r}"
    return ""


def aborted_offsets(records: Mapping[int, ExpectedRecord | ReadRecord]) -> set[int]:
    """Return the offsets of records in aborted transactions; `records` ascends by offset."""
    aborted: set[int] = set()
    open_offsets: dict[int, list[int]] = {}  # by producer
    for offset, record in records.items():
        if record.producer == NO_PRODUCER:
            continue
        if record.marker is None:
            open_offsets.setdefault(record.producer, []).append(offset)
            continue
        ended = open_offsets.pop(record.producer, [])
        if record.marker is MarkerType.ABORT:
            aborted.update(ended)
    return aborted


def latest_of(
    records: Mapping[int, ExpectedRecord | ReadRecord], aborted: set[int]
) -> dict[bytes | None, int]:
    """Return the last offset of each key that is not aborted."""
    return {record.key: offset for offset, record in records.items() if offset not in aborted}


def check_cleaned(name: str, before: Stored, after: Stored) -> None:
    """Raise AssertionError unless a cleaning kept the newest record of each key and added
    nothing. Tombstones, markers and aborted records may be removed."""
    assert after.end_offset == before.end_offset, f"{name} ends elsewhere after housekeeping"
    assert after.start_offset >= before.start_offset, f"{name} starts earlier after housekeeping"
    aborted = aborted_offsets(before.records)
    latest = latest_of(before.records, aborted)
    for offset, found in after.records.items():
        assert before.records.get(offset) == found, f"{name}: {found} came to {offset}"
    for offset, found in before.records.items():
        if offset < after.start_offset or offset in after.records:
            continue
        may_go = found.value is None or offset in aborted or latest[found.key] > offset
        assert may_go, f"{name}: {found} at {offset} went, and no later one has its key"
