"""The settings of a topic's partitions, derived once for partitions with equal settings."""

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
    """Caches derived settings while one metadata change is applied."""

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[tuple[TopicId, int], tuple[int, LogConfig]] = {}

    def of(self, topic: TopicImage, state: PartitionImage) -> tuple[int, LogConfig]:
        """Return min.insync.replicas and the log's configuration for a partition.

        Replicas that a reassignment adds or removes do not count. The controller uses the same
        number for leader elections and for the cost of restarts.
        """
        replicas = state.replication_factor
        found = self._cache.get((topic.id, replicas))
        if found is None:
            configs = effective_configs(topic.configs, replication_factor=replicas)
            min_isr = effective_min_isr(topic.configs, replication_factor=replicas)
            found = (min_isr, LogConfig.from_topic_configs(configs))
            self._cache[topic.id, replicas] = found
        return found


def may_be_unclean(image: MetadataImage, topic_id: TopicId) -> bool:
    """Return True if a replica outside the ISR may be elected leader without a request."""
    topic = image.topic_of_id(topic_id)
    return topic is None or may_elect_unclean(topic.configs, image.cluster_configs)


def leader_state(state: PartitionImage, min_isr: int, config: LogConfig) -> LeaderState:
    """Return the metadata for the partition's leader."""
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
    """Return the metadata for the partition's followers."""
    return FollowerState(
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )
