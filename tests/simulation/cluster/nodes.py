"""A simulated cluster of whole nodes, with a machine for each.

A `ClusterNode` is a machine with a data directory and a node's configuration. The `Cluster` starts
the nodes as they ship, checks the reasons of their ends, and restarts them like a supervisor. A
wiped machine returns with an empty disk under its old node id.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from quorumlog.broker.config import ReplicationConfig
from quorumlog.errors import CorruptionError
from quorumlog.frontends.kafka.config import KafkaConfig
from quorumlog.ids import ClusterId, DirectoryId, NodeId
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage
from quorumlog.metadata.commands import Command
from quorumlog.metadata.config import ControllerConfig
from quorumlog.raftlog.shell import RaftNode
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.runtime import PeerCertificate, Runtime
from quorumlog.runtime.node_identity import node_uri
from quorumlog.server.addresses import id_text
from quorumlog.server.config import NodeConfig
from quorumlog.server.directory_format import FormatOptions, initial_voters
from quorumlog.server.node import Node, format_directory, is_formatted
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimWorld

from ..checkers.violation import Violation
from .machines import DATA, ClusterMachine, SimulatedCluster
from .options import ClusterOptions

CLUSTER_ID: Final = ClusterId("whole-clusters-of-nodes")
FIRST_CONTROLLER: Final = 101  # node id of the first controller-only node
CLIENT_PORT: Final = 9094
CONTROLLER_PORT: Final = 9093
KAFKA_PORT: Final = 9092


@dataclass(slots=True, eq=False, kw_only=True)
class ClusterNode(ClusterMachine):
    """A machine of the cluster and its node."""

    config: NodeConfig
    forming: FormatOptions
    node: Node | None = None  # of the running process
    stop: asyncio.Event | None = None  # set for a clean stop
    is_ready: bool = False  # it serves its roles

    @property
    def node_id(self) -> NodeId:
        """The node id of every node on this machine."""
        return NodeId(self.config.node_id)

    @property
    def voter(self) -> Voter:
        """This machine with its current disk, as a member of the quorum."""
        return Voter(self.node_id, self.directory_id)

    @property
    def is_broker(self) -> bool:
        """True if it has the broker role."""
        return self.config.is_broker

    @property
    def is_controller(self) -> bool:
        """True if it has the controller role."""
        return self.config.is_controller

    @property
    def raft(self) -> RaftNode | None:
        """The Raft node of the running process; None if it has none yet."""
        return None if self.node is None else self.node.parts.raft

    def forget_process(self) -> None:
        """Drop the references to a process that has ended."""
        self.node = self.stop = None
        self.is_ready = False

    @property
    def image(self) -> MetadataImage:
        """The committed metadata of the running node."""
        metadata = None if self.node is None else self.node.parts.metadata
        return EMPTY_IMAGE if metadata is None else metadata.committed_image


Identity: TypeAlias = tuple[str, DirectoryId]
"""A machine's boot id and directory id; a registration with other ones reveals a loss."""


