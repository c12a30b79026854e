"""The segments of a log in a folder, for tests of compaction: append, clean, swap and read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quorumlog.records.batch import BatchHeader, iterate_batches, parse_header
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.records.record import Record
from quorumlog.runtime import Files
from quorumlog.storage.cleaner import SUFFIXES, CleaningPlan, CleaningRun, cleaned_path
from quorumlog.storage.layout import LOG_SUFFIX, segment_file
from quorumlog.storage.producer_state import LastRecord
from quorumlog.storage.segment_files import SourceSegment
from quorumlog.storage.small_files import read_file, write_file
from quorumlog.storage.transaction_index import AbortedTransaction

Pair = tuple[bytes | None, bytes | None]
"""A key and a value."""

PLAN: Mapping[str, Any] = {
    "seed": b"0123456789abcdef",
    "map_bytes": 2**20,
    "segment_bytes": 2**20,
    "index_bytes_max": 2**16,
    "index_interval_bytes": 64,
    "delete_retention_ms": 1_000,
    "inflate_bytes_max": 2**20,
}


@dataclass
class Shelf:
    """Log segments: `segments` are closed, `active` receives the appends."""

    files: Files
    folder: str
    segments: list[SourceSegment] = field(default_factory=list)
    active: list[bytes] = field(default_factory=list)
    active_base: int = 0
    next_offset: int = 0
    first_dirty: int = 0
    wall_ms: int = 100_000
    aborted: list[AbortedTransaction] = field(default_factory=list)
    live: dict[int, LastRecord] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)  # producer: first offset

    def append(
        self,
        *pairs: Pair,
        codec: Codec = Codec.NONE,
        timestamp: int = 5_000,
        step: int = 1,
        producer: int = -1,
        is_transactional: bool = False,
        leader_epoch: int = 0,
        log_append_time: bool = False,
    ) -> int:
        """Append one batch. Return its first offset."""
        records = [
            Record(0, timestamp + step * at, key, value, (("h", b"1"),))
            for at, (key, value) in enumerate(pairs)
        ]
        first = self.next_offset
        self.put(
            encode_batch(
                records,
                base_offset=first,
                codec=codec,
                leader_epoch=leader_epoch,
                producer_id=producer,
                producer_epoch=-1 if producer < 0 else 0,
                base_sequence=-1 if producer < 0 else 7,
                is_transactional=is_transactional,
                log_append_time=log_append_time,
            )
        )
        if producer >= 0:
            self.live[producer] = LastRecord(self.next_offset - 1, 0)
            if is_transactional:
                self.open.setdefault(producer, first)
        return first

    def end(self, producer: int, kind: MarkerType, timestamp: int = 5_000) -> int:
        """End a producer's transaction. Return the marker's offset."""
        offset = self.next_offset
        first = self.open.pop(producer, offset)
        if kind is MarkerType.ABORT and first < offset:
            stable = min([offset + 1, *self.open.values()])
            entry = AbortedTransaction(producer, first, offset, max(stable, first + 1))
            self.aborted.append(entry)
        self.put(
            encode_marker(
                producer_id=producer,
                producer_epoch=0,
                kind=kind,
                coordinator_epoch=1,
                timestamp_ms=timestamp,
                leader_epoch=0,
                base_offset=offset,
            )
        )
        return offset

    def put(self, batch: bytes) -> None:
        """Append a batch unchanged."""
        self.active.append(batch)
        self.next_offset = parse_header(batch).next_offset

    def roll(self) -> None:
        """Close the active segment."""
        path = f"{self.folder}/{segment_file(self.active_base, LOG_SUFFIX)}"
        content = b"".join(self.active)
        write_file(self.files, path, content)
        self.segments.append(
            SourceSegment(
                path=path,
                base_offset=self.active_base,
                end_offset=self.next_offset,
                size=len(content),
            )
        )
        self.active, self.active_base = [], self.next_offset

    @property
    def end_limit(self) -> int:
        """Return the exclusive end of the offsets that may be cleaned."""
        return min([self.active_base, *self.open.values()])

    def round(self, **changes: Any) -> CleaningRun:
        """Return a compaction round over the closed segments. It has not started."""
        settings = {
            "segments": tuple(self.segments),
            "first_dirty_offset": self.first_dirty,
            "end_offset": self.end_limit,
            "wall_ms": self.wall_ms,
            "aborted": tuple(self.aborted),
            "live_producers": self.live,
            **PLAN,
            **changes,
        }
        return CleaningRun(CleaningPlan(**settings))

    def clean(self, *, budget_bytes: int = 2**20, **changes: Any) -> CleaningRun:
        """Clean the closed segments and swap in the result."""
        cleaning = self.round(**changes)
        while not cleaning.finished:
            cleaning.step(self.files, budget_bytes=budget_bytes)
        self.swap(cleaning)
        return cleaning

    def swap(self, cleaning: CleaningRun) -> None:
        """Swap in the groups of a round."""
        for group in cleaning.groups:
            for source in group.sources:
                for suffix in SUFFIXES:
                    beside = source.path.removesuffix(LOG_SUFFIX) + suffix
                    if self.files.exists(beside):
                        self.files.remove(beside)
                self.segments.remove(source)
            path = group.sources[0].path
            for suffix in SUFFIXES:
                beside = path.removesuffix(LOG_SUFFIX) + suffix
                if self.files.exists(cleaned_path(path, suffix)):
                    self.files.rename(cleaned_path(path, suffix), beside)
            self.segments.append(
                SourceSegment(
                    path=path,
                    base_offset=group.base_offset,
                    end_offset=group.end_offset,
                    size=group.size,
                )
            )
            self.aborted = [
                entry
                for entry in self.aborted
                if not group.base_offset <= entry.last_offset < group.end_offset
            ] + list(group.aborted)
        self.segments.sort(key=lambda segment: segment.base_offset)
        self.first_dirty = cleaning.cleaned_to

    def content(self) -> bytes:
        """Return all batches."""
        parts = [read_file(self.files, segment.path) for segment in self.segments]
        return b"".join([*parts, *self.active])

    def headers(self) -> list[BatchHeader]:
        """Return the headers of all batches."""
        return [header for _, header in iterate_batches(self.content())]

    def records(self) -> list[Record]:
        """Check every CRC and return the records."""
        return decode_all(self.content())

    def offsets(self) -> list[int]:
        """Return the offsets of `records`."""
        return [record.offset for record in self.records()]


def pairs(*keys: bytes, value: bytes = b"v") -> Sequence[Pair]:
    """Return one pair for each key."""
    return [(key, value) for key in keys]
