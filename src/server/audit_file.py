"""The file of the audit log, which is rotated by size."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler

from ..errors import InvalidConfig


class _PrivateFiles(RotatingFileHandler):
    """Files that only their owner can read."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return open(descriptor, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        """Raise the error of a line that cannot be written. The next line opens the file again,
        without the unwritten part of this one."""
        error = sys.exception()
        assert error is not None, "called while an error is handled"
        with suppress(OSError):
            self.close()
        raise error


def open_audit_file(
    path: str, *, bytes_max: int, files: int
) -> tuple[Callable[[str], None], Callable[[], None]]:
    """Return a function that appends a line or raises OSError, and one that closes the file. A file
    of `bytes_max` is renamed to PATH.1, and the oldest of more than `files` is removed. Raises
    InvalidConfig."""
    try:
        handler = _PrivateFiles(path, maxBytes=bytes_max, backupCount=files - 1, encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"audit.log.file: {path}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("%(message)s"))

    def write(line: str) -> None:
        handler.handle(logging.LogRecord("audit", logging.INFO, "", 0, line, None, None))

    return write, handler.close
