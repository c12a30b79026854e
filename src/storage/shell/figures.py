"""Measurements of a data directory, computed on request."""

from collections.abc import Mapping
from typing import Protocol

from ...metrics import Histogram
from ..log import Log
from .append_queue import Channel
from .free_space import FreeSpace


class Writing(Protocol):
    """The part of the writer that the measurements use."""

    @property
    def flush_ms(self) -> tuple[Histogram, Histogram]: ...


class DirectoryFigures:
    """Current measurements of one directory."""

    def __init__(self, channels: Mapping[str, Channel], writing: Writing, space: FreeSpace) -> None:
        self._channels = channels
        self._writing = writing
        self._space = space

    def log(self, name: str) -> Log | None:
        """Return the open log of this name, None if it is not open."""
        channel = self._channels.get(name)
        return None if channel is None else channel.log

    @property
    def open_logs(self) -> int:
        """Number of open logs."""
        return len(self._channels)

    @property
    def failed_logs(self) -> int:
        """Number of open logs with a failed disk; iterates over all open logs."""
        return sum(1 for channel in self._channels.values() if channel.has_failed)

    @property
    def queued_bytes(self) -> int:
        """Bytes of queued appends; iterates over all open logs."""
        return sum(channel.queued_bytes for channel in self._channels.values())

    @property
    def written_bytes(self) -> int:
        """Bytes of batches written since the opening."""
        return self._space.written_bytes

    @property
    def flush_times(self) -> Mapping[str, Histogram]:
        """Durations of flushes in their lane, by the flush policy of their logs, in ms."""
        always, later = self._writing.flush_ms
        return {"fsync": always, "replicated": later}

    def disk_bytes(self) -> tuple[int, int]:
        """Measure (free bytes, size) of the disk now; raises OSError."""
        return self._space.measure()

    @property
    def is_reserve_used(self) -> bool:
        """True if client appends are rejected for lack of space."""
        return self._space.is_low
