"""What a recovery hands to the log that goes on from there."""

from dataclasses import dataclass

from ..producers import ProducerBook
from ..segments.epochs import EpochCache
from ..segments.segment import Segment


@dataclass(slots=True, kw_only=True)
class LogState:
    """What a recovery found in a log's folder, all of it durable."""

    segments: list[Segment]  # ascending; empty when the folder does not exist yet
    epochs: EpochCache
    log_start_offset: int
    log_end_offset: int
    unsynced_bytes_max: int | None = None  # what the folder durably says, or will say
    producers: ProducerBook | None = None  # None: nothing is known of any
    gaps_below: int | None = None  # as unsynced_bytes_max: see PartitionMeta
