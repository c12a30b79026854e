"""The content of one flush of a log, captured on the loop and performed in the write lane.

Order: data first, then indexes of rolled segments (they can be rebuilt, so a full disk does not
fail the flush), then the folders. A failed sync is final for the log: after a failed fsync the
kernel counts the pages as clean, and a retry would report success for lost data.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .file_pool import FilePool
from .index import SegmentIndex
from .producer_state_manager import ProducerFlush, flush_producers
from .segment import Segment, remove_index, store_index
from .small_files import OUT_OF_SPACE

if TYPE_CHECKING:
    from ..runtime.ports import File, Files, Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """The files to sync; everything below `end_offset` is durable once it is performed."""

    end_offset: int
    synced: "tuple[tuple[File, Lease], ...]"  # files with un-synced bytes, oldest segment first
    sealed: tuple[tuple[str, SegmentIndex], ...]  # .log path and final index of rolled segments
    folders: tuple[str, ...]  # with changed names, the outermost last
    producers: ProducerFlush | None = None

    def release(self) -> None:
        """Release the leases."""
        for _, lease in self.synced:
            lease.release()


def perform_flush(files: "Files", flush: Flush) -> None:
    """Perform a flush. Waits for the device; raises OSError."""
    for file, _ in flush.synced:
        file.sync()
    for path, index in flush.sealed:
        store_index_if_room(files, path, index)
    if flush.producers is not None:
        flush_producers(files, flush.producers)
    for folder in flush.folders:
        files.sync_folder(folder)


def store_index_if_room(files: "Files", path: str, index: SegmentIndex) -> None:
    """Store a segment's index; on a full disk remove it, and it is rebuilt when needed."""
    try:
        store_index(files, path, index)
    except OSError as error:
        if error.errno not in OUT_OF_SPACE:
            raise
        remove_index(files, path)


class Unflushed:
    """The unflushed changes since the last flush began."""

    __slots__ = ("_closing", "_dirty", "_folders", "_sealed", "is_flushing")

    def __init__(self) -> None:
        self.is_flushing = False
        self._dirty: list[Segment] = []  # their `file` and `lease` are held
        self._closing: list[tuple[File, Lease]] = []  # small files, each written once
        self._sealed: list[tuple[str, SegmentIndex]] = []
        self._folders: dict[str, None] = {}  # with changed names; inner before outer

    @property
    def has_changes(self) -> bool:
        """True if there is anything to flush."""
        return bool(self._dirty or self._closing or self._sealed or self._folders)

    def hold(self, segment: Segment, pool: FilePool) -> "File":
        """Return the file of a segment before a write, and keep it open."""
        if segment.file is None:
            segment.has_index_files = False
            segment.file = pool.file(segment.path)
            segment.lease = segment.file.lease()
            self._dirty.append(segment)
        return segment.file

    def sync_and_close(self, file: "File") -> None:
        """Sync a file with the next flush, then close it; it is not written again."""
        self._closing.append((file, file.lease()))
        file.close()

    def abandon(self) -> None:
        """Release the leases that are not of segments; no flush will follow."""
        for _, lease in self._closing:
            lease.release()
        self._closing.clear()

    def seal(self, segment: Segment) -> None:
        """Store the segment's final index with the next flush."""
        assert segment.index is not None, f"{segment.path} was active"
        segment.index.seal()
        self._sealed.append((segment.path, segment.index))

    def sync_folders(self, *folders: str) -> None:
        """Sync these folders with the next flush; names in them changed."""
        for folder in folders:
            self._folders[folder] = None

    def take(
        self, end_offset: int, writing: Segment | None, producers: ProducerFlush | None = None
    ) -> Flush:
        """Move everything into a flush. A segment with an outstanding write also stays held: the
        next flush syncs that write."""
        synced = list(self._closing)
        for segment in self._dirty:
            assert segment.file is not None, f"{segment.path} is held"
            assert segment.lease is not None, f"{segment.path} is leased"
            synced.append((segment.file, segment.lease))
            if segment is writing:
                segment.lease = segment.file.lease()
            else:
                segment.file = segment.lease = None
        flush = Flush(
            end_offset=end_offset,
            synced=tuple(synced),
            sealed=tuple(self._sealed),
            folders=tuple(self._folders),
            producers=producers,
        )
        self._closing.clear()
        self._dirty = [segment for segment in self._dirty if segment is writing]
        self._sealed.clear()
        self._folders.clear()
        self.is_flushing = True
        return flush

    def postpone(self, flush: Flush) -> None:
        """Return a flush to the unflushed changes, after opening a file failed; the next flush
        repeats it."""
        assert self.is_flushing, "no flush is in progress"
        self.is_flushing = False
        self._closing = [*flush.synced, *self._closing]
        self._sealed = [*flush.sealed, *self._sealed]
        self._folders = dict.fromkeys((*flush.folders, *self._folders))

    def end(self, flush: Flush) -> None:
        """End the flush, failed or not."""
        assert self.is_flushing, "no flush is in progress"
        self.is_flushing = False
        flush.release()

    def forget(self, segment: Segment) -> None:
        """Drop a segment that was closed or removed."""
        if segment.lease is not None:
            segment.lease.release()
            segment.file = segment.lease = None
            self._dirty.remove(segment)
        self.unseal(segment)

    def keep_index(self, segment: Segment) -> None:
        """Store the active segment's index as of now, with the next flush."""
        assert segment.index is not None, f"{segment.path} was active"
        self._sealed.append((segment.path, segment.index.copy()))
        segment.indexed_bytes = segment.size

    def unseal(self, segment: Segment) -> None:
        """Cancel storing the segment's index; it is no longer final."""
        self._sealed = [entry for entry in self._sealed if entry[0] != segment.path]
