"""The fault injector of quorums: faults are drawn, injected at their time, and undone.

Each class of faults is on or off for a whole run. Faults overlap: a member may be paused behind a
barrier with a full disk. The quorum must be able to survive them: a disk is lost or damaged only
while a majority of the voters keeps its disks.
"""

import errno
import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.simulation.barriers import Direction, apart, between
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.files import CrashPoint

from ..cluster.machines import DATA
from ..cluster.quorum import QuorumCluster, QuorumMember

STEP_MS: Final = 50
MEMBER_CHECK_MS: Final = 500  # interval of the operator's checks of the voters
EXCUSE_MS: Final = 3_000  # after a repair of a device, its errors may still be in flight


class QuorumFault(StrEnum):
    """The classes of faults."""

    CRASH = "crash"  # kill a process
    POWER = "power"  # cut a machine's power
    MIDWAY = "midway"  # either of them at a file operation
    STOP = "stop"  # stop cleanly, as by SIGTERM
    PAUSE = "pause"  # pause a process
    ALL = "all"  # cut the power of every machine at once
    SLOW = "slow"  # slow down a machine's device
    FULL = "full"  # fill the disk
    SYNC = "sync"  # fail an fsync
    WRITE = "write"  # fail a write
    FLIP = "flip"  # flip a bit of a dead member's disk
    WIPE = "wipe"  # replace the disk: the member returns as another voter
    ISOLATE = "isolate"  # cut one member off, in one direction or both
    SPLIT = "split"  # partition the network into two halves
    BRIDGE = "bridge"  # cut two members off from each other
    CLOG = "clog"  # delay messages between some machines
    BREAK = "break"  # break the connections between two machines
    CLOCK = "clock"  # move a UTC clock
    TRANSFER = "transfer"  # transfer the leadership
    VOTERS = "voters"  # remove a voter and add it again


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """The classes, frequency and duration of faults."""

    faults: tuple[QuorumFault, ...]  # enabled classes
    pause_ms: tuple[int, int]  # between two faults
    span_ms: tuple[int, int]  # duration of a fault


def draw_fault_plan(entropy: SimEntropy) -> FaultPlan:
    """Draw the faults of a run (swarm testing): each class is on with an even chance."""
    drawn = entropy.stream("classes")
    faults = [fault for fault in QuorumFault if drawn.chance(0.5)]
    return FaultPlan(
        faults=tuple(faults),
        pause_ms=((50, 1_000), (200, 4_000), (1_000, 15_000))[entropy.below(3)],
        span_ms=((20, 2_000), (200, 8_000))[entropy.below(2)],
    )


