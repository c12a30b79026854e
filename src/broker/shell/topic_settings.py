"""What the image says of a topic's partitions, read once for all of them that are alike."""

from ...ids import TopicId
from ...metadata import (
    MetadataImage,
    PartitionImage,
    TopicImage,
    effective_configs,
    effective_min_isr,
)
from ...metadata.cluster_configs import may_elect_unclean
from ...storage import FlushPolicy, LogConfig
from ..partition import FollowerState, LeaderState


class TopicSettings:
    """What the configs of topics come to."""

    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read: dict[tuple[TopicId, int], tuple[int, LogConfig]] = {}  # by id and replicas

    def of(self, topic: TopicImage, state: PartitionImage) -> tuple[int, LogConfig]:
        """Return how many in-sync replicas a partition needs, and how its log is kept.

        Replicas that a move adds or removes do not count: the controller judges by the same number
        who may lead and what a reboot costs.
        """
        replicas = state.replication_factor
        found = self._read.get((topic.id, replicas))
        if found is None:
            configs = effective_configs(topic.configs, replication_factor=replicas)
            min_isr = effective_min_isr(topic.configs, replication_factor=replicas)
            found = (min_isr, LogConfig.from_topic_configs(configs))
            self._read[topic.id, replicas] = found
        return found


def may_be_unclean(image: MetadataImage, topic_id: TopicId) -> bool:
    """Return whether a replica that is not in sync may lead a partition of the topic unasked."""
    topic = image.topic_of_id(topic_id)
    return topic is None or may_elect_unclean(topic.configs, image.cluster_configs)


def leader_state(state: PartitionImage, min_isr: int, config: LogConfig) -> LeaderState:
    """Return what its leader goes by."""
    return LeaderState(
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=state.isr,
        min_isr=min_isr,
        counts_flushed=config.flush_policy is FlushPolicy.FSYNC,
        replicas=state.replicas,
        recovering=state.recovering,
        mirrors=config.mirror_source,
    )


def follower_state(state: PartitionImage) -> FollowerState:
    """Return what its followers go by."""
    return FollowerState(
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )
