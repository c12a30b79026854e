"""Metadata images with topics that offsets are committed for."""

from collections.abc import Mapping

from immutables import Map

from quorumlog.ids import Epoch, NodeId, TopicId
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage

ID, OTHER = TopicId(b"a" * 16), TopicId(b"b" * 16)


def image_of(topics: Mapping[str, TopicId], partitions: int = 2) -> MetadataImage:
    one = PartitionImage(
        replicas=(NodeId(1),),
        isr=(NodeId(1),),
        leader=NodeId(1),
        leader_epoch=Epoch(0),
        partition_epoch=0,
    )
    image = EMPTY_IMAGE
    made = {
        topic_id: TopicImage(
            id=topic_id,
            name=name,
            partitions=Map(dict.fromkeys(range(partitions), one)),
            configs=Map(),
        )
        for name, topic_id in topics.items()
    }
    return MetadataImage(
        offset=image.offset,
        epoch=image.epoch,
        brokers=Map(),
        topics_by_id=Map(made),
        topics_by_name=Map(dict(topics)),
        topics_by_key=Map(),
    )
