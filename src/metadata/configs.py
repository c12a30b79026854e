"""Configs are set and deleted. Decisions, pure."""

from ..errors import InvalidRequest, UnknownTopicOrPartition
from ..proto import metadata_records_pb2 as pb
from .commands import AlterConfigs, ConfigsAltered
from .decision import Decision
from .image import MetadataImage
from .topic_configs import check_changes
from .topics import replicas_of, topic_after


def alter_configs(image: MetadataImage, command: AlterConfigs) -> Decision:
    """Records for what really changes; one decision, hence one atomic batch."""
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
    after = topic_after(image, topic.id, records)
    return Decision(
        records=() if command.validate_only else records,
        reply=ConfigsAltered(topic=after),
        brokers=() if command.validate_only else replicas_of(after),
    )
