"""Construction of a broker's group coordinator from its configuration."""

from collections.abc import Callable

from ..broker.groups.config import GroupConfig
from ..broker.groups.shell.committed_offsets import CommittedOffsets
from ..broker.groups.shell.coordinator import GroupCoordinator
from ..broker.shell.replica_manager import ReplicaManager
from ..ids import NodeId
from ..runtime import Runtime, Scope
from ..storage.shell.data_directory import DataDirectory
from .config import NodeConfig

MINUTE_MS = 60_000


def open_groups(
    runtime: Runtime,
    scope: Scope,
    config: NodeConfig,
    *,
    directory: DataDirectory,
    replicas: ReplicaManager,
    formed_for: Callable[[], int],
) -> GroupCoordinator:
    """Return a coordinator without groups yet, and register it for retention, which reads committed
    offsets of groups that hold records back. `formed_for` returns the number of voters."""
    groups = GroupCoordinator(
        runtime,
        scope,
        directory,
        group_config(config),
        node_id=NodeId(config.node_id),
        replica_of=replicas.replica_of,
        may_be_replaced=replicas.may_be_replaced,
        formed_for=formed_for,
    )
    directory.maintenance.committed = CommittedOffsets(runtime, groups)
    return groups


def group_config(config: NodeConfig) -> GroupConfig:
    """Return the settings of the group coordinator."""
    return GroupConfig(
        offsets_partitions=config.offsets_partitions,
        offsets_replicas=config.offsets_replicas,
        offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        offsets_check_ms=config.offsets_check_ms,
        waits_max=config.group_waits_max,
        note_bytes_max=config.note_bytes_max,
        size_max=config.group_size_max,
        session_timeout_min_ms=config.group_session_min_ms,
        session_timeout_max_ms=config.group_session_max_ms,
        initial_delay_ms=config.group_initial_delay_ms,
        consumer_session_ms=config.group_consumer_session_ms,
        consumer_heartbeat_ms=config.group_consumer_heartbeat_ms,
        assignors=config.group_consumer_assignors,
        pattern_refresh_ms=config.group_pattern_refresh_ms,
        migration="off" if config.group_migration == "disabled" else config.group_migration,
    )
