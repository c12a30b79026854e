"""A node's part in the quorum: a controller, or a broker that follows the log without a vote."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from ..errors import InconsistentClusterId, QuorumlogError, StaleMetadata, TimedOut
from ..frontends.grpc import QuorumService
from ..ids import ClusterId, NodeId
from ..metadata.decision import ControllerConfig
from ..metadata.shell import (
    ControllerShell,
    ControllerShellConfig,
    MetadataFollower,
    MetadataPublisher,
)
from ..proto import quorum_pb2
from ..raftlog import RaftConfig
from ..raftlog.shell import RaftNode, RaftNodeConfig
from ..runtime import CallListener, Runtime, Scope
from ..services import QUORUM_DESCRIBE
from ..storage import DirectoryMeta
from ..storage.shell.directory import Directory
from .config import NodeConfig
from .formatting import refuse_lost_metadata
from .lifecycle import Lifecycle

APPLY_PATIENCE_MS: Final = 10_000  # of a start that applies its past, until it says so
SOON_MS: Final = 1_000  # of a start that waits for the others, until it looks for what is wrong
PATIENCE_MS: Final = 4_000  # after that, until it says that it waits
METADATA_BATCH_BYTES: Final = 32 * 1024
"""Proposals that share a batch: some 250 records, which every node replays in one step of its loop
of a few milliseconds."""
QUORUM_HEALTH: Final = "quorumlog.quorum"
"""The name under which the health service says whether the quorum has a leader."""

_LOG = logging.getLogger("quorumlog.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """This node's part in the quorum."""

    cluster_id: ClusterId
    raft: RaftNode
    machine: ControllerShell | MetadataFollower
    quorum: QuorumService
    listener: CallListener  # for the other members

    @property
    def controller(self) -> ControllerShell | None:
        """The controller role, None: the node has none."""
        return self.machine if isinstance(self.machine, ControllerShell) else None

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
        self.machine.on_leadership(tell)


async def open_member(
    runtime: Runtime,
    scope: Scope,
    life: Lifecycle,
    *,
    config: NodeConfig,
    directory: Directory,
    publisher: MetadataPublisher,
) -> Member:
    """Take part in the quorum; what was committed before is not delivered yet, see join()."""
    meta = directory.meta
    machine = _state_machine(runtime, config, meta, publisher)
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
        state_machine=machine,
        node_config=RaftNodeConfig(
            listener=config.stream_listener, batch_bytes_max=METADATA_BATCH_BYTES
        ),
    )
    if raft.log_end_offset == 0 and config.is_alone:
        await refuse_lost_metadata(directory)
    machine.attach(raft)
    quorum = QuorumService(
        runtime, raft, cluster_id=meta.cluster_id, is_controller=config.is_controller
    )
    handlers = {**raft.handlers(), **quorum.handlers()}
    if isinstance(machine, ControllerShell):
        handlers.update(machine.handlers())
    listener = await life.listen(config.controller_listener, handlers)
    member = Member(
        cluster_id=meta.cluster_id, raft=raft, machine=machine, quorum=quorum, listener=listener
    )
    member.report_health(listener)
    return member


async def join(
    runtime: Runtime,
    scope: Scope,
    life: Lifecycle,
    *,
    config: NodeConfig,
    member: Member,
    publisher: MetadataPublisher,
) -> None:
    """Run, and return once what was committed before is applied.

    A lone voter leads then. One of several waits until one leads, however long that takes: it may
    be the first of them to be started. Raises InconsistentClusterId when a node that only follows
    was sent to another cluster.
    """
    raft, machine = member.raft, member.machine
    life.run(scope, "publisher", publisher.run, publisher.close)
    life.opened(raft.close)
    await raft.start()
    if isinstance(machine, ControllerShell):
        life.run(scope, "controller", machine.run, machine.close)
    await _wait_for_quorum(runtime, config, raft, member.cluster_id)
    await apply_past(publisher, config.node_id)


async def apply_past(publisher: MetadataPublisher, node_id: int) -> None:
    """Return once what was committed before the start is applied, however much that is; say now
    and then that it takes its time."""
    goal = publisher.committed_image.offset
    while True:
        try:
            return await publisher.wait_applied(goal, APPLY_PATIENCE_MS)
        except StaleMetadata:
            _LOG.warning(
                "node.applies_metadata node=%d applied=%d goal=%d: it starts once it knows what was"
                " decided before",
                node_id,
                publisher.applied_offset,
                goal,
            )


def _state_machine(
    runtime: Runtime, config: NodeConfig, meta: DirectoryMeta, publisher: MetadataPublisher
) -> ControllerShell | MetadataFollower:
    if not config.is_controller:
        return MetadataFollower(publisher)
    decisions = ControllerConfig(
        partitions_default=config.partitions_default,
        replication_factor_default=config.replication_factor_default,
    )
    shell_config = ControllerShellConfig(
        decisions=decisions, session_timeout_ms=config.session_timeout_ms
    )
    return ControllerShell(
        runtime, cluster_id=meta.cluster_id, publisher=publisher, config=shell_config
    )


async def _wait_for_quorum(
    runtime: Runtime, config: NodeConfig, raft: RaftNode, cluster_id: ClusterId
) -> None:
    """Say soon that it waits, and again and again, ever less often."""
    wait_ms, patience_ms = SOON_MS, PATIENCE_MS
    while True:
        try:
            return await raft.wait_ready(wait_ms)
        except TimedOut as error:
            if raft.me not in raft.voters:
                await _refuse_other_cluster(runtime, config, cluster_id)
            if wait_ms > SOON_MS:
                _LOG.warning("node.waits_for_quorum node=%d: %s", config.node_id, error)
            wait_ms, patience_ms = patience_ms, min(2 * patience_ms, 60_000)


async def _refuse_other_cluster(
    runtime: Runtime, config: NodeConfig, cluster_id: ClusterId
) -> None:
    """Raise InconsistentClusterId when those whom this node asks for the quorum are of another
    cluster: waiting would not help."""
    answers = await asyncio.gather(
        *(_cluster_at(runtime, address) for address in config.quorum_bootstrap)
    )
    for address, other in zip(config.quorum_bootstrap, answers, strict=True):
        if other not in (None, cluster_id):
            raise InconsistentClusterId(
                f"{address} belongs to cluster {other!r}, {config.data_dir} to"
                f" {cluster_id!r}: correct controller.bootstrap, or format a directory for"
                " that cluster"
            )


async def _cluster_at(runtime: Runtime, address: str) -> str | None:
    """Return the cluster of whoever answers at an address, None: nobody does in time."""
    channel = runtime.network.channel(address)
    request = quorum_pb2.DescribeQuorumRequest(local=True)
    try:
        return (await channel.call(QUORUM_DESCRIBE, request, timeout_ms=SOON_MS)).cluster_id
    except QuorumlogError:
        return None
    finally:
        await channel.close()
