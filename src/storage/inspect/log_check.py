"""Verification of one log's folder: its batches, and every other file in it.

Reads each .log once, from end to end, and compares the indexes on the way. Changes nothing.

Small text files are verified strictly. The decoders of `checkpoints` accept hand-edited files:
spaces, comments, signs. A check does not: a flipped bit may leave a file that still parses, so
every byte must be as written by a broker. The same rules apply to files of other servers: lines,
single spaces, digits.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ...errors import CorruptionError
from ...ids import TopicId
from ...records.checksum import crc32c
from ...records.compression import INFLATE_LIMIT
from ..checkpoints import (
    DirectoryMeta,
    PartitionMeta,
    decode_epochs,
    decode_id,
    decode_meta,
    decode_offsets,
    decode_partition_metadata,
    encode_id,
)
from ..index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from ..layout import (
    INDEX_SUFFIX,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    join,
    segment_base,
    segment_file,
    swap_range,
)
from ..leader_epochs import EpochCache
from ..segment import index_paths
from ..small_files import read_file
from .findings import FindingKind, LogReport
from .index_check import IndexComparison, load_entries
from .offset_check import LastShutdown, OffsetCheck, OrderFault, report_faults
from .producer_check import ProducerCheck
from .scan import InvalidRange, scan

if TYPE_CHECKING:
    from ...runtime.ports import Files

NUMBER: Final = rb"(?:0|[1-9][0-9]*)"
NAME: Final = rb"[A-Za-z0-9._-]+"
ID: Final = rb"[A-Za-z0-9_-]{22}"

OFFSETS: Final = re.compile(rb"0\n%b\n(?:%b %b %b\n)*" % (NUMBER, NAME, NUMBER, NUMBER))
EPOCHS: Final = re.compile(rb"0\n%b\n(?:%b %b\n)*" % (NUMBER, NUMBER, NUMBER))
PARTITION: Final = re.compile(
    rb"version: 0\ntopic_id: %b(?:\n(?:unsynced_bytes_max: %b\n)?(?:gaps_below: %b\n)?)?"
    % (ID, NUMBER, NUMBER)
)
MARKER: Final = re.compile(rb'\{"version":0,"brokerEpoch":(?:-1|%b)\}' % NUMBER)
META_LINE: Final = re.compile(
    rb"#[ -~]*|version=1|node\.id=%b|cluster\.id=[A-Za-z0-9_-]+|directory\.id=%b" % (NUMBER, ID)
)
META_KEYS: Final = (b"cluster.id=", b"directory.id=", b"node.id=", b"version=")

UNEXPECTED: Final = "its bytes are not in the form of its writer"


def strict_offsets(content: bytes, path: str) -> dict[str, int]:
    """Decode an offset checkpoint; raises CorruptionError, also for a duplicate log."""
    offsets = decode_offsets(content, path)
    _match(OFFSETS, content, path)
    if len(offsets) != content.count(b"\n") - 2:
        raise CorruptionError("a log is listed twice", path=path)
    return offsets


def strict_epochs(content: bytes, path: str) -> list[tuple[int, int]]:
    """Decode a leader epoch checkpoint; raises CorruptionError."""
    epochs = decode_epochs(content, path)
    _match(EPOCHS, content, path)
    return epochs


def strict_partition(content: bytes, path: str) -> PartitionMeta:
    """Decode partition.metadata; raises CorruptionError."""
    meta = decode_partition_metadata(content, path)
    _match(PARTITION, content, path)
    text = content.split(b"topic_id: ")[1][:22].decode()
    if encode_id(decode_id(text, path)) != text:
        raise CorruptionError(f"{text} is not a canonical id", path=path)
    return meta


def strict_meta(content: bytes, path: str) -> DirectoryMeta:
    """Decode meta.properties; raises CorruptionError."""
    meta = decode_meta(content, path)
    lines = content.split(b"\n")
    if lines.pop() or not all(META_LINE.fullmatch(line) for line in lines):
        raise CorruptionError(UNEXPECTED, path=path)
    for key in META_KEYS:
        if sum(line.startswith(key) for line in lines) != 1:
            raise CorruptionError(f"{key.decode()[:-1]} must occur once", path=path)
    if encode_id(meta.directory_id).encode() not in content:
        raise CorruptionError("directory.id is not a canonical id", path=path)
    return meta


def strict_marker(content: bytes, path: str) -> None:
    """Check the clean-shutdown marker; raises CorruptionError."""
    _match(MARKER, content, path)


def quorum_checksum(fields: Mapping[str, Any]) -> int:
    """Return the CRC-32C of the other fields of quorum-state, as its writer computes it."""
    return crc32c(json.dumps(fields, sort_keys=True).encode())


def _match(pattern: "re.Pattern[bytes]", content: bytes, path: str) -> None:
    if pattern.fullmatch(content) is None:
        raise CorruptionError(UNEXPECTED, path=path)


METADATA_LOG: Final = "__cluster_metadata-0"
GROUPS_BYTES: Final = 2 * 1024 * 1024
"""Limit of a torn tail of the metadata log: two write groups."""

Progress = Callable[[int], None]
"""Callback with the number of further .log bytes read."""

PROGRESS_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    """The state of a log from outside its folder."""

    is_clean: bool | None = None  # None: the log is not in a data directory
    recovery_point: int | None = None  # None: unknown
    log_start_offset: int | None = None
    high_watermark: int | None = None
    cleaner_offset: int | None = None
    is_compacted: bool = False  # gaps between offsets are allowed
    topic_id: TopicId | None = None  # from the metadata log; None: unknown
    inflate_limit: int = INFLATE_LIMIT


@dataclass(slots=True)
class LogCheck:
    """One check of one log; create it with `check_log`."""

    files: "Files"
    report: LogReport
    around: LogContext
    names: list[str] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    # base -> cleaned .log of an incomplete swap
    swapped: dict[int, str] = field(default_factory=dict)
    torn: OrderFault | None = None  # start of the torn tail
    unsynced_bytes_max: int | None = None
    gaps_below: int | None = None
    topic_id: TopicId | None = None  # from partition.metadata
    is_read: bool = False  # to its end: the report is complete
    course: OffsetCheck = field(init=False)
    producers: ProducerCheck = field(init=False)

    def __post_init__(self) -> None:
        self.course = OffsetCheck(
            is_compacted=self.around.is_compacted, recovery_point=self.around.recovery_point
        )

    @property
    def folder(self) -> str:
        """The log's folder."""
        return self.report.folder

    def run(self, progress: Progress) -> None:
        """Fill the report."""
        report = self.report
        self.names = self.files.names(report.folder)
        self._list_segments()
        report.segments = len(self.bases)
        report.recovery_point = self.around.recovery_point
        self._check_metadata()
        self.producers = ProducerCheck(
            self.files,
            self.folder,
            self.names,
            first=self.bases[0] if self.bases else 0,
            is_compacted=self.around.is_compacted,
        )
        for at, base in enumerate(self.bases):
            self._check_segment(base, at, progress)
        self._conclude()
        self.producers.end(report.log_end_offset, report.findings)
        self._check_epochs()
        self._check_bounds()
        self._check_names()
        self.is_read = True

    def _list_segments(self) -> None:
        """List the segments; a cleaned segment past its commit point replaces its sources, since
        the next start completes the swap."""
        paths = segment_paths(self.folder, self.names)
        self.bases = sorted(paths)
        self.swapped = {base: path for base, path in paths.items() if path.endswith(SWAP_SUFFIX)}

    # --- batches -------------------------------------------------------------------------------

    def path_of(self, base: int) -> str:
        """Return the path of a segment's .log."""
        return self.swapped.get(base) or join(self.folder, segment_file(base, LOG_SUFFIX))

    def _check_segment(self, base: int, at: int, progress: Progress) -> None:
        report, course = self.report, self.course
        path = self.path_of(base)
        is_active = at == len(self.bases) - 1
        course.start_segment(path, base, is_first=at == 0, is_active=is_active)
        comparison = self._comparison(path, base)
        file = self.files.open_readonly(path)
        try:
            size = file.size()
            report.bytes += size
            limit, reported = self.around.inflate_limit, 0
            for piece in scan(file, 0, size, next_offset=base, inflate_limit=limit):
                if isinstance(piece, InvalidRange):
                    course.bad(path, piece)
                    comparison.bad(piece.position, piece.end)
                    self.producers.bad()
                    continue
                header = piece.header
                if piece.position - reported >= PROGRESS_BYTES:
                    progress(piece.position - reported)
                    reported = piece.position
                course.good(path, piece)
                if course.fault_count:
                    self.producers.bad()
                wrong = self.producers.good(piece, report.findings)
                if wrong is not None:
                    course.malformed(path, piece, wrong)
                last = header.last_offset
                comparison.batch(piece.position, last, header.base_offset, header.max_timestamp)
                report.batches += 1
                report.records += header.record_count
                if piece.is_unproven:
                    report.findings.add(
                        FindingKind.BATCH_UNPROVEN,
                        path,
                        f"the batch inflates to more than {limit} bytes",
                        position=piece.position,
                        offset=header.base_offset,
                    )
        finally:
            file.close()
        progress(size - reported)
        comparison.end(is_sealed=not is_active or bool(self.around.is_clean))
        self._tell_indexes(comparison, base, size)
        if self._is_recovered(base) or base in self.swapped:
            self.producers.skip_segment()
        else:
            self.producers.end_segment(base, course.next_offset, report.findings)

    def _comparison(self, path: str, base: int) -> IndexComparison:
        if base in self.swapped:
            return IndexComparison(base, None, None)
        index_path, time_index_path = index_paths(path)
        return IndexComparison(
            base,
            load_entries(self.files, index_path, OFFSET_ENTRY_SIZE),
            load_entries(self.files, time_index_path, TIME_ENTRY_SIZE),
        )

    def _tell_indexes(self, comparison: IndexComparison, base: int, size: int) -> None:
        findings = self.report.findings
        is_rebuilt = self._is_recovered(base)
        for kind, path, position, what in comparison.wrong:
            problem = (
                FindingKind.INDEX_STALE
                if is_rebuilt and kind is not FindingKind.INDEX_FOREIGN
                else kind
            )
            findings.add(problem, path, what, position=position)
        if is_rebuilt or size == 0 or base in self.swapped:
            return
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            name = segment_file(base, suffix)
            if name not in self.names:
                findings.add(FindingKind.INDEX_MISSING, join(self.folder, name), "it is missing")

    def _is_recovered(self, base: int) -> bool:
        """Return True if the next start reads this segment and rebuilds its indexes."""
        if self.around.is_clean or not self.bases:
            return False
        if self.around.is_clean is None:
            return base == self.bases[-1]
        point = self.around.recovery_point or 0
        first = max(at for at, other in enumerate(self.bases) if at == 0 or other < point)
        return base >= self.bases[first]

    def _conclude(self) -> None:
        """Distinguish corruption from a torn tail, and set the log end."""
        report, course, around = self.report, self.course, self.around
        bound = self.unsynced_bytes_max
        if bound is None and report.name == METADATA_LOG:
            bound = GROUPS_BYTES
        stop = LastShutdown(
            is_clean=around.is_clean, recovery_point=around.recovery_point, torn_bytes_max=bound
        )
        self.torn = report_faults(course, stop, report, size=report.bytes)
        report.log_end_offset = self.torn.offset if self.torn else course.next_offset
        report.good_end_offset = course.faults[0].offset if course.faults else course.next_offset
        start = around.log_start_offset or 0
        if not self.bases:
            report.log_end_offset = report.good_end_offset = start
        first = self.bases[0] if self.bases else start
        report.log_start_offset = min(max(start, first), report.log_end_offset)

    # --- other files ---------------------------------------------------------------------------

    def _check_metadata(self) -> None:
        path = join(self.folder, PARTITION_METADATA)
        findings = self.report.findings
        if PARTITION_METADATA not in self.names:
            if self.report.name != METADATA_LOG:
                findings.add(FindingKind.METADATA_MISSING, path, "it is missing")
            return
        try:
            meta = strict_partition(read_file(self.files, path), path)
        except CorruptionError as error:
            is_stopped = self.around.is_clean is not False and bool(self.bases)
            was_flushed = is_stopped or self.around.recovery_point
            kind = FindingKind.METADATA_WRONG if was_flushed else FindingKind.METADATA_MISSING
            findings.add(kind, path, error.message)
            return
        self.unsynced_bytes_max = meta.unsynced_bytes_max
        self.gaps_below = meta.gaps_below
        if meta.gaps_below is not None:
            self.around = replace(self.around, is_compacted=True)
            self.course.is_compacted = True
        self.topic_id = meta.topic_id
        known = self.around.topic_id
        if known is not None and meta.topic_id != known:
            findings.add(
                FindingKind.METADATA_WRONG,
                path,
                "the topic id differs from that of the metadata log",
            )

    def _check_epochs(self) -> None:
        path = join(self.folder, LEADER_EPOCHS)
        findings, course, around = self.report.findings, self.course, self.around
        if LEADER_EPOCHS not in self.names:
            point = (
                around.recovery_point if around.is_clean is False else self.report.log_end_offset
            )
            if course.runs and course.runs[0].first_offset < (point or 0):
                findings.add(FindingKind.EPOCH_FILE_MISSING, path, "it is missing")
            return
        try:
            entries = strict_epochs(read_file(self.files, path), path)
        except CorruptionError as error:
            findings.add(FindingKind.EPOCH_FILE_WRONG, path, error.message)
            return
        wrong = self._epochs_contradict(entries)
        if wrong is not None:
            findings.add(FindingKind.EPOCH_FILE_WRONG, path, wrong)

    def _epochs_contradict(self, entries: list[tuple[int, int]]) -> str | None:
        """Return the first contradiction between the epoch file and the batches, None without one.

        After an unclean shutdown only the part below the recovery point counts: above it the next
        start reads the epochs from the batches.
        """
        course = self.course
        end = self.report.log_end_offset
        if self.around.is_clean is False:
            end = min(end, self.around.recovery_point or 0)
        start = self.report.log_start_offset
        if end <= start and self.around.is_clean is False:
            return None
        stored = EpochCache(entries)
        stored.truncate_end(max(end, start + 1))  # an empty log keeps its newest epoch
        if not course.is_compacted and not course.faults:
            return self._first_other(stored, start=start, end=end)
        for run in course.runs:
            for offset in (run.first_offset, run.last_offset):
                if offset < end and offset >= start and stored.epoch_at(offset) != run.epoch:
                    return (
                        f"offset {offset} has epoch {stored.epoch_at(offset)} in the file,"
                        f" {run.epoch} in its batch"
                    )
        return None

    def _first_other(self, stored: EpochCache, *, start: int, end: int) -> str | None:
        """Return the first difference between the file's epochs and those of the batches."""
        course = self.course
        derived = EpochCache()
        for run in course.runs:
            derived.assign(run.epoch, run.first_offset)
        derived.truncate_end(end)
        derived.truncate_start(start)
        if start == end and not derived.entries():
            return None  # the batches of that epoch are deleted
        if not self.around.is_clean:
            stored.truncate_start(start)  # it may be older than the log start
        for said, is_so in zip(stored.entries(), derived.entries(), strict=False):
            if said != is_so:
                return f"epoch {said[0]} starts at {said[1]} in the file; the batches have {is_so}"
        count, there = len(stored.entries()), len(derived.entries())
        return None if count == there else f"it has {count} epochs, the batches have {there}"

    def _check_bounds(self) -> None:
        report, around = self.report, self.around
        point = around.recovery_point
        if point is not None and report.log_end_offset < point:
            path = join(self.folder, segment_file(self.bases[-1], LOG_SUFFIX)) if self.bases else ""
            report.findings.add(
                FindingKind.LOG_SHORT,
                path or self.folder,
                f"the log ends at offset {report.log_end_offset}, but offsets up to {point} were"
                " fsynced",
                offset=report.log_end_offset,
            )

    def _check_names(self) -> None:
        findings = self.report.findings
        for name in self.names:
            what = stray_name(name, self.bases)
            if what is not None:
                findings.add(what[0], join(self.folder, name), what[1])
        for base in self._lost_segments():
            path = join(self.folder, segment_file(base, LOG_SUFFIX))
            what_else = "its .log is missing between existing segments; its index exists"
            findings.add(FindingKind.OFFSET_ORDER, path, what_else, offset=base)

    def _lost_segments(self) -> list[int]:
        """Return the missing segments of a compacted log, in which a gap alone is valid.

        No crash leaves an index without its .log between two segments: segments are removed at the
        start or the end of the log, and an incomplete swap still has its .log.swap.
        """
        if not self.course.is_compacted or len(self.bases) < 2:
            return []
        replaced = [span for name in self.names if (span := swap_range(name)) is not None]
        found = (segment_base(name, INDEX_SUFFIX) for name in self.names)
        return [
            base
            for base in found
            if base is not None
            and base not in self.bases
            and self.bases[0] < base < self.bases[-1]
            and not any(first <= base < end or end < 0 for first, end in replaced)
        ]


