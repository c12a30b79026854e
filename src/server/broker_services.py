"""Construction of a broker's operations, group coordinator and Kafka listeners from its
configuration."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.message import Message

from .. import services
from ..api.authorizer import Authorizer
from ..api.broker_api import BrokerApi
from ..api.cluster import ClusterAdmin
from ..api.configs import ConfigAdmin, NodeSetting
from ..api.metadata_access import MetadataAccess
from ..api.partitions import PartitionAdmin
from ..api.quorum import QuorumAdmin
from ..api.quotas import QuotaAdmin
from ..api.security import AclAdmin, ScramAdmin
from ..api.topics import TopicAdmin
from ..api.transactions import TransactionAdmin
from ..broker.coordinator.shell.coordinator import CoordinatorContext
from ..broker.groups.config import OFFSETS_TOPIC
from ..broker.groups.shell.committed_offsets import CommittedOffsets
from ..broker.groups.shell.coordinator import GroupCoordinator
from ..broker.shell.producer_ids import ProducerIds
from ..broker.shell.replica_manager import ReplicaManager
from ..broker.transactions.shell import TransactionCoordinator
from ..broker.transactions.shell.coordination_service import CoordinationService, MarkerWriter
from ..broker.transactions.shell.verifier import TransactionVerifier
from ..errors import AddressInUse, ConnectionFailed
from ..frontends.kafka import BrokerContext, KafkaServer
from ..frontends.kafka.authentication import PLAINTEXT
from ..metadata import ImageDelta
from ..metadata.shell.publisher import MetadataPublisher
from ..runtime import CallContext, Handler, Method, Runtime, Scope
from ..storage.shell.data_directory import DataDirectory
from .addresses import ANY_HOST, split_listener
from .config import NodeConfig

if TYPE_CHECKING:
    from ..api.audit import AuditLog
    from .listener_security import NodeSecurity


def broker_api(
    runtime: Runtime,
    config: NodeConfig,
    *,
    directory: DataDirectory,
    replicas: ReplicaManager,
    publisher: MetadataPublisher,
    coordinators: "Coordinators",
    quorum: QuorumAdmin,
    authorizer: Authorizer,
    audit: "AuditLog | None",
    settings: Sequence[NodeSetting],
) -> BrokerApi:
    """Return the operations of a broker; changes need its session, see `MetadataAccess.attach`."""
    metadata = MetadataAccess(runtime.clock, publisher, audit)
    node_id = directory.meta.node_id
    return BrokerApi(
        metadata=metadata,
        authorizer=authorizer,
        topics=TopicAdmin(metadata, authorizer),
        configs=ConfigAdmin(metadata, authorizer, node_id=node_id, settings=settings),
        partitions=PartitionAdmin(
            metadata,
            authorizer,
            replicas.hosted,
            replicas.log_admin,
            runtime.files,
            runtime.clock,
            node_id=node_id,
            data_dir=config.data_dir,
        ),
        quotas=QuotaAdmin(metadata, authorizer),
        acls=AclAdmin(metadata, authorizer),
        scram=ScramAdmin(metadata, authorizer),
        cluster=ClusterAdmin(
            runtime.clock, metadata, authorizer, cluster_id=directory.meta.cluster_id
        ),
        quorum=quorum,
        transactions=TransactionAdmin(
            runtime.clock,
            metadata,
            authorizer,
            coordinators.producer_ids,
            coordinators.transactions,
            coordinators.groups,
            replicas.markers,
        ),
    )


def coordinator_context(
    runtime: Runtime,
    scope: Scope,
    *,
    directory: DataDirectory,
    replicas: ReplicaManager,
    formed_for: Callable[[], int],
) -> CoordinatorContext:
    """Return the parts of a broker that its coordinators use. `formed_for` returns the number of
    voters."""
    return CoordinatorContext(
        runtime=runtime,
        scope=scope,
        directory=directory,
        node_id=directory.meta.node_id,
        replica_of=replicas.hosted.replica_of,
        may_be_replaced=replicas.may_be_replaced,
        formed_for=formed_for,
    )


INTERNAL_SERVICES: Final = (
    *("Replica", "TransactionCoordination"),  # of brokers alone
    *("Groups", "Transactions", "StagedCommits"),  # forwarded to a coordinator
    "Admin",  # for tools with the certificate of the node
)


class BrokerHandlers:
    """The calls of other nodes to this broker. The listener for nodes opens before the broker,
    which refuses them until then."""

    def __init__(self) -> None:
        self._opened: Mapping[str, Handler] = {}

    def open(self, handlers: Mapping[str, Handler]) -> None:
        """Carry out calls from now on. `handlers` may have further methods, which stay unserved."""
        self._opened = handlers

    def table(self) -> dict[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        prefixes = tuple(f"/quorumlog.v1.{service}/" for service in INTERNAL_SERVICES)
        return {
            method.path: Handler(method, partial(self._call, method.path))
            for method in vars(services).values()
            if isinstance(method, Method) and method.path.startswith(prefixes)
        }

    async def _call(self, path: str, request: Message, context: CallContext) -> Message:
        handler = self._opened.get(path)
        if handler is None:
            raise ConnectionFailed(f"{path}: the broker is not open yet; retry")
        call: Any = handler.call
        response: Message = await call(request, context)
        return response


class Coordinators(NamedTuple):
    """The coordinators of a broker, and what they need."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    service: CoordinationService  # for other brokers
    verifier: TransactionVerifier
    producer_ids: ProducerIds


