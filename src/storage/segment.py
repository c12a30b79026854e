"""One segment: a .log file of consecutive batches, and its two index files.

The active segment (the log's last) has its index in memory. An inactive one's is read from its
files on first use, or rebuilt from the .log if they are missing or inconsistent. A walk reads
headers only and skips the records.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..errors import CorruptionError
from ..records.batch import HEADER_SIZE, BatchHeader, parse_header
from ..runtime.ports import File, Files, Lease
from .index import NO_TIMESTAMP, RELATIVE_OFFSET_MAX, SegmentIndex, decode_index
from .layout import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, join, segment_file
from .small_files import read_file, replace_file, write_file

WALK_SIZE: Final = 64 * 1024
"""Bytes per read while walking: many headers of small batches."""

HOP_SIZE: Final = 4 * 1024
"""Bytes per read while walking large batches, one header at a time."""


@dataclass(slots=True)
class FileNames:
    """Shared flag of a segment: its file names were reused or removed. The loop sets it before a
    lane gives the names to other files; lanes check it after they read a file by name."""

    is_replaced: bool = False


INDEX_STEP_MIN: Final = 4 * 1024 * 1024
INDEX_STEP_MAX: Final = 128 * 1024 * 1024
INDEX_STEPS: Final = 8


@dataclass(slots=True)
class Segment:
    """The state of one segment of a log."""

    folder: str
    base_offset: int
    size: int = 0  # bytes of completed batches
    index: SegmentIndex | None = None  # the active segment's; it grows with the segment
    # ms, the largest of its first batch: the base of segment.ms
    first_timestamp: int = NO_TIMESTAMP
    created_ms: int = 0  # wall clock; the base of segment.ms if batches carry no timestamps
    has_index_files: bool = False  # complete files; for a growing .log they cover its prefix
    indexed_bytes: int = 0  # size of the .log when its growing index was last stored
    file: "File | None" = None  # held, under the lease, while it has unsynced bytes
    lease: "Lease | None" = None
    # ms, of an inactive one; NO_TIMESTAMP without one; None: unknown
    max_timestamp: int | None = None
    names: FileNames = field(default_factory=FileNames)

    @property
    def path(self) -> str:
        """Path of the .log file."""
        return join(self.folder, segment_file(self.base_offset, LOG_SUFFIX))


class SegmentAge(NamedTuple):
    """The properties of one segment that retention needs. Not a dataclass: a log may have
    10,000."""

    base_offset: int
    end_offset: int  # exclusive: the next base offset, or the log end
    size: int  # bytes of its batches
    max_timestamp: int | None  # ms; below 0: its batches have none; None: unknown
    created_ms: int  # wall clock: creation or opening of the file
    first_timestamp: int = -1  # ms, of its first batch; known if max_timestamp is; below 0: none


def age_base(segment: SegmentAge) -> int:
    """Return the time from which a segment's age counts (ms, UTC)."""
    assert segment.max_timestamp is not None, (
        f"the timestamps of segment {segment.base_offset} are needed"
    )
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOutline:
    """A log's segments, ascending, the last one active. A log may have 10,000: properties needed of
    all are lists of integers, the others are fetched for a few segments."""

    bases: Sequence[int]
    sizes: Sequence[int]  # bytes of their batches
    end_offset: int  # of the log
    age_of: Callable[[int], SegmentAge]  # by segment index


