"""Configs are set and deleted, of topics and of the cluster. Decisions, pure.

What a config means for leaders and in-sync replicas is decided with it, in the same decision.
"""

from collections.abc import Callable, Iterator, Mapping

from ...errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from ...ids import NodeId
from ...proto import metadata_records_pb2 as pb
from ...settings.query_groups import RETENTION_HOLDS
from ..cluster_configs import check_cluster_changes, known_cluster_config
from ..commands import (
    AlterClusterConfigs,
    AlterConfigs,
    ClusterConfigsAltered,
    ConfigsAltered,
    Reply,
)
from ..decision import AnyDecision, Decision
from ..image import MetadataImage, TopicImage
from ..replaying import replay_batch
from ..topic_configs import MIRROR_SOURCE, TopicConfig, changed_list, check_changes, known_config
from .elections import on_leaderless, on_topic_configs
from .steps import Walk, decision_of
from .topics import replicas_of


def alter_configs(image: MetadataImage, command: AlterConfigs) -> AnyDecision:
    """Records for what really changes."""
    topic = image.topic(command.topic)
    if topic is None:
        raise UnknownTopicOrPartition("there is no such topic", topic=command.topic)
    wanted = _wanted(command, topic.configs, known_config)
    if command.replace:  # who lists what it knows of must not take away what it does not
        left_alone = {MIRROR_SOURCE, RETENTION_HOLDS} - _named(command)
        wanted = [each for each in wanted if each[0] not in left_alone]
    changes = check_changes(wanted, topic.configs, replication_factor=topic.replication_factor)
    _check_source(topic, changes)
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
    present = image.cluster_configs
    changes = check_cluster_changes(_wanted(command, present, known_cluster_config))
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


def _wanted(
    command: AlterConfigs | AlterClusterConfigs,
    present: Mapping[str, str],
    known: Callable[[str], TopicConfig],
) -> list[tuple[str, str | None]]:
    """The changes that make of what is `present` what the command asks for."""
    if not (command.changes or command.lists or command.replace):
        raise InvalidRequest("name a config to set or to delete")
    wanted = list(command.changes)
    for change in command.lists:
        row = known(change.name)
        value = present.get(row.name, row.default)
        wanted.append(
            (row.name, changed_list(row, value, change.parts, is_removal=change.is_removal))
        )
    if command.replace:
        named = {name for name, _ in wanted}
        wanted.extend((name, None) for name in present if name not in named)
    return wanted


def _named(command: AlterConfigs) -> set[str]:
    return {name for name, _ in command.changes}


def _check_source(topic: TopicImage, changes: Mapping[str, str | None]) -> None:
    """Raise InvalidConfig where a change would make a mirror of a topic, or of another source."""
    source = changes.get(MIRROR_SOURCE)
    if source is None or source == topic.configs.get(MIRROR_SOURCE):
        return
    raise InvalidConfig(
        f"{MIRROR_SOURCE} is set when a topic is created, and only taken away: its records are not"
        " those of another topic; delete the topic and let `quorumlog mirror` create it",
        topic=topic.name,
    )


def _active_brokers(image: MetadataImage) -> Iterator[NodeId]:
    return (broker.id for broker in image.sorted_brokers() if not broker.fenced)


def _after(image: MetadataImage, records: tuple[pb.MetadataRecord, ...]) -> MetadataImage:
    return replay_batch(image, records, base_offset=image.offset + 1, epoch=image.epoch)
