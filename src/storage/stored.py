"""What the checkpoint files of a data directory say: an offset a log in each, and epochs a log.

    recovery-point-offset-checkpoint    below it everything was fsynced
    log-start-offset-checkpoint         below it nothing may be read any more
    replication-offset-checkpoint       the high watermark: below it everything is committed
    cleaner-offset-checkpoint           below it a compacted log is clean

The first three come from the logs themselves; what the cleaner reached is told by it. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .disk.checkpoints import decode_offsets
from .disk.layout import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS

if TYPE_CHECKING:
    from .log import Log


@dataclass(slots=True, kw_only=True)
class Stored:
    """What the checkpoint files say now; offsets by log name, a log without one has 0."""

    recovery_points: dict[str, int] = field(default_factory=dict)
    log_starts: dict[str, int] = field(default_factory=dict)
    high_watermarks: dict[str, int] = field(default_factory=dict)
    cleaner_offsets: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @staticmethod
    def of_files(contents: Mapping[str, bytes]) -> "Stored":
        """Read the offset checkpoints among a directory's small files; raises CorruptionError."""
        stored = Stored()
        for name, offsets in stored.by_file().items():
            if name in contents:
                offsets.update(decode_offsets(contents[name], name))
        return stored

    def by_file(self) -> dict[str, dict[str, int]]:
        """Return the offsets of each file by its name, in the order in which to replace them."""
        return {
            LOG_START_OFFSETS: self.log_starts,
            HIGH_WATERMARKS: self.high_watermarks,
            CLEANER_OFFSETS: self.cleaner_offsets,
            RECOVERY_POINTS: self.recovery_points,
        }

    def copy(self) -> "Stored":
        """Return one that may be changed on its own."""
        return Stored(
            recovery_points=dict(self.recovery_points),
            log_starts=dict(self.log_starts),
            high_watermarks=dict(self.high_watermarks),
            cleaner_offsets=dict(self.cleaner_offsets),
            epochs=dict(self.epochs),
        )

    def take(self, logs: "Iterable[Log]") -> list["Log"]:
        """Take in what these logs have come to; returns those whose epochs changed.

        A log that failed, or was never flushed, says nothing new.
        """
        changed = []
        for log in logs:
            if log.failure is not None or log.recovery_point == 0:
                continue
            epochs = log.epochs.entries()
            # An epoch that starts at the log's start may be of what is deleted, or of an append
            # that is not durable yet: it is stored when it can only be one of them.
            is_sure = not log.log_start_offset == log.recovery_point < log.log_end_offset
            if is_sure and self.epochs.get(log.name) != epochs:
                self.epochs[log.name] = epochs
                changed.append(log)
            if log.log_start_offset > 0:
                self.log_starts[log.name] = log.log_start_offset
            if log.high_watermark > 0:
                self.high_watermarks[log.name] = log.high_watermark
            self.recovery_points[log.name] = log.recovery_point
        return changed

    def files_beside(self, other: "Stored") -> dict[str, dict[str, int]]:
        """Return the files, with their offsets, that would say something else than in `other`."""
        others = other.by_file()
        return {name: own for name, own in self.by_file().items() if own != others[name]}

    def forget(self, name: str) -> dict[str, dict[str, int]]:
        """Forget a log that is deleted; returns the files that spoke of it, without it now."""
        self.epochs.pop(name, None)
        return {
            file: dict(offsets)
            for file, offsets in self.by_file().items()
            if offsets.pop(name, None) is not None
        }
