"""The faults of quorums.

The quorum must be able to survive them: a disk is lost or damaged only
while a majority of the voters keeps its disks.
"""

import errno
from enum import StrEnum
from typing import Final

from quorumlog.raftlog.voters import Voter, VoterAddition, VoterRemoval, VoterSet
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.files import CrashPoint

from ..cluster.machines import DATA
from ..cluster.quorum import QuorumCluster, QuorumMember
from .injector import STEP_MS, FaultInjector, FaultPlan

MEMBER_CHECK_MS: Final = 500  # interval of the operator's checks of the voters


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


def draw_fault_plan(entropy: SimEntropy) -> FaultPlan[QuorumFault]:
    """Draw the faults of a run (swarm testing): each class is on with an even chance."""
    drawn = entropy.stream("classes")
    faults = [fault for fault in QuorumFault if drawn.chance(0.5)]
    return FaultPlan(
        faults=tuple(faults),
        pause_ms=((50, 1_000), (200, 4_000), (1_000, 15_000))[entropy.below(3)],
        span_ms=((20, 2_000), (200, 8_000))[entropy.below(2)],
    )


class QuorumFaultInjector(FaultInjector[QuorumMember, QuorumFault]):
    """Injects drawn faults into a quorum."""

    _cluster: QuorumCluster

    def __init__(
        self,
        cluster: QuorumCluster,
        plan: FaultPlan[QuorumFault],
        entropy: SimEntropy,
        clients: list[str],
    ) -> None:
        super().__init__(cluster, plan, entropy, clients)
        self._removed: dict[str, int] = {}  # voters removed by a fault -> time to add them again

    def inject_until(self, until_ms: int) -> None:
        """Inject faults until a virtual time."""
        while self._now_ms() < until_ms:
            self._cluster.run(STEP_MS)
            self.step()

    def before_fault(self, now_ms: int) -> None:
        """Maintain the voters."""
        self.maintain_voters()

    def maintain_voters(self) -> None:
        """Maintain the voters like an operator: remove voters with lost disks, add new members."""
        now_ms = self._now_ms()
        voters = self._cluster.voters()
        if now_ms < self._voters_check_ms or voters is None:
            return
        self._voters_check_ms = now_ms + MEMBER_CHECK_MS
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
        change = VoterRemoval(voter)
        return self._cluster.ask_leader("remove", lambda node: node.change_voters(change))

    def _give_vote(self, voter: Voter, address: str) -> bool:
        change = VoterAddition(voter, address)
        return self._cluster.ask_leader("add", lambda node: node.change_voters(change))

    def _is_wanted(self, member: QuorumMember, voters: VoterSet, now_ms: int) -> bool:
        """Return True if a member without a vote should get one now."""
        if now_ms < self._removed.get(member.name, 0) or not member.is_up:
            return False
        is_spare = not member.gone and member.name not in self._removed
        return len(voters) < self._cluster.options.voters or not is_spare

    def draw_target(self) -> QuorumMember:
        """Draw a member; half of the draws choose the leader."""
        leader = self._cluster.leader()
        if leader is not None and self._entropy.chance(0.5):
            return leader
        return self._cluster.members[self._entropy.below(len(self._cluster.members))]

    def inject(self, fault: QuorumFault) -> bool:
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
                self.draw_target().sim.jump_wall_ms(hours * 3_600_000 + self._entropy.below(2_000))
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
        member = self.draw_target()
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
                self._pause(member)
            case _:
                self._kill(member, power=fault is QuorumFault.POWER)
        return True

    def _kill(self, member: QuorumMember, *, power: bool) -> None:
        if member.sim.alive:
            self._cluster.kill(member, power=power, down_ms=self._span_ms())

    # --- devices ---

    def _fail_device(self, fault: QuorumFault) -> bool:
        member, entropy = self.draw_target(), self._entropy
        if member.excuse or not member.sim.alive:
            return False
        match fault:
            case QuorumFault.SLOW:
                self._slow_down(member)
            case QuorumFault.FULL:
                self._fill_disk(member, lambda: self._repair_device(member))
            case _:
                number = errno.EIO if entropy.chance(0.8) else errno.ENOSPC
                member.sim.device.fail(fault.value, number, path_part=DATA, times=1)
                member.excuse = "sync" if fault is QuorumFault.SYNC else "write"
                self._later(lambda: self._repair_device(member))
        return True

    def _repair_device(self, member: QuorumMember) -> None:
        """Repair the device.

        A member that met a failure may still end because of it; its machine is power-cycled, since
        its page cache cannot be trusted.
        """
        if self._mend_device(member) and member.sim.alive:
            self._kill(member, power=True)

    # --- disks that are lost ---

    def _lose_disk(self, fault: QuorumFault) -> bool:
        member = self.draw_target()
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
        member = self.draw_target()
        if member.voter not in voters:
            return False
        self._removed[member.name] = self._now_ms() + self._span_ms()
        return self._take_vote(member.voter)
