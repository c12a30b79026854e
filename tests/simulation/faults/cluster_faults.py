"""The faults of clusters of whole nodes.

A cluster must be able to
survive them (`cluster_bounds`): permanent losses are fewer than min.insync.replicas at once, and
never include the disks of half of the quorum.
"""

import errno
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, TypeAlias

from quorumlog.ids import NodeId
from quorumlog.metadata.commands import AlterReassignments, ElectLeaders, Reassignment
from quorumlog.raftlog.shell import RaftNode
from quorumlog.raftlog.voters import Voter, VoterAddition, VoterRemoval
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.files import CrashPoint
from quorumlog.simulation.process import Process
from quorumlog.simulation.world import WALL_MS

from ..cluster.machines import DATA
from ..cluster.nodes import Cluster, ClusterNode
from .cluster_bounds import may_cut_power, may_wipe
from .injector import FaultInjector, FaultPlan

VOTERS_CHECK_MS: Final = 500  # interval of the operator's checks of the voters
SKEW_MS: Final = 20 * 60_000  # of UTC clocks; producers' timestamps may be an hour ahead


Ask: TypeAlias = Callable[[RaftNode], Awaitable[None]]


class ClusterFault(StrEnum):
    """The classes of faults."""

    CRASH = "crash"  # kill a process
    POWER = "power"  # cut a machine's power
    MIDWAY = "midway"  # kill a process at a file operation
    STOP = "stop"  # stop cleanly, as by SIGTERM
    PAUSE = "pause"  # pause a process
    ALL = "all"  # kill every process at once
    MOST = "most"  # kill all brokers but one, one after the other
    WIPE = "wipe"  # replace a disk by an empty one
    SLOW = "slow"  # slow down a machine's device
    FULL = "full"  # fill the disk
    SYNC = "sync"  # fail an fsync
    WRITE = "write"  # fail a write
    ISOLATE = "isolate"  # cut one node off, in one direction or both
    SPLIT = "split"  # partition the network into two halves
    BRIDGE = "bridge"  # cut two nodes off from each other
    CLIENTS = "clients"  # cut clients off from a node
    CLOG = "clog"  # delay messages between some machines
    BREAK = "break"  # break the connections between two machines
    CLOCK = "clock"  # move a UTC clock
    TRANSFER = "transfer"  # transfer the controller's leadership
    MOVE = "move"  # reassign a partition
    ELECT = "elect"  # elect the preferred replicas


ClusterFaultPlan: TypeAlias = FaultPlan[ClusterFault]

NO_FAULTS: Final[ClusterFaultPlan] = FaultPlan(
    faults=(), pause_ms=(1_000, 1_000), span_ms=(1_000, 1_000)
)


def draw_fault_plan(entropy: SimEntropy) -> ClusterFaultPlan:
    """Draw the faults of a run (swarm testing): each class is on with an even chance."""
    drawn = entropy.stream("classes")
    faults = [fault for fault in ClusterFault if drawn.chance(0.5)]
    return FaultPlan(
        faults=tuple(faults),
        pause_ms=((200, 2_000), (500, 5_000), (2_000, 15_000))[entropy.below(3)],
        span_ms=((50, 3_000), (500, 12_000))[entropy.below(2)],
    )


