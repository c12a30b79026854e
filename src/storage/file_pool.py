"""The pool of open files, limited: a node with 10,000 logs keeps few descriptors.

Least recently used files are closed first. A user of a file takes a lease on it. close() takes
effect when the last lease is released, so eviction never closes a file under a reader or a sync.
"""

import errno
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..runtime.ports import File, Files

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors that closing files resolves."""

SHED: Final = 4
"""If no file can be opened, one in this many open files is closed."""


class FilePool:
    """Open files by path. Owned by the loop thread."""

    def __init__(self, files: "Files", *, open_files_max: int) -> None:
        assert open_files_max >= 1, f"open_files_max is {open_files_max}"
        self.files = files
        self._open_files_max = open_files_max
        self._open: OrderedDict[str, File] = OrderedDict()
        self._pinned: dict[str, File] = {}

    def file(self, path: str, *, create: bool = False) -> "File":
        """Return the open file of a path, opening it if needed; raises OSError."""
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
        """Close some files, because descriptors are scarce in the process."""
        for _ in range(min(len(self._open), max(1, len(self._open) // SHED))):
            _, oldest = self._open.popitem(last=False)
            oldest.close()

    def pin(self, path: str) -> None:
        """Keep the file of a path open until `forget`, before another file takes the path. Raises
        OSError."""
        self._pinned[path] = self.file(path)
        self._open.pop(path, None)

    def forget(self, path: str) -> None:
        """Close the file of a path, if open."""
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
