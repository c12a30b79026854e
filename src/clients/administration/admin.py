"""The cluster and its topics, as an administrator sees them: typed answers of the Admin service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    QuorumlogError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...proto import admin_pb2
from ...runtime.error_detail import decode_error
from ...services import (
    ADMIN_ALTER_CONFIGS,
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_TOPIC,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_CONFIGS,
    ADMIN_DESCRIBE_LOG_DIRS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
)
from ..answers import check_topic, described_topic, senseless
from ..connection import Connection
from ..retry import is_retriable
from .configs import (
    Config,
    ConfigValue,
    LogDir,
    LogSize,
    config_entries,
    config_of_answer,
    config_text,
)
from .deletion import Before, delete_before, places_to_delete
from .quorum import Quorum, add_voter, describe_quorum, remove_voter, transfer_leadership

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
    """Creates, lists, describes, alters and deletes; `AsyncLog.admin`.

    Every call ends within call_timeout_ms: what a broker that is down or slow leaves open is then
    Lost or TimedOut, never a wait without end.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._entropy = connection.runtime.entropy.stream("topic ids")

    async def describe_cluster(self) -> Cluster:
        """Return the brokers, the active controller and the cluster's id."""
        return await self._describe_cluster(self._connection.deadline_ms())

    async def _describe_cluster(self, deadline_ms: int) -> Cluster:
        answer = await self._connection.call_any(
            ADMIN_DESCRIBE_CLUSTER,
            admin_pb2.DescribeClusterRequest(min_metadata_offset=self._seen),
            deadline_ms=deadline_ms,
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
        configs: Mapping[str, ConfigValue] | None = None,
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
            configs=config_entries(configs or {}),
            validate_only=validate_only,
        )
        deadline_ms = self._connection.deadline_ms()
        try:
            answer = await self._connection.call_any(
                ADMIN_CREATE_TOPIC, request, deadline_ms=deadline_ms
            )
        except TopicAlreadyExists:
            if if_not_exists:
                return await self._describe_topic(name, deadline_ms)
            raise
        self._connection.topology.saw_offset(answer.metadata_offset)
        self._connection.doubt(name)
        return _topic(check_topic(answer.topic, name))

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
        return await self._describe_topic(name, self._connection.deadline_ms())

    async def _describe_topic(self, name: str, deadline_ms: int) -> Topic:
        answer = await self._connection.call_any(
            ADMIN_DESCRIBE_TOPICS,
            admin_pb2.DescribeTopicsRequest(names=[name], min_metadata_offset=self._seen),
            deadline_ms=deadline_ms,
        )
        self._connection.topology.saw_offset(answer.metadata_offset)
        self._connection.topology.saw_brokers(answer.brokers)
        described = described_topic(answer, name)
        self._connection.topology.saw_topic(described, self._connection.runtime.clock.now_ms())
        return _topic(described)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; raises UnknownTopicOrPartition.

        Deletes the topic that has the name now: a repeat never hits a newer one.
        """
        deadline_ms = self._connection.deadline_ms()
        topic = await self._describe_topic(name, deadline_ms)
        repeated = False

        def retry_on(error: BaseException) -> bool:
            nonlocal repeated
            again = _is_worth_repeating(error)
            repeated = repeated or again
            return again

        try:
            answer = await self._connection.call_any(
                ADMIN_DELETE_TOPIC,
                admin_pb2.DeleteTopicRequest(name=name, topic_id=topic.topic_id),
                deadline_ms=deadline_ms,
                retry_on=retry_on,
            )
        except QuorumlogError as error:
            if not (repeated and _is_absent(error)):
                raise
        else:
            self._connection.topology.saw_offset(answer.metadata_offset)
        self._connection.topology.forget(name)

    async def delete_records(self, topic: str, before: Before) -> dict[int, int]:
        """Delete the records of each partition that lie before a position ("latest": all that are
        committed; an offset; a time), or with a mapping those of some partitions. Returns the
        first offset that is left of each, which survives any crash by then.

        Readers below it get OffsetOutOfRange; the disk's space comes back with retention. Safe to
        repeat, also after an error: what was deleted stays so. Never deletes in a newer topic of
        this name. Raises OffsetOutOfRange for an offset above the high watermark,
        UnknownTopicOrPartition, InvalidRequest.
        """
        deadline_ms = self._connection.deadline_ms()
        described = await self._describe_topic(topic, deadline_ms)
        wanted = places_to_delete(topic, before, partitions=len(described.partitions))
        return await delete_before(
            self._connection, wanted, topic_id=described.topic_id, deadline_ms=deadline_ms
        )

    async def describe_configs(
        self, topic: str | None = None, *, broker: int | None = None
    ) -> dict[str, Config]:
        """Return every config of a topic, or every setting of a broker, by ascending name: its
        value, its default, who set it, what it takes and what it means.

        Raises UnknownTopicOrPartition, and InvalidRequest for a broker that does not exist.
        """
        if (topic is None) == (broker is None):
            raise InvalidRequest("describe_configs takes a topic or a broker; give one of both")
        resource = (
            admin_pb2.ConfigResource(topic=topic)
            if broker is None
            else admin_pb2.ConfigResource(broker=_node_id(broker))
        )
        request = admin_pb2.DescribeConfigsRequest(
            resources=[resource], min_metadata_offset=self._seen
        )
        if broker is None:
            answer = await self._connection.call_any(ADMIN_DESCRIBE_CONFIGS, request)
        else:
            answer = await self._connection.call_broker(broker, ADMIN_DESCRIBE_CONFIGS, request)
        self._connection.topology.saw_offset(answer.metadata_offset)
        if len(answer.results) != 1:
            raise senseless(f"answers {len(answer.results)} parts where 1 was asked for")
        result = answer.results[0]
        if result.HasField("error"):
            raise decode_error(result.error)
        return {entry.name: config_of_answer(entry) for entry in result.configs}

    async def alter_configs(
        self,
        topic: str,
        configs: Mapping[str, ConfigValue] | None = None,
        *,
        delete: Sequence[str] = (),
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Set configs of a topic and give those of `delete` back to their defaults: all of it, or
        nothing. Configs that are not named stay as they are. Returns what is set for the topic now
        (with `validate_only`, what would be).

        Brokers take the change without a restart, usually before this returns, and half a second
        later at the latest if they are well. Safe to repeat. Raises InvalidConfig,
        UnknownTopicOrPartition.
        """
        if isinstance(delete, str):
            raise InvalidConfig(f"delete is {delete!r}; give a list of names")
        changes = [
            admin_pb2.ConfigChange(name=name, value=config_text(name, value))
            for name, value in (configs or {}).items()
        ]
        changes += [admin_pb2.ConfigChange(name=name) for name in delete]
        if not changes:
            raise InvalidConfig("there is nothing to change: name a config to set or to delete")
        answer = await self._connection.call_any(
            ADMIN_ALTER_CONFIGS,
            admin_pb2.AlterConfigsRequest(
                topic=topic, changes=changes, validate_only=validate_only
            ),
            retry_on=_is_worth_repeating,
        )
        self._connection.topology.saw_offset(answer.metadata_offset)
        self._connection.doubt(topic)
        return {entry.name: entry.value for entry in answer.configs}

    async def describe_quorum(self) -> Quorum:
        """Return who leads, votes and follows in the metadata quorum, and how far each is.

        Works with the address of a broker and with that of a controller. Without a leader it is
        what the asked node knows, with `leader` None.
        """
        return await describe_quorum(self._connection)

    async def add_voter(
        self, node_id: int, *, directory_id: bytes | None = None, address: str = ""
    ) -> None:
        """Give a node a vote that follows the log: it must run, and have caught up.

        Directory id and address are those with which it follows unless they are given. Returns
        when it is committed; waits for the node to catch up as long as a call may take. Raises
        DuplicateVoter, VoterLagging, VoterChangePending.
        """
        await add_voter(
            self._connection, _node_id(node_id), directory_id=directory_id, address=address
        )

    async def remove_voter(self, node_id: int, *, directory_id: bytes | None = None) -> None:
        """Take a node's vote, also the leader's, which then hands over. Returns when it is
        committed. Raises VoterNotFound, VoterChangePending, InvalidRequest for the last voter."""
        await remove_voter(self._connection, _node_id(node_id), directory_id=directory_id)

    async def transfer_leadership(self, to: int | None = None) -> int:
        """Have another voter lead, the one that is furthest unless one is named; return the epoch
        that ends. Returns when the leader has begun to hand over. Raises VoterNotFound."""
        return await transfer_leadership(self._connection, None if to is None else _node_id(to))

    async def describe_log_dirs(
        self, topics: Sequence[str] = (), *, broker: int | None = None
    ) -> list[LogDir]:
        """Return what partitions take on the disks of a broker, or of all: of these topics, or of
        all. Raises UnknownTopicOrPartition, and InvalidRequest for a broker that does not exist."""
        if isinstance(topics, str):
            raise InvalidRequest(f"topics is {topics!r}; give a list of names")
        deadline_ms = self._connection.deadline_ms()
        if broker is None:
            cluster = await self._describe_cluster(deadline_ms)
            asked = [each.id for each in cluster.brokers if not each.fenced]
        else:
            asked = [_node_id(broker)]
        found = []
        for node_id in asked:
            answer = await self._connection.call_broker(
                node_id,
                ADMIN_DESCRIBE_LOG_DIRS,
                admin_pb2.DescribeLogDirsRequest(topics=topics),
                deadline_ms=deadline_ms,
                retry_on=_is_worth_repeating,
            )
            found += [_log_dir(answer.broker, directory) for directory in answer.directories]
        return found

    @property
    def _seen(self) -> int:
        return self._connection.topology.metadata_offset


def _is_worth_repeating(error: BaseException) -> bool:
    """A topic that the controller does not know will not appear by asking again."""
    return is_retriable(error) and not _is_absent(error)


def _is_absent(error: BaseException) -> bool:
    return isinstance(error, UnknownTopicOrPartition | UnknownTopicId)


def _node_id(broker: int) -> int:
    if type(broker) is not int or not 0 <= broker < 2**31:
        raise InvalidRequest(f"broker is {broker!r}; give a node id, 0..{2**31 - 1}")
    return broker


def _log_dir(broker: int, directory: admin_pb2.LogDirDescription) -> LogDir:
    return LogDir(
        broker=broker,
        path=directory.path,
        logs=tuple(
            LogSize(
                topic=log.topic,
                partition=log.partition,
                size_bytes=log.size_bytes,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                error=decode_error(log.error) if log.HasField("error") else None,
            )
            for log in directory.logs
        ),
    )


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