class ClusterFaultInjector(FaultInjector[ClusterNode, ClusterFault]):
    """Injects drawn faults into a cluster."""

    _cluster: Cluster

    def __init__(
        self, cluster: Cluster, plan: ClusterFaultPlan, entropy: SimEntropy, clients: list[str]
    ) -> None:
        super().__init__(cluster, plan, entropy, clients)
        self._scheduled_kills: list[tuple[int, ClusterNode]] = []  # (at, node)

    def before_fault(self, now_ms: int) -> None:
        """Kill the nodes that are to be killed now."""
        for at_ms, node in list(self._scheduled_kills):
            if at_ms <= now_ms:
                self._scheduled_kills.remove((at_ms, node))
                self._cluster.kill(node, power=False, down_ms=2_000 + self._span_ms())

    def end_all(self, repaired: list[ClusterNode]) -> None:
        """Undo all faults; of the nodes, only `repaired` are repaired."""
        self._scheduled_kills.clear()
        super().end_all(repaired)

    def maintain_voters(self) -> None:
        """Maintain the voters like an operator: remove voters with lost disks, add their
        replacements."""
        now_ms = self._now_ms()
        voters = self._cluster.voters()
        if now_ms < self._voters_check_ms or voters is None:
            return
        self._voters_check_ms = now_ms + VOTERS_CHECK_MS
        for node in self._cluster.controllers:
            there = voters.with_node_id(node.node_id)
            if there is not None and there != node.voter:
                self._cluster.ask_leader("remove", _removing(there))
                return
            if there is None and node.is_up:
                address = node.config.controller_listener
                self._cluster.ask_leader("add", _adding(node.voter, address))
                return

    # --- inside --------------------------------------------------------------------------------

    def draw_target(self) -> ClusterNode:
        """Draw a node; half of the draws choose a leader."""
        nodes = self._cluster.nodes
        if self._entropy.chance(0.5):
            image = self._cluster.newest_image
            leading = [
                state.leader
                for topic in image.sorted_topics()
                for _, state in topic.sorted_partitions()
                if state.leader >= 0
            ]
            active = self._cluster.leader()
            if active is not None:
                leading.append(active.node_id)
            if leading:
                return self._cluster.node(leading[self._entropy.below(len(leading))])
        return nodes[self._entropy.below(len(nodes))]

    def inject(self, fault: ClusterFault) -> bool:
        """Inject the fault. Return True if it took effect."""
        match fault:
            case ClusterFault.ALL | ClusterFault.MOST:
                return self._fail_many(fault)
            case (
                ClusterFault.CRASH
                | ClusterFault.POWER
                | ClusterFault.MIDWAY
                | ClusterFault.STOP
                | ClusterFault.PAUSE
            ):
                return self._fail_process(fault)
            case ClusterFault.SLOW | ClusterFault.FULL | ClusterFault.SYNC | ClusterFault.WRITE:
                return self._fail_device(fault)
            case ClusterFault.WIPE:
                return self._wipe(self.draw_target())
            case (
                ClusterFault.ISOLATE
                | ClusterFault.SPLIT
                | ClusterFault.BRIDGE
                | ClusterFault.CLOG
                | ClusterFault.BREAK
            ):
                return self._fail_network(fault)
            case ClusterFault.CLIENTS:
                return self._close(self._clients, [self.draw_target().name])
            case ClusterFault.CLOCK:
                machine = self.draw_target().sim.machine
                machine.wall_ms = WALL_MS + self._entropy.below(2 * SKEW_MS) - SKEW_MS
                return True
            case ClusterFault.MOVE | ClusterFault.ELECT | ClusterFault.TRANSFER:
                return self._administer(fault)

    def _administer(self, fault: ClusterFault) -> bool:
        match fault:
            case ClusterFault.MOVE:
                return self._move()
            case ClusterFault.ELECT:
                return self._cluster.ask_controller(ElectLeaders())
            case _:
                controllers = self._cluster.controllers
                target = controllers[self._entropy.below(len(controllers))].node_id
                return self._cluster.ask_leader("transfer", _transferring(target))

    def _move(self) -> bool:
        """Reassign a drawn partition to as many drawn brokers."""
        image = self._cluster.newest_image
        places = [
            (topic.name, index, state)
            for topic in image.sorted_topics()
            for index, state in topic.sorted_partitions()
        ]
        if not places:
            return False
        topic, index, state = places[self._entropy.below(len(places))]
        brokers = [node.node_id for node in self._cluster.brokers]
        while len(brokers) > state.replication_factor:
            brokers.pop(self._entropy.below(len(brokers)))
        first = self._entropy.below(len(brokers))
        target = tuple(brokers[first:] + brokers[:first])
        wanted = Reassignment(topic=topic, partition=index, replicas=target)
        return self._cluster.ask_controller(AlterReassignments(reassignments=(wanted,)))

    # --- processes ---

    def _fail_many(self, fault: ClusterFault) -> bool:
        cluster, entropy = self._cluster, self._entropy
        if fault is ClusterFault.ALL:
            for node in cluster.nodes:
                cluster.kill(node, power=False, down_ms=self._span_ms())
            return True
        brokers = list(cluster.brokers)
        brokers.pop(entropy.below(len(brokers)))
        after_ms = 0
        for node in brokers:
            self._scheduled_kills.append((self._now_ms() + after_ms, node))
            after_ms += entropy.spread(50, 4_000)
        return True

    def _fail_process(self, fault: ClusterFault) -> bool:
        cluster, entropy = self._cluster, self._entropy
        node = self.draw_target()
        if not node.is_up:
            return False
        match fault:
            case ClusterFault.MIDWAY:
                moment = ("before", "inside", "after")[entropy.below(3)]
                operations = entropy.spread(1, 60)
                node.sim.crash_at(CrashPoint(operations=operations, power=False, moment=moment))
            case ClusterFault.STOP:
                return cluster.stop_in_order(node)
            case ClusterFault.PAUSE:
                self._pause(node)
            case ClusterFault.POWER:
                return self._cut_power(node)
            case _:
                cluster.kill(node, power=False, down_ms=self._span_ms())
        return True

    def _cut_power(self, node: ClusterNode) -> bool:
        if not may_cut_power(self._cluster, node):
            return False
        self._cluster.note_damage(node)
        self._cluster.kill(node, power=True, down_ms=self._span_ms())
        return True

    def _wipe(self, node: ClusterNode) -> bool:
        if not may_wipe(self._cluster, node):
            return False
        self._cluster.note_damage(node)
        self._cluster.kill(node, power=False, down_ms=self._span_ms())
        self._cluster.wipe(node)
        return True

    # --- devices ---

    def _fail_device(self, fault: ClusterFault) -> bool:
        node, entropy = self.draw_target(), self._entropy
        if node.excuse or not node.sim.alive:
            return False
        match fault:
            case ClusterFault.SLOW:
                self._slow_down(node)
            case ClusterFault.FULL:
                self._fill_disk(node, lambda: self._repair_device(node))
            case _:
                number = errno.EIO if entropy.chance(0.8) else errno.ENOSPC
                return self.fail_once(node, fault.value, number, DATA)
        return True

    def fail_once(self, node: ClusterNode, operation: str, number: int, path_part: str) -> bool:
        """Fail the next operation of a kind on a path. Return True unless the node must not lose
        data now: the state after a failed device cannot be trusted, and its power is cut."""
        if not may_cut_power(self._cluster, node):
            return False
        self._cluster.note_damage(node)
        node.sim.device.fail(operation, number, path_part=path_part, times=1)
        node.excuse = "sync"
        process = node.sim.process
        self._later(lambda: self._repair_device(node, process))
        return True

    def _repair_device(self, node: ClusterNode, process: Process | None = None) -> None:
        """Repair the device.

        A machine that met a failure may still end because of it; it is power-cycled, since its page
        cache cannot be trusted.
        """
        has_failed = self._mend_device(node)
        if node.sim.process is not process:
            pass  # it ended because of the failure, and was power-cycled
        elif has_failed:
            self._cluster.kill(node, power=True, down_ms=self._span_ms())
        elif node.sim.alive:  # no operation failed
            self._cluster.damaged.pop(node.name, None)
            self._cluster.recovering.discard(node.name)


def _removing(voter: Voter) -> Ask:
    return lambda raft: raft.change_voters(VoterRemoval(voter))


def _adding(voter: Voter, address: str) -> Ask:
    return lambda raft: raft.change_voters(VoterAddition(voter, address))


def _transferring(to: NodeId) -> Ask:
    return lambda raft: raft.transfer(to)
