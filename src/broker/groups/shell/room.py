"""How much is stored of groups at once: what their log takes as one batch, and followers too."""

from dataclasses import replace
from typing import Final

from ....errors import MessageTooLarge
from ..config import GroupConfig

BATCH_BYTES: Final = 512 << 10
"""No decision more goes into a batch that is as large, and no more offsets of one decision."""
DECISION_BYTES_MAX: Final = 99 << 20
"""More is not stored at once, however large segments are: a follower takes 128 MiB at most."""
RECORD_BYTES: Final = 16
"""What a record takes in a batch beside its key and value, or a bit less."""
HEAD_BYTES: Final = 128
"""What a batch takes beside its records, or a bit less."""


class Room:
    """Of one partition, as it was when its groups were read last."""

    __slots__ = ("batch_bytes", "decision_bytes_max")

    def __init__(self, segment_bytes: int) -> None:
        self.batch_bytes = min(BATCH_BYTES, segment_bytes // 4)
        self.decision_bytes_max = min(DECISION_BYTES_MAX, segment_bytes - HEAD_BYTES)

    def bounded(self, config: GroupConfig) -> GroupConfig:
        """Return the bounds of groups whose subscriptions are stored at once with as large
        assignments, and with the fields whose size hardly differs."""
        fitting = self.decision_bytes_max * 15 // 32
        return replace(config, group_bytes_max=min(config.group_bytes_max, fitting))

    def check(self, size: int) -> None:
        """Raise MessageTooLarge for a decision that the log would never take: that is undone by
        reading what is stored, and who asks for it is told not to repeat it."""
        if size > self.decision_bytes_max:
            raise MessageTooLarge(
                f"{size} bytes would have to be stored of the group at once, and at most"
                f" {self.decision_bytes_max} are: have fewer members or topics in it"
            )
