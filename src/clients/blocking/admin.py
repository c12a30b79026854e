"""The blocking admin client; see `blocking`."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...ids import TopicPartition
from ...scram_keys import ITERATIONS_DEFAULT
from ..admin.admin import AsyncAdmin
from ..admin.configs import ClientQuotas, Config, ConfigValue, Feature, LogDir, QuotaEntity
from ..admin.descriptions import Broker, Cluster, Topic, TopicListing
from ..admin.fenced_brokers import FencingCause
from ..admin.groups import (
    END_TIMEOUT_MS,
    LIST_TIMEOUT_MS,
    Group,
    GroupListing,
    GroupListings,
    OffsetReset,
    Target,
)
from ..admin.partitions import (
    Assignments,
    Before,
    PartitionOutcome,
    PartitionReplicas,
    Reassignment,
)
from ..admin.quorum import Quorum
from ..admin.security import (
    CLUSTER,
    MECHANISMS,
    Acl,
    AclFilter,
    AuthorizationDecision,
    User,
    UserKeys,
)
from ..admin.staged_commits import NamedCommits
from ..admin.transactions import OpenTransaction, TransactionalId
from ..consumer.assigned_partitions import Topics
from ..offsets import PartitionLike

if TYPE_CHECKING:
    from .log import Log

T = TypeVar("T")


class Admin:
    """The methods of `AsyncAdmin`, blocking; `Log.admin`."""

    def __init__(self, log: "Log") -> None:
        self._log = log

    def describe_cluster(self, *, broker: int | None = None) -> Cluster:
        """Return the brokers, the active controller and the cluster id; see
        `AsyncAdmin.describe_cluster`."""
        return self._call(lambda admin: admin.describe_cluster(broker=broker))

    def create_topic(
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
        """Create a topic and return it; see `AsyncAdmin.create_topic`."""
        return self._call(
            lambda admin: admin.create_topic(
                name,
                partitions=partitions,
                replication=replication,
                configs=configs,
                assignments=assignments,
                if_not_exists=if_not_exists,
                validate_only=validate_only,
            )
        )

    def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """Return all topics by name; see `AsyncAdmin.list_topics`."""
        return self._call(lambda admin: admin.list_topics(internal=internal))

    def describe_topic(self, name: str) -> Topic:
        """Return a topic with its partitions; raise UnknownTopicOrPartition if it does not
        exist."""
        return self._call(lambda admin: admin.describe_topic(name))

    def describe_topics(self, names: Collection[str] | None = None) -> list[Topic]:
        """Return topics with their partitions (default: all); see `AsyncAdmin.describe_topics`."""
        return self._call(lambda admin: admin.describe_topics(names))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; see `AsyncAdmin.delete_topic`."""
        self._call(lambda admin: admin.delete_topic(name))

    def delete_records(self, topic: str, before: Before) -> dict[int, int]:
        """Delete the records before a position; return the new log start offset of each partition.

        See `AsyncAdmin.delete_records`.
        """
        return self._call(lambda admin: admin.delete_records(topic, before))

    def describe_configs(
        self, topic: str | None = None, *, broker: int | None = None, cluster: bool = False
    ) -> dict[str, Config]:
        """Return the configs of a topic or of the cluster, or the settings of a broker.

        See `AsyncAdmin.describe_configs`.
        """
        return self._call(
            lambda admin: admin.describe_configs(topic, broker=broker, cluster=cluster)
        )

    def alter_configs(
        self,
        topic: str,
        configs: Mapping[str, ConfigValue] | None = None,
        *,
        delete: Sequence[str] = (),
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Set and delete configs of a topic, atomically; see `AsyncAdmin.alter_configs`."""
        return self._call(
            lambda admin: admin.alter_configs(
                topic, configs, delete=delete, validate_only=validate_only
            )
        )

    def alter_cluster_configs(
        self,
        configs: Mapping[str, ConfigValue] | None = None,
        *,
        delete: Sequence[str] = (),
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Set and delete configs of the cluster, atomically; see
        `AsyncAdmin.alter_cluster_configs`."""
        return self._call(
            lambda admin: admin.alter_cluster_configs(
                configs, delete=delete, validate_only=validate_only
            )
        )

    def create_partitions(
        self,
        topic: str,
        count: int,
        *,
        assignments: Assignments | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Increase a topic's partitions to `count`; see `AsyncAdmin.create_partitions`."""
        return self._call(
            lambda admin: admin.create_partitions(
                topic, count, assignments=assignments, validate_only=validate_only
            )
        )

    def reassign_partitions(
        self,
        targets: Mapping[TopicPartition, Sequence[int]] | Mapping[PartitionLike, Sequence[int]],
    ) -> list[PartitionOutcome]:
        """Start to move partitions to other brokers; see `AsyncAdmin.reassign_partitions`."""
        return self._call(lambda admin: admin.reassign_partitions(targets))

    def cancel_reassignments(
        self, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> list[PartitionOutcome]:
        """Cancel moves in progress; see `AsyncAdmin.cancel_reassignments`."""
        return self._call(lambda admin: admin.cancel_reassignments(partitions))

    def list_reassignments(self, topics: Sequence[str] = ()) -> list[Reassignment]:
        """Return the moves in progress; see `AsyncAdmin.list_reassignments`."""
        return self._call(lambda admin: admin.list_reassignments(topics))

    def elect_leaders(
        self, partitions: PartitionLike | Iterable[PartitionLike] = (), *, unclean: bool = False
    ) -> list[PartitionOutcome]:
        """Elect preferred replicas as leaders, or with `unclean` any live replica.

        See `AsyncAdmin.elect_leaders`.
        """
        return self._call(lambda admin: admin.elect_leaders(partitions, unclean=unclean))

    def describe_replicas(
        self, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> list[PartitionReplicas]:
        """Return the replicas' progress as their leaders see it; see
        `AsyncAdmin.describe_replicas`."""
        return self._call(lambda admin: admin.describe_replicas(partitions))

    def explain_fenced(self, brokers: Iterable[Broker]) -> list[FencingCause]:
        """Return the cause for which each broker is fenced; see `AsyncAdmin.explain_fenced`."""
        return self._call(lambda admin: admin.explain_fenced(brokers))

    def unregister_broker(self, broker: int) -> None:
        """Remove a broker from the cluster for good; see `AsyncAdmin.unregister_broker`."""
        self._call(lambda admin: admin.unregister_broker(broker))

    def describe_features(self) -> dict[str, Feature]:
        """Return every feature by name; see `AsyncAdmin.describe_features`."""
        return self._call(lambda admin: admin.describe_features())

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        allow_downgrade: bool = False,
        validate_only: bool = False,
    ) -> dict[str, Feature]:
        """Change levels of features, all or none; see `AsyncAdmin.update_features`."""
        return self._call(
            lambda admin: admin.update_features(
                levels, allow_downgrade=allow_downgrade, validate_only=validate_only
            )
        )

    def describe_log_dirs(
        self, topics: Sequence[str] = (), *, broker: int | None = None
    ) -> list[LogDir]:
        """Return the disk usage of partitions; see `AsyncAdmin.describe_log_dirs`."""
        return self._call(lambda admin: admin.describe_log_dirs(topics, broker=broker))

    def describe_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False
    ) -> list[ClientQuotas]:
        """Return the quotas of clients; see `AsyncAdmin.describe_quotas`."""
        return self._call(lambda admin: admin.describe_quotas(entity, strict=strict))

    def alter_quotas(
        self,
        entity: QuotaEntity,
        quotas: Mapping[str, float] | None = None,
        *,
        delete: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set and delete quotas of one entity, all or none; see `AsyncAdmin.alter_quotas`."""
        self._call(
            lambda admin: admin.alter_quotas(
                entity, quotas, delete=delete, validate_only=validate_only
            )
        )

    def describe_acls(self, condition: AclFilter | None = None) -> list[Acl]:
        """Return the ACLs that match; see `AsyncAdmin.describe_acls`."""
        return self._call(lambda admin: admin.describe_acls(condition))

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; see `AsyncAdmin.create_acls`."""
        self._call(lambda admin: admin.create_acls(acls))

    def delete_acls(self, condition: AclFilter) -> list[Acl]:
        """Delete the ACLs that match, and return them; see `AsyncAdmin.delete_acls`."""
        return self._call(lambda admin: admin.delete_acls(condition))

    def explain_authorization(
        self,
        principal: str,
        operation: str,
        resource_type: str,
        resource: str = CLUSTER,
        *,
        host: str = "*",
    ) -> AuthorizationDecision:
        """Return the decision for an action; see `AsyncAdmin.explain_authorization`."""
        return self._call(
            lambda admin: admin.explain_authorization(
                principal, operation, resource_type, resource, host=host
            )
        )

    def describe_users(self, names: Iterable[str] = ()) -> list[User]:
        """Return users with the mechanisms of their passwords; see `AsyncAdmin.describe_users`."""
        return self._call(lambda admin: admin.describe_users(names))

    def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Sequence[str] = MECHANISMS,
        iterations: int = ITERATIONS_DEFAULT,
    ) -> None:
        """Set a user's password; see `AsyncAdmin.set_password`."""
        self._call(
            lambda admin: admin.set_password(
                user, password, mechanisms=mechanisms, iterations=iterations
            )
        )

    def delete_user(self, user: str, *, mechanisms: Sequence[str] = MECHANISMS) -> None:
        """Delete a user's passwords; see `AsyncAdmin.delete_user`."""
        self._call(lambda admin: admin.delete_user(user, mechanisms=mechanisms))

    def describe_scram_keys(self) -> list[UserKeys]:
        """Return the salted keys of passwords; see `AsyncAdmin.describe_scram_keys`."""
        return self._call(lambda admin: admin.describe_scram_keys())

    def set_scram_keys(self, keys: Sequence[UserKeys]) -> None:
        """Set salted keys of passwords; see `AsyncAdmin.set_scram_keys`."""
        self._call(lambda admin: admin.set_scram_keys(keys))

    def describe_quorum(self) -> Quorum:
        """Return the leader, voters and observers; see `AsyncAdmin.describe_quorum`."""
        return self._call(lambda admin: admin.describe_quorum())

    def add_voter(
        self, node_id: int, *, directory_id: bytes | None = None, address: str = ""
    ) -> None:
        """Make an observer of the metadata log a voter; see `AsyncAdmin.add_voter`."""
        self._call(
            lambda admin: admin.add_voter(node_id, directory_id=directory_id, address=address)
        )

    def remove_voter(self, node_id: int, *, directory_id: bytes | None = None) -> None:
        """Remove a voter; see `AsyncAdmin.remove_voter`."""
        self._call(lambda admin: admin.remove_voter(node_id, directory_id=directory_id))

    def transfer_leadership(self, to: int | None = None) -> int:
        """Transfer leadership to another voter; see `AsyncAdmin.transfer_leadership`."""
        return self._call(lambda admin: admin.transfer_leadership(to))

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Return all consumer groups by name; see `AsyncAdmin.list_groups`."""
        return self._call(lambda admin: admin.list_groups(states=states, types=types))

    def list_reachable_groups(
        self,
        *,
        states: Collection[str] = (),
        types: Collection[str] = (),
        timeout_ms: int = LIST_TIMEOUT_MS,
    ) -> GroupListings:
        """Return the groups of the brokers that answer in time; see
        `AsyncAdmin.list_reachable_groups`."""
        return self._call(
            lambda admin: admin.list_reachable_groups(
                states=states, types=types, timeout_ms=timeout_ms
            )
        )

    def describe_group(self, name: str, *, end_timeout_ms: int = END_TIMEOUT_MS) -> Group:
        """Return a group with its members, offsets and lags; see `AsyncAdmin.describe_group`."""
        return self._call(lambda admin: admin.describe_group(name, end_timeout_ms=end_timeout_ms))

    def reset_offsets(
        self, group: str, to: Target, *, topics: Topics | None = None, dry_run: bool = False
    ) -> list[OffsetReset]:
        """Set the committed offsets of a group; see `AsyncAdmin.reset_offsets`."""
        return self._call(
            lambda admin: admin.reset_offsets(group, to, topics=topics, dry_run=dry_run)
        )

    def delete_group(self, name: str) -> None:
        """Delete a group with its offsets; see `AsyncAdmin.delete_group`."""
        self._call(lambda admin: admin.delete_group(name))

    def delete_offsets(
        self, group: str, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> None:
        """Delete a group's committed offsets of partitions; see `AsyncAdmin.delete_offsets`."""
        self._call(lambda admin: admin.delete_offsets(group, partitions))

    def list_transactions(
        self, *, states: Collection[str] = (), open_for_ms_min: int = 0
    ) -> list[TransactionalId]:
        """Return transactional ids by name; see `AsyncAdmin.list_transactions`."""
        return self._call(
            lambda admin: admin.list_transactions(states=states, open_for_ms_min=open_for_ms_min)
        )

    def describe_transaction(self, transactional_id: str) -> TransactionalId:
        """Return a transactional id; see `AsyncAdmin.describe_transaction`."""
        return self._call(lambda admin: admin.describe_transaction(transactional_id))

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer; see
        `AsyncAdmin.abort_transaction`."""
        self._call(lambda admin: admin.abort_transaction(transactional_id))

    def open_transactions(
        self, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> list[OpenTransaction]:
        """Return the transactions without a marker in partitions; see
        `AsyncAdmin.open_transactions`."""
        return self._call(lambda admin: admin.open_transactions(partitions))

    def find_hanging_transactions(
        self, partitions: PartitionLike | Iterable[PartitionLike]
    ) -> list[OpenTransaction]:
        """Return the open transactions that no coordinator has; see
        `AsyncAdmin.find_hanging_transactions`."""
        return self._call(lambda admin: admin.find_hanging_transactions(partitions))

    def abort_hanging_transaction(self, hanging: OpenTransaction) -> None:
        """Write an abort marker; see `AsyncAdmin.abort_hanging_transaction`."""
        self._call(lambda admin: admin.abort_hanging_transaction(hanging))

    def list_commits(self) -> list[NamedCommits]:
        """Return all names of staged commits, sorted."""
        return self._call(lambda admin: admin.list_commits())

    def describe_commits(self, name: str) -> NamedCommits:
        """Return a name of staged commits with its attempts; see `AsyncAdmin.describe_commits`."""
        return self._call(lambda admin: admin.describe_commits(name))

    def reset_commits(self, name: str, last_committed: int) -> None:
        """Set the number of a name's last committed batch; see `AsyncAdmin.reset_commits`."""
        self._call(lambda admin: admin.reset_commits(name, last_committed))

    def delete_commits(self, name: str) -> None:
        """Delete a name of staged commits; see `AsyncAdmin.delete_commits`."""
        self._call(lambda admin: admin.delete_commits(name))

    def _call(self, work: Callable[[AsyncAdmin], Coroutine[Any, Any, T]]) -> T:
        return self._log.call(lambda log: work(log.admin))
