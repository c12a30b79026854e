"""Changes of the configs of topics, of the cluster and of consumer groups. Pure.

The decision includes the changes of leaders and ISRs that a config causes.
"""

from collections.abc import Callable, Mapping

from ...errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from ...ids import NodeId
from ...proto import metadata_records_pb2 as pb
from ...settings.query_groups import RETENTION_HOLDS
from ..cluster_configs import check_cluster_changes, known_cluster_config
from ..commands import (
    AlterClusterConfigs,
    AlterConfigs,
    AlterGroupConfigs,
    ClusterConfigsAltered,
    ConfigsAltered,
    GroupConfigsAltered,
    Reply,
)
from ..decision import AnyDecision, Decision
from ..group_configs import (
    CONFIGURED_GROUPS_MAX,
    CONFIGURED_ID_CHARACTERS_MAX,
    check_config_group,
    check_group_changes,
    known_group_config,
)
from ..image import MetadataImage, TopicImage
from ..replay import replay_batch
from ..topic_configs import MIRROR_SOURCE, TopicConfig, changed_list, check_changes, known_config
from .elections import on_leaderless, on_topic_configs
from .steps import Walk, decision_of
from .topics import replicas_of


def alter_configs(image: MetadataImage, command: AlterConfigs) -> AnyDecision:
    """Decide the changes of a topic's configs; unchanged values produce no records."""
    topic = image.topic(command.topic)
    if topic is None:
        raise UnknownTopicOrPartition("the topic does not exist", topic=command.topic)
    wanted = _wanted(command, topic.configs, known_config)
    if command.replace:  # a Kafka client lists only the configs it has: keep ours
        kept = {MIRROR_SOURCE, RETENTION_HOLDS} - _named(command)
        wanted = [each for each in wanted if each[0] not in kept]
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
    reply = ConfigsAltered(configs=tuple(sorted(after.topics_by_id[topic.id].configs.items())))
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
    """Decide the changes of cluster configs. The command completes when every active broker has
    applied them."""
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
        return reply, image.unfenced_ids()

    return decision_of("alter configs of the cluster", walk(), answer)


def alter_group_configs(image: MetadataImage, command: AlterGroupConfigs) -> AnyDecision:
    """Decide the changes of a consumer group's configs. The command completes when every active
    broker has applied them: any may coordinate the group."""
    check_config_group(command.group)
    present: Mapping[str, str] = image.group_configs.get(command.group, {})
    changes = check_group_changes(_wanted(command, present, known_group_config), present)
    if not present and any(value is not None for value in changes.values()):
        _check_limits(image.group_configs, command.group)
    records = tuple(
        pb.MetadataRecord(
            group_config=pb.GroupConfigRecord(group=command.group, name=name, value=value)
        )
        for name, value in changes.items()
        if present.get(name) != value
    )
    after = _after(image, records)
    configs: Mapping[str, str] = after.group_configs.get(command.group, {})
    reply = GroupConfigsAltered(configs=tuple(sorted(configs.items())))
    if command.validate_only:
        return Decision(records=(), reply=reply)

    def walk() -> Walk:
        yield from records

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return reply, image.unfenced_ids()

    return decision_of(f"alter configs of group {command.group}", walk(), answer)


def _check_limits(configured: Mapping[str, object], group: str) -> None:
    """Raise InvalidRequest if one more group would exceed a limit of the groups with configs."""
    characters = sum(map(len, configured)) + len(group)
    if len(configured) >= CONFIGURED_GROUPS_MAX or characters > CONFIGURED_ID_CHARACTERS_MAX:
        raise InvalidRequest(
            f"the limit of {CONFIGURED_GROUPS_MAX} groups with configs, and of"
            f" {CONFIGURED_ID_CHARACTERS_MAX} characters of their ids, is reached; delete the"
            " configs of other groups, or change the settings of the brokers"
        )


def _wanted(
    command: AlterConfigs | AlterClusterConfigs | AlterGroupConfigs,
    present: Mapping[str, str],
    known: Callable[[str], TopicConfig],
) -> list[tuple[str, str | None]]:
    """Return the changes of the command, with lists and replacement resolved against `present`."""
    if not (command.changes or command.lists or command.replace):
        raise InvalidRequest("no changes; give a config to set or to delete")
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
    """Raise InvalidConfig if a change would make the topic a mirror, or change its source."""
    source = changes.get(MIRROR_SOURCE)
    if source is None or source == topic.configs.get(MIRROR_SOURCE):
        return
    raise InvalidConfig(
        f"{MIRROR_SOURCE} can be set only when a topic is created; delete the topic and let"
        " `quorumlog mirror` create it",
        topic=topic.name,
    )


def _after(image: MetadataImage, records: tuple[pb.MetadataRecord, ...]) -> MetadataImage:
    return replay_batch(image, records, base_offset=image.offset + 1, epoch=image.epoch)
