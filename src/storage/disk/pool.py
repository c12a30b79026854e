"""Open files, capped: what a node with 10,000 logs keeps of its descriptors.

Least recently used files are closed first. Whoever needs a file beyond the moment takes a lease on
it; close() then takes effect when the last lease is back, so evicting never pulls a file from
under a reader or a sync.
"""

import errno
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...runtime.ports import File, Files

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors that closing files cures."""

SHED: Final = 4
"""Where no file can be opened, one in so many of the open ones is closed."""


class FilePool:
    """Files by path. Belongs to the loop thread."""

    def __init__(self, files: "Files", *, open_files_max: int) -> None:
        assert open_files_max >= 1, f"open_files_max is {open_files_max}"
        self.files = files
        self._open_files_max = open_files_max
        self._open: OrderedDict[str, File] = OrderedDict()
        self._pinned: dict[str, File] = {}

    def file(self, path: str, *, create: bool = False) -> "File":
        """Return the open file of a path, opening it when needed; raises OSError."""
        if self._pinned and (file := self._pinned.get(path)) is not None:
            return file
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        try:
            file = self.files.open(path, create=create)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS or not self._open:
                raise
            self.shed()
            file = self.files.open(path, create=create)
        self._open[path] = file
        if len(self._open) > self._open_files_max:
            _, oldest = self._open.popitem(last=False)
            oldest.close()
        return file

    def shed(self) -> None:
        """Others took the descriptors that this pool counts on, or need some: do with fewer."""
        for _ in range(min(len(self._open), max(1, len(self._open) // SHED))):
            _, oldest = self._open.popitem(last=False)
            oldest.close()

    def pin(self, path: str) -> None:
        """Keep the file of a path open until `forget`: another is about to get the path. Raises
        OSError."""
        self._pinned[path] = self.file(path)
        self._open.pop(path, None)

    def forget(self, path: str) -> None:
        """Close the file of a path, if it is open."""
        for files in (self._open, self._pinned):
            file = files.pop(path, None)
            if file is not None:
                file.close()

    def close(self) -> None:
        """Close every file."""
        for file in (*self._open.values(), *self._pinned.values()):
            file.close()
        self._open.clear()
        self._pinned.clear()

    def __len__(self) -> int:
        return len(self._open)
