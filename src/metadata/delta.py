"""Differences between two images, collected from the records between them.

The cost depends on the size of the change, not on the size of the cluster.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from ..ids import NodeId, TopicId
from ..proto import metadata_records_pb2 as pb
from .image import BrokerImage, MetadataImage, PartitionImage, TopicImage, sorted_in_steps
from .replay import ImageDraft

COMPARED_A_STEP: Final = 500
"""The number of topics and partitions of a snapshot that one step compares with the old state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A partition before and after a change; None if it does not exist."""

    topic: TopicImage  # after the change; before it if the topic was deleted
    index: int
    before: PartitionImage | None
    after: PartitionImage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDelta:
    """Two images and the parts that may differ, in the order of their first change."""

    before: MetadataImage
    after: MetadataImage
    touched_topics: tuple[TopicId, ...]
    # Without partitions of created topics; may include partitions of deleted topics.
    touched_partitions: tuple[tuple[TopicId, int], ...]
    touched_brokers: tuple[NodeId, ...]

    def created_topics(self) -> list[TopicImage]:
        """Return the topics that exist only in `after`."""
        after = self.after.topics_by_id
        return [
            after[topic_id]
            for topic_id in self.touched_topics
            if topic_id in after and topic_id not in self.before.topics_by_id
        ]

    def deleted_topics(self) -> list[TopicImage]:
        """Return the topics that exist only in `before`."""
        before = self.before.topics_by_id
        return [
            before[topic_id]
            for topic_id in self.touched_topics
            if topic_id in before and topic_id not in self.after.topics_by_id
        ]

    def changed_topics(self) -> list[tuple[TopicImage, TopicImage]]:
        """Return (before, after) of topics that differ in configs or partitions."""
        before, after = self.before.topics_by_id, self.after.topics_by_id
        both = (t for t in self.touched_topics if t in before and t in after)
        return [(before[t], after[t]) for t in both if before[t] is not after[t]]

    def changed_partitions(self) -> Iterator[PartitionChange]:
        """Yield the partitions that were created, changed or deleted (also with their topic)."""
        for topic in self.deleted_topics():
            for index, partition in topic.sorted_partitions():
                yield PartitionChange(topic=topic, index=index, before=partition, after=None)
        for topic in self.created_topics():
            for index, partition in topic.sorted_partitions():
                yield PartitionChange(topic=topic, index=index, before=None, after=partition)
        for topic_id, index in self.touched_partitions:
            topic_after = self.after.topics_by_id.get(topic_id)
            if topic_after is None or topic_id not in self.before.topics_by_id:
                continue
            before = self.before.partition(topic_id, index)
            after = topic_after.partitions.get(index)
            if before != after:
                yield PartitionChange(topic=topic_after, index=index, before=before, after=after)

    def changed_brokers(self) -> list[tuple[BrokerImage | None, BrokerImage | None]]:
        """Return (before, after) of brokers that differ."""
        pairs = (
            (self.before.brokers.get(node), self.after.brokers.get(node))
            for node in self.touched_brokers
        )
        return [(before, after) for before, after in pairs if before != after]


class DeltaBuilder:
    """Builds a delta from the records that follow an image."""

    __slots__ = ("_brokers", "_draft", "_partitions", "_topics", "before", "comparing")

    def __init__(self, image: MetadataImage) -> None:
        self.before = image
        self._draft = ImageDraft(image)
        # Dicts serve as ordered sets: the order is that of the log on every node.
        self._topics: dict[TopicId, None] = {}
        self._partitions: dict[tuple[TopicId, int], None] = {}
        self._brokers: dict[NodeId, None] = {}
        # Compares the old state with a snapshot in steps; build() completes the comparison.
        self.comparing: Iterator[None] = iter(())

    @classmethod
    def replacing(cls, before: MetadataImage, after: MetadataImage) -> "DeltaBuilder":
        """Return a builder for an image that a snapshot replaced. The differences are found by
        comparison, see `comparing`, in the order of ids, old ones first."""
        builder = cls(before)
        builder._draft = ImageDraft(after)
        builder.comparing = builder._compare(after)
        return builder

    @property
    def image(self) -> MetadataImage:
        """The image after the records so far, built on access."""
        return self._draft.image()

    def adopt(self, image: MetadataImage) -> None:
        """Set the image after the noted records."""
        self._draft = ImageDraft(image)

    def settle(self) -> None:
        """Build the image now, so that the next one needs little work."""
        self._draft.image()

    def _compare(self, after: MetadataImage) -> Iterator[None]:
        """Compare the images; yield after each step of one or two milliseconds."""
        before, seen = self.before, 0
        for topic_id in chain(
            sorted_in_steps(before.topics_by_id), sorted_in_steps(after.topics_by_id)
        ):
            if topic_id is None:
                yield
                continue
            old, new = before.topics_by_id.get(topic_id), after.topics_by_id.get(topic_id)
            seen += 1 + sum(len(topic.partitions) for topic in (old, new) if topic is not None)
            if old != new:
                self._topics[topic_id] = None
                if old is not None and new is not None:
                    for index in sorted({*old.partitions, *new.partitions}):
                        self._partitions[topic_id, index] = None
            if seen >= COMPARED_A_STEP:
                seen = 0
                yield
        for broker_id in (*sorted(before.brokers), *sorted(after.brokers)):
            if before.brokers.get(broker_id) != after.brokers.get(broker_id):
                self._brokers[broker_id] = None

    def replay(self, record: pb.MetadataRecord, *, offset: int, epoch: int) -> None:
        """Replay one record into the image; raise CorruptionError as `ImageDraft.replay` does."""
        self._draft.replay(record, offset=offset, epoch=epoch)
        self.note(record)

    def note(self, record: pb.MetadataRecord) -> None:
        """Record what a record touches without replaying it; adopt() must follow."""
        match record.WhichOneof("record"):
            case "partition_change":
                self._touch(record.partition_change)
            case "partition":
                self._touch(record.partition)
            case "broker":
                self._brokers[NodeId(record.broker.id)] = None
            case "broker_change":
                self._brokers[NodeId(record.broker_change.id)] = None
            case "unregister_broker":
                self._brokers[NodeId(record.unregister_broker.id)] = None
            case "topic":
                self._topics[TopicId(record.topic.topic_id)] = None
            case "topic_config":
                self._topics[TopicId(record.topic_config.topic_id)] = None
            case "remove_topic":
                self._touch_removed(TopicId(record.remove_topic.topic_id))
            case _:
                pass  # other records touch no topic, partition or broker

    def build(self) -> ImageDelta:
        """Return the delta of all records so far."""
        for _ in self.comparing:
            continue
        return ImageDelta(
            before=self.before,
            after=self.image,
            touched_topics=tuple(self._topics),
            touched_partitions=tuple(self._partitions),
            touched_brokers=tuple(self._brokers),
        )

    def would_recreate(self, record: pb.TopicRecord) -> bool:
        """Return True if the record creates a topic that this delta has removed. The delta must end
        before that record, or it would lose the removal."""
        topic_id = TopicId(record.topic_id)
        return topic_id in self._topics and topic_id not in self.image.topics_by_id

    def _touch_removed(self, topic_id: TopicId) -> None:
        self._topics[topic_id] = None
        topic = self.before.topics_by_id.get(topic_id)
        for index, _ in topic.sorted_partitions() if topic is not None else ():
            self._partitions[topic_id, index] = None  # the same id can be created again

    def _touch(self, record: pb.PartitionRecord | pb.PartitionChangeRecord) -> None:
        topic_id = TopicId(record.topic_id)
        self._topics[topic_id] = None
        if topic_id in self.before.topics_by_id:
            self._partitions[topic_id, record.partition] = None
