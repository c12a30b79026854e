"""The checkpoints of one data directory: stored every second under load, and at the close.

Recovery points, log start offsets, high watermarks, what the cleaner reached, and each log's leader
epochs. A recovery point is stored only after the fsync it speaks of and after the leader epochs
below it. What to store is planned when it is its turn in the write lane, so that no truncation or
deletion comes between.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ...runtime.ports import Runtime, Scope
from ..checkpoints import encode_epochs
from ..layout import LEADER_EPOCHS
from ..log import Log
from ..premises import replace_all, replace_offsets
from ..stored import Stored
from .config_changes import ConfigChanges
from .writer import Writer

_LOG: Final = logging.getLogger("quorumlog.storage")


class Checkpointing:
    """Keeps the checkpoint files near what the logs have come to; its task lives in `scope`.

    `stored` is what the files say, or will say once what is under way in the write lane has ended:
    change it there alone.
    """

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        path: str,
        *,
        stored: Stored,
        writer: Writer,
        changes: ConfigChanges,
        interval_ms: int,
    ) -> None:
        self.stored = stored
        self._path = path
        self._runtime = runtime
        self._writer = writer
        self._changes = changes
        self._interval_ms = interval_ms
        self._ticker = scope.spawn(self._under_load(), name="storage.checkpoints")

    def stop(self) -> None:
        """No more checkpoints but those that are asked for."""
        self._ticker.cancel()

    async def checkpoint(self) -> None:
        """Flush every log that was appended to, then store what the logs came to.

        Raises OSError.
        """
        self._writer.dirtied.clear()
        channels, self._writer.dirty = self._writer.dirty, {}
        for channel in channels:
            self._changes.take(channel)  # what a full disk held up
        flushed = [self._writer.flush(channel) for channel in channels]
        await asyncio.gather(*flushed, return_exceptions=True)
        await self.store([channel.log for channel in channels])

    async def _under_load(self) -> None:
        while True:
            await self._writer.dirtied.wait()
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self.checkpoint()
            except OSError as error:  # the older checkpoints only make a recovery longer
                _LOG.warning("storage.checkpoint_failed path=%s error=%s", self._path, error)

    async def store(self, logs: Iterable[Log]) -> None:
        """Store what these logs' checkpoints should say, when it is their turn. Raises OSError."""
        planned: list[Stored] = []

        def begin() -> Callable[[], None]:
            stored = self.stored.copy()
            epochs = [
                (log.folder, LEADER_EPOCHS, encode_epochs(stored.epochs[log.name]))
                for log in stored.take(logs)
            ]
            planned.append(stored)
            offsets = stored.files_beside(self.stored)
            return partial(_store, self._runtime, self._path, epochs, offsets)

        def end(_: None) -> None:
            self.stored = planned[0]

        await self._writer.run(begin, end)


def _store(
    runtime: Runtime,
    path: str,
    epochs: list[tuple[str, str, bytes]],
    offsets: dict[str, dict[str, int]],
) -> None:
    replace_all(runtime.files, epochs)
    replace_offsets(runtime.files, path, offsets)
