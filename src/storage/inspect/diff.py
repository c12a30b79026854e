"""Comparison of two copies of a log record by record, or of all logs of two data directories.

It compares the records that a reader gets: offset, leader epoch, timestamp, key, value, headers,
producer. The division into batches and the codec do not matter. If a batch has the same bytes on
both sides (as in replicated copies), no record is decoded. Memory is bounded: one part of a batch
per side, and CANDIDATES_MAX keys of CANDIDATE_BYTES_MAX that may have been superseded.
"""

from collections import deque
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import CorruptionError, InvalidRequest
from ...ids import TopicId
from ...records.batch import OFFSET_MAX, PREFIX_SIZE, BatchHeader
from ...records.codec import decode_batch, decode_columns, decode_parts
from ...records.columns import WANT_KEY, WANT_OFFSET
from ...records.record import Record
from ..checkpoints import decode_offsets, decode_partition_metadata
from ..layout import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    TXN_INDEX_SUFFIX,
    join,
    parent_of,
    segment_base,
    split_log_name,
)
from ..small_files import read_file
from ..transaction_index import decode_aborted
from .log_check import segment_paths
from .scan import InvalidRange, Piece, ValidBatch, scan

if TYPE_CHECKING:
    from ...runtime.ports import Files

PART_RECORDS: Final = 10_000


class LocatedRecord(NamedTuple):
    """A record with fields of its batch."""

    record: Record
    leader_epoch: int
    producer_id: int
    is_control: bool


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """A range of a log without a valid batch."""

    path: str
    position: int
    reason: str


@dataclass(slots=True)
class LogSide:
    """One of two logs, named A or B in the output."""

    files: "Files"
    name: str
    folder: str
    start_offset: int = 0  # no offset below is readable
    high_watermark: int | None = None  # None: unknown
    is_compacted: bool = False
    topic_id: TopicId | None = None
    end_offset: int = 0  # after the last batch seen so far
    is_exhausted: bool = False
    unreadable: list[UnreadableRange] = field(default_factory=list)
    records: deque[LocatedRecord] = field(default_factory=deque)  # decoded, not yet compared
    batch: ValidBatch | None = None  # not yet decoded
    _pieces: Iterator[tuple[str, Piece]] = field(default_factory=lambda: iter(()))
    _parts: Iterator[list[LocatedRecord]] = field(default_factory=lambda: iter(()))

    def begin(self) -> None:
        """Move to the first batch."""
        self._pieces = _pieces(self.files, self.folder)
        self.advance()

    def advance(self) -> None:
        """Move to the next readable batch, skipping invalid ranges."""
        self.batch = None
        for path, piece in self._pieces:
            if isinstance(piece, InvalidRange):
                self.unreadable.append(UnreadableRange(path, piece.position, piece.reason))
                continue
            self.end_offset = max(self.end_offset, piece.header.next_offset)
            if piece.header.last_offset >= self.start_offset:
                self.batch = piece
                return
        self.is_exhausted = True

    def fill(self) -> bool:
        """Decode more records if none are left; return True if there are any."""
        while not self.records:
            part = next(self._parts, None)
            if part is not None:
                start = self.start_offset
                self.records.extend(one for one in part if one.record.offset >= start)
                continue
            if self.batch is None:
                return False
            self._parts = _parts(self.batch)
            self.advance()
        return True

    @property
    def is_between_batches(self) -> bool:
        """True if all decoded records were compared."""
        if self.records:
            return False
        part = next(self._parts, None)
        if part is None:
            return True
        self.records.extend(one for one in part if one.record.offset >= self.start_offset)
        return not self.records and self.is_between_batches


def _pieces(files: "Files", folder: str) -> Iterator[tuple[str, Piece]]:
    for base, path in sorted(segment_paths(folder, files.names(folder)).items()):
        file = files.open_readonly(path)
        try:
            for piece in scan(file, 0, file.size(), next_offset=base, with_records=False):
                yield path, piece
        finally:
            file.close()


