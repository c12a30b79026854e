"""Damaged logs are put aside: renamed for whoever wants to look at them, and never read again."""

from functools import partial
from typing import Final

from ...errors import StorageError
from ...runtime.ports import Runtime
from ..disk.layout import aside_folder, join
from ..opening.premises import rename_away
from .channel import Channel
from .checkpointing import Checkpointing
from .openings import not_opened
from .writer import Writer

_TOKEN_BYTES: Final = 8


class Asides:
    """Puts logs of one data directory aside."""

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        channels: dict[str, Channel],
        writer: Writer,
        checkpoints: Checkpointing,
    ) -> None:
        self._files = runtime.files
        self._tokens = runtime.entropy.stream("aside_folder")  # a name for each
        self._path = path
        self._channels = channels
        self._writer = writer
        self._checkpoints = checkpoints

    async def put(self, name: str) -> str:
        """Have the folder of a log that is not open called otherwise, durably, and return its new
        path; the next log of the name is a new one. Raises StorageError, DiskFull, Overloaded: it
        may be repeated."""
        if name in self._channels:
            raise StorageError(f"{join(self._path, name)} is open: it cannot be put aside")
        new = join(self._path, aside_folder(name, self._tokens.token(_TOKEN_BYTES).hex()))

        def begin() -> partial[None]:
            offsets, old = self._checkpoints.stored.forget(name), join(self._path, name)
            return partial(rename_away, self._files, self._path, offsets, old, new, is_wanted=True)

        try:
            await self._writer.run(begin)
        except OSError as error:
            raise not_opened(join(self._path, name), error) from error
        return new
