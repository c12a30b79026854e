"""A simulated cluster of whole nodes, with a machine for each.

A `ClusterNode` is a machine with a data directory and a node's configuration. The `Cluster` starts
the nodes as they ship, checks the reasons of their ends, and restarts them like a supervisor. A
wiped machine returns with an empty disk under its old node id.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from quorumlog.errors import CorruptionError, QuorumlogError
from quorumlog.ids import ClusterId, DirectoryId, NodeId
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage
from quorumlog.metadata.commands import Command
from quorumlog.raftlog.shell import RaftNode
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.runtime import Runtime
from quorumlog.server.addresses import id_text
from quorumlog.server.config import NodeConfig
from quorumlog.server.directory_format import FormatOptions, initial_voters
from quorumlog.server.node import Node, format_directory, is_formatted
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimNode, SimWorld

from ..checkers.data_directory import check_directory
from ..checkers.violation import Violation
from .options import ClusterOptions

CLUSTER_ID: Final = ClusterId("whole-clusters-of-nodes")
DATA: Final = "/var/quorumlog"
RESTART_MS: Final = (50, 3_000)  # before a supervisor restarts a process that ended by itself
FIRST_CONTROLLER: Final = 101  # node id of the first controller-only node
CLIENT_PORT: Final = 9094
CONTROLLER_PORT: Final = 9093
KAFKA_PORT: Final = 9092


@dataclass(slots=True, eq=False)
class ClusterNode:
    """A machine of the cluster and its node."""

    sim: SimNode
    config: NodeConfig
    directory_id: DirectoryId
    forming: FormatOptions
    node: Node | None = None  # of the running process
    stop: asyncio.Event | None = None  # set for a clean stop
    is_ready: bool = False  # it serves its roles
    is_paused: bool = False
    restart_at_ms: int = -1  # time of the next restart; -1: running, or not to be restarted
    excuse: str = ""  # the reason why it may end by itself now
    excuse_ends_ms: int = -1  # -1: not before its repair
    ends: Counter[str] = field(default_factory=Counter)  # ends by itself, by reason
    gone: list[Voter] = field(default_factory=list)  # identities before its disk was wiped

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.sim.name

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
    def is_up(self) -> bool:
        """True if its process runs and is not paused."""
        return self.sim.alive and not self.is_paused

    @property
    def image(self) -> MetadataImage:
        """The committed metadata of the running node."""
        publisher = None if self.node is None else self.node.parts.publisher
        return EMPTY_IMAGE if publisher is None else publisher.committed_image


Identity: TypeAlias = tuple[str, DirectoryId]
"""A machine's boot id and directory id; a registration with other ones reveals a loss."""