def segment_paths(folder: str, names: Sequence[str]) -> dict[int, str]:
    """Return the .log path of each segment, by base offset, as after completing interrupted
    swaps."""
    found = {base: join(folder, name) for name in names if (base := segment_base(name)) is not None}
    swaps = {span: name for name in names if (span := swap_range(name)) is not None}
    for first, end in swaps:
        if end >= 0:  # Kafka's name does not contain the range
            found = {base: path for base, path in found.items() if not first <= base < end}
    for (first, end), name in swaps.items():
        if end >= 0:
            found[first] = join(folder, name)
    return found


UNFINISHED: Final = {
    ".tmp": "a replacement file that was not renamed",
    ".deleted": "a file of a removed segment",
    ".cleaned": "an incomplete cleaned segment",
    ".part": "a snapshot that was not received completely",
    ".swap": "a cleaned segment with an incomplete swap",
}
BESIDE_LOG: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


def stray_name(name: str, bases: list[int]) -> tuple[FindingKind, str] | None:
    """Return the finding about a name in a log's folder, None if the name is valid."""
    for suffix, what in UNFINISHED.items():
        if name.endswith(suffix):
            return FindingKind.UNFINISHED, what
    if name in (LEADER_EPOCHS, PARTITION_METADATA) or segment_base(name) is not None:
        return None
    for suffix in BESIDE_LOG:
        base = segment_base(name, suffix)
        if base is not None:
            return None if base in bases else (FindingKind.UNFINISHED, "an index without its .log")
    if segment_base(name, SNAPSHOT_SUFFIX) is not None:
        return None
    if name.endswith(".checkpoint"):
        return None  # a snapshot of the metadata log
    return FindingKind.STRAY, "not a file of a log"


def check_log(
    files: "Files",
    folder: str,
    around: LogContext,
    *,
    progress: Progress = lambda size: None,
) -> LogCheck:
    """Check a log's folder. Waits for the device; unreadable files are findings."""
    check = LogCheck(files, LogReport(folder.rpartition("/")[2], folder), around)
    try:
        check.run(progress)
    except OSError as error:
        path = error.filename if isinstance(error.filename, str) else folder
        check.report.findings.add(FindingKind.UNREADABLE, path, error.strerror or str(error))
    return check
