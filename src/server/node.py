"""One node: every layer wired together, in order of dependency.

Start: data directory (lock, recovery) -> the listener for controllers -> Raft (a leader is known,
and the committed log is applied) -> broker and its listener -> registered and unfenced -> ready. A
node with only the controller role is ready with Raft. Stop is the reverse: no new requests,
requests in progress end, logs are flushed, the clean-shutdown marker is written. The same code runs
on the real and on the simulated runtime.

A failed start undoes its completed steps in reverse order, so that the directory can be opened
again. A task that fails later ends the node without an orderly stop: its fault must not reach the
disk.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from ..api.authorizer import Authorizer
from ..api.broker_api import BrokerApi
from ..api.configs import NodeSetting
from ..broker.shell.mirror import MirrorWriter
from ..broker.shell.replica_manager import ReplicaManager
from ..broker.shell.replication.service import ReplicaService
from ..errors import DirectoryNotFormatted, QuorumlogError
from ..frontends.grpc import (
    AdminService,
    GroupsService,
    LogService,
    MirrorService,
    StagedCommitsService,
    TransactionsService,
)
from ..ids import ClusterId, NodeId
from ..metadata import MetadataImage
from ..metadata.authorization import AuthorizerConfig
from ..metadata.decisions.features import OWN_FEATURES
from ..metadata.shell import (
    BrokerSession,
    BrokerSessionConfig,
    ControllerLocator,
    MetadataPublisher,
    MetadataStateMachine,
)
from ..runtime import PLAIN_CALLS, CallListener, CallSecurity, Handler, Network, Runtime, Scope
from ..runtime.internal_network import InternalNetwork
from ..runtime.node_identity import NodeIdentities
from ..settings import DEFAULT, ValueOrigin, value_of
from ..storage.shell.data_directory import DataDirectory
from .broker_services import (
    BrokerHandlers,
    Coordinators,
    advertised_kafka,
    broker_api,
    coordinator_context,
    open_coordinators,
    open_kafka,
)
from .config import NodeConfig, settings
from .directory_format import format_directory, is_formatted
from .lifecycle import Lifecycle, NodeParts
from .observability import HttpEndpoints
from .quorum import QUORUM_HEALTH, NodeQuorum, join, open_member

if TYPE_CHECKING:
    from ..api.audit import AuditLog
    from .listener_security import NodeSecurity

__all__ = [
    "Node",
    "ListenerAddresses",
    "NodeParts",
    "QUORUM_HEALTH",
    "format_directory",
    "is_formatted",
]

_LOG = logging.getLogger("quorumlog.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAddresses:
    """The addresses of a node; None: not open."""

    data_dir: str
    grpc: str  # "host:port" for clients; "": not open
    controller: str  # "host:port" for brokers and controllers
    kafka: str | None = None  # of the first configured listener
    http: str | None = None
    kafka_listeners: Mapping[str, str] = field(default_factory=dict)  # all, by name


class Node:
    """One node: `async with Node(runtime, config) as node`, or `start` and `stop` from one task."""

    def __init__(
        self,
        runtime: Runtime,
        config: NodeConfig,
        *,
        origins: Mapping[str, ValueOrigin] | None = None,
        with_process: bool = False,
        authorizer: AuthorizerConfig | None = None,
        certified: bool = False,
    ) -> None:
        """`origins` has the sources of settings, for DescribeConfigs; `with_process` adds metrics
        of the process: not for a simulated node. `authorizer` replaces the authorizer of the
        configuration. `certified`: the network of the runtime itself has certificates of its peers,
        and only nodes may connect to the internal listeners."""
        self._runtime = runtime
        self._config = config
        self._certified = certified
        self._internal = runtime  # with the network between nodes, once the directory is open
        self._broker_handlers = BrokerHandlers()
        self._origins = origins or {}
        self.parts = NodeParts()
        self._observing = HttpEndpoints(runtime, config, self.parts, with_process=with_process)
        self._life = Lifecycle(grace_ms=config.shutdown_grace_ms, counted=self._observing.counted)
        self._audit = self.parts.audit = self._open_audit()
        self._authorizer = Authorizer(
            self._image,
            authorizer or config.security.authorizer_config(config.kafka_names),
            denied=None if self._audit is None else self._audit.denied,
        )
        self._security: NodeSecurity | None = None  # None: no listener needs it
        self._stack = AsyncExitStack()
        self._addresses: ListenerAddresses | None = None

    async def __aenter__(self) -> "Node":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is not None:
            swallowed: bool | None = await self._stack.__aexit__(kind, error, traceback)
            return bool(swallowed)
        self.parts.is_stopping = True
        async with self._stack:  # also if closing fails: no task remains
            await self._life.close()
        return False

    async def start(self) -> ListenerAddresses:
        """Start the node and return once its roles are active; a cancellation undoes the start.

        A controller of several waits without limit for the others. Raises one typed error for the
        cause: DirectoryInUse, DirectoryMismatch, DirectoryNotFormatted, DirectoryUnusable,
        AddressInUse, CorruptionError.
        """
        async with AsyncExitStack() as stack:
            scope = await stack.enter_async_context(self._runtime.tasks.scope("node"))
            try:
                opened = await self._open(scope)
            except (QuorumlogError, asyncio.CancelledError):
                await self._life.close()
                raise
            self._stack = stack.pop_all()
        self._addresses = replace(opened, http=self._observing.address)
        self.parts.is_ready = True
        _LOG.info(
            "node.ready node=%d grpc=%s controller=%s",
            self._config.node_id,
            self._addresses.grpc,
            self._addresses.controller,
        )
        return self._addresses

    async def stop(self) -> None:
        """Stop in order and write the clean-shutdown marker; raises an earlier failure."""
        await self.__aexit__(None, None, None)

    @property
    def addresses(self) -> ListenerAddresses:
        """The addresses of the started node."""
        assert self._addresses is not None, "the node is not started"
        return self._addresses

    def _image(self) -> MetadataImage:
        assert self.parts.publisher is not None, "the metadata is open"
        return self.parts.publisher.image

    # --- start --------------------------------------------------------------------------------

    async def _open(self, scope: Scope) -> ListenerAddresses:
        self._life.opened(self._observing.close)
        self._security = self._open_security(scope)
        await self._observing.open(scope, self._security, self._authorizer)
        directory = self.parts.directory = await self._open_directory(scope)
        network = self._open_internal(directory.meta.cluster_id)
        self._internal = replace(self._runtime, network=network)
        metadata = self.parts.metadata = MetadataStateMachine()
        publisher = self.parts.publisher = MetadataPublisher(metadata)
        replicas = self._open_replicas(scope, directory) if self._config.is_broker else None
        self.parts.replicas = replicas
        coordinators: Coordinators | None = None
        if replicas is not None:
            self._life.opened(replicas.close)
            publisher.subscribe(replicas.apply)
            coordinators = self._open_coordinators(scope, directory, publisher, replicas)
        member = await open_member(
            self._internal,
            scope,
            self._life,
            config=self._config,
            directory=directory,
            metadata=metadata,
            authorizer=self._authorizer,
            audit=self._audit,
            broker_handlers={} if replicas is None else self._broker_handlers.table(),
        )
        self.parts.raft, self.parts.controller = member.raft, member.controller
        member.metadata.on_leadership(self._observing.leader_changed)
        await join(
            self._internal,
            scope,
            self._life,
            config=self._config,
            member=member,
            publisher=publisher,
        )
        if replicas is None or coordinators is None:
            return ListenerAddresses(
                data_dir=self._config.data_dir, grpc="", controller=member.listener.address
            )
        await replicas.sweep()
        return await self._open_broker(scope, directory, publisher, replicas, coordinators, member)

    async def _open_directory(self, scope: Scope) -> DataDirectory:
        config = self._config
        try:
            directory = await DataDirectory.open(
                self._runtime,
                scope,
                config.data_dir,
                config=config.storage,
                cluster_id=ClusterId(config.cluster_id) if config.cluster_id else None,
                node_id=NodeId(config.node_id),
            )
        except DirectoryNotFormatted as error:
            raise DirectoryNotFormatted(
                f"{error.message}; run `quorumlog storage format` first"
            ) from None
        self._life.opened(directory.close)
        return directory

    def _open_replicas(self, scope: Scope, directory: DataDirectory) -> ReplicaManager:
        return ReplicaManager(
            self._internal,
            scope,
            directory,
            NodeId(self._config.node_id),
            requests=self._config.requests,
            replication=self._config.replication,
            has_registration=self._is_registered_in,
        )

    def _open_coordinators(
        self,
        scope: Scope,
        directory: DataDirectory,
        publisher: MetadataPublisher,
        replicas: ReplicaManager,
    ) -> Coordinators:
        """Create the coordinators. They apply each image after the replicas."""
        context = coordinator_context(
            self._internal,
            scope,
            directory=directory,
            replicas=replicas,
            formed_for=lambda: 1 if (raft := self.parts.raft) is None else len(raft.voters),
        )
        opened = open_coordinators(context, self._config, replicas)
        self.parts.groups, self.parts.transactions = opened.groups, opened.transactions
        for each in (opened.groups, opened.transactions):
            self._life.opened(each.close)
            publisher.subscribe(each.apply)
        self._life.opened(opened.verifier.close)
        return opened

    def _is_registered_in(self, image: MetadataImage) -> bool:
        """Return True if the image has this incarnation's registration of the broker."""
        session, me = self.parts.session, image.broker(self._config.node_id)
        return session is not None and me is not None and me.epoch == session.broker_epoch

    async def _open_broker(
        self,
        scope: Scope,
        directory: DataDirectory,
        publisher: MetadataPublisher,
        replicas: ReplicaManager,
        coordinators: Coordinators,
        member: NodeQuorum,
    ) -> ListenerAddresses:
        """Register, serve, and return once the controller has unfenced this broker."""
        config = self._config
        log = LogService(self._runtime, replicas, publisher, config.requests, self._authorizer)
        api = self._api(directory, publisher, replicas, member, coordinators)
        mirror = self._mirror_service(directory, publisher, replicas)
        followers = ReplicaService(replicas.replication)
        streams = await self._life.listen_bytes(
            self._internal.network, config.follower_listener, followers.accept
        )
        followers.listens_at(streams.address)
        admin = AdminService(api, node_id=directory.meta.node_id)
        transactions = self._transaction_services(api, coordinators, publisher, replicas)
        served = (log, admin, *transactions, mirror, member.service)
        handlers = {**self._groups_service(publisher).handlers()}
        for service in served:
            handlers.update(service.handlers())
        self._broker_handlers.open(
            {**handlers, **followers.handlers(), **coordinators.service.handlers()}
        )
        listener = await self._serve(handlers)
        member.report_health(listener)
        self.parts.log = log
        kafka, kafka_addresses = await open_kafka(
            self._runtime,
            scope,
            config,
            replicas=replicas,
            metadata=publisher,
            api=api,
            groups=coordinators.groups,
            security=self._security,
        )
        self.parts.kafka = kafka
        self._life.opened(partial(kafka.close, config.shutdown_grace_ms))
        self._life.opened(log.stop)
        session = self.parts.session = self._session(
            directory,
            publisher,
            member,
            grpc_address=config.advertised_grpc or listener.address,
            kafka_listeners=advertised_kafka(config, kafka_addresses),
        )
        member.metadata.on_leadership(session.leader_changed)
        api.metadata.attach(session)
        coordinators.producer_ids.attach(session)
        coordinators.groups.attach(session)
        coordinators.transactions.attach(session)
        replicas.attach(session)
        self._life.run(scope, "session", session.run, session.close)
        await session.unfenced.wait()
        await coordinators.producer_ids.stock()
        listener.announce(is_ready=True)
        self._life.opened(partial(self._controlled_shutdown, session, publisher))
        self._life.opened(partial(_announce_not_ready, listener))  # the first step of a stop
        return ListenerAddresses(
            data_dir=config.data_dir,
            grpc=listener.address,
            controller=member.listener.address,
            kafka=next(iter(kafka_addresses.values()), None),
            kafka_listeners=kafka_addresses,
        )

    async def _serve(self, handlers: dict[str, Handler]) -> CallListener:
        """Open the listener of gRPC clients, which is not ready yet."""
        calls, plain = PLAIN_CALLS, None
        if self._security is not None:
            handlers.update(self._security.auth_handlers())
            calls, plain = self._security.calls(), self._security.plaintext_calls()
        if calls is PLAIN_CALLS and (self._authorizer.is_enabled or self._audit is not None):
            from ..api.authentication.calls import AnonymousCalls

            # ACLs and the audit log have the addresses of clients.
            calls = CallSecurity(authenticator=AnonymousCalls(), reads_at_once=True)
        return await self._life.listen(
            self._runtime.network,
            self._config.grpc_listener,
            handlers,
            is_ready=False,
            security=calls,
            plain=plain,
        )

    def _open_audit(self) -> "AuditLog | None":
        """Open the audit log, if one is configured. Raises InvalidConfig."""
        security = self._config.security
        if not security.audit_file:
            return None
        from ..api.audit import AuditLog
        from .audit_file import open_audit_file

        write, close_file = open_audit_file(
            security.audit_file, bytes_max=security.audit_bytes_max, files=security.audit_files_max
        )
        audit = AuditLog(write, self._runtime.clock.wall_ms)

        async def close() -> None:
            audit.close()
            close_file()

        self._life.opened(close)
        return audit

    def _open_security(self, scope: Scope) -> "NodeSecurity | None":
        """Load the certificate and follow its files; None if no listener needs it."""
        config = self._config
        clients_plain = config.security.is_plaintext(config.kafka_names) or not config.is_broker
        is_plain = clients_plain and config.security.is_internal_plaintext
        if is_plain and not config.is_http_secured:
            return None
        from .listener_security import NodeSecurity

        security = NodeSecurity(self._runtime, config.security, self._image, self._audit)
        if security.has_files:
            self._life.run(scope, "certificates", security.watch, security.close)
        return security

    def _open_internal(self, cluster_id: ClusterId) -> Network:
        """Return the network between nodes."""
        config, runtime = self._config, self._runtime
        if self._security is not None:
            return self._security.open_internal(cluster_id, config.node_id, config.roles)
        identities = NodeIdentities(cluster_id, are_certified=self._certified)
        return InternalNetwork(runtime.network, runtime.tasks, identities)

    def _mirror_service(
        self, directory: DataDirectory, publisher: MetadataPublisher, replicas: ReplicaManager
    ) -> MirrorService:
        writer = MirrorWriter(self._runtime.clock, directory, replicas.hosted.replica_of)
        return MirrorService(self._runtime, writer, publisher, self._authorizer)

    def _groups_service(self, publisher: MetadataPublisher) -> GroupsService:
        groups = self.parts.groups
        assert groups is not None, "a broker has a group coordinator"
        node_id = NodeId(self._config.node_id)
        return GroupsService(
            self._internal,
            groups,
            publisher,
            self._authorizer,
            node_id=node_id,
            audit=self._audit,
        )

    def _transaction_services(
        self,
        api: BrokerApi,
        coordinators: Coordinators,
        publisher: MetadataPublisher,
        replicas: ReplicaManager,
    ) -> tuple[TransactionsService, StagedCommitsService]:
        node_id = NodeId(self._config.node_id)
        transactions = TransactionsService(
            self._internal,
            api.transactions,
            coordinators.groups,
            publisher,
            replicas.log_admin,
            self._authorizer,
            node_id=node_id,
        )
        staged = StagedCommitsService(
            self._internal,
            api.transactions,
            coordinators.transactions,
            publisher,
            self._authorizer,
            transaction_calls=transactions.calls,
            node_id=node_id,
        )
        return transactions, staged

    def _api(
        self,
        directory: DataDirectory,
        publisher: MetadataPublisher,
        replicas: ReplicaManager,
        member: NodeQuorum,
        coordinators: Coordinators,
    ) -> BrokerApi:
        return broker_api(
            self._runtime,
            self._config,
            directory=directory,
            replicas=replicas,
            publisher=publisher,
            coordinators=coordinators,
            quorum=member.quorum,
            authorizer=self._authorizer,
            audit=self._audit,
            settings=self._settings(),
        )

    def _session(
        self,
        directory: DataDirectory,
        publisher: MetadataPublisher,
        member: NodeQuorum,
        *,
        grpc_address: str,
        kafka_listeners: tuple[tuple[str, str], ...],
    ) -> BrokerSession:
        config, meta = self._config, directory.meta
        return BrokerSession(
            self._internal,
            config=BrokerSessionConfig(
                cluster_id=meta.cluster_id,
                broker_id=meta.node_id,
                directory_id=meta.directory_id,
                grpc_address=grpc_address,
                rack=config.rack,
                boot_id=self._runtime.files.boot_id(),
                clean_start=directory.was_clean,
                internal_address=config.quorum_address or member.listener.address,
                features=OWN_FEATURES,
                kafka_listeners=kafka_listeners,
                session_timeout_ms=config.controller.session_timeout_ms,
            ),
            publisher=publisher,
            controllers=ControllerLocator(member.addresses, leader=member.leader_id),
        )

    async def _controlled_shutdown(
        self, session: BrokerSession, publisher: MetadataPublisher
    ) -> None:
        """Transfer this broker's leaderships before it rejects requests (controlled shutdown), if
        there are other brokers."""
        me, timeout_ms = self._config.node_id, self._config.controlled_shutdown_timeout_ms
        others = (each for each in publisher.image.brokers.values() if each.id != me)
        if not timeout_ms or not any(each.is_active for each in others):
            return
        if not await session.shutdown(timeout_ms):
            _LOG.warning(
                "node.not_let_go node=%d: controlled shutdown failed; its partitions have no leader"
                " until the controller fences this broker",
                me,
            )

    def _settings(self) -> list[NodeSetting]:
        """Return every setting with its value and source."""
        found = []
        for row in settings():
            value = value_of(self._config, row.name)
            unsaid = DEFAULT if value == row.default else ValueOrigin(kind="")
            origin = self._origins.get(row.name, unsaid)
            found.append(NodeSetting(row=row, value=value, origin=origin))
        return found


async def _announce_not_ready(listener: CallListener) -> None:
    """Report not ready in health checks before anything closes."""
    listener.announce(is_ready=False)
