"""The cluster and its topics, as an administrator sees them: typed answers of the Admin service."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import (
    InvalidPartitions,
    QuorumlogError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..proto import admin_pb2
from ..runtime.error_detail import decode_error
from ..services import (
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_TOPIC,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
)
from .connection import Connection
from .retry import is_retriable

TOPIC_ID_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker."""

    id: int
    grpc_address: str  # "host:port" for clients
    rack: str  # empty when none is configured
    fenced: bool  # leads nothing while true


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster as one broker's metadata has it."""

    cluster_id: str
    controller_id: int | None  # None while none is elected
    brokers: tuple[Broker, ...]  # by ascending id


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """A topic in a list."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of a topic."""

    partition: int
    leader: int | None  # node id; None while there is none
    leader_epoch: int
    replicas: tuple[int, ...]  # node ids, the preferred leader first
    isr: tuple[int, ...]
    elr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its partitions."""

    name: str
    topic_id: bytes  # 16 bytes
    partitions: tuple[Partition, ...]  # by index
    configs: Mapping[str, str]  # what was set for this topic, not the defaults


class AsyncAdmin:
    """Creates, lists, describes and deletes; `AsyncLog.admin`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._entropy = connection.runtime.entropy.stream("topic ids")

    async def describe_cluster(self) -> Cluster:
        """Return the brokers, the active controller and the cluster's id."""
        answer = await self._connection.call_any(
            ADMIN_DESCRIBE_CLUSTER,
            admin_pb2.DescribeClusterRequest(min_metadata_offset=self._seen),
        )
        self._connection.topology.saw_offset(answer.metadata_offset)
        self._connection.topology.saw_brokers(answer.brokers)
        return Cluster(
            cluster_id=answer.cluster_id,
            controller_id=_node(answer.controller_id),
            brokers=tuple(
                Broker(
                    id=broker.id,
                    grpc_address=broker.grpc_address,
                    rack=broker.rack,
                    fenced=broker.fenced,
                )
                for broker in answer.brokers
            ),
        )

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic and return it; when this returns it can be produced to and fetched from.

        `replication` is the cluster's default when None. Safe to repeat: the client draws the
        topic's id, so that a call whose answer was lost is recognised. Raises TopicAlreadyExists
        (unless `if_not_exists`, which returns the topic that is there), InvalidTopic,
        InvalidPartitions, InvalidReplicationFactor, InvalidConfig.
        """
        if type(partitions) is not int or partitions < 1:
            raise InvalidPartitions(f"a topic has 1 partition or more, not {partitions!r}")
        request = admin_pb2.CreateTopicRequest(
            name=name,
            topic_id=self._entropy.token(TOPIC_ID_SIZE),
            partitions=partitions,
            replication_factor=0 if replication is None else replication,
            configs=[
                admin_pb2.ConfigEntry(name=key, value=str(value))
                for key, value in (configs or {}).items()
            ],
            validate_only=validate_only,
        )
        try:
            answer = await self._connection.call_any(ADMIN_CREATE_TOPIC, request)
        except TopicAlreadyExists:
            if if_not_exists:
                return await self.describe_topic(name)
            raise
        self._connection.topology.saw_offset(answer.metadata_offset)
        self._connection.doubt(name)
        return _topic(answer.topic)

    async def list_topics(self) -> list[TopicListing]:
        """Return all topics by name."""
        answer = await self._connection.call_any(
            ADMIN_LIST_TOPICS, admin_pb2.ListTopicsRequest(min_metadata_offset=self._seen)
        )
        self._connection.topology.saw_offset(answer.metadata_offset)
        return [
            TopicListing(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=topic.partitions,
                replication_factor=topic.replication_factor,
            )
            for topic in answer.topics
        ]

    async def describe_topic(self, name: str) -> Topic:
        """Return a topic with its partitions; raises UnknownTopicOrPartition."""
        answer = await self._connection.call_any(
            ADMIN_DESCRIBE_TOPICS,
            admin_pb2.DescribeTopicsRequest(names=[name], min_metadata_offset=self._seen),
        )
        self._connection.topology.saw_offset(answer.metadata_offset)
        self._connection.topology.saw_brokers(answer.brokers)
        result = answer.results[0]
        if result.HasField("error"):
            raise decode_error(result.error)
        self._connection.topology.saw_topic(result.topic, self._connection.runtime.clock.now_ms())
        return _topic(result.topic)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; raises UnknownTopicOrPartition.

        Deletes the topic that has the name now: a repeat never hits a newer one.
        """
        topic = await self.describe_topic(name)
        repeated = False

        def retry_on(error: BaseException) -> bool:
            nonlocal repeated
            again = is_retriable(error) and not _is_absent(error)
            repeated = repeated or again
            return again

        try:
            answer = await self._connection.call_any(
                ADMIN_DELETE_TOPIC,
                admin_pb2.DeleteTopicRequest(name=name, topic_id=topic.topic_id),
                retry_on=retry_on,
            )
        except QuorumlogError as error:
            if not (repeated and _is_absent(error)):
                raise
        else:
            self._connection.topology.saw_offset(answer.metadata_offset)
        self._connection.topology.forget(name)

    @property
    def _seen(self) -> int:
        return self._connection.topology.metadata_offset


def _is_absent(error: BaseException) -> bool:
    return isinstance(error, UnknownTopicOrPartition | UnknownTopicId)


def _node(node_id: int) -> int | None:
    return None if node_id < 0 else node_id


def _topic(topic: admin_pb2.TopicDescription) -> Topic:
    return Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            Partition(
                partition=entry.partition,
                leader=_node(entry.leader),
                leader_epoch=entry.leader_epoch,
                replicas=tuple(entry.replicas),
                isr=tuple(entry.isr),
                elr=tuple(entry.elr),
            )
            for entry in topic.partitions
        ),
        configs={entry.name: entry.value for entry in topic.configs},
    )
