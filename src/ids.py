"""The id types: integers, strings and bytes that the type checker keeps apart.

Nothing here allocates or validates ids. `Entropy` draws random ones.
"""

from typing import Final, NamedTuple, NewType

NodeId = NewType("NodeId", int)
"""The id of a node, >= 0; -1 for "none" in the Kafka protocol."""

Epoch = NewType("Epoch", int)
"""The number of a leadership, >= 0: Raft's term of the metadata quorum, the leader epoch of a
partition."""

Offset = NewType("Offset", int)
"""The position of a record in a log, >= 0. An end offset is exclusive."""

TopicId = NewType("TopicId", bytes)
"""16 bytes drawn when the topic is created."""

DirectoryId = NewType("DirectoryId", bytes)
"""16 bytes drawn when a data directory is formatted: a wiped disk is a new voter (KIP-853)."""

ClusterId = NewType("ClusterId", str)
"""22 characters of base64url drawn when the cluster is formatted."""


class TopicPartition(NamedTuple):
    """A partition of a topic, by name. It equals the tuple (topic, partition)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdentity(NamedTuple):
    """A producer id with its epoch, 0 to 32767; a higher epoch of an id fences the lower ones."""

    producer_id: int
    producer_epoch: int


BACKUP_MARK: Final = "backup:"
"""The beginning of the mirror.source of a topic that a restore writes: "backup:ID/TOPIC-ID"."""

NO_NODE = NodeId(-1)
NO_EPOCH = Epoch(-1)


def places_text(places: tuple[tuple[str, int], ...]) -> str:
    """Return partitions as "t-0,1 u-3"."""
    by_topic: dict[str, list[str]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}-{','.join(some)}" for topic, some in by_topic.items()) or "-"
