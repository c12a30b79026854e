"""The file `<offset>.snapshot`: the producer state of a log below that offset.

Kafka's layout, version 1, big endian; the CRC-32C covers the bytes after it:

    0   2  version = 1
    2   4  CRC-32C
    6   4  number of producers, and for each
           8  producer id            2  epoch
           4  last sequence          8  last offset      of its last batch, -1 none
           4  offset delta           8  timestamp        of that batch
           4  coordinator epoch      8  first offset of the open transaction, -1 none

Kafka stores the last batch only, so after a restart a retry of an earlier batch is rejected or
stored twice. After Kafka's entries, where its readers stop, this format adds:

       4  tag "QLP1"
       8  clock, in ms, that idle times are measured on
    for each producer, in the same order
       4  next sequence, -1 anything   8  idle, in ms   1  number n of earlier batches, at most four
       n times: 4 first sequence, 4 last sequence, 8 first offset, 8 last offset, 8 timestamp
    4  number of transactions with a marker above the high watermark, and for each
       8  first offset               8  offset of its marker

A file without the tag has one batch per producer. Snapshots are stored at every roll, at a clean
shutdown and by recoveries, each durably and under its own name; the newest few are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Final

from ..errors import CorruptionError
from ..records.checksum import crc32c
from .layout import SNAPSHOT_SUFFIX, TEMPORARY_SUFFIX, join, segment_file
from .producer_state import NONE, SEQUENCE_MASK, ProducerEntry, StoredBatch
from .small_files import OUT_OF_SPACE, read_file, replace_file

if TYPE_CHECKING:
    from ..runtime.ports import Files

VERSION: Final = 1
TAG: Final = b"QLP1"
KEPT: Final = 3
"""Number of kept snapshots: one for the recovery point's segment, one in case that is torn, one for
a truncation below them."""

BASES_KEPT: Final = 2
"""Number of newest segments that keep their snapshots: the stored recovery point may lie in the
last but one."""

_HEAD: Final = Struct(">hIi")
CRC_END: Final = 6
_ENTRY: Final = Struct(">qhiqiqiq")
_CLOCK: Final = Struct(">q")
_MORE: Final = Struct(">iqb")
_BATCH: Final = Struct(">iiqqq")
_COUNT: Final = Struct(">i")
_ENDS: Final = Struct(">qq")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSnapshot:
    """The producer state of all batches below `end_offset`."""

    end_offset: int
    entries: tuple[tuple[int, ProducerEntry], ...]  # (producer id, entry), longest idle first
    unreplicated: tuple[tuple[int, int], ...]  # (first offset, marker's offset)
    age_ms: int  # the clock of `touched_ms`


def encode_snapshot(snapshot: ProducerSnapshot) -> bytes:
    """Return the file's content."""
    parts = [_COUNT.pack(len(snapshot.entries))]
    more = [TAG, _CLOCK.pack(snapshot.age_ms)]
    for producer_id, entry in snapshot.entries:
        last = entry.batches[-1] if entry.batches else None
        parts.append(
            _ENTRY.pack(
                producer_id,
                entry.epoch,
                last.last_sequence if last else NONE,
                last.last_offset if last else NONE,
                last.last_offset - last.first_offset if last else 0,
                last.timestamp if last else NONE,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
        )
        idle_ms = max(0, snapshot.age_ms - entry.touched_ms)
        earlier = entry.batches[:-1]
        more.append(_MORE.pack(entry.next_sequence, idle_ms, len(earlier)))
        more += [_BATCH.pack(*batch) for batch in earlier]
    more.append(_COUNT.pack(len(snapshot.unreplicated)))
    more += [_ENDS.pack(*ends) for ends in snapshot.unreplicated]
    content = b"".join((*parts, *more))
    return _HEAD.pack(VERSION, crc32c(content), 0)[:CRC_END] + content


def decode_snapshot(content: bytes, path: str = "", *, end_offset: int = 0) -> ProducerSnapshot:
    """Decode the file of that end offset; raises CorruptionError."""
    if len(content) < _HEAD.size:
        raise CorruptionError(
            f"the snapshot has {len(content)} bytes, less than its header", path=path, position=0
        )
    version, crc, count = _HEAD.unpack_from(content)
    if version != VERSION:
        raise CorruptionError(f"snapshot version {version} is not supported", path=path)
    found = crc32c(memoryview(content)[CRC_END:])
    if found != crc:
        raise CorruptionError(
            f"CRC-32C of the snapshot is {found:08x}, its header has {crc:08x}", path=path
        )
    try:
        return _decode(content, count, end_offset)
    except StructError:
        raise CorruptionError(
            f"the snapshot is too short for its {count} producers", path=path
        ) from None
    except ValueError as error:
        raise CorruptionError(f"{error}", path=path) from None


def _decode(content: bytes, count: int, end_offset: int) -> ProducerSnapshot:
    if count < 0:
        raise ValueError(f"the number of producers is {count}")
    position = _HEAD.size
    entries: list[tuple[int, ProducerEntry]] = []
    for _ in range(count):
        entries.append(_decode_entry(_ENTRY.unpack_from(content, position)))
        position += _ENTRY.size
    age_ms, unreplicated = 0, []
    if content[position : position + len(TAG)] == TAG:
        position += len(TAG)
        (age_ms,) = _CLOCK.unpack_from(content, position)
        position += _CLOCK.size
        for at, (producer_id, entry) in enumerate(entries):
            more, position = _decode_more(content, position, entry, age_ms)
            entries[at] = (producer_id, more)
        (ends,) = _COUNT.unpack_from(content, position)
        position += _COUNT.size
        for _ in range(ends):
            first, marker = _ENDS.unpack_from(content, position)
            unreplicated.append((first, marker))
            position += _ENDS.size
    return ProducerSnapshot(
        end_offset=end_offset,
        entries=tuple(entries),
        unreplicated=tuple(unreplicated),
        age_ms=age_ms,
    )


def _decode_entry(fields: tuple[int, ...]) -> tuple[int, ProducerEntry]:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator, start = fields
    if producer_id < 0 or delta < 0:
        raise ValueError(f"producer {producer_id} with offset delta {delta} is invalid")
    batches: tuple[StoredBatch, ...] = ()
    following = NONE
    if offset >= 0 and sequence >= 0:
        first = (sequence - delta) & SEQUENCE_MASK
        batches = (StoredBatch(first, sequence, offset - delta, offset, timestamp),)
        following = (sequence + 1) & SEQUENCE_MASK
    return producer_id, ProducerEntry(epoch, coordinator, following, start, 0, batches)


def _decode_more(
    content: bytes, position: int, entry: ProducerEntry, age_ms: int
) -> tuple[ProducerEntry, int]:
    following, idle_ms, count = _MORE.unpack_from(content, position)
    position += _MORE.size
    earlier = []
    for _ in range(count):
        earlier.append(StoredBatch(*_BATCH.unpack_from(content, position)))
        position += _BATCH.size
    entry = entry._replace(
        next_sequence=following, touched_ms=age_ms - idle_ms, batches=(*earlier, *entry.batches)
    )
    return entry, position


# --- files -------------------------------------------------------------------------------------


class SnapshotRetention:
    """The snapshots of one log, by offset; owned by the loop thread or a recovery.

    The snapshots at the starts of the two newest segments, or the nearest ones below, are kept
    whatever follows: a recovery that reads a whole segment starts from one. Without it, it would
    read the log from its start, which has no batches of some producers any more. The newest
    snapshot at or below the high watermark is kept for the same reason: no truncation goes below
    it.
    """

    __slots__ = ("_bases", "offsets")

    def __init__(self, offsets: Sequence[int] = (), *, bases: Sequence[int] = ()) -> None:
        """`bases`: the segments' base offsets, ascending; the newest two suffice."""
        self.offsets = sorted(offsets)
        self._bases = tuple(bases[-BASES_KEPT:])

    def roll(self, base_offset: int) -> None:
        """Add the base offset of a new segment."""
        self._bases = (*self._bases, base_offset)[-BASES_KEPT:]

    def put(self, offset: int, *, replicated_to: int = NONE) -> tuple[int, ...]:
        """Add a snapshot about to be stored; return the offsets of those it makes redundant."""
        offsets = sorted({*self.offsets, offset})
        kept = set(offsets[-KEPT:])
        for needed in (*self._bases, replicated_to):
            kept.update([there for there in offsets if there <= needed][-1:])
        self.offsets = sorted(kept)
        return tuple(there for there in offsets if there not in kept)

    def restore(self, offsets: Sequence[int], gone: Sequence[int]) -> None:
        """Remove snapshots that could not be stored, and restore those they would have replaced."""
        self.offsets = sorted({*self.offsets, *gone}.difference(offsets))


def path_of(folder: str, end_offset: int) -> str:
    """Return the path of a snapshot."""
    return join(folder, segment_file(end_offset, SNAPSHOT_SUFFIX))


def read_snapshot(files: "Files", folder: str, end_offset: int) -> ProducerSnapshot:
    """Read a snapshot; raises FileNotFoundError, CorruptionError."""
    path = path_of(folder, end_offset)
    return decode_snapshot(read_file(files, path), path, end_offset=end_offset)


def store_snapshot(
    files: "Files", folder: str, snapshot: ProducerSnapshot, *, gone: Sequence[int] = ()
) -> bool:
    """Store a snapshot atomically and durably, then unlink those in `gone`. Return False on a full
    disk: the snapshot is not stored then, and those in `gone` stay. Raises OSError otherwise."""
    name = segment_file(snapshot.end_offset, SNAPSHOT_SUFFIX)
    try:
        replace_file(files, folder, name, encode_snapshot(snapshot))
    except OSError as error:
        if error.errno not in OUT_OF_SPACE:
            raise
        remove_if_exists(files, join(folder, name + TEMPORARY_SUFFIX))
        return False
    remove_snapshots(files, folder, gone)
    return True


def remove_snapshots(files: "Files", folder: str, offsets: Sequence[int]) -> None:
    """Unlink the snapshots that exist."""
    for offset in offsets:
        remove_if_exists(files, path_of(folder, offset))


def remove_if_exists(files: "Files", path: str) -> None:
    """Unlink a file if it exists."""
    if files.exists(path):
        files.remove(path)
