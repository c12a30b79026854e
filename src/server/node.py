"""One node: every layer wired together, in the order in which each can rely on the one before.

Start: data directory (lock, recovery) -> the listener for controllers -> Raft (a leader is known,
and its past is delivered) -> broker and its listener -> registered and unfenced -> ready. A
controller alone is ready with Raft. Stop is the reverse: no new work, what is under way ends, logs
are flushed, the clean marker is written. The same code runs on the real and on the simulated
runtime.

A refused start undoes what came before it, in order, so that the directory opens again. A task that
fails later ends the node without an orderly stop: what broke it must not reach the disk.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from ..broker.shell.producer_ids import ProducerIds
from ..broker.shell.replicas import ReplicaManager
from ..errors import (
    AddressInUse,
    CorruptionError,
    DirectoryNotFormatted,
    DirectoryUnusable,
    QuorumlogError,
    TimedOut,
)
from ..ids import ClusterId, DirectoryId, NodeId
from ..metadata.shell import (
    BrokerSession,
    BrokerSessionConfig,
    Controllers,
    ControllerShell,
    ControllerShellConfig,
    MetadataPublisher,
)
from ..raftlog import METADATA_LOG_NAME, RaftConfig
from ..raftlog.core.voters import Voter
from ..raftlog.shell import RaftNode, RaftNodeConfig
from ..raftlog.shell.disk.formatting import format_directory as format_member
from ..runtime import CallListener, Handler, Runtime, Scope
from ..settings import DEFAULT, Origin
from ..storage import DirectoryConfig, DirectoryMeta
from ..storage.disk.checkpoints import decode_meta
from ..storage.disk.contents import read_file
from ..storage.disk.layout import META_PROPERTIES
from ..storage.shell.directory import Directory
from ..wire.grpc import (
    AdminService,
    LogLimits,
    LogService,
    NodeSetting,
    QuorumService,
    TransactionsService,
)
from .config import NodeConfig, settings
from .forming import Forming

START_TIMEOUT_MS = 30_000  # of one step that needs the quorum
PATIENCE_MS = 5_000  # of a start that waits for the other voters, until it says so
METADATA_BATCH_BYTES = 32 * 1024
"""Proposals that share a batch: some 250 records, which every node replays in one step of its loop
of a few milliseconds."""
QUORUM_HEALTH = "quorumlog.quorum"
"""The name under which the health service says whether the quorum has a leader."""

_LOG = logging.getLogger("quorumlog.server")

Closer = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddresses:
    """Where a node can be reached; None: not built."""

    data_dir: str
    grpc: str  # "host:port" for clients; "": not open
    controller: str  # "host:port" for brokers and controllers
    kafka: str | None = None
    http: str | None = None


@dataclass(slots=True)
class NodeParts:
    """What a node is made of, as far as it is open, for who looks on from the same process."""

    directory: Directory | None = None
    publisher: MetadataPublisher | None = None
    replicas: ReplicaManager | None = None
    raft: RaftNode | None = None
    controller: ControllerShell | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """This node's part in the quorum."""

    raft: RaftNode
    controller: ControllerShell
    quorum: QuorumService
    listener: CallListener  # for the other members

    def addresses(self) -> dict[NodeId, str]:
        """Where the voters are reached from here; this node at the port that it really has."""
        found = {voter.node_id: self.raft.address_of(voter) for voter in self.raft.voters}
        if self.raft.me in self.raft.voters:
            found[self.raft.node_id] = self.listener.address
        return found

    def report_health(self, listener: CallListener) -> None:
        """Have health checks there told whether a leader is known: one that is silent for an
        election time-out is none."""

        def tell(leader_id: NodeId | None) -> None:
            listener.announce(is_ready=leader_id is not None, service=QUORUM_HEALTH)

        tell(self.raft.leader_id)
        self.controller.on_leadership(tell)


