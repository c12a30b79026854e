"""The replicas that this node hosts, and where the others are, by the applied metadata."""

from collections.abc import Iterator

from ...errors import NotLeaderOrFollower, UnknownTopicId, UnknownTopicOrPartition
from ...ids import NO_NODE, NodeId, TopicId
from ...metadata import EMPTY_IMAGE, MetadataImage, PartitionImage
from .replica import Replica


class HostedReplicas:
    """The replicas of one node, by topic and partition."""

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.image: MetadataImage = EMPTY_IMAGE  # the applied one
        self.has_roles = False  # an image with the current registration has been applied
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._by_id: dict[tuple[TopicId, int], Replica] = {}

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._replicas.values()))

    def add(self, replica: Replica) -> None:
        """Add a replica."""
        partition = replica.partition
        self._replicas[partition.topic, partition.index] = replica
        self._by_id[replica.topic_id, partition.index] = replica

    def pop(self, topic: str, partition: int) -> Replica | None:
        """Remove and return a replica; None: not hosted."""
        replica = self._replicas.pop((topic, partition), None)
        if replica is not None:
            del self._by_id[replica.topic_id, partition]
        return replica

    def find(self, topic: str, partition: int) -> Replica | None:
        """Return the replica in any role, None if it is not hosted."""
        return self._replicas.get((topic, partition))

    def find_by_id(self, topic_id: TopicId, partition: int) -> Replica | None:
        """Return the replica in any role, None if it is not hosted."""
        return self._by_id.get((topic_id, partition))

    def local_replica(self, topic: str, partition: int) -> Replica:
        """Return the replica in any role; raise UnknownTopicOrPartition."""
        replica = self._replicas.get((topic, partition))
        if replica is None:
            raise unknown_partition(topic, partition)
        return replica

    def replica_of(self, topic: str, partition: int, topic_id: bytes = b"") -> Replica:
        """Return the replica of a partition.

        Raises UnknownTopicOrPartition, NotLeaderOrFollower, and UnknownTopicId if the topic has
        another id (empty: not checked).
        """
        replica = self._replicas.get((topic, partition))
        if replica is not None:
            if topic_id and topic_id != replica.topic_id:
                raise _other_topic_id(topic, partition)
            return replica
        image = self.image.topic(topic)
        if image is None:
            raise unknown_partition(topic, partition)
        if topic_id and topic_id != image.id:
            raise _other_topic_id(topic, partition)
        if partition not in image.partitions:
            raise unknown_partition(topic, partition)
        raise self.not_leader_error(topic, partition, image.partitions[partition])

    def topic_id(self, topic: str) -> TopicId:
        """Return the current id of a topic; raise UnknownTopicOrPartition."""
        image = self.image.topic(topic)
        if image is None:
            raise unknown_partition(topic, None)
        return image.id

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; raise UnknownTopicOrPartition."""
        image = self.image.topic(topic)
        if image is None:
            raise unknown_partition(topic, None)
        return len(image.partitions)

    def led_here(self, topic: str, start: int) -> int:
        """Return the first partition from `start` on, cyclically, that this node leads.

        Raises UnknownTopicOrPartition, or NotLeaderOrFollower if it leads none.
        """
        count = self.partition_count(topic)
        image = self.image.topic(topic)
        assert image is not None, f"{topic} has {count} partitions"
        for step in range(count):
            index = (start + step) % count
            if image.partitions[index].leader == self.node_id:
                return index
        index = start % count
        raise self.not_leader_error(topic, index, image.partitions[index])

    def not_leader_error(
        self, topic: str, partition: int, state: PartitionImage
    ) -> NotLeaderOrFollower:
        """Return the error that names the leader of a partition."""
        broker = self.image.broker(state.leader)
        address = broker.grpc_address if broker is not None else ""
        if state.leader == NO_NODE:
            message = "the partition has no leader; retry shortly"
        elif state.leader == self.node_id:
            address = ""  # this broker's own: another address would not help the client
            message = (
                "this broker is about to lead this partition; retry shortly"
                if self.has_roles
                else "this broker has just started and is not registered yet; retry shortly"
            )
        elif address:
            message = (
                f"broker {state.leader} at {address} leads this partition; send the request there"
            )
        else:
            message = f"broker {state.leader} leads this partition; refresh the metadata"
        return NotLeaderOrFollower(
            message,
            topic=topic,
            partition=partition,
            leader_id=state.leader,
            leader_address=address,
            leader_epoch=state.leader_epoch,
        )


def unknown_partition(topic: str, partition: int | None) -> UnknownTopicOrPartition:
    """Return the error for a topic or partition that is not in the metadata."""
    return UnknownTopicOrPartition(
        "no such topic or partition; create it, or refresh the metadata",
        topic=topic,
        partition=partition,
    )


def _other_topic_id(topic: str, partition: int) -> UnknownTopicId:
    return UnknownTopicId(
        "the topic was deleted and created again under this name; look up its id, and do not"
        " reuse offsets of the old topic",
        topic=topic,
        partition=partition,
    )
