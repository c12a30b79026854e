"""What a data directory tells of itself to whoever measures: looked up when asked, never pushed."""

from collections.abc import Mapping
from typing import Protocol

from ...metrics import Histogram
from ..log import Log
from .channel import Channel
from .free_space import FreeSpace


class Writing(Protocol):
    """What is asked of the writer."""

    @property
    def flush_ms(self) -> tuple[Histogram, Histogram]: ...


class DirectoryFigures:
    """Figures of one directory, as they are now."""

    def __init__(self, channels: Mapping[str, Channel], writing: Writing, space: FreeSpace) -> None:
        self._channels = channels
        self._writing = writing
        self._space = space

    def log(self, name: str) -> Log | None:
        """The log of this name, where it is open."""
        channel = self._channels.get(name)
        return None if channel is None else channel.log

    @property
    def open_logs(self) -> int:
        """Logs that are open."""
        return len(self._channels)

    @property
    def failed_logs(self) -> int:
        """Open logs whose disk failed; costs a look at every open log."""
        return sum(1 for channel in self._channels.values() if channel.has_failed)

    @property
    def queued_bytes(self) -> int:
        """Bytes of appends that wait to be written; costs a look at every open log."""
        return sum(channel.queued_bytes for channel in self._channels.values())

    @property
    def written_bytes(self) -> int:
        """Bytes of batches written since the opening."""
        return self._space.written_bytes

    @property
    def flush_times(self) -> Mapping[str, Histogram]:
        """How long flushes took in their lane, by the flush policy of their logs, in ms."""
        always, later = self._writing.flush_ms
        return {"fsync": always, "replicated": later}

    def disk_bytes(self) -> tuple[int, int]:
        """Free bytes and size of the disk, of a look made now; raises OSError."""
        return self._space.measure()

    @property
    def is_reserve_used(self) -> bool:
        """Whether clients' appends are refused for want of room."""
        return self._space.is_low
