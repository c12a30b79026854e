"""Files of other components in a log's folder, such as snapshots of the metadata log: written in
pieces under a temporary name, synced, then renamed; read in pieces.

Changes use a lane of their own, so that the fsync of a large file does not delay appends. One task
at a time may change files of one name.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from ...errors import DiskFailed, DiskFull
from ...runtime.ports import Buffer, File, Files, Runtime
from ..layout import join, parent_of
from ..small_files import OUT_OF_SPACE

READ_LANE: Final = "read"

T = TypeVar("T")


class SideFiles:
    """The files of one log's folder. Every method raises DiskFailed; writing methods also
    DiskFull."""

    def __init__(self, runtime: Runtime, folder: str, *, lane: str) -> None:
        self._runtime = runtime
        self._files = runtime.files
        self._folder = folder
        self._lane = lane
        # being written; a failed write-back is reported only to this descriptor
        self._open: dict[str, File] = {}

    async def names(self) -> list[str]:
        """Return the names in the log's folder, each durable there."""
        return await self._change(partial(_durable_names, self._files, self._folder))

    async def write(self, name: str, position: int, pieces: Sequence[Buffer]) -> None:
        """Write at a position, not durably; position 0 starts a new file."""
        await self._change(partial(self._write, name, position, pieces))

    async def sync(self, name: str) -> None:
        """Make the written bytes durable."""
        await self._change(lambda: self._opened(name).sync())

    async def publish(self, name: str, final_name: str) -> None:
        """Rename a synced file, durably; it replaces a file of that name."""
        await self._change(partial(self._publish, name, final_name))

    async def remove(self, names: Iterable[str]) -> None:
        """Unlink the files that exist, durably, in this order."""
        await self._change(partial(self._remove, tuple(names)))

    async def size(self, name: str) -> int | None:
        """Return a file's size in bytes, None if it does not exist."""

        def look() -> int | None:
            path = join(self._folder, name)
            return self._files.size(path) if self._files.exists(path) else None

        return await self._in_lane(READ_LANE, look)

    async def read(self, name: str, position: int, size: int) -> bytes | None:
        """Return up to `size` bytes, fewer at the file's end; None if it does not exist."""

        def look() -> bytes | None:
            try:
                file = self._files.open_readonly(join(self._folder, name))
            except FileNotFoundError:
                return None
            try:
                return file.read(position, size)
            finally:
                file.close()

        return await self._in_lane(READ_LANE, look, cost_bytes=size)

    # --- in the lane ---------------------------------------------------------------------------

    def _write(self, name: str, position: int, pieces: Sequence[Buffer]) -> None:
        if position == 0:
            self._begin(name)
        file = self._opened(name)
        for piece in pieces:
            view = memoryview(piece)
            while view:
                written = file.write(position, [view])
                position += written
                view = view[written:]

    def _begin(self, name: str) -> None:
        self._close(name)
        self._files.make_folder(self._folder)
        file = self._open[name] = self._files.open(join(self._folder, name), create=True)
        file.truncate(0)

    def _opened(self, name: str) -> File:
        file = self._open.get(name)
        if file is None:
            raise DiskFailed(f"{join(self._folder, name)} is not open; write at position 0 first")
        return file

    def _publish(self, name: str, final_name: str) -> None:
        self._close(name)
        self._files.rename(join(self._folder, name), join(self._folder, final_name))
        self._files.sync_folder(self._folder)
        self._files.sync_folder(parent_of(self._folder))  # the folder may be new too

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._close(name)
            path = join(self._folder, name)
            if self._files.exists(path):
                self._files.remove(path)
                self._files.sync_folder(self._folder)

    def _close(self, name: str) -> None:
        file = self._open.pop(name, None)
        if file is not None:
            file.close()

    async def _change(self, job: Callable[[], T]) -> T:
        return await self._in_lane(self._lane, job)

    async def _in_lane(self, lane: str, job: Callable[[], T], *, cost_bytes: int = 0) -> T:
        try:
            return await self._runtime.tasks.offload(lane, job, cost_bytes=cost_bytes)
        except OSError as error:
            if error.errno in OUT_OF_SPACE:
                raise DiskFull(
                    f"{self._folder}: no space is left; free some space, then retry"
                ) from error
            raise DiskFailed(f"{self._folder}: {error}") from error


def _durable_names(files: Files, folder: str) -> list[str]:
    if not files.exists(folder):
        return []
    files.sync_folder(folder)
    files.sync_folder(parent_of(folder))
    return files.names(folder)
