"""Whole small files: read, rewrite in place, replace atomically. All functions wait for the
device."""

import errno
from typing import TYPE_CHECKING, Final

from .layout import TEMPORARY_SUFFIX, join

if TYPE_CHECKING:
    from ..runtime.ports import File, Files

OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that free space resolves."""


def read_file(files: "Files", path: str) -> bytes:
    """Return a whole file; raises FileNotFoundError."""
    file = files.open_readonly(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def write_file(files: "Files", path: str, content: bytes) -> None:
    """Replace a file's content in place and sync it. Not atomic: for files that can be rebuilt."""
    file = files.open(path, create=True)
    try:
        fill(file, content)
        file.sync()
    finally:
        file.close()


def replace_file(files: "Files", folder: str, name: str, content: bytes) -> None:
    """Replace a file atomically and durably: after a crash it has the old or the new content."""
    path = join(folder, name)
    write_file(files, path + TEMPORARY_SUFFIX, content)
    files.rename(path + TEMPORARY_SUFFIX, path)
    files.sync_folder(folder)


def remove_tree(files: "Files", path: str) -> None:
    """Remove a file, or a folder with its contents."""
    if files.is_folder(path):
        for name in files.names(path):
            remove_tree(files, join(path, name))
    files.remove(path)


def fill(file: "File", content: bytes) -> None:
    """Replace the content of an open file, without a sync."""
    file.truncate(0)
    position = 0
    while position < len(content):
        position += file.write(position, [content[position:]])
