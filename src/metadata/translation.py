"""Between the messages that brokers send to the controller and its commands and replies."""

from typing import assert_never

from ..errors import InvalidRequest
from ..ids import NodeId, Offset, TopicId
from ..proto import admin_pb2, controller_pb2
from ..runtime import Entropy
from .commands import (
    AllocateProducerIds,
    AlterConfigs,
    ClusterConfigsAltered,
    Command,
    ConfigsAltered,
    CreateTopic,
    DeleteTopic,
    Done,
    FeaturesUpdated,
    PartitionOutcomes,
    PartitionsAltered,
    PartitionsCreated,
    ProducerIdsAllocated,
    Reply,
    TopicCreated,
    TopicDeleted,
)
from .image import PartitionImage, TopicImage
from .topic_configs import effective_min_isr


def command_of(request: controller_pb2.RelayRequest, entropy: Entropy) -> Command:
    """Return the command of a relayed request; a topic without an id gets one drawn."""
    match request.WhichOneof("command"):
        case "create_topic":
            return _create_topic(request.create_topic, entropy)
        case "delete_topic":
            delete = request.delete_topic
            topic_id = TopicId(delete.topic_id) if delete.topic_id else None
            return DeleteTopic(name=delete.name, topic_id=topic_id)
        case "alter_configs":
            return _alter_configs(request.alter_configs)
        case "allocate_producer_ids":
            return AllocateProducerIds(
                broker_id=NodeId(request.broker_id),
                broker_epoch=Offset(request.allocate_producer_ids.broker_epoch),
            )
        case _:
            raise InvalidRequest("the relayed request carries no command known here")


def response_of(reply: Reply, *, offset: Offset, applied: bool) -> controller_pb2.RelayResponse:
    """Return the answer to a relayed request."""
    match reply:
        case TopicCreated(topic=topic):
            return controller_pb2.RelayResponse(
                create_topic=admin_pb2.CreateTopicResponse(
                    topic=describe_topic(topic), usable=applied, metadata_offset=offset
                )
            )
        case TopicDeleted(topic=topic):
            return controller_pb2.RelayResponse(
                delete_topic=admin_pb2.DeleteTopicResponse(
                    topic_id=topic.id, applied=applied, metadata_offset=offset
                )
            )
        case ConfigsAltered(topic=topic):
            return controller_pb2.RelayResponse(
                alter_configs=admin_pb2.AlterConfigsResponse(
                    configs=_config_entries(topic), applied=applied, metadata_offset=offset
                )
            )
        case ProducerIdsAllocated(start=start, count=count):
            return controller_pb2.RelayResponse(
                allocate_producer_ids=controller_pb2.AllocateProducerIdsResponse(
                    producer_id_start=start, producer_id_len=count
                )
            )
        case (
            Done()
            | PartitionsCreated()
            | ClusterConfigsAltered()
            | PartitionsAltered()
            | PartitionOutcomes()
            | FeaturesUpdated()
        ):
            raise AssertionError(f"no relayed command is answered with {reply}")
    assert_never(reply)


def describe_topic(topic: TopicImage) -> admin_pb2.TopicDescription:
    """Return a topic as admin clients see it."""
    return admin_pb2.TopicDescription(
        name=topic.name,
        topic_id=topic.id,
        partitions=[describe_partition(topic, *entry) for entry in topic.sorted_partitions()],
        configs=_config_entries(topic),
    )


def describe_partition(
    topic: TopicImage, index: int, partition: PartitionImage
) -> admin_pb2.PartitionDescription:
    """Return a partition as admin clients see it."""
    return admin_pb2.PartitionDescription(
        partition=index,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
        adding=partition.adding,
        removing=partition.removing,
        recovering=partition.recovering,
        min_isr=effective_min_isr(topic.configs, replication_factor=partition.replication_factor),
    )


def _config_entries(topic: TopicImage) -> list[admin_pb2.ConfigEntry]:
    return [
        admin_pb2.ConfigEntry(name=name, value=value)
        for name, value in sorted(topic.configs.items())
    ]


def _alter_configs(request: admin_pb2.AlterConfigsRequest) -> AlterConfigs:
    return AlterConfigs(
        topic=request.topic,
        changes=tuple(
            (change.name, change.value if change.HasField("value") else None)
            for change in request.changes
        ),
        validate_only=request.validate_only,
    )


def _create_topic(request: admin_pb2.CreateTopicRequest, entropy: Entropy) -> CreateTopic:
    topic_id = request.topic_id or entropy.token(16)
    return CreateTopic(
        name=request.name,
        topic_id=TopicId(topic_id),
        partitions=request.partitions,
        replication_factor=request.replication_factor,
        configs=tuple((entry.name, entry.value) for entry in request.configs),
        validate_only=request.validate_only,
    )
