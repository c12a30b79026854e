"""Size limits of the batches that store decisions: those of the log and of its followers."""

from dataclasses import replace
from typing import Final

from ....errors import MessageTooLarge
from ..config import GroupConfig

BATCH_BYTES: Final = 512 << 10
"""A batch of this size gets no further decision, and no further offsets of its decision."""
DECISION_BYTES_MAX: Final = 99 << 20
"""The maximum size of one decision, whatever the segment size: a follower accepts at most 128
MiB."""
RECORD_BYTES: Final = 16
"""A lower bound of a record's size in a batch beyond its key and value."""
HEAD_BYTES: Final = 128
"""A lower bound of a batch's size beyond its records."""


class BatchLimits:
    """The limits of one partition, derived from its segment size at load."""

    __slots__ = ("batch_bytes", "decision_bytes_max")

    def __init__(self, segment_bytes: int) -> None:
        self.batch_bytes = min(BATCH_BYTES, segment_bytes // 4)
        self.decision_bytes_max = min(DECISION_BYTES_MAX, segment_bytes - HEAD_BYTES)

    def limit(self, config: GroupConfig) -> GroupConfig:
        """Return the configuration with a limit on subscriptions. It leaves space to store them
        together with assignments of the same size and the small fields."""
        fitting = self.decision_bytes_max * 15 // 32
        return replace(config, group_bytes_max=min(config.group_bytes_max, fitting))

    def check(self, size: int) -> None:
        """Raise MessageTooLarge for a decision that cannot be appended. The state is then reloaded,
        and the client must not retry."""
        if size > self.decision_bytes_max:
            raise MessageTooLarge(
                f"the group's update has {size} bytes, the limit is {self.decision_bytes_max}; use"
                " fewer members or topics"
            )
