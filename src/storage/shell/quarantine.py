"""Quarantine of damaged logs: they are renamed for inspection, and never read again."""

from functools import partial
from typing import Final

from ...errors import StorageError
from ...runtime.ports import Runtime
from ..data_directory_state import rename_away
from ..layout import aside_folder, join
from .append_queue import Channel
from .checkpointer import Checkpointing
from .log_opener import not_opened
from .writer import Writer

_TOKEN_BYTES: Final = 8


class Asides:
    """Quarantines logs of one data directory."""

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        channels: dict[str, Channel],
        writer: Writer,
        checkpoints: Checkpointing,
    ) -> None:
        self._files = runtime.files
        self._tokens = runtime.entropy.stream("aside_folder")  # names of quarantined folders
        self._path = path
        self._channels = channels
        self._writer = writer
        self._checkpoints = checkpoints

    async def put(self, name: str) -> str:
        """Rename the folder of a log that is not open, durably, and return its new path; the next
        log of that name is new. Raises StorageError, DiskFull, Overloaded; may be repeated."""
        if name in self._channels:
            raise StorageError(
                f"{join(self._path, name)} is open; close the log before its quarantine"
            )
        new = join(self._path, aside_folder(name, self._tokens.token(_TOKEN_BYTES).hex()))

        def begin() -> partial[None]:
            offsets, old = self._checkpoints.stored.forget(name), join(self._path, name)
            return partial(rename_away, self._files, self._path, offsets, old, new, is_wanted=True)

        try:
            await self._writer.run(begin)
        except OSError as error:
            raise not_opened(join(self._path, name), error) from error
        return new
