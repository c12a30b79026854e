"""The transaction index: aborted transactions of a log, which read-committed readers filter out.

Each segment has a `.txnindex` beside its .log, one entry per abort marker in the segment, in marker
order, all big endian, without header or checksum (Kafka's AbortedTxn):

    0   2  version = 0
    2   8  producer id
    10  8  first offset         of the transaction
    18  8  last offset          of its abort marker
    26  8  last stable offset   below it nothing of this transaction or an older one was undecided

The entries of all segments of the log are in memory; most logs have none. The log's flushes append
to the file. It can be rebuilt by replaying the log. Pure, except for the last functions, which run
in the write lane.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ..errors import CorruptionError
from ..records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, iterate_batches
from .layout import TXN_INDEX_SUFFIX, join, segment_file
from .small_files import read_file, replace_file

if TYPE_CHECKING:
    from ..records.compression import Buffer
    from ..runtime.ports import Files

ENTRY: Final = Struct(">hqqqq")
ENTRY_SIZE: Final = ENTRY.size
VERSION: Final = 0

_MARKS: Final = CONTROL_BIT | TRANSACTIONAL_BIT


class AbortedTransaction(NamedTuple):
    """An aborted transaction of a producer, with records in [first_offset, last_offset]; the last
    one is the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class UnstoredEntries(NamedTuple):
    """Entries that a segment's file does not hold yet."""

    base_offset: int  # of the segment
    position: int  # byte position in the file; 0: the file may not exist
    content: bytes


