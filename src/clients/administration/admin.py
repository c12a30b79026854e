"""The cluster and its topics, as an administrator sees them: typed answers of the Admin service."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ...errors import (
    BrokerIdNotRegistered,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    QuorumlogError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from ...proto import admin_pb2
from ...runtime.error_detail import decode_error
from ...services import (
    ADMIN_ALTER_CLUSTER_CONFIGS,
    ADMIN_ALTER_CONFIGS,
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_TOPIC,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_CONFIGS,
    ADMIN_DESCRIBE_LOG_DIRS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    ADMIN_UNREGISTER_BROKER,
)
from ..answers import check_topic, described_topic, senseless
from ..connection import Connection
from ..consuming.assignment import Wanted
from ..offsets import Place
from .attempts import Attempts, is_absent, is_worth_repeating
from .configs import (
    Config,
    ConfigValue,
    LogDir,
    config_changes,
    config_entries,
    config_of_answer,
    log_dir_of_answer,
)
from .deletion import Before, delete_before, places_to_delete
from .descriptions import (
    Cluster,
    Topic,
    TopicListing,
    cluster_of_answer,
    listing_of_answer,
    topic_of_answer,
)
from .features import Feature, describe_features, update_features
from .groups import (
    Group,
    GroupListing,
    OffsetReset,
    Target,
    delete_group,
    delete_offsets,
    describe_group,
    list_groups,
    reset_offsets,
)
from .placement import (
    Assignments,
    PartitionOutcome,
    Reassignment,
    alter_reassignments,
    assignment_list,
    create_partitions,
    elect_leaders,
    list_reassignments,
)
from .quorum import Quorum, add_voter, describe_quorum, remove_voter, transfer_leadership
from .quotas import ClientQuotas, QuotaEntity, alter_quotas, describe_quotas
from .replicas import PartitionReplicas, describe_replicas

TOPIC_ID_SIZE = 16
DESCRIBED_MAX = 2_000  # partitions described by one request, but for a larger topic


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
        return cluster_of_answer(answer)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication: int | None = None,
        configs: Mapping[str, ConfigValue] | None = None,
        assignments: Assignments | None = None,
        if_not_exists: bool = False,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic and return it; when this returns it can be produced to and fetched from.

        `partitions` and `replication` are the cluster's defaults when None. `assignments` names
        the brokers of each partition in place of both, the preferred leader first. Safe to repeat:
        the client draws the topic's id, so that a call whose answer was lost is recognised. Raises
        TopicAlreadyExists (unless `if_not_exists`, which returns the topic that is there),
        InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
        InvalidConfig.
        """
        if partitions is not None and (type(partitions) is not int or partitions < 1):
            raise InvalidPartitions(f"a topic has 1 partition or more, not {partitions!r}")
        if replication is not None and (type(replication) is not int or replication < 1):
            raise InvalidReplicationFactor(
                f"a partition has 1 replica or more, not {replication!r}; None is the default"
            )
        if assignments and (partitions, replication) != (None, None):
            raise InvalidReplicaAssignment(
                "assignments say how many partitions and replicas there are: leave out both"
            )
        request = admin_pb2.CreateTopicRequest(
            name=name,
            topic_id=self._entropy.token(TOPIC_ID_SIZE),
            partitions=partitions or 0,
            replication_factor=0 if replication is None else replication,
            configs=config_entries(configs or {}),
            assignments=assignment_list(assignments or ()),
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
        return topic_of_answer(check_topic(answer.topic, name))

    async def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """Return all topics by name; `internal`: those too that brokers keep for themselves, such
        as that of groups' offsets."""
        answer = await self._connection.call_any(
            ADMIN_LIST_TOPICS, admin_pb2.ListTopicsRequest(min_metadata_offset=self._seen)
        )
        self._connection.topology.saw_offset(answer.metadata_offset)
        topics = map(listing_of_answer, answer.topics)
        return [topic for topic in topics if internal or not topic.is_internal]

    async def describe_topic(self, name: str) -> Topic:
        """Return a topic with its partitions; raises UnknownTopicOrPartition."""
        return await self._describe_topic(name, self._connection.deadline_ms())

    async def describe_topics(self, names: Collection[str] | None = None) -> list[Topic]:
        """Return topics with their partitions, all of them (internal ones too) unless some are
        named, by name; those that are gone by then are left out. Raises UnknownTopicOrPartition for
        a name that no topic has."""
        if isinstance(names, str):
            raise InvalidRequest(f"names is {names!r}; give a list of names")
        sizes = {each.name: each.partitions for each in await self.list_topics(internal=True)}
        wanted = sorted(sizes if names is None else set(names))
        found: list[Topic] = []
        for part in _portions(wanted, sizes):
            request = admin_pb2.DescribeTopicsRequest(names=part, min_metadata_offset=self._seen)
            answer = await self._connection.call_any(ADMIN_DESCRIBE_TOPICS, request)
            self._connection.topology.saw_offset(answer.metadata_offset)
            self._connection.topology.saw_brokers(answer.brokers)
            for result in answer.results:
                if not result.HasField("error"):
                    found.append(topic_of_answer(check_topic(result.topic, result.name)))
                elif result.name not in sizes:
                    raise decode_error(result.error)
        return found

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
        return topic_of_answer(described)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; raises UnknownTopicOrPartition.

        Deletes the topic that has the name now: a repeat never hits a newer one.
        """
        deadline_ms = self._connection.deadline_ms()
        topic = await self._describe_topic(name, deadline_ms)
        attempts = Attempts(is_worth_repeating=is_worth_repeating)
        try:
            answer = await self._connection.call_any(
                ADMIN_DELETE_TOPIC,
                admin_pb2.DeleteTopicRequest(name=name, topic_id=topic.topic_id),
                deadline_ms=deadline_ms,
                retry_on=attempts.retry_on,
            )
        except QuorumlogError as error:
            if not (attempts.is_outcome_unknown and is_absent(error)):
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
        self, topic: str | None = None, *, broker: int | None = None, cluster: bool = False
    ) -> dict[str, Config]:
        """Return every config of a topic or of the cluster, or every setting of a broker, by
        ascending name: its value, its default, who set it, what it takes and what it means.

        Raises UnknownTopicOrPartition, and InvalidRequest for a broker that does not exist.
        """
        if (topic is not None) + (broker is not None) + cluster != 1:
            raise InvalidRequest(
                "describe_configs takes a topic, a broker or the cluster; give one of them"
            )
        if broker is not None:
            resource = admin_pb2.ConfigResource(broker=_node_id(broker))
        elif cluster:
            resource = admin_pb2.ConfigResource(cluster=True)
        else:
            resource = admin_pb2.ConfigResource(topic=topic)
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
        changes = config_changes(configs or {}, delete)
        answer = await self._connection.call_any(
            ADMIN_ALTER_CONFIGS,
            admin_pb2.AlterConfigsRequest(
                topic=topic, changes=changes, validate_only=validate_only
            ),
            retry_on=is_worth_repeating,
        )
        self._connection.topology.saw_offset(answer.metadata_offset)
        self._connection.doubt(topic)
        return {entry.name: entry.value for entry in answer.configs}

    async def alter_cluster_configs(
        self,
        configs: Mapping[str, ConfigValue] | None = None,
        *,
        delete: Sequence[str] = (),
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Set configs of the whole cluster and give those of `delete` back to their defaults: all
        of it, or nothing. Returns what is set for the cluster now (with `validate_only`, what would
        be). Safe to repeat. Raises InvalidConfig."""
        request = admin_pb2.AlterClusterConfigsRequest(
            changes=config_changes(configs or {}, delete), validate_only=validate_only
        )
        answer = await self._connection.call_any(ADMIN_ALTER_CLUSTER_CONFIGS, request)
        self._connection.topology.saw_offset(answer.metadata_offset)
        return {entry.name: entry.value for entry in answer.configs}

    # --- where partitions are, and who leads them ----------------------------------------------

    async def create_partitions(
        self,
        topic: str,
        count: int,
        *,
        assignments: Assignments | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Give a topic more partitions, `count` in all, and return it. As many as it has is a
        success, so that it is safe to repeat; fewer is refused.

        Records with keys may go to other partitions from then on. `assignments` names the brokers
        of each new partition. Raises InvalidPartitions, InvalidReplicaAssignment,
        UnknownTopicOrPartition.
        """
        return await create_partitions(
            self._connection, topic, count, assignments=assignments, validate_only=validate_only
        )

    async def reassign_partitions(
        self, targets: Mapping[Place, Sequence[int]]
    ) -> list[PartitionOutcome]:
        """Begin to move partitions, (topic, number), to other brokers, the preferred leader of each
        first. Returns an outcome a partition, in order: one that is refused stops no other.

        Replicas that are added catch up in the background; those that go are taken away when all of
        them have. `list_reassignments` tells what is still under way. Another target for a move
        under way replaces it.
        """
        return await alter_reassignments(self._connection, targets)

    async def cancel_reassignments(self, partitions: Iterable[Place]) -> list[PartitionOutcome]:
        """Give up moves under way: the replicas are those from before, if in another order. Returns
        an outcome a partition, in order; NoReassignmentInProgress where there was none."""
        return await alter_reassignments(self._connection, dict.fromkeys(partitions))

    async def list_reassignments(self, topics: Sequence[str] = ()) -> list[Reassignment]:
        """Return the moves under way, of these topics or of all, by topic and number."""
        return await list_reassignments(self._connection, topics)

    async def elect_leaders(
        self, partitions: Iterable[Place] = (), *, unclean: bool = False
    ) -> list[PartitionOutcome]:
        """Have the preferred replicas, the first of the assignments, lead these partitions, or
        wherever they can lead and do not. Returns an outcome a partition; ElectionNotNeeded where
        it leads already.

        With `unclean` a live replica leads where nobody can lead without possible loss: records
        that were acknowledged may be gone then. Those partitions must be named.
        """
        return await elect_leaders(self._connection, partitions, unclean=unclean)

    async def describe_replicas(self, partitions: Iterable[Place]) -> list[PartitionReplicas]:
        """Return how far the replicas of partitions are, and why one is not in sync, as each leader
        sees it; an error stands in the place of a partition whose leader does not answer."""
        places = list(dict.fromkeys(partitions))
        topics = await self.describe_topics({topic for topic, _ in places})
        leaders = {(t.name, each.partition): each.leader for t in topics for each in t.partitions}
        for topic, partition in places:
            if (topic, partition) not in leaders:
                raise UnknownTopicOrPartition("no such partition", topic=topic, partition=partition)
        return await describe_replicas(self._connection, {at: leaders[at] for at in places})

    # --- the cluster ---------------------------------------------------------------------------

    async def unregister_broker(self, broker: int) -> None:
        """Take a broker that is gone for good out of the cluster. Raises BrokerIdNotRegistered, and
        InvalidRequest while it lives or holds replicas."""
        attempts = Attempts()
        try:
            answer = await self._connection.call_any(
                ADMIN_UNREGISTER_BROKER,
                admin_pb2.UnregisterBrokerRequest(broker=_node_id(broker)),
                retry_on=attempts.retry_on,
            )
        except BrokerIdNotRegistered:
            if not attempts.is_outcome_unknown:
                raise
        else:
            self._connection.topology.saw_offset(answer.metadata_offset)

    async def describe_features(self) -> dict[str, Feature]:
        """Return every feature by ascending name: the level in force, and what the brokers can work
        with."""
        return await describe_features(self._connection)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        allow_downgrade: bool = False,
        validate_only: bool = False,
    ) -> dict[str, Feature]:
        """Change levels of features, all of them or none; return them as they are then. Safe to
        repeat. Raises FeatureUpdateFailed."""
        return await update_features(
            self._connection, levels, allow_downgrade=allow_downgrade, validate_only=validate_only
        )

    async def describe_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False
    ) -> list[ClientQuotas]:
        """Return what is set, of everybody or of those that `entity` names: {"user": "alice"} finds
        the quotas of alice, and of alice with a client id unless `strict`; a name of None is the
        default."""
        return await describe_quotas(self._connection, entity or {}, strict=strict)

    async def alter_quotas(
        self,
        entity: QuotaEntity,
        quotas: Mapping[str, float] | None = None,
        *,
        delete: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set and delete quotas of one entity, such as {"user": "alice", "client_id": None}: all or
        none. Safe to repeat.

        The keys are "producer_byte_rate" and "consumer_byte_rate" (bytes a second and broker) and
        "request_percentage" (of the time of a broker's serving thread). They count for clients of
        the Kafka protocol. Raises InvalidRequest.
        """
        await alter_quotas(
            self._connection, entity, quotas or {}, delete, validate_only=validate_only
        )

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
                retry_on=is_worth_repeating,
            )
            found += [
                log_dir_of_answer(answer.broker, directory) for directory in answer.directories
            ]
        return found

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Return all consumer groups by name, or those in these states and of these types
        ("consumer", "classic")."""
        return await list_groups(self._connection, states, types)

    async def describe_group(self, name: str) -> Group:
        """Return a group: its members, what each reads, how far the group has committed and how
        far that is from the logs' ends. Raises GroupNotFound."""
        return await describe_group(self._connection, name)

    async def reset_offsets(
        self, group: str, to: Target, *, of: Wanted | None = None, dry_run: bool = False
    ) -> list[OffsetReset]:
        """Set how far a group has read: a position ("earliest", "latest", an offset, a datetime), a
        `Shift` from what is committed, or either by (topic, partition); within what the logs have.

        `of` names topics, or partitions by topic (default: all that the group has committed).
        `dry_run` only says what would be. Raises NonEmptyGroup while the group has members.
        """
        return await reset_offsets(self._connection, group, to, of=of, dry_run=dry_run)

    async def delete_group(self, name: str) -> None:
        """Forget a group with its offsets; raises NonEmptyGroup and GroupNotFound."""
        await delete_group(self._connection, name)

    async def delete_offsets(self, group: str, partitions: Collection[Place]) -> None:
        """Forget what a group has committed of (topic, partition) pairs that no member reads;
        raises GroupSubscribedToTopic and GroupNotFound."""
        await delete_offsets(self._connection, group, partitions)

    @property
    def _seen(self) -> int:
        return self._connection.topology.metadata_offset


def _portions(names: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Cut topics into requests whose answers are of a moderate size."""
    part: list[str] = []
    count = 0
    for name in names:
        part.append(name)
        count += sizes.get(name, 1)
        if count >= DESCRIBED_MAX:
            yield part
            part, count = [], 0
    if part:
        yield part


def _node_id(broker: int) -> int:
    if type(broker) is not int or not 0 <= broker < 2**31:
        raise InvalidRequest(f"broker is {broker!r}; give a node id, 0..{2**31 - 1}")
    return broker