class Cluster:
    """All nodes of a run."""

    def __init__(self, world: SimWorld, options: ClusterOptions, entropy: SimEntropy) -> None:
        self.world = world
        self.options = options
        self.restarts = 0
        self.wiped = 0
        # recorded where an exception would be handled by a node
        self.violations: list[Violation] = []
        # Machines with losses that the controller has not learned of -> the identity of their last
        # registration; None: no registration ends the loss.
        self.damaged: dict[str, Identity | None] = {}
        self.recovering: set[str] = set()  # machines that lost data and are not in sync again
        self._entropy = entropy
        self._disks_made = 0
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

    def start(self) -> None:
        """Start every node."""
        for node in self.nodes:
            self.start_node(node)

    def start_node(self, node: ClusterNode) -> None:
        """Start a machine's next process."""
        node.restart_at_ms = -1
        node.sim.spawn(lambda runtime: self._run(node, runtime))

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

    def leader(self) -> ClusterNode | None:
        """Return the running node that leads the quorum in the latest epoch."""
        leading = [
            (raft.epoch, node)
            for node in self.nodes
            if node.is_up
            and node.node is not None
            and (raft := node.node.parts.raft) is not None
            and raft.is_leader
        ]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def voters(self) -> VoterSet | None:
        """Return the voters of the current leader; None without a leader."""
        leader = self.leader()
        if leader is None or leader.node is None or leader.node.parts.raft is None:
            return None
        return leader.node.parts.raft.voters

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
            if 0 <= node.excuse_ends_ms < self.world.now_ms() and node.sim.alive:
                node.excuse, node.excuse_ends_ms = "", -1
            self._supervise(node)

    def restart_later(self, node: ClusterNode, after_ms: int) -> None:
        """Schedule the restart of a dead node."""
        assert not node.sim.alive, f"{node.name} is alive"
        node.node, node.stop = None, None
        node.is_ready = node.is_paused = False
        node.restart_at_ms = self.world.now_ms() + after_ms

    def kill(self, node: ClusterNode, *, power: bool, down_ms: int) -> None:
        """Kill a process, or cut its machine's power; it is restarted after `down_ms`."""
        if not node.sim.alive:
            return
        self.resume(node)
        if power:
            node.sim.power_cut()
        else:
            node.sim.crash()
        self.restart_later(node, down_ms)

    def pause(self, node: ClusterNode) -> None:
        """Pause a node, as SIGSTOP does."""
        node.is_paused = True
        node.sim.pause()

    def resume(self, node: ClusterNode) -> None:
        """Resume a paused node."""
        if node.is_paused and node.sim.alive:
            node.sim.resume()
        node.is_paused = False

    def stop_in_order(self, node: ClusterNode) -> bool:
        """Stop a node cleanly, as by SIGTERM. Return True if it was running."""
        stop = node.stop
        if stop is None or not node.is_up:
            return False

        async def tell(runtime: Runtime) -> None:
            stop.set()

        node.sim.attach(tell, name="stop")
        return True

    def ask_leader(self, name: str, ask: Callable[[RaftNode], Awaitable[None]]) -> bool:
        """Run a call on the active controller, if there is one; its errors are only counted.
        Return True if there was one."""
        leader = self.leader()
        if leader is None or leader.node is None or leader.node.parts.raft is None:
            return False
        raft = leader.node.parts.raft

        async def do(runtime: Runtime) -> None:
            try:
                await ask(raft)
            except QuorumlogError as error:
                leader.ends[f"{name}:{type(error).__name__}"] += 1

        leader.sim.attach(do, name=name)
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
        node.gone.append(node.voter)
        node.sim.wipe()
        node.directory_id = self._new_directory_id()
        node.forming = FormatOptions(directory_id=node.directory_id, voters=VoterSet(()))
        if node.is_controller:
            others = [one for one in self.controllers if one is not node]
            node.config = replace(
                node.config,
                controller_voters=(),
                controller_bootstrap=tuple(one.config.controller_listener for one in others),
            )
        self.wiped += 1

    def check_directories(self) -> int:
        """Kill every node and check the data directories; return the number of notes."""
        return sum(check_directory(node.sim, DATA) for node in self.nodes)

    def describe(self) -> str:
        """Return the state of the nodes and partitions, a line each."""
        lines = []
        for node in self.nodes:
            parts = None if node.node is None else node.node.parts
            raft = None if parts is None else parts.raft
            how = "" if raft is None else f" {raft.status().role} epoch={raft.epoch}"
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
        disks = {node_id: self._new_directory_id() for node_id, _ in roles}
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
            controller_listener=f"{name}:{CONTROLLER_PORT}",
            kafka_listeners=(f"{name}:{KAFKA_PORT}",) if options.has_kafka else (),
            auto_create_topics="false",  # the plans create topics explicitly
            controller_voters=voters if is_controller else (),
            controller_bootstrap=()
            if is_controller
            else tuple(voter.split("@")[1].rpartition(":")[0] for voter in voters),
            election_timeout_ms=options.election_timeout_ms,
            heartbeat_ms=options.election_timeout_ms // 6,
            session_timeout_ms=options.session_timeout_ms,
            replica_lag_time_max_ms=options.lag_time_ms_max,
        )
        without_voters = FormatOptions(directory_id=directory_id, voters=VoterSet(()))
        forming = initial_voters(config) if is_controller else without_voters
        return ClusterNode(
            sim=self.world.node(name), config=config, directory_id=directory_id, forming=forming
        )

    async def _run(self, node: ClusterNode, runtime: Runtime) -> None:
        """Run a process of a node, from its start to its clean stop."""
        stop = asyncio.Event()
        if not is_formatted(runtime, node.config):
            await format_directory(
                runtime, node.config, cluster_id=CLUSTER_ID, forming=node.forming
            )
        node.node, node.stop = Node(runtime, node.config), stop
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
            told = (broker.boot_id, broker.directory_id)
            if told == _identity(node) != lost:
                del self.damaged[node.name]

    def _supervise(self, node: ClusterNode) -> None:
        if node.sim.alive:
            return
        now_ms = self.world.now_ms()
        if node.restart_at_ms >= 0:
            if now_ms >= node.restart_at_ms:
                self.restarts += 1
                self.start_node(node)
            return
        sim = node.sim
        if not sim.killed and (sim.exit_error is not None or sim.stops):
            self._judge(node)
        self.restart_later(node, self._entropy.spread(*RESTART_MS))

    def _judge(self, node: ClusterNode) -> None:
        """Check the reason for which a process ended by itself."""
        error, stops = node.sim.exit_error, node.sim.stops
        reason = f"{type(error).__name__}: {error}" if error is not None else f"stopped: {stops}"
        node.sim.stops = []
        node.ends[type(error).__name__ if error is not None else "stopped"] += 1
        is_broken = isinstance(error, AssertionError | CorruptionError)
        if not node.excuse or is_broken:
            raise AssertionError(f"{node.name} ended by itself: {reason}") from error
        if node.excuse == "sync":
            # A failed sync leaves the page cache untrustworthy: cut the power.
            node.sim.power_cut()

    def _new_directory_id(self) -> DirectoryId:
        self._disks_made += 1
        return DirectoryId(self._entropy.stream(f"disk/{self._disks_made}").token(16))


def nodes_up(nodes: list[ClusterNode]) -> Iterator[tuple[ClusterNode, Node]]:
    """Yield the running nodes."""
    for node in nodes:
        if node.is_up and node.node is not None:
            yield node, node.node


def _identity(node: ClusterNode) -> Identity:
    return node.sim.device.boot_id, node.directory_id