def index_step(segment_bytes: int) -> int:
    """Return the bytes of log between two stores of a growing index: a few per segment."""
    return max(INDEX_STEP_MIN, min(INDEX_STEP_MAX, segment_bytes // INDEX_STEPS))


def index_paths(log_path: str) -> tuple[str, str]:
    """Return the paths of the .index and the .timeindex of a .log."""
    stem = log_path.removesuffix(LOG_SUFFIX)
    return stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX


def walk(file: "File", position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch in [position, end), reading headers only.

    Raises CorruptionError at a header that is invalid or reaches beyond `end`. May wait for the
    device.
    """
    size = WALK_SIZE
    while position < end:
        window = file.read(position, min(size, end - position))
        at = 0
        while at == 0 or at + HEADER_SIZE <= len(window):
            header = header_at(window, at, path=file.path, position=position + at)
            if position + at + header.size > end:
                raise CorruptionError(
                    f"a batch of {header.size} bytes reaches beyond {end}",
                    path=file.path,
                    position=position + at,
                )
            yield position + at, header
            at += header.size
        position += at
        size = HOP_SIZE if header.size > WALK_SIZE else WALK_SIZE


def header_at(window: bytes, at: int, *, path: str, position: int) -> BatchHeader:
    """Parse a header; raises CorruptionError with the file and the position in it."""
    try:
        return parse_header(window, at)
    except CorruptionError as error:
        raise CorruptionError(error.message, path=path, position=position) from None


def build_index(file: "File", *, base_offset: int, end: int, interval_bytes: int) -> SegmentIndex:
    """Rebuild a segment's index from its first `end` bytes; raises CorruptionError for offsets that
    the segment cannot hold."""
    index = SegmentIndex(base_offset, interval_bytes)
    for position, header in walk(file, 0, end):
        if not 0 <= header.last_offset - base_offset <= RELATIVE_OFFSET_MAX:
            raise CorruptionError(
                f"a batch that ends with offset {header.last_offset} is impossible in this segment",
                path=file.path,
                position=position,
            )
        index.note(
            position=position,
            size=header.size,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )
    return index


def load_index(
    files: "Files", log_path: str, *, base_offset: int, size: int, interval_bytes: int
) -> SegmentIndex:
    """Return an inactive segment's index from its files, or rebuild it from its .log."""
    index = read_index(
        files, log_path, base_offset=base_offset, size=size, interval_bytes=interval_bytes
    )
    if index is not None:
        return index
    file = files.open_readonly(log_path)
    try:
        index = build_index(file, base_offset=base_offset, end=size, interval_bytes=interval_bytes)
    finally:
        file.close()
    index.seal()
    return index


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLoader:
    """Reads the index of an inactive segment for a reader of its .log. For the read lane."""

    files: "Files"
    file: "File"
    base_offset: int
    size: int
    interval_bytes: int
    names: FileNames

    def load(self) -> SegmentIndex:
        """Return the index from its files, or rebuild it from the open .log if the files are
        invalid or were replaced by others of the same name. Raises OSError, CorruptionError."""
        index = read_index(
            self.files,
            self.file.path,
            base_offset=self.base_offset,
            size=self.size,
            interval_bytes=self.interval_bytes,
        )
        if index is None or self.names.is_replaced:
            index = build_index(
                self.file,
                base_offset=self.base_offset,
                end=self.size,
                interval_bytes=self.interval_bytes,
            )
            index.seal()
        return index


def read_index(
    files: "Files", log_path: str, *, base_offset: int, size: int, interval_bytes: int
) -> SegmentIndex | None:
    """Return the index from a segment's files, None if they are missing or inconsistent."""
    index_path, time_index_path = index_paths(log_path)
    try:
        return decode_index(
            read_file(files, index_path),
            read_file(files, time_index_path),
            base_offset=base_offset,
            log_size=size,
            interval_bytes=interval_bytes,
        )
    except (FileNotFoundError, CorruptionError):
        return None


def remove_index(files: "Files", log_path: str) -> bool:
    """Unlink both index files of a segment; return True if any existed."""
    were_any = False
    for path in index_paths(log_path):
        if files.exists(path):
            files.remove(path)
            were_any = True
    return were_any


def store_index(files: "Files", log_path: str, index: SegmentIndex) -> None:
    """Write both index files of a segment and sync them.

    At every moment the stored times reach as far as the stored offsets, so that the files left by a
    crash are valid for a prefix of the segment.
    """
    index_path, time_index_path = index_paths(log_path)
    if not files.exists(index_path):
        write_file(files, time_index_path, index.encode_times())
        write_file(files, index_path, index.encode_offsets())
        return
    folder, _, time_name = time_index_path.rpartition("/")
    replace_file(files, folder, time_name, index.encode_times())
    replace_file(files, folder, index_path.rpartition("/")[2], index.encode_offsets())