def open_coordinators(
    context: CoordinatorContext, config: NodeConfig, replicas: ReplicaManager
) -> Coordinators:
    """Return coordinators without state yet. Retention reads committed offsets of groups that hold
    records back, and partitions verify their transactional batches, from now on."""
    runtime, cluster_id = context.runtime, context.directory.meta.cluster_id
    groups = GroupCoordinator(context, config.groups)
    context.directory.maintenance.committed = CommittedOffsets(runtime, groups)
    replicas.markers.coordinators[OFFSETS_TOPIC] = groups.write_marker
    producer_ids = ProducerIds(runtime.clock)
    writer = MarkerWriter(runtime.clock, replicas.hosted, replicas.markers)
    transactions = TransactionCoordinator(
        context, config.transactions, producer_ids=producer_ids, write_here=writer.write
    )
    verifier = TransactionVerifier(
        runtime.clock,
        context.scope.spawn,
        transactions,
        network=runtime.network,
        cluster_id=cluster_id,
    )
    replicas.writer.transactional.verifier = groups.verifier = verifier
    service = CoordinationService(
        writer, transactions, cluster_id=cluster_id, node_id=context.node_id
    )
    return Coordinators(groups, transactions, service, verifier, producer_ids)


async def open_kafka(
    runtime: Runtime,
    scope: Scope,
    config: NodeConfig,
    *,
    replicas: ReplicaManager,
    metadata: MetadataPublisher,
    api: BrokerApi,
    groups: GroupCoordinator,
    security: "NodeSecurity | None",
) -> tuple[KafkaServer, dict[str, str]]:
    """Open every Kafka listener. Return the server and the addresses by name. Raises
    AddressInUse."""
    broker = BrokerContext(
        runtime=runtime,
        hosted=replicas.hosted,
        writer=replicas.writer,
        reader=replicas.reader,
        log_admin=replicas.log_admin,
        metadata=metadata,
        api=api,
        groups=groups,
        settings=config.kafka,
        requests=config.requests,
    )
    server = KafkaServer(broker, scope)
    _follow_metadata(server, metadata)
    addresses = {}
    for text in config.kafka_listeners:
        name, address = split_listener(text)
        try:
            listener = PLAINTEXT if security is None else security.kafka_listener(name)
            addresses[name] = await server.listen(name, address, listener)
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
    advertised = {}
    for name, address in opened.items():
        host, _, port = address.rpartition(":")
        advertised[name] = said.get(name) or (f":{port}" if host in ANY_HOST else address)
    return tuple(sorted(advertised.items()))


def _follow_metadata(server: KafkaServer, metadata: MetadataPublisher) -> None:
    """Apply this broker's client quotas, now and after each change, and end the connections of
    users with a changed credential."""
    throttling = server.broker.throttling
    throttling.apply(metadata.image.client_quotas)

    def applied(delta: ImageDelta) -> None:
        if delta.after.client_quotas is not delta.before.client_quotas:
            throttling.apply(delta.after.client_quotas)
            server.unmute()
        if delta.after.scram_credentials is not delta.before.scram_credentials:
            server.credentials_changed(delta.after)

    metadata.subscribe(applied)
