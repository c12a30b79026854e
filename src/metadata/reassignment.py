"""Partitions move from brokers to others: grow, catch up, shrink. Decisions, pure.

A move first makes the replicas the union of old and new ones. The leader takes those that were
added into the ISR as they catch up; the change that completes them also ends the move. Nothing
here puts a broker into an ISR, and nothing leaves one smaller than the min ISR.
"""

from dataclasses import dataclass

from ..ids import NodeId
from .image import MetadataImage, PartitionImage, TopicImage
from .topic_configs import effective_min_isr


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a partition is once its move is over: nothing is added or removed any more, the ELR is
    empty, and its leader (elected among `isr`) begins a new epoch even if it is the same one, so
    that those who were removed are told apart from then on."""

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]  # at least the min ISR


def finish(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    isr: tuple[NodeId, ...],
) -> Finished | None:
    """Return how the partition's move ends if its ISR becomes `isr`, None: not by that.

    It ends once every added replica is in sync and what stays is in sync often enough.
    """
    if not partition.is_moving or not set(partition.adding) <= set(isr):
        return None
    stay = tuple(node for node in isr if node not in partition.removing)
    replicas = tuple(node for node in partition.replicas if node not in partition.removing)
    if len(stay) < effective_min_isr(topic.configs, replication_factor=len(replicas)):
        return None
    return Finished(replicas=replicas, isr=stay)
