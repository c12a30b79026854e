"""Who built the batches of an append, and what is known of each when its header was read."""

from enum import Enum
from typing import TypeAlias

from ..records.batch import BatchHeader

Headers: TypeAlias = list[tuple[int, BatchHeader]]
"""Position in the buffer, header."""


class Origin(Enum):
    """Who built the batches, and so what of them is believed."""

    CLIENT = "client"  # nothing is believed; offsets and epoch are stamped
    INTERNAL = "internal"  # this node built it: only its CRC is checked; offsets and epoch stamped
    REPLICATED = "replicated"  # a leader stamped it: offsets stay and must continue the log
