"""The origin of appended batches, and the headers of an append."""

from enum import Enum
from typing import TypeAlias

from ..records.batch import BatchHeader

Headers: TypeAlias = list[tuple[int, BatchHeader]]
"""(position in the buffer, header) of each batch."""


class Origin(Enum):
    """The origin of an append, which determines its validation."""

    CLIENT = "client"  # fully validated; offsets and epoch are stamped
    # built by this node: only the CRC is checked; offsets and epoch are stamped
    INTERNAL = "internal"
    REPLICATED = "replicated"  # stamped by a leader: offsets stay and must continue the log
