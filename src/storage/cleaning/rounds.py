"""One round of compaction: a resumable object that a lane runs in slices.

A round is made on the loop from numbers alone and touches files only in `step`. It first reads the
dirty offsets and notes the newest offset of each key (`RoundPlan.map_bytes` bounds that), then
rewrites the log from its start to the end of what was noted into `.cleaned` files. Nobody sees
these until `swap` puts them in the place of their sources.

Who runs it: `step` again and again until `finished`, in one lane; then, in ascending order, each
group of `groups` is swapped in; then `cleaned_to` is stored. A group must never be swapped before
one that lies below it: a tombstone's removal, or its horizon, would outlive the values that it
deletes. After an error, or instead of going on, `discard` removes what is left of the files.

Memory: `map_bytes`, and a few times the larger of READ_SIZE and the largest batch inflated.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ..index import SegmentIndex

if TYPE_CHECKING:
    from ...runtime.ports import Files

READ_SIZE: Final = 1024 * 1024
"""Bytes of a log that are read at a time; a larger batch is read whole."""


class Aborted(Protocol):
    """An aborted transaction, as the transaction index has it."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...  # of its marker (inclusive)
    @property
    def last_stable_offset(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """An inactive segment."""

    path: str  # of its .log
    base_offset: int
    end_offset: int  # exclusive: where the next segment starts
    size: int  # bytes of its batches


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """What a round has to know."""

    segments: tuple[SourceSegment, ...]  # ascending, from the log's first; none active
    first_dirty_offset: int  # below it earlier rounds have been
    end_offset: int  # exclusive; at most the last stable offset and the active segment's base
    wall_ms: int
    seed: bytes  # 16 random bytes, new for every round: nobody can make keys that collide
    map_bytes: int  # clean_buffer_bytes
    segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    delete_retention_ms: int
    inflate_bytes_max: int
    aborted: tuple[Aborted, ...] = ()  # those that overlap the segments
    live_batches: tuple[int, ...] = ()
    """Last offsets of the data batches whose headers live producers need: stay, if empty."""
    live_markers: tuple[tuple[int, int], ...] = ()
    """(producer id, epoch) of live producers of whom only a marker is known: it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """Consecutive segments, and the one that is to stand in their place.

    Its four files lie beside theirs, synced: `<base>.log.cleaned`, `.index.cleaned`,
    `.timeindex.cleaned`, and `.txnindex.cleaned` where a transaction in it was aborted.
    """

    sources: tuple[SourceSegment, ...]
    base_offset: int  # of the first source
    size: int  # bytes of the .log; may be 0
    index: SegmentIndex  # sealed, as in the files
    aborted: tuple[Aborted, ...]  # what the transaction index holds
    cleaned_paths: tuple[str, ...]  # the .log first


@dataclass(slots=True, kw_only=True)
class RoundStats:
    """What a round has done so far."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0  # while filtering
    records_kept: int = 0
    keys: int = 0  # in the map


@dataclass(slots=True)
class CleaningRound:
    """One round over one log."""

    plan: RoundPlan
    groups: list[CleanedGroup] = field(default_factory=list)
    stats: RoundStats = field(default_factory=RoundStats)
    cleaned_to: int = 0  # the next round's first dirty offset; exact once finished
    finished: bool = False

    def step(self, files: "Files", *, budget_bytes: int) -> int:
        """Read and write about that many bytes, at least one batch; return how many it were.

        A lane job. Raises CorruptionError for damage, OSError; the round is to be discarded then.
        """
        raise NotImplementedError

    def discard(self, files: "Files") -> None:
        """Close what is open and remove every `.cleaned` file of the round that is still there."""
        raise NotImplementedError
