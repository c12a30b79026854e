"""What a commit says of one partition.

By itself, since each partition of each commit makes one and this is compiled, as `requests` with
its generic dataclasses cannot be.
"""

from dataclasses import dataclass

from ...ids import TopicId


@dataclass(init=False, unsafe_hash=True, slots=True)  # as `records.OffsetCommitted`
class OffsetToCommit:
    """How far a partition was read."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    note: str
    topic_id: TopicId | None

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        offset: int,
        leader_epoch: int = -1,
        note: str = "",
        topic_id: TopicId | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.note = note
        self.topic_id = topic_id
