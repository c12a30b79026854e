"""The folders of a directory's logs: names, topic ids, deletion and quarantine."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ...errors import DiskFailed
from ...ids import TopicId
from ...runtime.ports import Runtime
from ..data_directory_state import log_names, remove_if_exists, rename_deleted, topic_of_folder
from ..layout import aside_folder, deleted_folder, join
from ..log import Log
from .append_queue import AppendQueue
from .checkpointer import Checkpointer
from .log_opener import not_opened
from .maintenance import LogMaintenance
from .writer import LogWriter

_TOKEN_BYTES: Final = 8
_LOG: Final = logging.getLogger("quorumlog.storage")


class LogFolders:
    """The folders of the logs of one directory."""

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        queues: dict[str, AppendQueue],
        queue_of: Callable[[Log], AppendQueue],
        writer: LogWriter,
        checkpoints: Checkpointer,
        maintenance: LogMaintenance,
    ) -> None:
        self._files = runtime.files
        self._deletions = runtime.entropy.stream("deleted_folder")  # names of deleted folders
        self._asides = runtime.entropy.stream("aside_folder")  # names of quarantined folders
        self._path = path
        self._queues = queues
        self._queue_of = queue_of
        self._writer = writer
        self._checkpoints = checkpoints
        self._maintenance = maintenance

    def names(self) -> list[str]:
        """Return the names of the logs with a folder, sorted."""
        return log_names(self._files, self._path)

    async def topic_of(self, name: str) -> TopicId | None:
        """Return the topic id in a log's folder; None without one, or without a folder. Raises
        DiskFailed, Overloaded."""
        found: list[TopicId | None] = []
        files, path = self._files, join(self._path, name)
        try:
            if files.exists(path):  # a new topic has no folder and needs no lane job
                await self._writer.run(lambda: partial(topic_of_folder, files, path), found.append)
        except OSError as error:
            raise not_opened(path, error) from error
        return found[0] if found else None

    async def delete_log(self, log: Log) -> None:
        """Delete a log with its folder; it accepts no more appends. Raises DiskFailed."""
        queue = self._queue_of(log)
        await self._maintenance.stop_cleaning(log)
        new = self._deleted_path(log.name)

        def begin() -> Callable[[], None]:
            log.close("the log was deleted")
            queue.on_failed.clear()
            return self._renaming_away(log.name, new)

        def end(_: None) -> None:
            del self._queues[log.name]

        await self._writer.exclusive(queue, begin, end, repeats=True)
        await self._unlink(new)

    async def delete(self, name: str) -> None:
        """Delete the folder of a log that is not open, if it exists. Raises DiskFailed."""
        if name in self._queues:  # its deletion failed with an unknown outcome on disk
            raise DiskFailed(f"{join(self._path, name)} is open, or could not be deleted before")
        new = self._deleted_path(name)
        try:
            await self._writer.run(lambda: self._renaming_away(name, new))
        except OSError as error:
            raise DiskFailed(f"{join(self._path, name)}: {error}") from error
        await self._unlink(new)

    async def quarantine(self, name: str) -> str:
        """Rename the folder of a log that is not open, durably, and return its new path; the next
        log of that name is new. Raises DiskFailed, DiskFull, Overloaded; may be repeated."""
        if name in self._queues:
            raise DiskFailed(
                f"{join(self._path, name)} is open; close the log before its quarantine"
            )
        new = join(self._path, aside_folder(name, self._asides.token(_TOKEN_BYTES).hex()))

        def begin() -> partial[None]:
            offsets, old = self._checkpoints.stored.remove_log(name), join(self._path, name)
            return partial(
                rename_deleted, self._files, self._path, offsets, old, new, is_wanted=True
            )

        try:
            await self._writer.run(begin)
        except OSError as error:
            raise not_opened(join(self._path, name), error) from error
        return new

    def _deleted_path(self, name: str) -> str:
        return join(self._path, deleted_folder(name, self._deletions.token(_TOKEN_BYTES).hex()))

    def _renaming_away(self, name: str, new: str) -> Callable[[], None]:
        """Remove a log from the checkpoints; return the blocking part of its deletion."""
        offsets, old = self._checkpoints.stored.remove_log(name), join(self._path, name)
        return partial(rename_deleted, self._files, self._path, offsets, old, new)

    async def _unlink(self, folder: str) -> None:
        try:
            await self._writer.run(lambda: partial(remove_if_exists, self._files, folder))
        except OSError as error:  # the next opening removes it
            _LOG.warning("storage.unlink_failed folder=%s error=%s", folder, error)
