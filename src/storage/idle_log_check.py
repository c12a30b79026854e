"""The check of an idle log: is it worth opening to delete or clean segments?

It uses names and sizes, and the timestamps of the oldest segment where they decide. So an idle log
stays closed and takes no memory until something may be deleted. A wrong yes costs an opening, never
data: the opened log decides again. Runs in the lane `clean:<dir>`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from ..records.batch import HEADER_SIZE
from .config import LogConfig
from .layout import LOG_SUFFIX, join, segment_base, segment_file
from .log_to_clean import LogToClean, find_log_to_clean
from .retention import RetentionDecision, deletable_segments
from .segment import SegmentAge, SegmentOutline, header_at, load_index, read_index

if TYPE_CHECKING:
    from ..runtime.ports import Files

T = TypeVar("T", RetentionDecision, LogToClean)

EVERY_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLogCheck:
    """The result of a check."""

    is_due: bool = False  # open the log
    due_ms: int | None = None  # wall time of the next check; None: when its config changes


def check_idle_log(
    files: "Files",
    folder: str,
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    cleaned_to: int,
    since_ms: int,
) -> IdleLogCheck:
    """Check a closed log. `since_ms` is the age base of segments without timestamps.
    Raises OSError, CorruptionError."""
    segments = _segments(files, folder, since_ms)
    interval = config.index_interval_bytes
    verdict = _settled(
        files,
        folder,
        segments,
        interval,
        lambda _: deletable_segments(
            segments,
            config,
            count=len(segments),
            size_bytes=sum(segment.size for segment in segments),
            now_ms=now_ms,
            limit_offset=EVERY_OFFSET,
            log_start_offset=log_start_offset,
        ),
    )
    if verdict.count:
        return IdleLogCheck(is_due=True)
    outline = SegmentOutline(
        bases=[segment.base_offset for segment in segments],
        sizes=[segment.size for segment in segments],
        end_offset=EVERY_OFFSET,
        age_of=segments.__getitem__,
    )
    dirt = _settled(
        files,
        folder,
        segments,
        interval,
        lambda settled: find_log_to_clean(
            outline,
            config,
            now_ms=now_ms,
            limit_offset=EVERY_OFFSET,
            cleaned_to=cleaned_to,
            settled=settled,
        ),
    )
    if dirt.is_due or dirt.rolls:
        return IdleLogCheck(is_due=True)
    return IdleLogCheck(due_ms=now_ms if config.compacted and segments else verdict.due_ms)


def read_times(
    files: "Files", log_path: str, *, base_offset: int, size: int, interval_bytes: int
) -> tuple[int, int]:
    """Return an inactive segment's first and largest timestamp (ms, below 0: none). Reads its
    index, or its headers if that is missing; raises OSError, CorruptionError."""
    index = load_index(
        files, log_path, base_offset=base_offset, size=size, interval_bytes=interval_bytes
    )
    first = _first_timestamp(files, log_path, size)
    return first, max(first, index.max_timestamp)


def _segments(files: "Files", folder: str, since_ms: int) -> list[SegmentAge]:
    if not files.exists(folder):
        return []
    bases = [base for name in files.names(folder) if (base := segment_base(name)) is not None]
    if not bases:
        return []  # left by a crash before its first segment
    sizes = [files.size(join(folder, segment_file(base, LOG_SUFFIX))) for base in bases]
    ends = [*bases[1:], EVERY_OFFSET]
    return [
        SegmentAge(
            base_offset=base, end_offset=end, size=size, max_timestamp=None, created_ms=since_ms
        )
        for base, end, size in zip(bases, ends, sizes, strict=True)
    ]


def _settled(
    files: "Files",
    folder: str,
    segments: list[SegmentAge],
    interval: int,
    decide: Callable[[int], T],
) -> T:
    """Return `decide`'s result, after loading the timestamps it needs."""
    known = 0
    while (found := decide(known)).unknown is not None:
        known = found.unknown
        segment = segments[found.unknown]
        path = join(folder, segment_file(segment.base_offset, LOG_SUFFIX))
        first, largest = _times(files, path, segment, interval)
        segments[found.unknown] = segment._replace(first_timestamp=first, max_timestamp=largest)
    return found


def _times(files: "Files", path: str, segment: SegmentAge, interval: int) -> tuple[int, int]:
    if segment.end_offset < EVERY_OFFSET:
        return read_times(
            files,
            path,
            base_offset=segment.base_offset,
            size=segment.size,
            interval_bytes=interval,
        )
    # The active segment: if its index is not stored, its first batch determines the next check.
    first = _first_timestamp(files, path, segment.size)
    index = read_index(
        files,
        path,
        base_offset=segment.base_offset,
        size=segment.size,
        interval_bytes=interval,
    )
    return first, first if index is None else max(first, index.max_timestamp)


def _first_timestamp(files: "Files", path: str, size: int) -> int:
    if size == 0:
        return -1
    file = files.open_readonly(path)
    try:
        return header_at(file.read(0, HEADER_SIZE), 0, path=path, position=0).max_timestamp
    finally:
        file.close()
