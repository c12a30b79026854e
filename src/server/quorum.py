"""A node's part in the quorum: a controller, or an observer of the metadata log."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from ..api.audit import AuditLog
from ..api.authorizer import Authorizer
from ..api.quorum import QuorumAdmin
from ..errors import InconsistentClusterId, InvalidRequest, QuorumlogError, StaleMetadata, TimedOut
from ..frontends.grpc import QuorumClient, QuorumService
from ..ids import ClusterId, NodeId
from ..metadata.shell import (
    ControllerShell,
    MetadataPublisher,
    MetadataStateMachine,
)
from ..proto import quorum_pb2
from ..raftlog import RaftConfig
from ..raftlog.shell import RaftNode, RaftNodeConfig
from ..runtime import CallListener, Handler, Runtime, Scope
from ..services import QUORUM_DESCRIBE
from ..storage import DirectoryMeta
from ..storage.layout import INITIAL_CREDENTIALS
from ..storage.shell.data_directory import DataDirectory
from .config import NodeConfig
from .directory_format import check_metadata_not_lost
from .lifecycle import Lifecycle

APPLY_PATIENCE_MS: Final = 10_000  # until a start that applies the metadata log is logged
SOON_MS: Final = 1_000  # of a start without a leader, until the configured controllers are checked
PATIENCE_MS: Final = 4_000  # then until the wait is logged, doubling each time
METADATA_BATCH_BYTES: Final = 32 * 1024
"""Proposals that share a batch: about 250 records, which each node applies in one step of its event
loop of a few milliseconds."""
QUORUM_HEALTH: Final = "quorumlog.quorum"
"""The name of the health check of the quorum: serving while it has a leader."""

_LOG = logging.getLogger("quorumlog.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuorum:
    """This node's part in the quorum."""

    cluster_id: ClusterId
    raft: RaftNode
    metadata: MetadataStateMachine
    controller: ControllerShell | None  # None: without the role
    quorum: QuorumAdmin
    service: QuorumService  # of `quorum`
    listener: CallListener  # for the other nodes of the quorum

    def leader_id(self) -> NodeId | None:
        """Return the leader of the quorum, None if it is unknown."""
        return self.raft.leader_id

    def addresses(self) -> dict[NodeId, str]:
        """Return the addresses of the voters; this node's has the actual port."""
        found = {voter.node_id: self.raft.address_of(voter) for voter in self.raft.voters}
        if self.raft.me in self.raft.voters:
            found[self.raft.me.node_id] = self.listener.address
        return found

    def report_health(self, listener: CallListener) -> None:
        """Report in health checks of a listener if the leader is known; a leader that is silent for
        an election timeout is not."""

        def tell(leader_id: NodeId | None) -> None:
            listener.announce(is_ready=leader_id is not None, service=QUORUM_HEALTH)

        tell(self.raft.leader_id)
        self.metadata.on_leadership(tell)


async def open_member(
    runtime: Runtime,
    scope: Scope,
    life: Lifecycle,
    *,
    config: NodeConfig,
    directory: DataDirectory,
    metadata: MetadataStateMachine,
    authorizer: Authorizer,
    audit: AuditLog | None,
    broker_handlers: Mapping[str, Handler],
) -> NodeQuorum:
    """Open the log and the listener for other nodes, with `broker_handlers` among its calls; the
    committed past is applied by join(). The network of `runtime` is the one between nodes."""
    meta = directory.meta
    controller = _controller(runtime, config, meta, metadata) if config.is_controller else None
    if controller is None:
        metadata.on_leadership(partial(_check_not_elected, meta.node_id))
    raft = await RaftNode.open(
        runtime,
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
        state_machine=metadata,
        node_config=RaftNodeConfig(
            listener=config.stream_listener, batch_bytes_max=METADATA_BATCH_BYTES
        ),
    )
    if raft.status().log_end_offset == 0 and config.is_alone:
        await check_metadata_not_lost(directory)
    quorum = QuorumAdmin(
        runtime.clock,
        raft,
        QuorumClient(runtime.network),
        authorizer,
        cluster_id=meta.cluster_id,
        is_controller=config.is_controller,
        audit=audit,
    )
    service = QuorumService(quorum)
    handlers = {**raft.handlers(), **service.handlers(), **broker_handlers}
    if controller is not None:
        controller.attach(raft)
        handlers.update(controller.handlers())
    listener = await life.listen(runtime.network, config.controller_listener, handlers)
    member = NodeQuorum(
        cluster_id=meta.cluster_id,
        raft=raft,
        metadata=metadata,
        controller=controller,
        quorum=quorum,
        service=service,
        listener=listener,
    )
    member.report_health(listener)
    return member


