"""Inputs of `produce`: files and stdin, with a progress bar on a terminal.

Input is read in chunks as they arrive. Before a wait for more input `on_idle` is called, so that
interactive users see the outcomes of the records so far.
"""

import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from ...errors import InvalidRequest

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

STDIN = "-"
CHUNK_BYTES = 256 << 10
IDLE_S = 0.05  # time without input after which `on_idle` is called


@dataclass(frozen=True, slots=True)
class Input:
    """One open source of records."""

    name: str  # "" if it is the only one
    chunks: Iterator[bytes]


def check_readable(paths: Sequence[str]) -> None:
    """Raise InvalidRequest for the first regular file that cannot be opened. Pipes are not opened:
    that would consume them."""
    for path in paths:
        if path != STDIN and (os.path.isfile(path) or not os.path.exists(path)):
            _open(path).close()


@contextmanager
def progress_of(paths: Sequence[str], *, wanted: bool) -> Iterator["Progress | None"]:
    """Show a progress bar on stderr, unless stdin or stderr makes it pointless; then yield None."""
    from_terminal = STDIN in paths and _is_terminal(sys.stdin)
    if not wanted or from_terminal or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield progress


def inputs(
    paths: Sequence[str], progress: "Progress | None", *, on_idle: Callable[[], None]
) -> Iterator[Input]:
    """Yield each source in order; each is open until the next one is requested."""
    for path in paths:
        file = sys.stdin.buffer if path == STDIN else _open(path)
        try:
            task = (
                None
                if progress is None
                else progress.add_task(os.path.basename(path), total=_size(path, file))
            )
            yield Input(path if len(paths) > 1 else "", _chunks(file, progress, task, on_idle))
        finally:
            if path != STDIN:
                file.close()


def _chunks(
    file: BinaryIO,
    progress: "Progress | None",
    task: "TaskID | None",
    on_idle: Callable[[], None],
) -> Iterator[bytes]:
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    while True:
        if not _has_more(file):
            on_idle()
        try:
            chunk = read(CHUNK_BYTES)
        except OSError as error:
            raise InvalidRequest(f"the input cannot be read: {error.strerror}") from None
        if not chunk:
            return
        if progress is not None and task is not None:
            progress.advance(task, len(chunk))
        yield chunk


def _has_more(file: BinaryIO) -> bool:
    """Return True if input is available within IDLE_S, or if the file does not support select."""
    try:
        return bool(select.select([file], [], [], IDLE_S)[0])
    except (OSError, ValueError):  # no descriptor, or a system that cannot select on it
        return True


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")  # the caller closes it
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None


def _size(path: str, file: BinaryIO) -> int | None:
    with contextlib.suppress(OSError):
        if path != STDIN and file.seekable():
            size = file.seek(0, 2)
            file.seek(0)
            return size
    return None


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty is not None and isatty())