class Node:
    """One node's life: `async with Node(runtime, config) as node`, or `start` and `stop` from one
    task."""

    def __init__(
        self,
        runtime: Runtime,
        config: NodeConfig,
        *,
        origins: Mapping[str, Origin] | None = None,
    ) -> None:
        """`origins` says of settings where their values stand, for who asks the node."""
        self._runtime = runtime
        self._config = config
        self._origins = origins or {}
        self.parts = NodeParts()
        self._closers: list[Closer] = []  # of what is open, oldest first
        self._stack = AsyncExitStack()
        self._addresses: NodeAddresses | None = None

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
        async with self._stack:  # also when closing fails: no task is left behind
            await self._close()
        return False

    async def start(self) -> NodeAddresses:
        """Come up and return once the node does what its roles are; cancelling it undoes it.

        A controller of several waits for the others, without end. Raises one typed error that says
        what is in the way: DirectoryInUse, DirectoryMismatch, DirectoryNotFormatted,
        DirectoryUnusable, AddressInUse, CorruptionError.
        """
        async with AsyncExitStack() as stack:
            scope = await stack.enter_async_context(self._runtime.tasks.scope("node"))
            try:
                self._addresses = await self._open(scope)
            except (QuorumlogError, asyncio.CancelledError):
                await self._close()
                raise
            self._stack = stack.pop_all()
        _LOG.info(
            "node.ready node=%d grpc=%s controller=%s",
            self._config.node_id,
            self._addresses.grpc,
            self._addresses.controller,
        )
        return self._addresses

    async def stop(self) -> None:
        """Stop in order and leave the clean marker; raises what an earlier failure was."""
        await self.__aexit__(None, None, None)

    @property
    def addresses(self) -> NodeAddresses:
        """Where the node can be reached, once started."""
        assert self._addresses is not None, "the node is not started"
        return self._addresses

    # --- up -----------------------------------------------------------------------------------

    async def _open(self, scope: Scope) -> NodeAddresses:
        directory = self.parts.directory = await self._open_directory(scope)
        publisher = self.parts.publisher = MetadataPublisher()
        replicas = self._open_replicas(scope, directory) if self._config.is_broker else None
        self.parts.replicas = replicas
        if replicas is not None:
            self._closers.append(replicas.close)
            publisher.subscribe(replicas.apply)
        member = await self._open_member(scope, directory, publisher)
        if replicas is None:
            return NodeAddresses(
                data_dir=self._config.data_dir, grpc="", controller=member.listener.address
            )
        await replicas.sweep()
        return await self._open_broker(scope, directory, publisher, replicas, member)

    async def _open_directory(self, scope: Scope) -> Directory:
        config = self._config
        try:
            directory = await Directory.open(
                self._runtime,
                scope,
                config.data_dir,
                config=DirectoryConfig(
                    reserve_bytes=config.reserve_bytes,
                    retention_check_interval_ms=config.retention_check_interval_ms,
                    clean_bytes_per_second=config.clean_bytes_per_second,
                    unlink_bytes_per_second=config.unlink_bytes_per_second,
                    clean_buffer_bytes=config.clean_buffer_bytes,
                    producer_expiration_ms=config.producer_expiration_ms,
                    producers_max=config.producers_max,
                ),
                cluster_id=ClusterId(config.cluster_id) if config.cluster_id else None,
                node_id=NodeId(config.node_id),
            )
        except DirectoryNotFormatted as error:
            raise DirectoryNotFormatted(
                f"{error.message}; run `quorumlog storage format` for it first"
            ) from None
        self._closers.append(directory.close)
        return directory

    def _open_replicas(self, scope: Scope, directory: Directory) -> ReplicaManager:
        return ReplicaManager(
            self._runtime,
            scope,
            directory,
            NodeId(self._config.node_id),
            produce_waits_max=self._config.produce_waits_max,
            fetch_waits_max=self._config.fetch_waits_max,
        )

    async def _open_member(
        self, scope: Scope, directory: Directory, publisher: MetadataPublisher
    ) -> "_Member":
        """Take part in the quorum; what was committed before is applied when this returns.

        A lone voter leads then. One of several serves the others first, and waits until one leads,
        however long that takes: it may be the first of them to be started.
        """
        meta, config = directory.meta, self._config
        controller = ControllerShell(
            self._runtime,
            cluster_id=meta.cluster_id,
            publisher=publisher,
            config=ControllerShellConfig(session_timeout_ms=config.session_timeout_ms),
        )
        raft = await RaftNode.open(
            self._runtime,
            scope,
            directory,
            cluster_id=meta.cluster_id,
            config=RaftConfig(
                node_id=meta.node_id,
                directory_id=meta.directory_id,
                address=config.quorum_address,
                bootstrap=config.quorum_bootstrap,
                heartbeat_ms=config.heartbeat_ms,
                election_timeout_ms_min=config.election_timeout_ms,
                election_timeout_ms_max=2 * config.election_timeout_ms,
            ),
            state_machine=controller,
            node_config=RaftNodeConfig(
                listener=config.stream_listener, batch_bytes_max=METADATA_BATCH_BYTES
            ),
        )
        if raft.log_end_offset == 0 and config.is_alone:
            await _refuse_lost_metadata(directory)
        controller.attach(raft)
        self.parts.raft, self.parts.controller = raft, controller
        quorum = QuorumService(self._runtime, raft, cluster_id=meta.cluster_id)
        listener = await self._listen(
            config.controller_listener,
            {**raft.handlers(), **controller.handlers(), **quorum.handlers()},
        )
        member = _Member(raft=raft, controller=controller, quorum=quorum, listener=listener)
        member.report_health(listener)
        self._run(scope, "publisher", publisher.run, publisher.close)
        self._closers.append(raft.close)
        await raft.start()
        self._run(scope, "controller", controller.run, controller.close)
        await self._wait_for_quorum(raft)
        await publisher.wait_applied(publisher.committed_image.offset, START_TIMEOUT_MS)
        return member

    async def _wait_for_quorum(self, raft: RaftNode) -> None:
        """Say soon that it waits, and again and again, ever less often."""
        patience_ms = PATIENCE_MS
        while True:
            try:
                return await raft.wait_ready(patience_ms)
            except TimedOut as error:
                patience_ms = min(2 * patience_ms, 60_000)
                _LOG.warning("node.waits_for_quorum node=%d: %s", self._config.node_id, error)

    async def _open_broker(
        self,
        scope: Scope,
        directory: Directory,
        publisher: MetadataPublisher,
        replicas: ReplicaManager,
        member: "_Member",
    ) -> NodeAddresses:
        """Register, serve, and return once the controller counts on this broker."""
        config, meta = self._config, directory.meta
        log = LogService(self._runtime, replicas, publisher, self._limits())
        producer_ids = ProducerIds(self._runtime.clock)
        admin = AdminService(
            self._runtime,
            publisher,
            replicas,
            cluster_id=meta.cluster_id,
            node_id=meta.node_id,
            data_dir=config.data_dir,
            settings=self._settings(),
        )
        listener = await self._listen(
            config.grpc_listener,
            {
                **log.handlers(),
                **admin.handlers(),
                **TransactionsService(self._runtime, producer_ids).handlers(),
                **member.quorum.handlers(),
            },
            is_ready=False,
        )
        member.report_health(listener)
        self._closers.append(log.stop)
        session = BrokerSession(
            self._runtime,
            config=BrokerSessionConfig(
                cluster_id=meta.cluster_id,
                broker_id=meta.node_id,
                directory_id=meta.directory_id,
                grpc_address=config.advertised_grpc or listener.address,
                rack=config.rack,
                boot_id=self._runtime.files.boot_id(),
                clean_start=directory.was_clean,
                session_timeout_ms=config.session_timeout_ms,
            ),
            publisher=publisher,
            controllers=Controllers(member.addresses, leader=lambda: member.raft.leader_id),
        )
        member.controller.on_leadership(session.leader_changed)
        admin.attach(session)
        producer_ids.attach(session)
        self._run(scope, "session", session.run, session.close)
        await session.unfenced.wait()
        listener.announce(is_ready=True)
        self._closers.append(partial(_say_closing, listener))  # the first thing that a stop does
        return NodeAddresses(
            data_dir=config.data_dir,
            grpc=listener.address,
            controller=member.listener.address,
        )

    def _settings(self) -> list[NodeSetting]:
        """Say of every setting what it is and where it stands, as far as that was told."""
        found = []
        for row in settings():
            value = getattr(self._config, row.attribute)
            unsaid = DEFAULT if value == row.default else Origin(kind="")
            origin = self._origins.get(row.name, unsaid)
            found.append(NodeSetting(row=row, value=value, origin=origin))
        return found

    def _limits(self) -> LogLimits:
        config = self._config
        return LogLimits(
            produce_inflight_max=config.produce_inflight_max,
            produce_inflight_bytes_max=config.produce_inflight_bytes_max,
            fetch_bytes_max=config.fetch_bytes_max,
            subscribe_heartbeat_ms=config.subscribe_heartbeat_ms,
            subscribe_streams_max=config.subscribe_streams_max,
        )

    async def _listen(
        self, address: str, handlers: Mapping[str, Handler], *, is_ready: bool = True
    ) -> CallListener:
        try:
            listener = await self._runtime.network.serve(address, handlers, is_ready=is_ready)
        except OSError as error:
            raise AddressInUse(f"cannot listen on {address}: {error.strerror or error}") from error
        self._closers.append(lambda: listener.close(self._config.shutdown_grace_ms))
        return listener

    def _run(
        self,
        scope: Scope,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        close: Callable[[], None],
    ) -> None:
        """Run a component until it is closed in its turn."""
        task = scope.spawn(work(), name=name)

        async def end() -> None:
            close()
            await task

        self._closers.append(end)

    # --- down ---------------------------------------------------------------------------------

    async def _close(self) -> None:
        """Close what is open, newest first."""
        while self._closers:
            await self._closers.pop()()