async def join(
    runtime: Runtime,
    scope: Scope,
    life: Lifecycle,
    *,
    config: NodeConfig,
    member: NodeQuorum,
    publisher: MetadataPublisher,
) -> None:
    """Start, and return once the committed past is applied.

    A lone voter is leader then. One of several waits without limit for a leader: it may be the
    first node to start. Raises InconsistentClusterId if the controllers that an observer asks
    belong to another cluster.
    """
    raft, controller = member.raft, member.controller
    life.run(scope, "publisher", publisher.run, publisher.close)
    life.opened(raft.close)
    await raft.start()
    if controller is not None:
        life.run(scope, "controller", controller.run, controller.close)
        if runtime.files.exists(f"{config.data_dir}/{INITIAL_CREDENTIALS}"):
            from .initial_credentials import InitialCredentials  # needed once

            initial = InitialCredentials(
                runtime, config.data_dir, controller, member.metadata, publisher
            )
            life.run(scope, "initial_credentials", initial.run, initial.close)
    await _wait_for_quorum(runtime, config, raft, member.cluster_id)
    await wait_for_committed_metadata(member.metadata, publisher, config.node_id)


async def wait_for_committed_metadata(
    metadata: MetadataStateMachine, publisher: MetadataPublisher, node_id: int
) -> None:
    """Wait until the metadata committed before the start is applied, and log the progress."""
    goal = metadata.committed_image.offset
    while True:
        try:
            return await publisher.wait_applied(goal, APPLY_PATIENCE_MS)
        except StaleMetadata:
            _LOG.warning(
                "node.applies_metadata node=%d applied=%d goal=%d: applying the metadata log before"
                " the start",
                node_id,
                publisher.applied_offset,
                goal,
            )


def _check_not_elected(node_id: NodeId, leader_id: NodeId | None) -> None:
    """Raise InvalidRequest if this node was elected: it is a voter without the controller role, and
    stopping lets another voter lead."""
    if leader_id == node_id:
        raise InvalidRequest(
            f"node {leader_id} was elected controller, but its node.roles is broker; remove it"
            " with `quorumlog quorum remove-voter`, or add the role controller"
        )


def _controller(
    runtime: Runtime, config: NodeConfig, meta: DirectoryMeta, metadata: MetadataStateMachine
) -> ControllerShell:
    return ControllerShell(
        runtime, cluster_id=meta.cluster_id, metadata=metadata, config=config.controller
    )


async def _wait_for_quorum(
    runtime: Runtime, config: NodeConfig, raft: RaftNode, cluster_id: ClusterId
) -> None:
    """Wait for a leader; log the wait soon, then at growing intervals."""
    wait_ms, patience_ms = SOON_MS, PATIENCE_MS
    while True:
        try:
            return await raft.wait_ready(wait_ms)
        except TimedOut as error:
            if raft.me not in raft.voters:
                await _check_same_cluster(runtime, config, cluster_id)
            if wait_ms > SOON_MS:
                _LOG.warning("node.waits_for_quorum node=%d: %s", config.node_id, error)
            wait_ms, patience_ms = patience_ms, min(2 * patience_ms, 60_000)


async def _check_same_cluster(runtime: Runtime, config: NodeConfig, cluster_id: ClusterId) -> None:
    """Raise InconsistentClusterId if the configured controllers belong to another cluster: waiting
    would not help."""
    answers = await asyncio.gather(
        *(_cluster_at(runtime, address) for address in config.quorum_bootstrap)
    )
    for address, other in zip(config.quorum_bootstrap, answers, strict=True):
        if other not in (None, cluster_id):
            raise InconsistentClusterId(
                f"{address}: it belongs to cluster {other!r}, and {config.data_dir} to"
                f" {cluster_id!r}; correct controller.bootstrap, or format a directory for"
                " that cluster"
            )


async def _cluster_at(runtime: Runtime, address: str) -> str | None:
    """Return the cluster id of the node at an address, None if it does not answer in time."""
    channel = runtime.network.channel(address)
    request = quorum_pb2.DescribeQuorumRequest(local=True)
    try:
        return (await channel.call(QUORUM_DESCRIBE, request, timeout_ms=SOON_MS)).cluster_id
    except QuorumlogError:
        return None
    finally:
        await channel.close()
