"""What a group's subscriptions come to in the cluster as it stands: topics with ids and counts."""

from collections.abc import Mapping
from hashlib import blake2b

from ....ids import TopicId
from ....metadata.image import MetadataImage
from .state import GroupState

Watched = Mapping[str, tuple[TopicId, int]]
"""Of each subscribed topic that exists: its id and how many partitions it has."""


def watch(state: GroupState, image: MetadataImage) -> Watched:
    """What a group's target rests on. O(subscribed topics)."""
    found: dict[str, tuple[TopicId, int]] = {}
    for name in sorted(state.subscribed_topics()):
        topic = image.topic(name)
        if topic is not None:
            found[name] = (topic.id, len(topic.partitions))
    return found


def metadata_hash(watched: Watched) -> int:
    """A signed number of 64 bits that changes with what is watched; 0: nothing is."""
    if not watched:
        return 0
    digest = blake2b(digest_size=8)
    for name, (topic_id, count) in watched.items():
        digest.update(b"%b %b%d " % (name.encode(), topic_id, count))
    return int.from_bytes(digest.digest(), "big", signed=True) or 1


def ids_of(names: frozenset[str], watched: Watched) -> frozenset[TopicId]:
    """The ids of those of the topics that exist."""
    return frozenset([watched[name][0] for name in names if name in watched])
