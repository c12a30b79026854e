"""What several answers say of topics, and of brokers' parts in them."""

from collections.abc import Container

from ...errors import InvalidTopic, UnknownTopicOrPartition
from ...ids import NO_NODE, NodeId
from ...metadata import PartitionImage, check_topic_name
from .api import Fields


def place_fields(index: int, partition: PartitionImage, *, alive: Container[NodeId]) -> Fields:
    """Return who has a partition; `alive` are the brokers that the client can use. Who leads and is
    none of them, leads nothing that the client could reach."""
    return {
        "partition_index": index,
        "leader_id": partition.leader if partition.leader in alive else NO_NODE,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [node for node in partition.replicas if node not in alive],
    }


def no_topic(error_code: int, *, name: str | None, topic_id: bytes) -> Fields:
    """Return what is said instead of a topic."""
    return {"error_code": error_code, "name": name, "topic_id": topic_id, "partitions": ()}


def missing_code(name: str) -> int:
    """Return the error of a name that no topic has: whether one can have it."""
    try:
        check_topic_name(name)
    except InvalidTopic as error:
        return error.code
    return UnknownTopicOrPartition.code