class Cluster(SimulatedCluster[ClusterNode]):
    """All nodes of a run."""

    NEVER_EXCUSED = (AssertionError, CorruptionError)

    def __init__(self, world: SimWorld, options: ClusterOptions, entropy: SimEntropy) -> None:
        super().__init__(world, entropy)
        self.options = options
        # recorded where an exception would be handled by a node
        self.violations: list[Violation] = []
        # Machines with losses that the controller has not learned of -> the identity of their last
        # registration; None: no registration ends the loss.
        self.damaged: dict[str, Identity | None] = {}
        self.recovering: set[str] = set()  # machines that lost data and are not in sync again
        self._rafts: dict[str, RaftNode] = {}  # of the last process, running or dead
        self._newest = EMPTY_IMAGE
        self.nodes = self._make_nodes()

    def node(self, node_id: int) -> ClusterNode:
        """Return the node of an id."""
        return next(node for node in self.nodes if node.node_id == node_id)

    @property
    def brokers(self) -> list[ClusterNode]:
        """The nodes with the broker role."""
        return [node for node in self.nodes if node.is_broker]

    @property
    def controllers(self) -> list[ClusterNode]:
        """The members of the quorum."""
        return [node for node in self.nodes if node.is_controller]

    @property
    def bootstrap(self) -> str:
        """The bootstrap addresses of clients."""
        return ",".join(node.config.grpc_listener for node in self.brokers)

    @property
    def kafka_bootstrap(self) -> str:
        """The bootstrap addresses of Kafka clients."""
        return ",".join(node.config.kafka_listeners[0] for node in self.brokers)

    @property
    def machines(self) -> list[ClusterNode]:
        """All machines."""
        return self.nodes

    # --- state ---------------------------------------------------------------------------------

    @property
    def newest_image(self) -> MetadataImage:
        """The newest committed metadata that any node had so far."""
        for node in self.nodes:
            image = node.image
            if image.offset > self._newest.offset:
                self._newest = image
        return self._newest

    def raft_of(self, node: ClusterNode) -> RaftNode | None:
        """Return a node's Raft node of its last process; None if it had none yet."""
        if node.node is not None and node.node.parts.raft is not None:
            self._rafts[node.name] = node.node.parts.raft
        return self._rafts.get(node.name)

    # --- control -------------------------------------------------------------------------------

    def run(self, virtual_ms: int) -> None:
        """Let time pass, and restart nodes that are due. Raises AssertionError for a violation,
        and for a node that ended by itself without a reason."""
        fabric = self.world.fabric
        self.world.run_for(virtual_ms, unless=lambda: bool(self.violations))
        for violation in self.violations:
            raise violation
        for error in fabric.failed_handlers:
            raise Violation("FailedHandler", f"{type(error).__name__}: {error}") from error
        self._forget_damage()
        for node in self.nodes:
            self.raft_of(node)
            self.supervise(node)

    def stop_in_order(self, node: ClusterNode) -> bool:
        """Stop a node cleanly, as by SIGTERM. Return True if it was running."""
        stop = node.stop
        if stop is None or not node.is_up:
            return False

        async def tell(runtime: Runtime) -> None:
            stop.set()

        node.sim.attach(tell, name="stop")
        return True

    def ask_controller(self, command: Command) -> bool:
        """Submit a command to the active controller, if there is one, like `ask_leader`."""
        leader = self.leader()
        controller = None if leader is None or leader.node is None else leader.node.parts.controller
        if controller is None:
            return False

        async def ask(_: RaftNode) -> None:
            await controller.submit(command)

        return self.ask_leader(type(command).__name__, ask)

    def wipe(self, node: ClusterNode) -> None:
        """Replace a dead node's disk by an empty one. A controller returns as a new member
        without a vote."""
        super().wipe(node)
        node.forming = FormatOptions(directory_id=node.directory_id, voters=VoterSet(()))
        if node.is_controller:
            others = [one for one in self.controllers if one is not node]
            node.config = replace(
                node.config,
                controller_voters=(),
                controller_bootstrap=tuple(one.config.controller_listener for one in others),
            )

    def describe(self) -> str:
        """Return the state of the nodes and partitions, a line each."""
        lines = []
        for node in self.nodes:
            parts = None if node.node is None else node.node.parts
            raft = None if parts is None else parts.raft
            how = "" if raft is None else f" {raft.status().role} epoch={raft.status().epoch}"
            lines.append(
                f"  {node.name}: alive={node.sim.alive} ready={node.is_ready} "
                f"paused={node.is_paused}{how} image={node.image.offset} ends={dict(node.ends)}"
            )
        image = self.newest_image
        lines += [
            f"  broker {broker.id}: epoch={broker.epoch} fenced={broker.fenced}"
            for broker in image.sorted_brokers()
        ]
        for topic in image.sorted_topics():
            lines += [
                f"  {topic.name}-{index}: leader={state.leader} epoch={state.leader_epoch}"
                f" isr={list(state.isr)} elr={list(state.elr)} replicas={list(state.replicas)}"
                for index, state in topic.sorted_partitions()
            ]
        return "\n".join(lines)

    # --- inside --------------------------------------------------------------------------------

    def _make_nodes(self) -> list[ClusterNode]:
        options = self.options
        roles: list[tuple[int, tuple[str, ...]]] = []
        if options.is_combined:
            roles += [
                (number, ("controller", "broker")) for number in range(1, options.brokers + 1)
            ]
        else:
            roles += [
                (FIRST_CONTROLLER + number, ("controller",))
                for number in range(options.controllers)
            ]
            roles += [(number, ("broker",)) for number in range(1, options.brokers + 1)]
        disks = {node_id: self.new_directory_id() for node_id, _ in roles}
        voters = tuple(
            f"{node_id}@n{node_id}:{CONTROLLER_PORT}:{id_text(disks[node_id])}"
            for node_id, held in roles
            if "controller" in held
        )
        return [self._make_node(node_id, held, disks[node_id], voters) for node_id, held in roles]

    def _make_node(
        self,
        node_id: int,
        roles: tuple[str, ...],
        directory_id: DirectoryId,
        voters: tuple[str, ...],
    ) -> ClusterNode:
        options, name = self.options, f"n{node_id}"
        is_controller = "controller" in roles
        config = NodeConfig(
            data_dir=DATA,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            roles=roles,
            rack=f"rack-{node_id % options.racks}" if options.racks else "",
            grpc_listener=f"{name}:{CLIENT_PORT}",
            allow_insecure_listeners=True,
            controller_listener=f"{name}:{CONTROLLER_PORT}",
            kafka_listeners=(f"{name}:{KAFKA_PORT}",) if options.has_kafka else (),
            kafka=KafkaConfig(auto_create_topics=False),  # the plans create topics explicitly
            controller_voters=voters if is_controller else (),
            controller_bootstrap=()
            if is_controller
            else tuple(voter.split("@")[1].rpartition(":")[0] for voter in voters),
            election_timeout_ms=options.election_timeout_ms,
            heartbeat_ms=options.election_timeout_ms // 3,
            controller=ControllerConfig(
                session_timeout_ms=options.session_timeout_ms,
                records_at_once=options.records_at_once,
            ),
            replication=ReplicationConfig(lag_time_max_ms=options.lag_time_ms_max),
        )
        without_voters = FormatOptions(directory_id=directory_id, voters=VoterSet(()))
        forming = initial_voters(config) if is_controller else without_voters
        sim, uri = self.world.node(name), node_uri(CLUSTER_ID, node_id, roles)
        sim.machine.certificate = PeerCertificate(f"CN={name}", (uri,), (name,))
        return ClusterNode(sim=sim, config=config, directory_id=directory_id, forming=forming)

    async def run_process(self, node: ClusterNode, runtime: Runtime) -> None:
        """Run a process of a node, from its start to its clean stop."""
        stop = asyncio.Event()
        if not is_formatted(runtime, node.config):
            await format_directory(
                runtime, node.config, cluster_id=CLUSTER_ID, forming=node.forming
            )
        node.node, node.stop = Node(runtime, node.config, certified=True), stop
        async with node.node:
            node.is_ready = True
            await stop.wait()
        node.is_ready = False

    def note_damage(self, node: ClusterNode) -> None:
        """Record that a machine lost data that it held for others."""
        self.damaged[node.name] = _identity(node)
        self.recovering.add(node.name)

    def _forget_damage(self) -> None:
        """End the losses of machines that have registered again."""
        image = self.newest_image
        for node in self.nodes:
            lost, broker = self.damaged.get(node.name), image.broker(node.node_id)
            if lost is None or broker is None:
                continue
            reported = (broker.boot_id, broker.directory_id)
            if reported == _identity(node) != lost:
                del self.damaged[node.name]


def nodes_up(nodes: list[ClusterNode]) -> Iterator[tuple[ClusterNode, Node]]:
    """Yield the running nodes."""
    for node in nodes:
        if node.is_up and node.node is not None:
            yield node, node.node


def _identity(node: ClusterNode) -> Identity:
    return node.sim.device.boot_id, node.directory_id
