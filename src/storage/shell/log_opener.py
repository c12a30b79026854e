"""Openings of a directory's logs, several per lane job.

After a clean shutdown an opening takes less time than a lane job, so the pending ones share a job.
After an unclean one each has a job of its own, since it may take long.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from ...errors import DiskFailed, DiskFull, Overloaded, QuorumlogError, Stopping
from ...ids import TopicId
from ...runtime.ports import Files
from ..config import LogConfig
from ..data_directory_state import recover_log
from ..file_pool import OUT_OF_DESCRIPTORS
from ..log import Log
from ..recovery import LogState, Recovery
from ..small_files import OUT_OF_SPACE
from .append_queue import AppendQueue
from .writer import LogWriter

OPENED_AT_ONCE: Final = 64
"""Logs opened per lane job after a clean shutdown: about 10 ms."""

Adopt: TypeAlias = Callable[[str, LogConfig, TopicId | None, LogState], Log]


@dataclass(slots=True, eq=False)
class PendingOpening:
    """A pending opening of a log."""

    name: str
    config: LogConfig
    topic_id: TopicId | None
    recovery: Recovery | None = None  # once planned
    state: LogState | None = None  # the state recovered in the lane
    log: Log | None = None
    error: QuorumlogError | None = None


class LogOpener:
    """The pending openings of one directory."""

    def __init__(
        self,
        files: Files,
        writer: LogWriter,
        *,
        queues: Mapping[str, AppendQueue],
        recovery_of: Callable[[str, LogConfig], Recovery],
        adopt: Adopt,
        at_once: int,
    ) -> None:
        self._files = files
        self._writer = writer
        self._queues = queues
        self._recovery_of = recovery_of
        self._adopt = adopt
        self._at_once = at_once
        self._waiting: list[PendingOpening] = []

    async def open(self, name: str, config: LogConfig, topic_id: TopicId | None) -> Log:
        """Return the open log of this name; see `DataDirectory.open_log`."""
        opening = PendingOpening(name, config, topic_id)
        self._waiting.append(opening)
        try:
            await self._writer.run(partial(self._begin, opening), self._end)
        except Stopping:
            self._waiting.remove(opening)
            raise
        if opening.error is not None:
            raise opening.error
        assert opening.log is not None, f"{name} was not opened"
        return opening.log

    def _begin(self, first: PendingOpening) -> Callable[[], list[PendingOpening]] | None:
        """Plan an opening together with other pending ones, unless another call already did."""
        if first not in self._waiting:
            return None
        taken: dict[str, PendingOpening] = {}
        left: list[PendingOpening] = []
        for opening in (first, *(one for one in self._waiting if one is not first)):
            queue = self._queues.get(opening.name)
            if queue is not None:
                opening.log = queue.log
            elif opening.name in taken or len(taken) == self._at_once:
                left.append(opening)
            else:
                opening.recovery = self._recovery_of(opening.name, opening.config)
                taken[opening.name] = opening
        self._waiting = left
        return partial(recover_each, self._files, list(taken.values())) if taken else None

    def _end(self, openings: list[PendingOpening] | None) -> None:
        for one in openings or ():
            if one.state is not None:
                one.log = self._adopt(one.name, one.config, one.topic_id, one.state)


def recover_each(files: Files, openings: list[PendingOpening]) -> list[PendingOpening]:
    """Recover logs one by one; the failure of one does not affect the others. In the lane."""
    for one in openings:
        assert one.recovery is not None, f"{one.name} was planned"
        try:
            one.state = recover_log(files, one.recovery, one.topic_id)
        except OSError as error:
            one.error = not_opened(one.recovery.folder, error)
            one.error.__cause__ = error
        except QuorumlogError as error:
            one.error = error
    return openings


def not_opened(path: str, error: OSError) -> QuorumlogError:
    """Return the error of an opening; it is retriable if the cause is temporary."""
    if error.errno in OUT_OF_DESCRIPTORS:
        return Overloaded(
            f"{path} cannot be opened now: {error.strerror}; retry, or raise the limit of open "
            "files (ulimit -n)"
        )
    if error.errno in OUT_OF_SPACE:
        return DiskFull(f"{path}: no space is left to open it; free some space, then retry")
    return DiskFailed(f"{path}: {error}")
