"""The admin client for programs without a loop; see `blocking`."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..administration.admin import AsyncAdmin
from ..administration.configs import Config, ConfigValue, LogDir
from ..administration.deletion import Before
from ..administration.descriptions import Cluster, Topic, TopicListing
from ..administration.features import Feature
from ..administration.groups import Group, GroupListing, OffsetReset, Target
from ..administration.placement import Assignments, PartitionOutcome, Reassignment
from ..administration.quorum import Quorum
from ..administration.quotas import ClientQuotas, QuotaEntity
from ..administration.replicas import PartitionReplicas
from ..consuming.assignment import Wanted
from ..offsets import Place

if TYPE_CHECKING:
    from .log import Log

T = TypeVar("T")


class Admin:
    """The methods of `AsyncAdmin`, blocking; `Log.admin`."""

    def __init__(self, log: "Log") -> None:
        self._log = log

    def describe_cluster(self) -> Cluster:
        """Return the brokers, the active controller and the cluster's id."""
        return self._call(lambda admin: admin.describe_cluster())

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
        """Return a topic with its partitions; raises UnknownTopicOrPartition."""
        return self._call(lambda admin: admin.describe_topic(name))

    def describe_topics(self, names: Collection[str] | None = None) -> list[Topic]:
        """Return topics with their partitions, all unless some are named; see
        `AsyncAdmin.describe_topics`."""
        return self._call(lambda admin: admin.describe_topics(names))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; raises UnknownTopicOrPartition."""
        self._call(lambda admin: admin.delete_topic(name))

    def delete_records(self, topic: str, before: Before) -> dict[int, int]:
        """Delete the records before a position; return the first offset left of each partition;
        see `AsyncAdmin.delete_records`."""
        return self._call(lambda admin: admin.delete_records(topic, before))

    def describe_configs(
        self, topic: str | None = None, *, broker: int | None = None, cluster: bool = False
    ) -> dict[str, Config]:
        """Return every config of a topic or of the cluster, or every setting of a broker; see
        `AsyncAdmin.describe_configs`."""
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
        """Set and delete configs of a topic, all or none; see `AsyncAdmin.alter_configs`."""
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
        """Set and delete configs of the whole cluster, all or none; see
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
        """Give a topic more partitions, `count` in all; see `AsyncAdmin.create_partitions`."""
        return self._call(
            lambda admin: admin.create_partitions(
                topic, count, assignments=assignments, validate_only=validate_only
            )
        )

    def reassign_partitions(self, targets: Mapping[Place, Sequence[int]]) -> list[PartitionOutcome]:
        """Begin to move partitions to other brokers; see `AsyncAdmin.reassign_partitions`."""
        return self._call(lambda admin: admin.reassign_partitions(targets))

    def cancel_reassignments(self, partitions: Iterable[Place]) -> list[PartitionOutcome]:
        """Give up moves under way; see `AsyncAdmin.cancel_reassignments`."""
        return self._call(lambda admin: admin.cancel_reassignments(partitions))

    def list_reassignments(self, topics: Sequence[str] = ()) -> list[Reassignment]:
        """Return the moves under way, of these topics or of all; see
        `AsyncAdmin.list_reassignments`."""
        return self._call(lambda admin: admin.list_reassignments(topics))

    def elect_leaders(
        self, partitions: Iterable[Place] = (), *, unclean: bool = False
    ) -> list[PartitionOutcome]:
        """Have preferred replicas lead, or with `unclean` live ones where nobody can lead without
        possible loss; see `AsyncAdmin.elect_leaders`."""
        return self._call(lambda admin: admin.elect_leaders(partitions, unclean=unclean))

    def describe_replicas(self, partitions: Iterable[Place]) -> list[PartitionReplicas]:
        """Return how far the replicas of partitions are, and why one is not in sync; see
        `AsyncAdmin.describe_replicas`."""
        return self._call(lambda admin: admin.describe_replicas(partitions))

    def unregister_broker(self, broker: int) -> None:
        """Take a broker that is gone for good out of the cluster; see
        `AsyncAdmin.unregister_broker`."""
        self._call(lambda admin: admin.unregister_broker(broker))

    def describe_features(self) -> dict[str, Feature]:
        """Return every feature: the level in force, and what the brokers can work with."""
        return self._call(lambda admin: admin.describe_features())

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        allow_downgrade: bool = False,
        validate_only: bool = False,
    ) -> dict[str, Feature]:
        """Change levels of features, all of them or none; see `AsyncAdmin.update_features`."""
        return self._call(
            lambda admin: admin.update_features(
                levels, allow_downgrade=allow_downgrade, validate_only=validate_only
            )
        )

    def describe_log_dirs(
        self, topics: Sequence[str] = (), *, broker: int | None = None
    ) -> list[LogDir]:
        """Return what partitions take on the disks of a broker, or of all; see
        `AsyncAdmin.describe_log_dirs`."""
        return self._call(lambda admin: admin.describe_log_dirs(topics, broker=broker))

    def describe_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False
    ) -> list[ClientQuotas]:
        """Return the quotas of clients that are set; see `AsyncAdmin.describe_quotas`."""
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

    def describe_quorum(self) -> Quorum:
        """Return who leads, votes and follows; see `AsyncAdmin.describe_quorum`."""
        return self._call(lambda admin: admin.describe_quorum())

    def add_voter(
        self, node_id: int, *, directory_id: bytes | None = None, address: str = ""
    ) -> None:
        """Give a node a vote that follows the log; see `AsyncAdmin.add_voter`."""
        self._call(
            lambda admin: admin.add_voter(node_id, directory_id=directory_id, address=address)
        )

    def remove_voter(self, node_id: int, *, directory_id: bytes | None = None) -> None:
        """Take a node's vote; see `AsyncAdmin.remove_voter`."""
        self._call(lambda admin: admin.remove_voter(node_id, directory_id=directory_id))

    def transfer_leadership(self, to: int | None = None) -> int:
        """Have another voter lead; see `AsyncAdmin.transfer_leadership`."""
        return self._call(lambda admin: admin.transfer_leadership(to))

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Return all consumer groups by name; see `AsyncAdmin.list_groups`."""
        return self._call(lambda admin: admin.list_groups(states=states, types=types))

    def describe_group(self, name: str) -> Group:
        """Return a group with its members, offsets and lags; raises GroupNotFound."""
        return self._call(lambda admin: admin.describe_group(name))

    def reset_offsets(
        self, group: str, to: Target, *, of: Wanted | None = None, dry_run: bool = False
    ) -> list[OffsetReset]:
        """Set how far a group has read; see `AsyncAdmin.reset_offsets`."""
        return self._call(lambda admin: admin.reset_offsets(group, to, of=of, dry_run=dry_run))

    def delete_group(self, name: str) -> None:
        """Forget a group with its offsets; raises NonEmptyGroup and GroupNotFound."""
        self._call(lambda admin: admin.delete_group(name))

    def delete_offsets(self, group: str, partitions: Collection[Place]) -> None:
        """Forget what a group has committed of partitions; see `AsyncAdmin.delete_offsets`."""
        self._call(lambda admin: admin.delete_offsets(group, partitions))

    def _call(self, work: Callable[[AsyncAdmin], Coroutine[Any, Any, T]]) -> T:
        return self._log.call(lambda log: work(log.admin))
