"""The file of the audit log, which is rotated by size."""

import logging
from collections.abc import Callable
from logging.handlers import RotatingFileHandler

from ..errors import InvalidConfig


def open_audit_file(path: str, *, bytes_max: int, files: int) -> Callable[[str], None]:
    """Return a function that appends a line. A file of `bytes_max` is renamed to PATH.1, and the
    oldest of more than `files` is removed. Raises InvalidConfig."""
    try:
        handler = RotatingFileHandler(
            path, maxBytes=bytes_max, backupCount=files - 1, encoding="utf-8"
        )
    except OSError as error:
        raise InvalidConfig(f"audit.log.file: {path}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("%(message)s"))

    def write(line: str) -> None:
        handler.handle(logging.LogRecord("audit", logging.INFO, "", 0, line, None, None))

    return write
