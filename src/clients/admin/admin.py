"""The asyncio admin client."""

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
from ...ids import TopicPartition
from ...proto import admin_pb2
from ...runtime.error_detail import decode_error
from ...scram_keys import ITERATIONS_DEFAULT
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
from ..connection import Connection
from ..consumer.assigned_partitions import Topics
from ..offsets import PartitionLike, list_partitions
from ..retry import Attempts, is_absent, is_retriable_change
from ..topology import check_topic, described_topic, invalid_response
from . import security
from .configs import (
    ClientQuotas,
    Config,
    ConfigValue,
    Feature,
    LogDir,
    QuotaEntity,
    alter_quotas,
    config_changes,
    config_entries,
    decode_config,
    decode_log_dir,
    describe_features,
    describe_quotas,
    update_features,
)
from .descriptions import (
    Broker,
    Cluster,
    Topic,
    TopicListing,
    decode_cluster,
    decode_listing,
    decode_topic,
)
from .fenced_brokers import FencingCause, explain_fenced
from .groups import (
    END_TIMEOUT_MS,
    LIST_TIMEOUT_MS,
    Group,
    GroupListing,
    GroupListings,
    OffsetReset,
    Target,
    delete_group,
    delete_offsets,
    describe_group,
    list_groups,
    list_reachable_groups,
    reset_offsets,
)
from .partitions import (
    Assignments,
    Before,
    PartitionOutcome,
    PartitionReplicas,
    Reassignment,
    alter_reassignments,
    assignment_list,
    create_partitions,
    delete_before,
    describe_replicas,
    elect_leaders,
    list_reassignments,
    places_to_delete,
)
from .quorum import Quorum, add_voter, describe_quorum, remove_voter, transfer_leadership
from .security import Acl, AclFilter, AuthorizationDecision, User, UserKeys
from .staged_commits import (
    NamedCommits,
    delete_commits,
    describe_commits,
    list_commits,
    reset_commits,
)
from .transactions import (
    OpenTransaction,
    TransactionalId,
    abort_hanging,
    abort_transaction,
    describe_transaction,
    find_hanging,
    list_transactions,
    open_transactions,
)

TOPIC_ID_SIZE = 16
DESCRIBED_MAX = 2_000  # partitions described by one request; a larger topic is described alone


