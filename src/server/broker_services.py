"""Construction of a broker's group coordinator and Kafka listeners from its configuration."""

from collections.abc import Callable, Mapping

from ..broker.groups.config import GroupConfig
from ..broker.groups.shell.committed_offsets import CommittedOffsets
from ..broker.groups.shell.coordinator import GroupCoordinator
from ..broker.shell.replica_manager import ReplicaManager
from ..errors import AddressInUse
from ..frontends.grpc import AdminService, QuorumService, TransactionsService
from ..frontends.kafka import BrokerContext, KafkaServer, KafkaSettings
from ..ids import NodeId
from ..metadata import ImageDelta
from ..metadata.shell.publisher import MetadataPublisher
from ..runtime import Runtime, Scope
from ..storage.shell.data_directory import DataDirectory
from .addresses import ANY_HOST, split_listener
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


async def open_kafka(
    runtime: Runtime,
    scope: Scope,
    config: NodeConfig,
    *,
    replicas: ReplicaManager,
    metadata: MetadataPublisher,
    admin: AdminService,
    quorum: QuorumService,
    transactions: TransactionsService,
    groups: GroupCoordinator,
) -> tuple[KafkaServer, dict[str, str]]:
    """Open every Kafka listener. Return the server and the addresses by name. Raises
    AddressInUse."""
    settings = KafkaSettings(
        request_bytes_max=config.kafka_request_bytes_max,
        connections_max=config.kafka_connections_max,
        listener_connections_max=config.kafka_listener_connections_max,
        connections_idle_ms_max=config.kafka_connections_idle_ms_max,
        frame_ms_max=config.kafka_request_receive_ms_max,
        requests_bytes_max=config.kafka_requests_bytes_max,
        inflight_max=config.produce_inflight_max,
        unsent_bytes_max=config.fetch_bytes_max,
        fetch_bytes_max=config.fetch_bytes_max,
        auto_create_topics=config.auto_create_topics == "true",
    )
    broker = BrokerContext(
        runtime=runtime,
        replicas=replicas,
        metadata=metadata,
        admin=admin,
        quorum=quorum,
        transactions=transactions,
        groups=groups,
        settings=settings,
    )
    server = KafkaServer(broker, scope)
    _follow_quotas(server, metadata)
    addresses = {}
    for text in config.kafka_listeners:
        name, address = split_listener(text)
        try:
            addresses[name] = await server.listen(name, address)
        except AddressInUse as error:
            await server.close(0)  # closes the listeners that are open already
            raise AddressInUse(
                f"{error.message} (Kafka listener {name}); choose another port in listeners.kafka"
                " (--kafka-port of `quorumlog dev`)"
            ) from None
    return server, addresses


def advertised_kafka(config: NodeConfig, opened: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the advertised address of each listener, by name; `opened` has the addresses of the
    listeners.

    A listener on every interface without a configured address advertises its port alone: each
    response fills in the host through which the client connected.
    """
    said = dict(map(split_listener, config.advertised_kafka))
    told = {}
    for name, address in opened.items():
        host, _, port = address.rpartition(":")
        told[name] = said.get(name) or (f":{port}" if host in ANY_HOST else address)
    return tuple(sorted(told.items()))


def _follow_quotas(server: KafkaServer, metadata: MetadataPublisher) -> None:
    """Apply this broker's client quotas, now and after each change."""
    throttling = server.broker.throttling
    throttling.apply(metadata.image.client_quotas)

    def applied(delta: ImageDelta) -> None:
        if delta.after.client_quotas is not delta.before.client_quotas:
            throttling.apply(delta.after.client_quotas)
            server.unmute()

    metadata.subscribe(applied)
