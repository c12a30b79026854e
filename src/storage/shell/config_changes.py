"""Configuration changes of a running log.

A change applies at once, unless it changes the limit of unsynced bytes. Then it applies after
everything queued before and a flush: a recovery judges a torn tail by the limit stored in the
folder, so that limit must never be tighter than the one in effect. If a full disk prevents storing
it, a tighter config applies anyway, and a wider one waits for the next checkpoint.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ...runtime.ports import Files
from ..checkpoints import encode_partition_metadata
from ..config import DirectoryConfig, FlushPolicy, LogConfig
from ..data_directory_state import is_wider, store_unsynced_limit
from ..flush import Flush
from .append_queue import AppendQueue, release_after
from .writer import LogWriter

_LOG: Final = logging.getLogger("quorumlog.storage")


def unsynced_bytes_max(log: LogConfig, directory: DirectoryConfig) -> int | None:
    """Return the bytes of two write groups of an fsync log; None without a limit."""
    if log.flush_policy is not FlushPolicy.FSYNC:
        return None
    return 2 * max(directory.write_group_bytes_max, log.message_bytes_max)


class ConfigChanges:
    """Applies configuration changes to the logs of one directory."""

    def __init__(self, files: Files, writer: LogWriter, config: DirectoryConfig) -> None:
        self._files = files
        self._writer = writer
        self._config = config

    def apply(self, queue: AppendQueue) -> None:
        """Apply the wanted config of a log, if any, or queue the work that it needs."""
        if queue.wanted is None or queue.is_configuring or self._writer.is_closing:
            return
        log, config = queue.log, queue.wanted
        queue.wanted = None
        log.was_compacted = log.was_compacted or config.compacted
        bound = unsynced_bytes_max(config, self._config)
        # the folder has the limit of gaps
        is_said = not config.compacted or log.gaps_below is not None
        if (bound == log.unsynced_bytes_max and is_said) or not log.segment_bases:
            log.config, log.unsynced_bytes_max = config, bound
        else:
            self._queue(queue, config, bound)

    def _queue(self, queue: AppendQueue, config: LogConfig, bound: int | None) -> None:
        log = queue.log
        begun: list[Flush] = []
        gaps: list[int | None] = []

        def begin() -> Callable[[], bool] | None:
            if log.failure is not None:
                return None  # deleted, and its folder may belong to another log soon
            begun.append(log.flusher.begin())
            gaps.append(log.gaps_below if log.gaps_below is not None or not config.compacted else 0)
            content = log.topic_id and encode_partition_metadata(log.topic_id, bound, gaps[0])
            return partial(store_unsynced_limit, self._files, begun[0], log.folder, content)

        def end(is_stored: bool | None) -> None:
            queue.is_configuring = False
            if is_stored is None:
                return
            self._writer.flushed(queue, begun[0])
            queue.unflushed_bytes = 0
            if is_stored:
                log.config, log.unsynced_bytes_max, log.gaps_below = config, bound, gaps[0]
            elif not is_wider(bound, log.unsynced_bytes_max):
                log.config = config
            elif queue.wanted is None:
                queue.wanted = config
                if not queue.is_config_waiting:  # logged once, though retried
                    _LOG.warning("storage.config_waits log=%s reason=disk_full", log.name)
                queue.is_config_waiting = True
                return
            queue.is_config_waiting = False
            self.apply(queue)

        queue.is_configuring = True
        release_after(self._writer.exclusive(queue, begin, end, repeats=True), begun)
