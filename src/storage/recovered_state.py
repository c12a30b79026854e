"""The result of a recovery, from which the log continues."""

from dataclasses import dataclass

from .epochs import EpochCache
from .producer_state_manager import ProducerBook
from .segment import Segment


@dataclass(slots=True, kw_only=True)
class LogState:
    """The state of a recovered log, durable on the disk."""

    segments: list[Segment]  # ascending; empty if the folder does not exist yet
    epochs: EpochCache
    log_start_offset: int
    log_end_offset: int
    # as stored durably in the folder, now or with the first append
    unsynced_bytes_max: int | None = None
    producers: ProducerBook | None = None  # None: no producer is known
    gaps_below: int | None = None  # like unsynced_bytes_max: see PartitionMeta