def _parts(batch: ValidBatch) -> Iterator[list[LocatedRecord]]:
    """Yield a batch's records in parts."""
    header = batch.header
    content = batch.content[batch.at : batch.at + header.size]
    parts = (
        iter([decode_batch(content)])
        if header.is_control and header.record_count
        else decode_parts(content, part_records=PART_RECORDS)
    )
    for part in parts:
        yield [_placed(record, header) for record in part]


def _placed(record: Record, header: BatchHeader) -> LocatedRecord:
    return LocatedRecord(record, header.leader_epoch, header.producer_id, header.is_control)


class KeyRange(NamedTuple):
    """The offsets of the records of one key in a log."""

    oldest: int  # offset
    newest: int


def spread_of_keys(side: LogSide, wanted: Set[bytes]) -> dict[bytes, KeyRange]:
    """Return the offsets at which a read-committed reader finds the wanted keys.

    Reads the keys and offsets of the log once more. Raises CorruptionError.
    """
    found: dict[bytes, KeyRange] = {}
    aborted = AbortedRanges(side.files, side.folder)
    for _, piece in _pieces(side.files, side.folder):
        if (
            isinstance(piece, InvalidRange)
            or piece.header.is_control
            or aborted.holds(piece.header)
        ):
            continue
        content = piece.content[piece.at : piece.at + piece.header.size]
        columns = decode_columns(content, wanted=WANT_KEY | WANT_OFFSET)
        offsets = memoryview(columns.offsets or b"").cast("B").cast("q")
        if columns.keys is None:
            continue
        places = memoryview(columns.keys.offsets).cast("B").cast("i")
        data, validity = memoryview(columns.keys.data), columns.keys.validity
        bits = None if validity is None else memoryview(validity).cast("B")
        for at, offset in enumerate(offsets):
            if bits is not None and not bits[at >> 3] >> (at & 7) & 1:
                continue
            key = bytes(data[places[at] : places[at + 1]])
            if key in wanted and offset >= side.start_offset:
                oldest = found[key].oldest if key in found else offset
                found[key] = KeyRange(oldest, offset)
    return found


class AbortedRanges:
    """The aborted transactions of a log, from its .txnindex files.

    Compaction removes their records without a newer one of the same key.
    """

    def __init__(self, files: "Files", folder: str) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}  # by producer: [first, last] offset
        for name in files.names(folder):
            base = segment_base(name, TXN_INDEX_SUFFIX)
            if base is None:
                continue
            path = join(folder, name)
            with suppress(CorruptionError):  # reported by `check`
                content = read_file(files, path)
                for one in decode_aborted(content, path, base_offset=base, end_offset=OFFSET_MAX):
                    ranges = self._ranges.setdefault(one.producer_id, [])
                    ranges.append((one.first_offset, one.last_offset))

    def holds(self, header: BatchHeader) -> bool:
        """Return True if a batch belongs to an aborted transaction."""
        return header.is_transactional and any(
            first <= header.base_offset <= last
            for first, last in self._ranges.get(header.producer_id, ())
        )


def open_side(files: "Files", name: str, folder: str, *, is_compacted: bool = False) -> LogSide:
    """Return a log's folder as a side, with the bounds from its data directory."""
    side = LogSide(files, name, folder.rstrip("/"), is_compacted=is_compacted)
    log = side.folder.rpartition("/")[2]
    parent = parent_of(side.folder) or "."
    if files.exists(join(parent, META_PROPERTIES)):
        side.start_offset = _offset(files, parent, LOG_START_OFFSETS, log) or 0
        side.high_watermark = _offset(files, parent, HIGH_WATERMARKS, log)
        side.is_compacted |= _offset(files, parent, CLEANER_OFFSETS, log) is not None
    bases = sorted(segment_paths(side.folder, files.names(side.folder)))
    side.start_offset = max([side.start_offset, *bases[:1]])
    side.end_offset = side.start_offset
    path = join(side.folder, PARTITION_METADATA)
    if files.exists(path):
        with suppress(CorruptionError):  # reported by `check`; the records are still comparable
            meta = decode_partition_metadata(read_file(files, path), path)
            side.topic_id = meta.topic_id
            side.is_compacted |= meta.gaps_below is not None
    return side


