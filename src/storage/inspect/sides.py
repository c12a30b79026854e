"""One side of a comparison: a log's batches in order, from all its segments, and its bounds."""

from collections import deque
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ...errors import CorruptionError
from ...ids import TopicId
from ...records.batch import OFFSET_MAX, BatchHeader
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
)
from ..small_files import read_file
from ..transaction_index import decode_aborted
from .log_check import segment_paths
from .scan import Bad, Good, Piece, scan

if TYPE_CHECKING:
    from ...runtime.ports import Files

PART_RECORDS: Final = 10_000


class Placed(NamedTuple):
    """A record with fields of its batch."""

    record: Record
    leader_epoch: int
    producer_id: int
    is_control: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A range of a log without a valid batch."""

    path: str
    position: int
    reason: str


@dataclass(slots=True)
class Side:
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
    unreadable: list[Unreadable] = field(default_factory=list)
    records: deque[Placed] = field(default_factory=deque)  # decoded, not yet compared
    batch: Good | None = None  # not yet decoded
    _pieces: Iterator[tuple[str, Piece]] = field(default_factory=lambda: iter(()))
    _parts: Iterator[list[Placed]] = field(default_factory=lambda: iter(()))

    def begin(self) -> None:
        """Move to the first batch."""
        self._pieces = _pieces(self.files, self.folder)
        self.advance()

    def advance(self) -> None:
        """Move to the next readable batch, skipping invalid ranges."""
        self.batch = None
        for path, piece in self._pieces:
            if isinstance(piece, Bad):
                self.unreadable.append(Unreadable(path, piece.position, piece.reason))
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


def _parts(batch: Good) -> Iterator[list[Placed]]:
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


def _placed(record: Record, header: BatchHeader) -> Placed:
    return Placed(record, header.leader_epoch, header.producer_id, header.is_control)


class Spread(NamedTuple):
    """The offsets of the records of one key in a log."""

    oldest: int  # offset
    newest: int


def spread_of_keys(side: Side, wanted: Set[bytes]) -> dict[bytes, Spread]:
    """Return the offsets at which a read-committed reader finds the wanted keys.

    Reads the keys and offsets of the log once more. Raises CorruptionError.
    """
    found: dict[bytes, Spread] = {}
    aborted = AbortedRanges(side.files, side.folder)
    for _, piece in _pieces(side.files, side.folder):
        if isinstance(piece, Bad) or piece.header.is_control or aborted.holds(piece.header):
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
                found[key] = Spread(oldest, offset)
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


def open_side(files: "Files", name: str, folder: str, *, is_compacted: bool = False) -> Side:
    """Return a log's folder as a side, with the bounds from its data directory."""
    side = Side(files, name, folder.rstrip("/"), is_compacted=is_compacted)
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
