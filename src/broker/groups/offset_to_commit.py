"""One offset of a commit request.

A module of its own because every partition of every commit creates one: this module is compiled by
mypyc, which cannot compile the generic dataclasses of `requests`.
"""

from dataclasses import dataclass

from ...ids import TopicId


@dataclass(init=False, unsafe_hash=True, slots=True)  # as `records.OffsetCommitted`
class OffsetToCommit:
    """The offset to commit for one partition."""

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