class AsyncAdmin:
    """The admin client; `AsyncLog.admin`.

    Every call ends within call_timeout_ms. If a broker is down or slow until then, the call raises
    ConnectionFailed, OutcomeUnknown or TimedOut.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._entropy = connection.runtime.entropy.stream("topic ids")

    async def describe_cluster(self, *, broker: int | None = None) -> Cluster:
        """Return the brokers, the active controller and the cluster id, as any broker or this one
        knows them. Raises InvalidRequest if the broker does not exist."""
        if broker is None:
            return await self._describe_cluster(self._connection.deadline_ms())
        answer = await self._connection.call_broker(
            _node_id(broker),
            ADMIN_DESCRIBE_CLUSTER,
            admin_pb2.DescribeClusterRequest(),
            retry_on=lambda _: False,
        )
        return decode_cluster(answer)

    async def _describe_cluster(self, deadline_ms: int) -> Cluster:
        answer = await self._connection.call_any(
            ADMIN_DESCRIBE_CLUSTER,
            admin_pb2.DescribeClusterRequest(min_metadata_offset=self._seen),
            deadline_ms=deadline_ms,
            is_short=True,
        )
        self._connection.topology.record_offset(answer.metadata_offset)
        self._connection.topology.record_brokers(answer.brokers)
        return decode_cluster(answer)

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
        """Create a topic and return it; it is ready for producers and consumers when this returns.

        `partitions` and `replication` default to the cluster's settings. `assignments` lists the
        brokers of each partition instead, the preferred leader first. Safe to retry: the client
        generates the topic id, so the controller recognises a repeated request. Raises
        TopicAlreadyExists (with `if_not_exists` returns the existing topic), InvalidTopic,
        InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment, InvalidConfig.
        """
        if partitions is not None and (type(partitions) is not int or partitions < 1):
            raise InvalidPartitions(f"partitions is {partitions!r}: give 1 or more")
        if replication is not None and (type(replication) is not int or replication < 1):
            raise InvalidReplicationFactor(
                f"replication is {replication!r}: give 1 or more, or None for the default"
            )
        if assignments and (partitions, replication) != (None, None):
            raise InvalidReplicaAssignment(
                "assignments determine partitions and replication: remove both arguments"
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
        self._connection.topology.record_offset(answer.metadata_offset)
        self._connection.topology.mark_stale(name)
        return decode_topic(check_topic(answer.topic, name))

    async def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """Return all topics by name; with `internal` also the brokers' internal topics."""
        answer = await self._connection.call_any(
            ADMIN_LIST_TOPICS,
            admin_pb2.ListTopicsRequest(min_metadata_offset=self._seen),
            is_short=True,
        )
        self._connection.topology.record_offset(answer.metadata_offset)
        topics = map(decode_listing, answer.topics)
        return [topic for topic in topics if internal or not topic.is_internal]

    async def describe_topic(self, name: str) -> Topic:
        """Return a topic with its partitions; raise UnknownTopicOrPartition if it does not
        exist."""
        return await self._describe_topic(name, self._connection.deadline_ms())

    async def describe_topics(self, names: Collection[str] | None = None) -> list[Topic]:
        """Return topics with their partitions, by name; default: all topics, internal ones
        included.

        A topic that is deleted during the call is omitted. Raises UnknownTopicOrPartition for a
        name that does not exist.
        """
        if isinstance(names, str):
            raise InvalidRequest(f"names is {names!r}; give a list of names")
        sizes = {each.name: each.partitions for each in await self.list_topics(internal=True)}
        wanted = sorted(sizes if names is None else set(names))
        found: list[Topic] = []
        for part in _portions(wanted, sizes):
            request = admin_pb2.DescribeTopicsRequest(names=part, min_metadata_offset=self._seen)
            answer = await self._connection.call_any(ADMIN_DESCRIBE_TOPICS, request, is_short=True)
            self._connection.topology.record_offset(answer.metadata_offset)
            self._connection.topology.record_brokers(answer.brokers)
            for result in answer.results:
                if not result.HasField("error"):
                    found.append(decode_topic(check_topic(result.topic, result.name)))
                elif result.name not in sizes:
                    raise decode_error(result.error)
        return found

    async def _describe_topic(self, name: str, deadline_ms: int) -> Topic:
        answer = await self._connection.call_any(
            ADMIN_DESCRIBE_TOPICS,
            admin_pb2.DescribeTopicsRequest(names=[name], min_metadata_offset=self._seen),
            deadline_ms=deadline_ms,
            is_short=True,
        )
        self._connection.topology.record_offset(answer.metadata_offset)
        self._connection.topology.record_brokers(answer.brokers)
        described = described_topic(answer, name)
        self._connection.topology.merge_topic(described, self._connection.runtime.clock.now_ms())
        return decode_topic(described)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; raise UnknownTopicOrPartition if it does not exist.

        The topic id is resolved first: a retry never deletes a newer topic of the same name.
        """
        deadline_ms = self._connection.deadline_ms()
        topic = await self._describe_topic(name, deadline_ms)
        attempts = Attempts(may_retry=is_retriable_change)
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
            self._connection.topology.record_offset(answer.metadata_offset)
        self._connection.topology.forget(name)

    async def delete_records(self, topic: str, before: Before) -> dict[int, int]:
        """Delete the records before a position; return the new log start offset of each partition.

        `before` is "latest" (the last stable offset), an offset or a time, for all partitions, or a
        mapping from partitions to positions. The new log start offsets are durable. Consumers
        below them get OffsetOutOfRange; retention frees the disk space later. Safe to retry, also
        after an error: deleted records stay deleted, and a newer topic of the same name is never
        touched. Raises OffsetOutOfRange for an offset above the last stable offset,
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
        """Return the configs of a topic or of the cluster, or the settings of a broker, by name.

        Raises UnknownTopicOrPartition, or InvalidRequest if the broker does not exist.
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
            answer = await self._connection.call_any(ADMIN_DESCRIBE_CONFIGS, request, is_short=True)
        else:
            answer = await self._connection.call_broker(broker, ADMIN_DESCRIBE_CONFIGS, request)
        self._connection.topology.record_offset(answer.metadata_offset)
        if len(answer.results) != 1:
            raise invalid_response(f"returned {len(answer.results)} results for 1 resource")
        result = answer.results[0]
        if result.HasField("error"):
            raise decode_error(result.error)
        return {entry.name: decode_config(entry) for entry in result.configs}

    async def alter_configs(
        self,
        topic: str,
        configs: Mapping[str, ConfigValue] | None = None,
        *,
        delete: Sequence[str] = (),
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Set configs of a topic and reset those in `delete` to their defaults, atomically.

        Other configs keep their values. Returns the configs set for the topic afterwards (with
        `validate_only`, without changing them). Brokers apply the change without a restart,
        usually before this returns; a healthy broker applies it within 0.5 s. Safe to retry.
        Raises InvalidConfig, UnknownTopicOrPartition.
        """
        changes = config_changes(configs or {}, delete)
        answer = await self._connection.call_any(
            ADMIN_ALTER_CONFIGS,
            admin_pb2.AlterConfigsRequest(
                topic=topic, changes=changes, validate_only=validate_only
            ),
            retry_on=is_retriable_change,
        )
        self._connection.topology.record_offset(answer.metadata_offset)
        self._connection.topology.mark_stale(topic)
        return {entry.name: entry.value for entry in answer.configs}

    async def alter_cluster_configs(
        self,
        configs: Mapping[str, ConfigValue] | None = None,
        *,
        delete: Sequence[str] = (),
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Set configs of the cluster and reset those in `delete` to their defaults, atomically.

        Returns the configs set for the cluster afterwards (with `validate_only`, without changing
        them). Safe to retry. Raises InvalidConfig.
        """
        request = admin_pb2.AlterClusterConfigsRequest(
            changes=config_changes(configs or {}, delete), validate_only=validate_only
        )
        answer = await self._connection.call_any(ADMIN_ALTER_CLUSTER_CONFIGS, request)
        self._connection.topology.record_offset(answer.metadata_offset)
        return {entry.name: entry.value for entry in answer.configs}

    # --- partitions, replicas and leaders ------------------------------------------------------

    async def create_partitions(
        self,
        topic: str,
        count: int,
        *,
        assignments: Assignments | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Increase a topic's partitions to `count` and return the topic.

        The present count succeeds, so a retry is safe; a smaller count is refused. Records with
        keys may go to other partitions afterwards. `assignments` lists the brokers of each new
        partition. Raises InvalidPartitions, InvalidReplicaAssignment, UnknownTopicOrPartition.
        """
        return await create_partitions(
            self._connection, topic, count, assignments=assignments, validate_only=validate_only
        )

    async def reassign_partitions(
        self,
        targets: Mapping[TopicPartition, Sequence[int]] | Mapping[PartitionLike, Sequence[int]],
    ) -> list[PartitionOutcome]:
        """Start to move partitions to other brokers, the preferred leader of each first.

        Returns one outcome per partition, in order; a refused partition does not affect the
        others. Added replicas catch up in the background; removed replicas are deleted once all
        added ones are in sync. `list_reassignments` returns the moves in progress. A new target
        replaces that of a move in progress.
        """
        return await alter_reassignments(self._connection, targets)

    async def cancel_reassignments(
        self, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> list[PartitionOutcome]:
        """Cancel moves in progress; the replicas are those from before, possibly in another order.

        Returns one outcome per partition, in order; its error is NoReassignmentInProgress if there
        was no move.
        """
        places = list_partitions(partitions)
        return await alter_reassignments(self._connection, dict.fromkeys(places))

    async def list_reassignments(self, topics: Sequence[str] = ()) -> list[Reassignment]:
        """Return the moves in progress, of these topics or of all, by topic and partition."""
        return await list_reassignments(self._connection, topics)

    async def elect_leaders(
        self, partitions: PartitionLike | Iterable[PartitionLike] = (), *, unclean: bool = False
    ) -> list[PartitionOutcome]:
        """Elect the preferred replica of each partition as leader; default: wherever one is in
        sync.

        Returns one outcome per partition; its error is ElectionNotNeeded if the preferred replica
        leads already. With `unclean` a live replica is elected where no election without possible
        loss is possible: acknowledged records may be lost. Those partitions must be named.
        """
        places = list_partitions(partitions)
        return await elect_leaders(self._connection, places, unclean=unclean)

    async def describe_replicas(
        self, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> list[PartitionReplicas]:
        """Return the replicas' progress as their leaders see it, with the reason if one is not in
        sync.

        If a leader does not answer, its partitions carry the error.
        """
        return await describe_replicas(self._connection, await self._leaders(partitions))

    # --- the cluster ---------------------------------------------------------------------------

    async def explain_fenced(self, brokers: Iterable[Broker]) -> list[FencingCause]:
        """Return the cause for which each broker is fenced, in order.

        Each is probed once at its address, within two seconds.
        """
        return await explain_fenced(self._connection, brokers)

    async def unregister_broker(self, broker: int) -> None:
        """Remove a broker from the cluster for good.

        Raises BrokerIdNotRegistered, or InvalidRequest while the broker is alive or holds
        replicas.
        """
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
            self._connection.topology.record_offset(answer.metadata_offset)

    async def describe_features(self) -> dict[str, Feature]:
        """Return every feature by name: the level in force and the levels that all brokers
        support."""
        return await describe_features(self._connection)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        allow_downgrade: bool = False,
        validate_only: bool = False,
    ) -> dict[str, Feature]:
        """Change levels of features, all or none; return all features afterwards.

        Safe to retry. Raises FeatureUpdateFailed.
        """
        return await update_features(
            self._connection, levels, allow_downgrade=allow_downgrade, validate_only=validate_only
        )

    async def describe_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False
    ) -> list[ClientQuotas]:
        """Return the quotas of the entities that match; default: all.

        {"user": "alice"} matches the quotas of alice and, unless `strict`, of alice with a client
        id. A name of None matches the default entity.
        """
        return await describe_quotas(self._connection, entity or {}, strict=strict)

    async def alter_quotas(
        self,
        entity: QuotaEntity,
        quotas: Mapping[str, float] | None = None,
        *,
        delete: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set and delete quotas of one entity, such as {"user": "alice", "client_id": None}: all
        or none.

        The keys are "producer_byte_rate" and "consumer_byte_rate" (bytes per second and broker)
        and "request_percentage" (of the time of a broker's serving thread). Quotas apply to
        clients of the Kafka protocol. Safe to retry. Raises InvalidRequest.
        """
        await alter_quotas(
            self._connection, entity, quotas or {}, delete, validate_only=validate_only
        )

    async def describe_acls(self, condition: AclFilter | None = None) -> list[Acl]:
        """Return the ACLs that match, by principal and resource; default: all. Raises
        SecurityDisabled without an authorizer."""
        return await security.describe_acls(self._connection, condition or AclFilter())

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; one that exists is a success. Safe to retry. Raises InvalidRequest,
        SecurityDisabled."""
        await security.create_acls(self._connection, list(acls))

    async def delete_acls(self, condition: AclFilter) -> list[Acl]:
        """Delete the ACLs that match, and return them. Safe to retry. Raises InvalidRequest,
        SecurityDisabled."""
        return await security.delete_acls(self._connection, condition)

    async def explain_authorization(
        self,
        principal: str,
        operation: str,
        resource_type: str,
        resource: str = security.CLUSTER,
        *,
        host: str = "*",
    ) -> AuthorizationDecision:
        """Return the decision for an operation of a principal, and the ACL that decides.

        With a host of "*" only ACLs for every host decide. Raises InvalidRequest,
        SecurityDisabled.
        """
        action = Acl(
            principal=principal,
            operation=operation,
            resource_type=resource_type,
            resource=resource,
            host=host,
        )
        return await security.explain_authorization(self._connection, action)

    async def describe_users(self, names: Iterable[str] = ()) -> list[User]:
        """Return users with the mechanisms of their passwords, by name; default: all."""
        return await security.describe_users(self._connection, names)

    async def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Sequence[str] = security.MECHANISMS,
        iterations: int = ITERATIONS_DEFAULT,
    ) -> None:
        """Set a user's password for some SASL mechanisms; creates the user.

        Salted keys are sent and stored, never the password. Connections that the user opened with
        the old password end. Raises UnacceptableCredential.
        """
        await security.set_password(
            self._connection, user, password, mechanisms=mechanisms, iterations=iterations
        )

    async def delete_user(
        self, user: str, *, mechanisms: Sequence[str] = security.MECHANISMS
    ) -> None:
        """Delete a user's passwords, and end the user's connections. Raises ResourceNotFound if
        the user has no password for one of the mechanisms."""
        await security.delete_user(self._connection, user, mechanisms=mechanisms)

    async def describe_scram_keys(self) -> list[UserKeys]:
        """Return the salted keys of all users' passwords, by user and mechanism, for a backup.

        Keys let a thief guess weak passwords offline: connect with TLS, and store them encrypted.
        Needs the right to set passwords (Alter on the cluster), and is audited.
        """
        return await security.describe_scram_keys(self._connection)

    async def set_scram_keys(self, keys: Sequence[UserKeys]) -> None:
        """Set salted keys that `describe_scram_keys` returned: up to 1,000, one per user and
        mechanism. Safe to retry. Raises UnacceptableCredential."""
        await security.set_scram_keys(self._connection, keys)

    async def describe_quorum(self) -> Quorum:
        """Return the leader, voters and observers of the metadata quorum with their progress.

        A broker and a controller both serve it. Without a leader the result is the view of the
        answering node, with `leader` None.
        """
        return await describe_quorum(self._connection)

    async def add_voter(
        self, node_id: int, *, directory_id: bytes | None = None, address: str = ""
    ) -> None:
        """Make an observer of the metadata log a voter; it must be running and caught up.

        `directory_id` and `address` default to those with which it fetches. Returns when the
        change is committed; waits for the node to catch up until the call times out. Raises
        DuplicateVoter, VoterLagging, VoterChangePending.
        """
        await add_voter(
            self._connection, _node_id(node_id), directory_id=directory_id, address=address
        )

    async def remove_voter(self, node_id: int, *, directory_id: bytes | None = None) -> None:
        """Remove a voter; the leader may be removed too and then transfers its leadership.

        Returns when the change is committed. Raises VoterNotFound, VoterChangePending, or
        InvalidRequest for the last voter.
        """
        await remove_voter(self._connection, _node_id(node_id), directory_id=directory_id)

    async def transfer_leadership(self, to: int | None = None) -> int:
        """Transfer leadership to voter `to`, by default the most advanced one; return the epoch
        that ends.

        Returns when the leader has started the transfer. Raises VoterNotFound.
        """
        return await transfer_leadership(self._connection, None if to is None else _node_id(to))

    async def describe_log_dirs(
        self, topics: Sequence[str] = (), *, broker: int | None = None
    ) -> list[LogDir]:
        """Return the disk usage of partitions on a broker, or on all brokers that are not fenced.

        `topics` restricts the partitions. Raises UnknownTopicOrPartition, or InvalidRequest if the
        broker does not exist.
        """
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
                retry_on=is_retriable_change,
            )
            found += [decode_log_dir(answer, directory) for directory in answer.directories]
        return found

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Return consumer groups by name; `states` and `types` ("consumer", "classic") restrict
        them."""
        return await list_groups(self._connection, states, types)

    async def list_reachable_groups(
        self,
        *,
        states: Collection[str] = (),
        types: Collection[str] = (),
        timeout_ms: int = LIST_TIMEOUT_MS,
    ) -> GroupListings:
        """Return the groups of the brokers that answer within `timeout_ms`, and the errors of the
        other brokers.

        `list_groups` retries until every broker has answered instead.
        """
        return await list_reachable_groups(self._connection, states, types, timeout_ms)

    async def describe_group(self, name: str, *, end_timeout_ms: int = END_TIMEOUT_MS) -> Group:
        """Return a group with its members, assignments, committed offsets and lags.

        The lag is unknown in partitions with a leader that does not return the log end within
        `end_timeout_ms`. Raises GroupNotFound.
        """
        return await describe_group(self._connection, name, end_timeout_ms)

    async def reset_offsets(
        self, group: str, to: Target, *, topics: Topics | None = None, dry_run: bool = False
    ) -> list[OffsetReset]:
        """Set the committed offsets of a group, clamped to the offsets that the logs have.

        `to` is a position ("earliest", "latest", an offset, a datetime), a `Shift` from the
        committed offset, or a mapping from partition to either. `topics` names topics, or
        partitions by topic (default: all with a committed offset). `dry_run` returns the result
        without storing it. Otherwise raises NonEmptyGroup if the group has members.
        """
        return await reset_offsets(self._connection, group, to, topics=topics, dry_run=dry_run)

    async def delete_group(self, name: str) -> None:
        """Delete a group with its offsets; raise NonEmptyGroup or GroupNotFound."""
        await delete_group(self._connection, name)

    async def delete_offsets(
        self, group: str, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> None:
        """Delete a group's committed offsets of partitions that no member consumes.

        Raises GroupSubscribedToTopic or GroupNotFound.
        """
        await delete_offsets(self._connection, group, list_partitions(partitions))

    # --- transactions --------------------------------------------------------------------------

    async def list_transactions(
        self, *, states: Collection[str] = (), open_for_ms_min: int = 0
    ) -> list[TransactionalId]:
        """Return transactional ids by name, and attempts of staged commits as `<name>#<producer
        id>`.

        `states` ("Ongoing", ...) restricts them, and `open_for_ms_min` (0: all) to those with a
        transaction that began so long ago and is open or has markers to write.
        """
        return await list_transactions(self._connection, states, open_for_ms_min)

    async def describe_transaction(self, transactional_id: str) -> TransactionalId:
        """Return a transactional id with the partitions of its open transaction.

        Raises TransactionalIdNotFound.
        """
        return await describe_transaction(self._connection, transactional_id)

    async def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id and fence its producer.

        With the name of staged commits it aborts the current write, with `<name>#<producer id>` one
        attempt. Raises TransactionalIdNotFound, InvalidTxnState without an open transaction.
        """
        await abort_transaction(self._connection, transactional_id)

    async def open_transactions(
        self, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> list[OpenTransaction]:
        """Return the transactions without a marker in partitions, by partition and offset.

        The first one of a partition holds its last stable offset.
        """
        return await open_transactions(self._connection, await self._leaders(partitions))

    async def find_hanging_transactions(
        self, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> list[OpenTransaction]:
        """Return the open transactions of partitions that no coordinator has: they hold the last
        stable offset until they are aborted with `abort_hanging_transaction`."""
        return await find_hanging(self._connection, await self._leaders(partitions))

    async def abort_hanging_transaction(self, hanging: OpenTransaction) -> None:
        """Write an abort marker for a transaction of `find_hanging_transactions`."""
        await abort_hanging(self._connection, hanging)

    # --- staged commits ------------------------------------------------------------------------

    async def list_commits(self) -> list[NamedCommits]:
        """Return all names of staged commits, sorted."""
        return await list_commits(self._connection)

    async def describe_commits(self, name: str) -> NamedCommits:
        """Return a name of staged commits with its attempts; raise TransactionalIdNotFound."""
        return await describe_commits(self._connection, name)

    async def reset_commits(self, name: str, last_committed: int) -> None:
        """Set the number of a name's last committed batch, -1 for none, and abort its present
        write.

        The next number can be written again; records that are committed stay. Raises
        TransactionalIdNotFound.
        """
        await reset_commits(self._connection, name, last_committed)

    async def delete_commits(self, name: str) -> None:
        """Delete a name: repeated batches are not recognised any more.

        Raises TransactionalIdNotFound, and InvalidTxnState while it has attempts.
        """
        await delete_commits(self._connection, name)

    async def _leaders(
        self, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> dict[PartitionLike, int | None]:
        """Return the leaders of partitions; raise UnknownTopicOrPartition."""
        places = list(dict.fromkeys(list_partitions(partitions)))
        topics = await self.describe_topics({topic for topic, _ in places})
        leaders = {(t.name, each.partition): each.leader for t in topics for each in t.partitions}
        for topic, partition in places:
            if (topic, partition) not in leaders:
                raise UnknownTopicOrPartition("no such partition", topic=topic, partition=partition)
        return {place: leaders[place] for place in places}

    @property
    def _seen(self) -> int:
        return self._connection.topology.metadata_offset


def _portions(names: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Split topics into requests of about DESCRIBED_MAX partitions each."""
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
