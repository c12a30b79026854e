"""The admin client for programs without a loop; see `blocking`."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..administration.admin import AsyncAdmin, Cluster, Topic, TopicListing
from ..administration.configs import Config, ConfigValue, LogDir
from ..administration.deletion import Before
from ..administration.quorum import Quorum

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
        partitions: int = 1,
        replication: int | None = None,
        configs: Mapping[str, ConfigValue] | None = None,
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
                if_not_exists=if_not_exists,
                validate_only=validate_only,
            )
        )

    def list_topics(self) -> list[TopicListing]:
        """Return all topics by name."""
        return self._call(lambda admin: admin.list_topics())

    def describe_topic(self, name: str) -> Topic:
        """Return a topic with its partitions; raises UnknownTopicOrPartition."""
        return self._call(lambda admin: admin.describe_topic(name))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; raises UnknownTopicOrPartition."""
        self._call(lambda admin: admin.delete_topic(name))

    def delete_records(self, topic: str, before: Before) -> dict[int, int]:
        """Delete the records before a position; return the first offset left of each partition;
        see `AsyncAdmin.delete_records`."""
        return self._call(lambda admin: admin.delete_records(topic, before))

    def describe_configs(
        self, topic: str | None = None, *, broker: int | None = None
    ) -> dict[str, Config]:
        """Return every config of a topic, or every setting of a broker; see
        `AsyncAdmin.describe_configs`."""
        return self._call(lambda admin: admin.describe_configs(topic, broker=broker))

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

    def describe_log_dirs(
        self, topics: Sequence[str] = (), *, broker: int | None = None
    ) -> list[LogDir]:
        """Return what partitions take on the disks of a broker, or of all; see
        `AsyncAdmin.describe_log_dirs`."""
        return self._call(lambda admin: admin.describe_log_dirs(topics, broker=broker))

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

    def _call(self, work: Callable[[AsyncAdmin], Coroutine[Any, Any, T]]) -> T:
        return self._log.call(lambda log: work(log.admin))
