"""The subscribed topics of a group in the current metadata."""

from collections.abc import Mapping
from hashlib import blake2b

from ....ids import TopicId
from ....metadata.image import MetadataImage
from .state import GroupState

Watched = Mapping[str, tuple[TopicId, int]]
"""Id and partition count of each subscribed topic that exists."""


def watch(state: GroupState, image: MetadataImage) -> Watched:
    """Return the subscribed topics on which the target depends. O(subscribed topics)."""
    found: dict[str, tuple[TopicId, int]] = {}
    for name in sorted(state.subscribed_topics()):
        topic = image.topic(name)
        if topic is not None:
            found[name] = (topic.id, len(topic.partitions))
    return found


def metadata_hash(watched: Watched) -> int:
    """Return a signed 64-bit hash of the watched topics; 0: none."""
    if not watched:
        return 0
    digest = blake2b(digest_size=8)
    for name, (topic_id, count) in watched.items():
        digest.update(b"%b %b%d " % (name.encode(), topic_id, count))
    return int.from_bytes(digest.digest(), "big", signed=True) or 1


def ids_of(names: frozenset[str], watched: Watched) -> frozenset[TopicId]:
    """Return the ids of the topics that exist."""
    return frozenset([watched[name][0] for name in names if name in watched])
