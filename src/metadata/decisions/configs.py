"""Configs are set and deleted, of topics and of the cluster. Decisions, pure.

What a config means for leaders and in-sync replicas is decided with it, in the same decision.
"""

from collections.abc import Iterator

from ...errors import InvalidRequest, UnknownTopicOrPartition
from ...ids import NodeId
from ...proto import metadata_records_pb2 as pb
from ..cluster_configs import check_cluster_changes
from ..commands import (
    AlterClusterConfigs,
    AlterConfigs,
    ClusterConfigsAltered,
    ConfigsAltered,
    Reply,
)
from ..decision import AnyDecision, Decision
from ..image import MetadataImage
from ..replaying import replay_batch
from ..topic_configs import check_changes
from .elections import on_leaderless, on_topic_configs
from .steps import Walk, decision_of
from .topics import replicas_of


def alter_configs(image: MetadataImage, command: AlterConfigs) -> AnyDecision:
    """Records for what really changes."""
    topic = image.topic(command.topic)
    if topic is None:
        raise UnknownTopicOrPartition("there is no such topic", topic=command.topic)
    if not command.changes:
        raise InvalidRequest("name a config to set or to delete", topic=topic.name)
    changes = check_changes(
        command.changes, topic.configs, replication_factor=topic.replication_factor
    )
    records = tuple(
        pb.MetadataRecord(
            topic_config=pb.TopicConfigRecord(topic_id=topic.id, name=name, value=value)
        )
        for name, value in changes.items()
        if topic.configs.get(name) != value
    )
    after = _after(image, records)
    reply = ConfigsAltered(topic=after.topics_by_id[topic.id])
    if command.validate_only:
        return Decision(records=(), reply=reply)

    def walk() -> Walk:
        yield from records
        if records:
            yield from on_topic_configs(image, after, topic.id)

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return reply, replicas_of(topic)

    return decision_of(f"alter configs of topic {topic.name}", walk(), answer)


def alter_cluster_configs(image: MetadataImage, command: AlterClusterConfigs) -> AnyDecision:
    """Records for what really changes; every broker must know before it counts as done."""
    if not command.changes:
        raise InvalidRequest("name a config to set or to delete")
    changes = check_cluster_changes(command.changes)
    present = image.cluster_configs
    records = tuple(
        pb.MetadataRecord(cluster_config=pb.ClusterConfigRecord(name=name, value=value))
        for name, value in changes.items()
        if present.get(name) != value
    )
    after = _after(image, records)
    reply = ClusterConfigsAltered(configs=tuple(sorted(after.cluster_configs.items())))
    if command.validate_only:
        return Decision(records=(), reply=reply)

    def walk() -> Walk:
        yield from records
        if any(r.cluster_config.name == "unclean.leader.election.enable" for r in records):
            yield from on_leaderless(after)

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return reply, tuple(_active_brokers(image))

    return decision_of("alter configs of the cluster", walk(), answer)


def _active_brokers(image: MetadataImage) -> Iterator[NodeId]:
    return (broker.id for broker in image.sorted_brokers() if not broker.fenced)


def _after(image: MetadataImage, records: tuple[pb.MetadataRecord, ...]) -> MetadataImage:
    return replay_batch(image, records, base_offset=image.offset + 1, epoch=image.epoch)
