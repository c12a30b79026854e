"""The files of a cleaning run: a source read in large pieces, a cleaned segment written beside it.

All functions wait for the device; a run's steps call them in a lane.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..errors import CorruptionError
from .config import SEGMENT_BYTES_MAX
from .index import SegmentIndex
from .layout import CLEANED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from .segment import header_at
from .small_files import write_file
from .transaction_index import AbortedTransaction, encode_aborted

if TYPE_CHECKING:
    from ..runtime.ports import Files

READ_SIZE: Final = 1024 * 1024
"""Bytes of a log per read; a larger batch is read completely."""

READ_SIZE_MIN: Final = 16 * 1024

SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Pieces:
    """One segment's batches from its start, in pieces that begin at a batch."""

    def __init__(self, files: "Files", path: str, base_offset: int, size: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        self.position = 0  # position of the next batch
        self._file = files.open_readonly(path)

    @property
    def is_at_end(self) -> bool:
        """True if every batch was processed."""
        return self.position >= self.size

    def read(self, wanted: int) -> bytes:
        """Return the next piece, of about `wanted` bytes, with at least one whole batch.

        Raises CorruptionError if the segment ends inside a batch.
        """
        left = self.size - self.position
        size = min(left, READ_SIZE, max(wanted, READ_SIZE_MIN))
        piece = self._file.read(self.position, size)
        if not left:
            return piece  # a segment without batches
        header = header_at(piece, 0, path=self.path, position=self.position)
        if header.size > left:
            raise CorruptionError(
                f"a batch of {header.size} bytes reaches beyond {self.size}",
                path=self.path,
                position=self.position,
            )
        if header.size > len(piece):
            piece = self._file.read(self.position, header.size)
        if header.size > len(piece):
            raise CorruptionError(
                f"the file ends at {self.position + len(piece)}, {self.size} bytes are expected",
                path=self.path,
                position=self.position,
            )
        return piece

    def took(self, count: int) -> None:
        """Advance by the bytes processed of the last piece."""
        self.position += count

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class CleanedFiles:
    """A cleaned segment being written, and its indexes."""

    def __init__(
        self, files: "Files", log_path: str, base_offset: int, interval_bytes: int
    ) -> None:
        self.log_path = log_path  # of the first source
        self.size = 0
        self.index = SegmentIndex(base_offset, interval_bytes)
        self._files = files
        self._file = files.open(cleaned_path(log_path, LOG_SUFFIX), create=True)
        self._file.truncate(0)

    def append(self, batches: memoryview, notes: memoryview) -> int:
        """Write batches with their `notes` (size, last offset, max timestamp); return their bytes.
        Raises CorruptionError if the segment would exceed the range of its positions."""
        if self.size + len(batches) > SEGMENT_BYTES_MAX:
            raise CorruptionError(
                f"the rest of the segment needs more than {SEGMENT_BYTES_MAX} bytes: its batches "
                "were compressed better than this node compresses them",
                path=self.log_path,
                position=0,
            )
        started = position = self.size
        while len(batches):
            written = self._file.write(position, [batches])
            position += written
            batches = batches[written:]
        rows = iter(notes)
        for size, last_offset, max_timestamp in zip(rows, rows, rows, strict=True):
            self.index.note(
                position=self.size,
                size=size,
                last_offset=last_offset,
                max_timestamp=max_timestamp,
            )
            self.size += size
        assert self.size == position, f"{position} bytes written, {self.size} noted"
        return position - started

    def finish(self, aborted: Sequence[AbortedTransaction]) -> int:
        """Write the indexes, sync everything and close it; return the bytes of the indexes."""
        self._file.sync()
        self._file.close()
        self.index.seal()
        contents = {
            INDEX_SUFFIX: self.index.encode_offsets(),
            TIME_INDEX_SUFFIX: self.index.encode_times(),
        }
        if aborted:
            contents[TXN_INDEX_SUFFIX] = encode_aborted(aborted)
        for suffix, content in contents.items():
            write_file(self._files, cleaned_path(self.log_path, suffix), content)
        return sum(map(len, contents.values()))

    def close(self) -> None:
        """Close the file without making it durable."""
        self._file.close()


def cleaned_path(log_path: str, suffix: str) -> str:
    """Return the path of one of a cleaned segment's files."""
    return log_path.removesuffix(LOG_SUFFIX) + suffix + CLEANED_SUFFIX


def discard_cleaned(files: "Files", log_path: str) -> None:
    """Remove the existing files of a cleaned segment."""
    for suffix in SUFFIXES:
        path = cleaned_path(log_path, suffix)
        if files.exists(path):
            files.remove(path)
