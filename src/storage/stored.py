"""The content of the checkpoint files of a data directory: offsets by log, and leader epochs by
log.

    recovery-point-offset-checkpoint    everything below is fsynced
    log-start-offset-checkpoint         nothing below is readable
    replication-offset-checkpoint       the high watermark: everything below is committed
    cleaner-offset-checkpoint           a compacted log is clean below

The first three come from the logs themselves, the last one from the cleaner. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .checkpoints import decode_offsets
from .layout import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS

if TYPE_CHECKING:
    from .log import Log


@dataclass(slots=True, kw_only=True)
class Stored:
    """The current content of the checkpoint files; offsets by log name, 0 for a missing log."""

    recovery_points: dict[str, int] = field(default_factory=dict)
    log_starts: dict[str, int] = field(default_factory=dict)
    high_watermarks: dict[str, int] = field(default_factory=dict)
    cleaner_offsets: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @staticmethod
    def of_files(contents: Mapping[str, bytes]) -> "Stored":
        """Decode the offset checkpoints among a directory's small files; raises CorruptionError."""
        stored = Stored()
        for name, offsets in stored.by_file().items():
            if name in contents:
                offsets.update(decode_offsets(contents[name], name))
        return stored

    def by_file(self) -> dict[str, dict[str, int]]:
        """Return the offsets of each file by its name, in the order of replacement."""
        return {
            LOG_START_OFFSETS: self.log_starts,
            HIGH_WATERMARKS: self.high_watermarks,
            CLEANER_OFFSETS: self.cleaner_offsets,
            RECOVERY_POINTS: self.recovery_points,
        }

    def copy(self) -> "Stored":
        """Return an independent copy."""
        return Stored(
            recovery_points=dict(self.recovery_points),
            log_starts=dict(self.log_starts),
            high_watermarks=dict(self.high_watermarks),
            cleaner_offsets=dict(self.cleaner_offsets),
            epochs=dict(self.epochs),
        )

    def take(self, logs: "Iterable[Log]") -> list["Log"]:
        """Update from the state of these logs; return the logs with changed epochs.

        A log that failed, or was never flushed, is skipped.
        """
        changed = []
        for log in logs:
            if log.failure is not None or log.recovery_point == 0:
                continue
            epochs = log.epochs.entries()
            # An epoch that starts at the log start may belong to deleted records, or to an append
            # that is not durable yet. It is stored only if it can be just one of them.
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
        """Return the files, with their offsets, that differ from `other`."""
        others = other.by_file()
        return {name: own for name, own in self.by_file().items() if own != others[name]}

    def forget(self, name: str) -> dict[str, dict[str, int]]:
        """Remove a deleted log; return the changed files without it."""
        self.epochs.pop(name, None)
        return {
            file: dict(offsets)
            for file, offsets in self.by_file().items()
            if offsets.pop(name, None) is not None
        }
