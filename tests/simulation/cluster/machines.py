"""A simulated cluster of machines under a supervisor: the common part of all clusters.

A `ClusterMachine` runs one process after the other. A `SimulatedCluster` starts them, checks the
reasons of their ends, and restarts them like a supervisor.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, TypeVar

from quorumlog.errors import QuorumlogError
from quorumlog.ids import DirectoryId
from quorumlog.raftlog.shell import RaftNode
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimNode, SimWorld

from ..checkers.data_directory import check_directory

DATA: Final = "/var/quorumlog"
RESTART_MS: Final = (50, 3_000)  # before a supervisor restarts a process that ended by itself


@dataclass(slots=True, eq=False, kw_only=True)
class ClusterMachine(ABC):
    """A machine of a cluster, its current disk, and the state of its supervision."""

    sim: SimNode
    directory_id: DirectoryId
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
    def is_up(self) -> bool:
        """True if its process runs and is not paused."""
        return self.sim.alive and not self.is_paused

    @property
    @abstractmethod
    def voter(self) -> Voter:
        """This machine with its current disk, as a member of the quorum."""

    @property
    @abstractmethod
    def raft(self) -> RaftNode | None:
        """The Raft node of the running process."""

    @abstractmethod
    def forget_process(self) -> None:
        """Drop the references to a process that has ended."""


M = TypeVar("M", bound=ClusterMachine)


class SimulatedCluster(ABC, Generic[M]):
    """The machines of a run."""

    NEVER_EXCUSED: ClassVar[tuple[type[BaseException], ...]] = (AssertionError,)

    def __init__(self, world: SimWorld, entropy: SimEntropy) -> None:
        self.world = world
        self.restarts = 0
        self.wiped = 0
        self._entropy = entropy
        self._disks_made = 0

    @property
    @abstractmethod
    def machines(self) -> Sequence[M]:
        """All machines."""

    @abstractmethod
    async def run_process(self, machine: M, runtime: Runtime) -> None:
        """Run a process of a machine, from its start to its clean stop."""

    def start(self) -> None:
        """Start every machine."""
        for machine in self.machines:
            self.start_machine(machine)

    def start_machine(self, machine: M) -> None:
        """Start a machine's next process."""
        machine.restart_at_ms = -1
        machine.sim.spawn(lambda runtime: self.run_process(machine, runtime))

    # --- the quorum ----------------------------------------------------------------------------

    def leader(self) -> M | None:
        """Return the running machine that leads the quorum in the latest epoch."""
        leading = [
            (raft.status().epoch, machine)
            for machine in self.machines
            if machine.is_up and (raft := machine.raft) is not None and raft.status().is_leader
        ]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def voters(self) -> VoterSet | None:
        """Return the voters of the current leader; None without a leader."""
        leader = self.leader()
        return None if leader is None or leader.raft is None else leader.raft.voters

    def ask_leader(self, name: str, ask: Callable[[RaftNode], Awaitable[None]]) -> bool:
        """Run a call on the leader, if there is one; its errors are only counted. Return True if
        there was one."""
        leader = self.leader()
        if leader is None or leader.raft is None:
            return False
        raft = leader.raft

        async def do(runtime: Runtime) -> None:
            try:
                await ask(raft)
            except QuorumlogError as error:
                leader.ends[f"{name}:{type(error).__name__}"] += 1

        leader.sim.attach(do, name=name)
        return True

    # --- control -------------------------------------------------------------------------------

    def restart_later(self, machine: M, after_ms: int) -> None:
        """Schedule the restart of a dead machine."""
        assert not machine.sim.alive, f"{machine.name} is alive"
        machine.forget_process()
        machine.is_paused = False
        machine.restart_at_ms = self.world.now_ms() + after_ms

    def kill(self, machine: M, *, power: bool, down_ms: int) -> None:
        """Kill a process, or cut its machine's power; it is restarted after `down_ms`."""
        if not machine.sim.alive:
            return
        self.resume(machine)
        if power:
            machine.sim.power_cut()
        else:
            machine.sim.crash()
        self.restart_later(machine, down_ms)

    def pause(self, machine: M) -> None:
        """Pause a machine's process, as SIGSTOP does."""
        machine.is_paused = True
        machine.sim.pause()

    def resume(self, machine: M) -> None:
        """Resume a paused process."""
        if machine.is_paused and machine.sim.alive:
            machine.sim.resume()
        machine.is_paused = False

    def wipe(self, machine: M) -> None:
        """Replace a dead machine's disk by an empty one; it returns as another voter."""
        machine.gone.append(machine.voter)
        machine.sim.wipe()
        machine.directory_id = self.new_directory_id()
        self.wiped += 1

    def check_directories(self) -> int:
        """Kill every process and check the data directories; return the number of notes."""
        return sum(check_directory(machine.sim, DATA) for machine in self.machines)

    def new_directory_id(self) -> DirectoryId:
        """Return the id of a new disk."""
        self._disks_made += 1
        return DirectoryId(self._entropy.stream(f"disk/{self._disks_made}").token(16))

    # --- the supervisor ------------------------------------------------------------------------

    def supervise(self, machine: M) -> None:
        """Restart a dead machine when it is due; check the reason of an end by itself."""
        sim, now_ms = machine.sim, self.world.now_ms()
        if 0 <= machine.excuse_ends_ms < now_ms and sim.alive:
            machine.excuse, machine.excuse_ends_ms = "", -1
        if sim.alive:
            return
        if machine.restart_at_ms >= 0:
            if now_ms >= machine.restart_at_ms:
                self.restarts += 1
                self.start_machine(machine)
            return
        if not sim.killed and (sim.exit_error is not None or sim.stops):
            self._check_exit(machine)
        self.restart_later(machine, self._entropy.spread(*RESTART_MS))

    def handles_exit(self, machine: M, error: BaseException | None) -> bool:
        """Handle an end that had to happen. Return True if this was one."""
        return False

    def _check_exit(self, machine: M) -> None:
        """Check the reason for which a process ended by itself."""
        error, stops = machine.sim.exit_error, machine.sim.stops
        reason = f"{type(error).__name__}: {error}" if error is not None else f"stopped: {stops}"
        machine.sim.stops = []
        machine.ends[type(error).__name__ if error is not None else "stopped"] += 1
        if self.handles_exit(machine, error):
            return
        if not machine.excuse or isinstance(error, self.NEVER_EXCUSED):
            raise AssertionError(f"{machine.name} ended by itself: {reason}") from error
        if machine.excuse == "sync":
            # A failed sync leaves the page cache untrustworthy: cut the power.
            machine.sim.power_cut()