def _offset(files: "Files", folder: str, file: str, log: str) -> int | None:
    path = join(folder, file)
    if not files.exists(path):
        return None
    return decode_offsets(read_file(files, path), path).get(log)


CANDIDATES_MAX: Final = 100_000
"""Unmatched records per search for their keys; each search reads the other log once more."""

CANDIDATE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of their keys."""


class DifferenceKind(StrEnum):
    """The kind of a difference between two records, or of an unmatched record."""

    BELOW_START = "below-start"  # the other log starts above it
    ABOVE_HIGH_WATERMARK = "above-high-watermark"  # not committed yet
    SUPERSEDED = "superseded"  # compaction kept a newer record of its key
    TOMBSTONE = "tombstone"  # compaction may drop an old tombstone
    CONTROL = "control"  # compaction may drop a marker without records
    MISSING = "missing"  # in one log only, without an explanation
    CONTENT = "content"  # timestamp, key, value or headers differ
    EPOCH = "epoch"  # written by another leader
    PRODUCER = "producer"  # written by another producer
    UNREADABLE = "unreadable"  # no valid batch at this position
    TOPIC_ID = "topic-id"  # the logs belong to two topics


EXPLAINED: Final = frozenset(
    {
        DifferenceKind.BELOW_START,
        DifferenceKind.ABOVE_HIGH_WATERMARK,
        DifferenceKind.SUPERSEDED,
        DifferenceKind.TOMBSTONE,
        DifferenceKind.CONTROL,
    }
)
"""Differences that two healthy replicas of one log may have."""

SENTENCES: Final = {
    DifferenceKind.BELOW_START: "the other log starts above them",
    DifferenceKind.ABOVE_HIGH_WATERMARK: "they are not committed",
    DifferenceKind.SUPERSEDED: "compacted: the other log has a newer record of each key",
    DifferenceKind.TOMBSTONE: "compacted: old tombstones may be dropped",
    DifferenceKind.CONTROL: "compacted: markers are dropped after the records of their transaction",
    DifferenceKind.MISSING: "missing in the other log, without an explanation",
    DifferenceKind.CONTENT: "timestamp, key, value or headers differ",
    DifferenceKind.EPOCH: "the leader epochs differ",
    DifferenceKind.PRODUCER: "the producers differ",
    DifferenceKind.UNREADABLE: "no valid batch",
    DifferenceKind.TOPIC_ID: "the folders hold different topics",
}


class UnmatchedRecord(NamedTuple):
    """An unmatched record, which compaction may have removed from the other log."""

    side: LogSide
    offset: int
    key: bytes
    is_delete: bool


@dataclass(slots=True)
class Difference:
    """Consecutive records with the same kind of difference."""

    why: DifferenceKind
    only_in: str  # A or B; empty: in both logs
    first_offset: int
    last_offset: int
    count: int
    detail: str

    def as_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return {
            "why": str(self.why),
            "explained": self.why in EXPLAINED,
            "only_in": self.only_in or None,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "records": self.count,
            "detail": self.detail,
        }


@dataclass(slots=True)
class LogDiff:
    """The differences of two copies of one log. `differences` has the first ones; `counts` counts
    all."""

    log: str
    limit: int  # of `differences`
    same_count: int = 0
    counts: dict[tuple[DifferenceKind, str], int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """True if all differences are explained."""
        return all(why in EXPLAINED for why, _ in self.counts)

    def add(
        self,
        why: DifferenceKind,
        offset: int,
        *,
        only_in: str = "",
        count: int = 1,
        last: int = -1,
        detail: str = "",
    ) -> None:
        """Add a difference; one that continues the last one is merged into it."""
        key = (why, only_in)
        self.counts[key] = self.counts.get(key, 0) + count
        last = max(last, offset)
        for other in reversed(self.differences[-2:]):
            if (other.why, other.only_in) == key and not detail and not other.detail:
                other.last_offset = max(other.last_offset, last)
                other.count += count
                return
        if sum(other.why not in EXPLAINED for other in self.differences) < self.limit:
            self.differences.append(Difference(why, only_in, offset, last, count, detail))

    def as_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return {
            "log": self.log,
            "same": self.is_same,
            "equal_records": self.same_count,
            "counts": [
                {
                    "why": str(why),
                    "only_in": only_in or None,
                    "records": count,
                    "explained": why in EXPLAINED,
                }
                for (why, only_in), count in self.counts.items()
            ],
            "differences": [difference.as_dict() for difference in self.differences],
        }


@dataclass(slots=True)
class Diff:
    """The differences of two folders."""

    a: str
    b: str
    logs: list[LogDiff] = field(default_factory=list)
    only_in_a: list[str] = field(default_factory=list)  # logs
    only_in_b: list[str] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """True if all differences are explained."""
        lonely = self.only_in_a or self.only_in_b
        return not lonely and all(log.is_same for log in self.logs)

    def as_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return {
            "a": self.a,
            "b": self.b,
            "same": self.is_same,
            "only_in_a": self.only_in_a,
            "only_in_b": self.only_in_b,
            "logs": [log.as_dict() for log in self.logs],
        }


class _Comparison:
    """One pass over two sides."""

    def __init__(self, a: LogSide, b: LogSide, out: LogDiff) -> None:
        self._a = a
        self._b = b
        self._out = out
        self._is_compacted = a.is_compacted or b.is_compacted
        marks = [mark for mark in (a.high_watermark, b.high_watermark) if mark is not None]
        self._committed = max(marks, default=None)
        self._candidates: list[UnmatchedRecord] = []
        self._candidate_bytes = 0

    def run(self) -> None:
        """Compare from the first record to the last."""
        a, b = self._a, self._b
        if a.topic_id is not None and b.topic_id is not None and a.topic_id != b.topic_id:
            self._out.add(
                DifferenceKind.TOPIC_ID, 0, count=0, detail=SENTENCES[DifferenceKind.TOPIC_ID]
            )
        a.begin()
        b.begin()
        while True:
            if a.is_between_batches and b.is_between_batches and self._take_batches():
                continue
            has_a, has_b = a.fill(), b.fill()
            if not (has_a or has_b):
                break
            self._take_record(has_a, has_b)
        self._settle()
        for side in (a, b):
            for bad in side.unreadable:
                detail = f"{bad.path} at byte {bad.position}: {bad.reason}"
                self._out.add(
                    DifferenceKind.UNREADABLE, -1, only_in=side.name, count=0, detail=detail
                )

    def _take_batches(self) -> bool:
        """Compare the next batches as bytes; return False if their records must be compared."""
        one, other = self._a.batch, self._b.batch
        if one is None or other is None:
            return self._take_lonely_batch()
        h, k = one.header, other.header
        if h.base_offset < self._b.start_offset and h.last_offset < self._b.start_offset:
            return self._skip(self._a, DifferenceKind.BELOW_START)
        if k.base_offset < self._a.start_offset and k.last_offset < self._a.start_offset:
            return self._skip(self._b, DifferenceKind.BELOW_START)
        first = max(self._a.start_offset, self._b.start_offset)
        if h.base_offset != k.base_offset or h.size != k.size or h.base_offset < first:
            return False
        mine = one.content[one.at + PREFIX_SIZE : one.at + h.size]  # copies compare faster
        if mine != other.content[other.at + PREFIX_SIZE : other.at + k.size]:
            return False
        if h.leader_epoch != k.leader_epoch and self._is_uncommitted(h.base_offset):
            self._out.add(
                DifferenceKind.ABOVE_HIGH_WATERMARK,
                h.base_offset,
                count=h.record_count,
                last=h.last_offset,
            )
        elif h.leader_epoch != k.leader_epoch:
            detail = f"{h.leader_epoch} in A, {k.leader_epoch} in B"
            self._out.add(
                DifferenceKind.EPOCH,
                h.base_offset,
                count=h.record_count,
                last=h.last_offset,
                detail=detail,
            )
        else:
            self._out.same_count += h.record_count
        self._a.advance()
        self._b.advance()
        return True

    def _take_lonely_batch(self) -> bool:
        """Skip a batch after the end of the other side; return False if its records must be
        checked."""
        side, other = (self._a, self._b) if self._b.batch is None else (self._b, self._a)
        if side.batch is None or not other.is_exhausted or side.batch.header.is_control:
            return False
        if side.batch.header.base_offset < other.end_offset:
            return False  # a gap of the other side, not its end
        is_uncommitted = self._is_uncommitted(side.batch.header.base_offset)
        if not is_uncommitted and self._is_uncommitted(side.batch.header.last_offset):
            return False  # record by record
        return self._skip(
            side, DifferenceKind.ABOVE_HIGH_WATERMARK if is_uncommitted else DifferenceKind.MISSING
        )

    def _skip(self, side: LogSide, why: DifferenceKind) -> bool:
        assert side.batch is not None, "there is a batch"
        header = side.batch.header
        self._out.add(
            why,
            max(header.base_offset, side.start_offset),
            only_in=side.name,
            count=header.record_count,
            last=header.last_offset,
        )
        side.advance()
        return True

    def _take_record(self, has_a: bool, has_b: bool) -> None:
        a, b = self._a, self._b
        if has_a and has_b:
            mine, theirs = a.records[0].record.offset, b.records[0].record.offset
            if mine == theirs:
                self._compare(a.records.popleft(), b.records.popleft())
                return
            side = a if mine < theirs else b
        else:
            side = a if has_a else b
        self._lonely(side, b if side is a else a, side.records.popleft())

    def _compare(self, one: LocatedRecord, other: LocatedRecord) -> None:
        offset = one.record.offset
        if self._is_uncommitted(offset) and one != other:
            self._out.add(DifferenceKind.ABOVE_HIGH_WATERMARK, offset)
        elif one.record != other.record or one.is_control != other.is_control:
            self._out.add(DifferenceKind.CONTENT, offset, detail=_content(one, other))
        elif one.leader_epoch != other.leader_epoch:
            detail = f"{one.leader_epoch} in A, {other.leader_epoch} in B"
            self._out.add(DifferenceKind.EPOCH, offset, detail=detail)
        elif one.producer_id != other.producer_id:
            detail = f"{one.producer_id} in A, {other.producer_id} in B"
            self._out.add(DifferenceKind.PRODUCER, offset, detail=detail)
        else:
            self._out.same_count += 1

    def _lonely(self, side: LogSide, other: LogSide, placed: LocatedRecord) -> None:
        """Process a record that the other log lacks."""
        offset, key = placed.record.offset, placed.record.key
        if offset < other.start_offset:
            why = DifferenceKind.BELOW_START
        elif self._is_uncommitted(offset):
            why = DifferenceKind.ABOVE_HIGH_WATERMARK
        elif placed.is_control and self._is_compacted:
            why = DifferenceKind.CONTROL
        elif other.is_exhausted and offset >= other.end_offset:
            why = DifferenceKind.MISSING  # compaction never removes the end of a log
        elif self._is_compacted and key is not None:
            self._candidates.append(UnmatchedRecord(side, offset, key, placed.record.value is None))
            self._candidate_bytes += len(key)
            is_full = self._candidate_bytes >= CANDIDATE_BYTES_MAX
            if is_full or len(self._candidates) >= CANDIDATES_MAX:
                self._settle()
            return
        else:
            why = DifferenceKind.MISSING
        self._out.add(why, offset, only_in=side.name)

    def _is_uncommitted(self, offset: int) -> bool:
        """Return True if neither log has an offset committed; leaders may differ there."""
        return self._committed is not None and offset >= self._committed

    def _settle(self) -> None:
        """Classify the candidates by one more pass over each log."""
        candidates, self._candidates, self._candidate_bytes = self._candidates, [], 0
        for side, other in ((self._a, self._b), (self._b, self._a)):
            wanted = {one.key for one in candidates if one.side is side}
            spreads = spread_of_keys(other, wanted) if wanted else {}
            for one in candidates:
                if one.side is side:
                    why = _why_compacted(one, spreads.get(one.key))
                    self._out.add(why, one.offset, only_in=side.name)


def _why_compacted(one: UnmatchedRecord, there: KeyRange | None) -> DifferenceKind:
    """Return the reason why the other log lacks a record; `there` are its records of the same
    key."""
    if there is not None and there.newest > one.offset:
        return DifferenceKind.SUPERSEDED
    if one.is_delete and there is None:
        return DifferenceKind.TOMBSTONE  # and the deleted records were removed before it
    return DifferenceKind.MISSING


def _content(one: LocatedRecord, other: LocatedRecord) -> str:
    """Return the differing parts of two records as text."""
    if one.is_control != other.is_control:
        return "a control record in one of the logs"
    mine, theirs = one.record, other.record
    parts = [
        f"{name}: {getattr(mine, name)!r:.60} in A, {getattr(theirs, name)!r:.60} in B"
        for name in ("timestamp_ms", "key", "value", "headers")
        if getattr(mine, name) != getattr(theirs, name)
    ]
    return "; ".join(parts)


def diff_logs(a: LogSide, b: LogSide, *, limit: int) -> LogDiff:
    """Compare two copies of one log; list at most about `limit` unexplained differences.

    Waits for the device; raises OSError, and CorruptionError for records with a valid CRC that do
    not decode.
    """
    out = LogDiff(a.folder.rpartition("/")[2], limit)
    _Comparison(a, b, out).run()
    return out


def diff(
    files: "Files",
    a: str,
    b: str,
    *,
    compacted: frozenset[str] = frozenset(),
    limit: int = 20,
) -> Diff:
    """Compare two logs' folders, or two data directories log by log.

    `compacted`: topics or logs where compaction may have dropped records, besides those in a
    cleaner checkpoint. Raises InvalidRequest if only one path is a data directory.
    """
    a, b = a.rstrip("/"), b.rstrip("/")
    found = Diff(a, b)
    is_log = [_is_log(files, path) for path in (a, b)]
    if is_log[0] != is_log[1]:
        raise InvalidRequest(f"{a} and {b} differ in kind; name two data directories, or two logs")
    if is_log[0]:
        pairs = [(a, b)]
    else:
        in_a, in_b = _logs(files, a), _logs(files, b)
        found.only_in_a = [name for name in in_a if name not in in_b]
        found.only_in_b = [name for name in in_b if name not in in_a]
        pairs = [(join(a, name), join(b, name)) for name in in_a if name in in_b]
    for one, other in pairs:
        sides = [
            open_side(files, name, folder, is_compacted=_is_named(folder, compacted))
            for name, folder in (("A", one), ("B", other))
        ]
        found.logs.append(diff_logs(sides[0], sides[1], limit=limit))
    return found


def _is_log(files: "Files", path: str) -> bool:
    if not files.is_folder(path):
        raise InvalidRequest(f"{path} is not a folder")
    if any(segment_base(name) is not None for name in files.names(path)):
        return True
    if files.exists(join(path, META_PROPERTIES)) or _logs(files, path):
        return False
    raise InvalidRequest(f"{path} is neither a data directory nor a log's folder")


def _logs(files: "Files", path: str) -> list[str]:
    return [
        name
        for name in files.names(path)
        if split_log_name(name) is not None and files.is_folder(join(path, name))
    ]


def _is_named(folder: str, compacted: frozenset[str]) -> bool:
    log = folder.rpartition("/")[2]
    return log in compacted or (split_log_name(log) or (log, 0))[0] in compacted
