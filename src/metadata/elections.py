"""Who leads a partition, and what happens to leaders and ISRs when a broker goes or comes back.

The order is the field's: the present leader if it is still valid, else the first replica in
assignment order that is in the ISR and active, else nobody. The last member of an ISR stays in it,
fenced or not: it alone has everything that was acknowledged. Unclean elections are not built yet.

Every walk is in sorted order, so that equal images give equal records.
"""

from collections.abc import Iterator

from ..ids import NO_NODE, NodeId, TopicId
from ..proto import metadata_records_pb2 as pb
from .image import MetadataImage, PartitionImage


def elect(
    partition: PartitionImage, isr: tuple[NodeId, ...], image: MetadataImage, *, gone: NodeId
) -> NodeId:
    """Return the leader that the partition should have with this ISR; `gone` counts as inactive
    whatever the image says (NO_NODE: nobody does)."""
    if partition.leader in isr and _is_active(image, partition.leader, gone):
        return partition.leader
    for node in partition.replicas:
        if node in isr and _is_active(image, node, gone):
            return node
    return NO_NODE


def on_broker_gone(image: MetadataImage, gone: NodeId) -> Iterator[pb.MetadataRecord]:
    """Changes that take a broker out of every ISR in which another member remains, and out of
    every leadership."""
    for topic_id, index, partition in _sorted_partitions(image):
        if gone not in partition.isr:
            continue
        isr = tuple(node for node in partition.isr if node != gone) or partition.isr
        leader = elect(partition, isr, image, gone=gone)
        if leader != partition.leader or isr != partition.isr:
            yield _change(topic_id, index, partition, isr=isr, leader=leader)


def on_broker_back(image: MetadataImage, back: NodeId) -> Iterator[pb.MetadataRecord]:
    """Changes that give a leader to partitions without one; `back` is active in the image."""
    for topic_id, index, partition in _sorted_partitions(image):
        if partition.leader != NO_NODE or back not in partition.isr:
            continue
        leader = elect(partition, partition.isr, image, gone=NO_NODE)
        if leader != NO_NODE:
            yield _change(topic_id, index, partition, isr=partition.isr, leader=leader)


def _is_active(image: MetadataImage, node: NodeId, gone: NodeId) -> bool:
    broker = image.brokers.get(node)
    return node != gone and broker is not None and broker.is_active


def _sorted_partitions(image: MetadataImage) -> Iterator[tuple[TopicId, int, PartitionImage]]:
    for topic in image.sorted_topics():
        for index, partition in topic.sorted_partitions():
            yield topic.id, index, partition


def _change(
    topic_id: TopicId,
    index: int,
    partition: PartitionImage,
    *,
    isr: tuple[NodeId, ...],
    leader: NodeId,
) -> pb.MetadataRecord:
    change = pb.PartitionChangeRecord(topic_id=topic_id, partition=index)
    if leader != partition.leader:
        change.leader = leader
    if isr != partition.isr:
        change.isr.ids.extend(isr)
    return pb.MetadataRecord(partition_change=change)
