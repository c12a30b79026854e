"""Response fields of topics and partitions that several APIs share."""

from collections.abc import Container

from ...errors import InvalidTopic, UnknownTopicOrPartition
from ...ids import NO_NODE, NodeId
from ...metadata import PartitionImage, check_topic_name
from .api import Fields


def place_fields(index: int, partition: PartitionImage, *, alive: Container[NodeId]) -> Fields:
    """Return the leader and replicas of a partition. `alive` are the brokers that the client can
    reach; a leader outside them is reported as none."""
    return {
        "partition_index": index,
        "leader_id": partition.leader if partition.leader in alive else NO_NODE,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [node for node in partition.replicas if node not in alive],
    }


def no_topic(error_code: int, *, name: str | None, topic_id: bytes) -> Fields:
    """Return the fields of a topic that has an error."""
    return {"error_code": error_code, "name": name, "topic_id": topic_id, "partitions": ()}


def missing_code(name: str) -> int:
    """Return the error code of a name without a topic: InvalidTopic if the name is invalid."""
    try:
        check_topic_name(name)
    except InvalidTopic as error:
        return error.code
    return UnknownTopicOrPartition.code