async def _say_closing(listener: CallListener) -> None:
    """Have health checks told before anything ends."""
    listener.announce(is_ready=False)


def is_formatted(runtime: Runtime, config: NodeConfig) -> bool:
    """Whether the data directory has been formatted."""
    return runtime.files.exists(f"{config.data_dir}/{META_PROPERTIES}")


async def format_directory(
    runtime: Runtime, config: NodeConfig, *, cluster_id: str = "", forming: Forming | None = None
) -> DirectoryMeta:
    """Format the data directory for this node; repeating it changes nothing.

    Without a cluster id a formatted directory keeps its own, and a new one gets one drawn;
    `forming` says who votes at first, None: this node alone. Raises DirectoryMismatch when it
    belongs to another cluster, node or disk, or was formed otherwise, DirectoryInUse,
    DirectoryUnusable when it cannot be made or written.
    """
    forming = forming or Forming()
    entropy, node_id = runtime.entropy.stream("format"), NodeId(config.node_id)
    known = await _meta_of(runtime, config)
    text = cluster_id or (known.cluster_id if known is not None else "")
    if not text:
        text = base64.urlsafe_b64encode(entropy.token(16)).decode().rstrip("=")
    directory_id = forming.directory_id
    if directory_id is None:
        drawn = DirectoryId(entropy.token(16))
        directory_id = drawn if known is None else known.directory_id
    return await format_member(
        runtime,
        config.data_dir,
        cluster_id=ClusterId(text),
        node_id=node_id,
        directory_id=directory_id,
        voters=forming.voters_with(Voter(node_id, directory_id), config.quorum_address),
    )


async def _refuse_lost_metadata(directory: Directory) -> None:
    """Beside an empty metadata log there can be no partition of ours: the log was lost.

    Going on would take every folder for a deleted topic's. Raises CorruptionError.
    """
    for name in directory.log_names():
        if name != METADATA_LOG_NAME and await directory.topic_of_folder(name) is not None:
            raise CorruptionError(
                f"the metadata log of {directory.path} is empty, but {name} holds a partition: "
                f"restore {METADATA_LOG_NAME} from a backup, or format a new directory; no "
                "partition was touched",
                path=f"{directory.path}/{METADATA_LOG_NAME}",
            )


async def _meta_of(runtime: Runtime, config: NodeConfig) -> DirectoryMeta | None:
    """Return whose a formatted directory is, None when it is none."""
    if not is_formatted(runtime, config):
        return None
    path = f"{config.data_dir}/{META_PROPERTIES}"
    try:
        content = await runtime.tasks.offload("read", partial(read_file, runtime.files, path))
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be read: {error.strerror or error}") from None
    return decode_meta(content, path)