class TransactionIndex:
    """The aborted transactions of one log, by segment. Owned by the loop thread."""

    __slots__ = ("_aborted", "_last_offsets", "_stored")

    def __init__(
        self,
        found: Mapping[int, Sequence[AbortedTransaction]] | None = None,
    ) -> None:
        """`found`: by the segment's base offset; all of it is stored in the files."""
        by_segment = (
            {base: list(found[base]) for base in sorted(found) if found[base]} if found else {}
        )
        self._aborted: dict[int, list[AbortedTransaction]] = by_segment
        self._last_offsets: dict[int, list[int]] = {
            base: [entry.last_offset for entry in entries] for base, entries in by_segment.items()
        }
        self._stored = {base: len(entries) for base, entries in by_segment.items()}

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._aborted.values())

    def of_segment(self, base_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return the transactions with their abort marker in a segment, by marker, ascending."""
        return tuple(self._aborted.get(base_offset, ()))

    def aborted_in(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the transactions with records in [start_offset, end_offset), by marker, ascending.

        Markers at or above `end_offset` count too: their transactions may have records below it.
        """
        found = []
        for base, entries in self._aborted.items():
            # No slice: a copy of the rest is O(n) per fetch.
            for index in range(bisect_left(self._last_offsets[base], start_offset), len(entries)):
                entry = entries[index]
                if entry.first_offset < end_offset:
                    # sometimes if entry.last_offset >= end_offset: a fetch below an abort marker
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return found
        return found

    def markers(self) -> list[int]:
        """Return the offsets of the abort markers, in the order of the index."""
        return [entry.last_offset for entries in self._aborted.values() for entry in entries]

    # --- changes -------------------------------------------------------------------------------

    def add(self, base_offset: int, entry: AbortedTransaction) -> None:
        """Add a transaction aborted by a marker in the segment."""
        self._aborted.setdefault(base_offset, []).append(entry)
        self._last_offsets.setdefault(base_offset, []).append(entry.last_offset)

    def unstored(self) -> tuple[UnstoredEntries, ...]:
        """Return the entries not stored in the files; call `stored` once they are."""
        if not self._aborted:
            return ()
        return tuple(
            UnstoredEntries(base, ENTRY_SIZE * done, encode_aborted(entries[done:]))
            for base, entries in self._aborted.items()
            if (done := self._stored.get(base, 0)) < len(entries)
        )

    def stored(self, written: Iterable[UnstoredEntries]) -> None:
        """Mark entries as stored durably."""
        for base, position, content in written:
            self._stored[base] = (position + len(content)) // ENTRY_SIZE

    def truncate(self, end_offset: int) -> None:
        """Drop markers at or above `end_offset`; the caller does the same to the files."""
        for base in list(self._aborted):
            kept = bisect_left(self._last_offsets[base], end_offset)
            # sometimes if self._stored.get(base, 0) > kept: stored abort entries are truncated
            self._put(base, self._aborted[base][:kept])
            if base in self._stored:
                self._stored[base] = min(self._stored[base], kept)

    def remove_below(self, log_start_offset: int) -> None:
        """Drop segments below an offset, which were removed with their files."""
        for base in [base for base in self._aborted if base < log_start_offset]:
            # sometimes: retention removes aborted transactions
            self._put(base, [])

    def replace(
        self, sources: Iterable[int], base_offset: int, entries: Sequence[AbortedTransaction]
    ) -> None:
        """Replace the entries of the `sources` by `entries`, the content of the file of the
        segment in their place."""
        # sometimes if entries: aborted transactions stay after compaction
        for base in sources:
            self._put(base, [])
        self._put(base_offset, list(entries))
        if entries:
            self._stored[base_offset] = len(entries)
        self._aborted = {base: self._aborted[base] for base in sorted(self._aborted)}

    def _put(self, base: int, entries: list[AbortedTransaction]) -> None:
        if entries:
            self._aborted[base] = entries
            self._last_offsets[base] = [entry.last_offset for entry in entries]
            return
        self._aborted.pop(base, None)
        self._last_offsets.pop(base, None)
        self._stored.pop(base, None)


def committed_batches(batches: bytes, aborted: Iterable[AbortedTransaction]) -> bytes:
    """Return whole batches without those of aborted transactions; markers are kept.

    `aborted` has all aborted transactions with records in these batches.
    """
    by_producer: dict[int, list[AbortedTransaction]] = {}
    for entry in aborted:
        by_producer.setdefault(entry.producer_id, []).append(entry)
    if not by_producer:
        return batches
    kept: list[Buffer] = []
    view, begin = memoryview(batches), 0
    for position, header in iterate_batches(batches):
        if header.attributes & _MARKS == TRANSACTIONAL_BIT and any(
            entry.first_offset <= header.base_offset < entry.last_offset
            for entry in by_producer.get(header.producer_id, ())
        ):
            if position > begin:
                kept.append(view[begin:position])
            begin = position + header.size
    if not begin:
        return batches
    kept.append(view[begin:])
    return b"".join(kept)


# --- the file ----------------------------------------------------------------------------------


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """Encode the entries of a .txnindex."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def decode_aborted(
    content: bytes, path: str = "", *, base_offset: int = 0, end_offset: int | None = None
) -> list[AbortedTransaction]:
    """Return the entries of a .txnindex, of a segment with offsets [base_offset, end_offset).

    Raises CorruptionError unless all are complete and valid, and the markers ascend.
    """
    if len(content) % ENTRY_SIZE:
        raise CorruptionError(
            f"{len(content)} bytes are not whole entries of {ENTRY_SIZE}",
            path=path,
            position=len(content) - len(content) % ENTRY_SIZE,
        )
    entries: list[AbortedTransaction] = []
    last = base_offset - 1
    for number, (version, *fields) in enumerate(ENTRY.iter_unpack(content)):
        entry = AbortedTransaction(*fields)
        is_possible = (
            version == VERSION
            and entry.producer_id >= 0
            # A marker follows the first record. A power cut may leave a file of zeros.
            and 0 <= entry.first_offset < entry.last_offset
            and last < entry.last_offset
            and 0 <= entry.last_stable_offset <= entry.last_offset + 1
        )
        if not is_possible or (end_offset is not None and entry.last_offset >= end_offset):
            raise CorruptionError(
                f"entry {number} is invalid: version {version}, {entry}",
                path=path,
                position=number * ENTRY_SIZE,
            )
        last = entry.last_offset
        entries.append(entry)
    return entries


def path_of(folder: str, base_offset: int) -> str:
    """Return the path of a segment's .txnindex."""
    return join(folder, segment_file(base_offset, TXN_INDEX_SUFFIX))


def read_aborted(
    files: "Files", folder: str, bases: Iterable[int]
) -> dict[int, list[AbortedTransaction]]:
    """Read the existing .txnindex files of the segments with these base offsets; raises
    CorruptionError."""
    found = {}
    for base in bases:
        path = path_of(folder, base)
        try:
            found[base] = decode_aborted(read_file(files, path), path, base_offset=base)
        except FileNotFoundError:
            continue
    return found


def append_aborted(files: "Files", folder: str, unstored: UnstoredEntries) -> None:
    """Append entries to a segment's file and sync it. Raises OSError."""
    path = path_of(folder, unstored.base_offset)
    file = files.open(path, create=True)
    try:
        at, content = unstored.position, unstored.content
        while content:
            written = file.write(at, [content])
            at, content = at + written, content[written:]
        file.truncate(at)
        file.sync()
    finally:
        file.close()


def store_aborted(
    files: "Files", folder: str, base_offset: int, entries: Sequence[AbortedTransaction]
) -> None:
    """Replace the content of a segment's file; without entries, remove the file, and the caller
    syncs the folder. Atomic: a file cut between two entries would look complete."""
    path = path_of(folder, base_offset)
    if entries:
        name = segment_file(base_offset, TXN_INDEX_SUFFIX)
        replace_file(files, folder, name, encode_aborted(entries))
    elif files.exists(path):
        files.remove(path)
