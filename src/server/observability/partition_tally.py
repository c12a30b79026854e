"""Partition counts by state, topic by topic. Pure.

Counting a million partitions takes half a second. So topics whose image object is unchanged keep
their counts, and the others are counted in steps, between which the event loop runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ...ids import NO_NODE, NodeId, TopicId
from ...metadata import MetadataImage, PartitionImage, TopicImage, effective_min_isr

COUNTED_A_STEP: Final = 1_000  # partitions; about a millisecond


@dataclass(slots=True)
class Counts:
    """The counts of the cluster, or of the partitions that one broker leads."""

    partitions: int = 0
    offline: int = 0
    under_replicated: int = 0
    at_min_isr: int = 0
    under_min_isr: int = 0
    moving: int = 0
    not_preferred: int = 0
    by_isr: dict[int, int] = field(default_factory=dict)  # partitions by the size of their ISR

    def take(self, state: PartitionImage, *, min_isr: int) -> None:
        """Count a partition."""
        replicas, in_sync = len(state.replicas), len(state.isr)
        self.partitions += 1
        self.offline += state.leader == NO_NODE
        # A replica that is being added is not under-replicated: it was never in sync.
        self.under_replicated += in_sync < replicas - len(state.adding)
        self.at_min_isr += in_sync == min_isr < replicas
        self.under_min_isr += in_sync < min_isr
        self.moving += state.is_moving
        self.not_preferred += state.leader not in (NO_NODE, state.replicas[0])
        self.by_isr[in_sync] = self.by_isr.get(in_sync, 0) + 1

    def add(self, other: "Counts") -> None:
        """Add other counts."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for isr, count in other.by_isr.items():
            self.by_isr[isr] = self.by_isr.get(isr, 0) + count


_NUMBERS: Final = (
    *("partitions", "offline", "under_replicated", "at_min_isr"),
    *("under_min_isr", "moving", "not_preferred"),
)


@dataclass(slots=True)
class TopicCounts:
    """The counts of one topic."""

    topic: TopicImage
    everywhere: Counts = field(default_factory=Counts)
    led: Counts = field(default_factory=Counts)  # by this node
    followed: int = 0


class PartitionTally:
    """The counts of the newest counted image."""

    def __init__(self, node_id: NodeId) -> None:
        self.everywhere = Counts()
        self.led = Counts()
        self.followed = 0
        self._node_id = node_id
        self._topics: dict[TopicId, TopicCounts] = {}

    def count_image(self, image: MetadataImage) -> Iterator[None]:
        """Count an image; yields after each step of about a millisecond. The caller runs it to the
        end before the next call."""
        topics: dict[TopicId, TopicCounts] = {}
        everywhere, led, followed, seen = Counts(), Counts(), 0, 0
        for topic_id, topic in image.topics_by_id.items():
            counts = self._topics.get(topic_id)
            seen += 1
            if counts is None or counts.topic is not topic:
                counts = TopicCounts(topic)
                for _ in self._count(counts):
                    yield
                seen += len(topic.partitions) % COUNTED_A_STEP
            topics[topic_id] = counts
            everywhere.add(counts.everywhere)
            led.add(counts.led)
            followed += counts.followed
            if seen >= COUNTED_A_STEP:
                seen = 0
                yield
        self._topics = topics
        self.everywhere, self.led, self.followed = everywhere, led, followed

    def _count(self, counts: TopicCounts) -> Iterator[None]:
        """Count a topic's partitions; yields within a large one."""
        min_isr_of: dict[int, int] = {}  # by replicas
        for number, state in enumerate(counts.topic.partitions.values(), 1):
            replicas = len(state.replicas)
            min_isr = min_isr_of.get(replicas)
            if min_isr is None:
                configs = counts.topic.configs
                min_isr = effective_min_isr(configs, replication_factor=replicas)
                min_isr_of[replicas] = min_isr
            counts.everywhere.take(state, min_isr=min_isr)
            if state.leader == self._node_id:
                counts.led.take(state, min_isr=min_isr)
            elif self._node_id in state.replicas:
                counts.followed += 1
            if number % COUNTED_A_STEP == 0:
                yield