class QuorumFaultInjector:
    """Injects drawn faults into a quorum."""

    def __init__(
        self, cluster: QuorumCluster, plan: FaultPlan, entropy: SimEntropy, clients: list[str]
    ) -> None:
        self.happened: Counter[str] = Counter()
        self._cluster = cluster
        self._world = cluster.world
        self._plan = plan
        self._entropy = entropy
        self._clients = clients  # machines of the clients
        self._due: list[tuple[int, int, Callable[[], None]]] = []  # (at, order, undo)
        self._sequence = 0
        self._next_ms = 0
        self._look_ms = 0
        self._removed: dict[str, int] = {}  # voters removed by a fault -> time to add them again

    def inject_until(self, until_ms: int) -> None:
        """Inject faults until a virtual time."""
        entropy, plan = self._entropy, self._plan
        while self._world.now_ms() < until_ms:
            self._cluster.run(STEP_MS)
            now_ms = self._world.now_ms()
            self._undo_due(now_ms)
            self.maintain_voters()
            if plan.faults and now_ms >= self._next_ms:
                fault = plan.faults[entropy.below(len(plan.faults))]
                if self._do(fault):
                    self.happened[fault] += 1
                self._next_ms = now_ms + entropy.spread(*plan.pause_ms)

    def end_all(self, repaired: list[QuorumMember]) -> None:
        """Undo all faults; of the members, only `repaired` are repaired and resumed."""
        while self._due:
            heapq.heappop(self._due)[2]()
        self._world.fabric.barriers.open_all()
        for member in repaired:
            member.sim.crash_at(None)
            self._cluster.resume(member)
            member.sim.device.faults.clear()
            member.sim.device.disk.capacity_bytes = None
            member.sim.machine.device_slow_ms = 0

    def maintain_voters(self) -> None:
        """Maintain the voters like an operator: remove voters with lost disks, add new members."""
        now_ms = self._world.now_ms()
        voters = self._cluster.voters()
        if now_ms < self._look_ms or voters is None:
            return
        self._look_ms = now_ms + MEMBER_CHECK_MS
        for member in self._cluster.members:
            there = voters.with_node_id(member.node_id)
            if there is not None and there != member.voter:
                self._take_vote(there)
                return
            if there is None and self._is_wanted(member, voters, now_ms):
                self._give_vote(member.voter, member.address)
                return

    # --- inside --------------------------------------------------------------------------------

    def _take_vote(self, voter: Voter) -> bool:
        return self._cluster.ask_leader("remove", lambda node: node.remove_voter(voter))

    def _give_vote(self, voter: Voter, address: str) -> bool:
        return self._cluster.ask_leader("add", lambda node: node.add_voter(voter, address))

    def _is_wanted(self, member: QuorumMember, voters: VoterSet, now_ms: int) -> bool:
        """Return True if a member without a vote should get one now."""
        if now_ms < self._removed.get(member.name, 0) or not member.is_up:
            return False
        is_spare = not member.gone and member.name not in self._removed
        return len(voters) < self._cluster.options.voters or not is_spare

    def _undo_due(self, now_ms: int) -> None:
        while self._due and self._due[0][0] <= now_ms:
            heapq.heappop(self._due)[2]()

    def _later(self, undo: Callable[[], None]) -> None:
        """Schedule the end of a fault."""
        self._sequence += 1
        at_ms = self._world.now_ms() + self._span_ms()
        heapq.heappush(self._due, (at_ms, self._sequence, undo))

    def _span_ms(self) -> int:
        return self._entropy.spread(*self._plan.span_ms)

    def _draw_target(self) -> QuorumMember:
        """Draw a member; half of the draws choose the leader."""
        leader = self._cluster.leader()
        if leader is not None and self._entropy.chance(0.5):
            return leader
        return self._cluster.members[self._entropy.below(len(self._cluster.members))]

    def _do(self, fault: QuorumFault) -> bool:
        """Inject the fault. Return True if it took effect."""
        match fault:
            case (
                QuorumFault.CRASH
                | QuorumFault.POWER
                | QuorumFault.MIDWAY
                | QuorumFault.STOP
                | QuorumFault.PAUSE
                | QuorumFault.ALL
            ):
                return self._fail_process(fault)
            case QuorumFault.SLOW | QuorumFault.FULL | QuorumFault.SYNC | QuorumFault.WRITE:
                return self._fail_device(fault)
            case QuorumFault.FLIP | QuorumFault.WIPE:
                return self._lose_disk(fault)
            case (
                QuorumFault.ISOLATE
                | QuorumFault.SPLIT
                | QuorumFault.BRIDGE
                | QuorumFault.CLOG
                | QuorumFault.BREAK
            ):
                return self._fail_network(fault)
            case QuorumFault.CLOCK:
                hours = self._entropy.below(48) - 24
                self._draw_target().sim.jump_wall_ms(hours * 3_600_000 + self._entropy.below(2_000))
                return True
            case QuorumFault.TRANSFER:
                target = self._cluster.members[self._entropy.below(len(self._cluster.members))]
                to = target.node_id if self._entropy.chance(0.7) else None
                return self._cluster.ask_leader("transfer", lambda node: node.transfer(to))
            case QuorumFault.VOTERS:
                return self._remove_voter()

    # --- processes ---

    def _fail_process(self, fault: QuorumFault) -> bool:
        cluster, entropy = self._cluster, self._entropy
        if fault is QuorumFault.ALL:
            for one in cluster.members:
                self._kill(one, power=True)
            return True
        member = self._draw_target()
        if not member.is_up:
            return False
        match fault:
            case QuorumFault.MIDWAY:
                point = CrashPoint(
                    operations=entropy.spread(1, 60),
                    power=entropy.chance(0.7),
                    moment=("before", "inside", "after")[entropy.below(3)],
                )
                member.sim.crash_at(point)
            case QuorumFault.STOP:
                assert member.sim.root is not None, f"{member.name} was never started"
                member.sim.root.cancel()
            case QuorumFault.PAUSE:
                cluster.pause(member)
                self._later(lambda: cluster.resume(member))
            case _:
                self._kill(member, power=fault is QuorumFault.POWER)
        return True

    def _kill(self, member: QuorumMember, *, power: bool) -> None:
        if member.sim.alive:
            self._cluster.kill(member, power=power, down_ms=self._span_ms())

    # --- devices ---

    def _fail_device(self, fault: QuorumFault) -> bool:
        member, entropy = self._draw_target(), self._entropy
        device, machine = member.sim.device, member.sim.machine
        if member.excuse or not member.sim.alive:
            return False
        match fault:
            case QuorumFault.SLOW:
                machine.device_slow_ms = entropy.spread(2, 400)
                self._later(lambda: setattr(machine, "device_slow_ms", 0))
            case QuorumFault.FULL:
                disk, spare = device.disk, entropy.below(20_000)
                disk.capacity_bytes = disk.used_bytes() + spare
                member.excuse = "full"
                self._later(lambda: self._repair_device(member))
            case _:
                number = errno.EIO if entropy.chance(0.8) else errno.ENOSPC
                device.fail(fault.value, number, path_part=DATA, times=1)
                member.excuse = "sync" if fault is QuorumFault.SYNC else "write"
                self._later(lambda: self._repair_device(member))
        return True

    def _repair_device(self, member: QuorumMember) -> None:
        """Repair the device.

        A member that met a failure may still end because of it; its machine is power-cycled, since
        its page cache cannot be trusted.
        """
        device = member.sim.device
        has_failed = member.excuse != "full" and not device.faults
        device.faults.clear()
        device.disk.capacity_bytes = None
        if has_failed and member.sim.alive:
            self._kill(member, power=True)
        member.excuse_ends_ms = self._world.now_ms() + EXCUSE_MS

    # --- disks that are lost ---

    def _lose_disk(self, fault: QuorumFault) -> bool:
        member = self._draw_target()
        if not self._cluster.may_lose(member):
            return False
        self._kill(member, power=False)
        if fault is QuorumFault.FLIP:
            return self._flip(member)
        self._cluster.wipe(member)
        return True

    def _flip(self, member: QuorumMember) -> bool:
        """Flip a bit in a file that no torn write can have damaged."""
        found = [
            (path, body)
            for path, body in member.sim.device.disk.files()
            if path.endswith((".checkpoint", "/quorum-state")) and len(body.content) > 0
        ]
        if not found:
            return False
        _, body = found[self._entropy.below(len(found))]
        position = self._entropy.below(len(body.content))
        body.flip(position, self._entropy.below(8))
        member.is_damaged = True
        return True

    # --- the network ---

    def _fail_network(self, fault: QuorumFault) -> bool:
        barriers, entropy = self._world.fabric.barriers, self._entropy
        names = [member.name for member in self._cluster.members] + self._clients
        match fault:
            case QuorumFault.ISOLATE:
                one = self._draw_target().name
                self._close(self._one_way([one], [name for name in names if name != one]))
            case QuorumFault.SPLIT:
                left = [name for name in names if entropy.chance(0.5)]
                self._close(self._one_way(left, [name for name in names if name not in left]))
            case QuorumFault.BRIDGE:
                one, other = self._two()
                self._close(self._one_way([one], [other]))
            case QuorumFault.CLOG:
                some = [name for name in names if entropy.chance(0.5)]
                directions = between(some, names)
                barriers.clog(directions, entropy.spread(20, 2_000))
                self._later(lambda: barriers.clog(directions, 0))
            case _:
                return self._world.fabric.break_between(*self._two()) > 0
        return True

    def _two(self) -> tuple[str, str]:
        names = [member.name for member in self._cluster.members]
        one = names.pop(self._entropy.below(len(names)))
        return one, names[self._entropy.below(len(names))]

    def _one_way(self, some: list[str], others: list[str]) -> list[Direction]:
        """Return both directions, or one of them."""
        kind = self._entropy.below(4)
        if kind == 0:
            return between(some, others)
        return between(others, some) if kind == 1 else apart(some, others)

    def _close(self, directions: list[Direction]) -> None:
        barriers = self._world.fabric.barriers
        barriers.close(directions)
        self._later(lambda: barriers.open(directions))

    # --- voters ---

    def _remove_voter(self) -> bool:
        """Remove a voter; the operator adds it again, or another member in its place."""
        voters = self._cluster.voters()
        if (
            voters is None
            or len(voters) < 3
            or any(voter in voters for voter in self._cluster.gone)
        ):
            return False
        member = self._draw_target()
        if member.voter not in voters:
            return False
        self._removed[member.name] = self._world.now_ms() + self._span_ms()
        return self._take_vote(member.voter)
