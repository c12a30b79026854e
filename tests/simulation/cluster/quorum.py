"""A simulated quorum of whole members, with a machine for each.

A `QuorumMember` is a machine with a data directory and its processes: storage, node, transport,
the register service. The `QuorumCluster` starts them, checks the reasons of their ends, and
restarts them like a supervisor. A wiped or damaged disk returns as another voter."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.kit.raft_node import propose

from quorumlog.errors import CorruptionError
from quorumlog.ids import ClusterId, NodeId, Offset
from quorumlog.raftlog.config import RaftConfig
from quorumlog.raftlog.log_view import SnapshotId
from quorumlog.raftlog.shell import RaftNode, RaftNodeConfig
from quorumlog.raftlog.shell.directory_format import format_directory
from quorumlog.raftlog.shell.propose_service import ProposalService
from quorumlog.raftlog.snapshot_format import SnapshotDecoder, checkpoint_name
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimWorld
from quorumlog.storage import DirectoryConfig
from quorumlog.storage.layout import META_PROPERTIES
from quorumlog.storage.shell.data_directory import DataDirectory

from ..checkers.quorum_invariants import (
    METADATA_FOLDER,
    CommittedHistory,
    DurableLog,
    MessageInvariants,
    WatchedNode,
)
from .machines import DATA, ClusterMachine, SimulatedCluster
from .registers import Applied, Registers, RegisterService

CLUSTER_ID: Final = ClusterId("quorum-simulation-1234")
CONFIG: Final = DirectoryConfig()
NO_VOTERS: Final = VoterSet(())
BUGS: Final = ("", "lying-disk", "stale-reads", "double-apply")
"""Planted bugs: skipped syncs, reads without the read index, commands proposed twice."""
ASKED_MS: Final = 500
"""Time after which a request to the leader is in its log or never will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumOptions:
    """The configuration of the members of a run."""

    voters: int  # initial voters
    spares: int  # further members, observers at first
    heartbeat_ms: int
    election_timeout_ms: tuple[int, int]
    snapshot_every_bytes: int
    batch_bytes_max: int
    tail_bytes_max: int
    append_bytes_max: int
    inflight_requests_max: int
    snapshot_chunk_bytes: int


@dataclass(slots=True, eq=False, kw_only=True)
class QuorumMember(ClusterMachine):
    """A machine of the quorum and its identity."""

    node_id: NodeId
    address: str
    first_voters: VoterSet  # voters at formatting; empty: it joins
    node: RaftNode | None = None  # of the running process
    registers: Registers | None = None
    is_damaged: bool = False  # a bit of its disk was flipped: it must detect that
    last_voters: VoterSet = NO_VOTERS  # in force by its log, at the last check
    checked_snapshot: SnapshotId | None = None  # the newest one

    @property
    def voter(self) -> Voter:
        """This machine with its current disk."""
        return Voter(self.node_id, self.directory_id)

    @property
    def raft(self) -> RaftNode | None:
        """The Raft node of the running process."""
        return self.node

    @property
    def is_up(self) -> bool:
        """True if its Raft node runs and its process is not paused."""
        return self.sim.alive and not self.is_paused and self.node is not None

    def forget_process(self) -> None:
        """Drop the references to a process that has ended."""
        self.node = self.registers = None


class QuorumCluster(SimulatedCluster[QuorumMember]):
    """All members of a run."""

    def __init__(
        self, world: SimWorld, options: QuorumOptions, entropy: SimEntropy, *, bug: str = ""
    ) -> None:
        assert bug in BUGS, f"{bug} is none of {BUGS}"
        self.bug = bug
        super().__init__(world, entropy)
        self.options = options
        self.history = CommittedHistory()
        self.watch = MessageInvariants(self.history)
        self.asked_ms = 0  # time of the last request to the leader
        world.fabric.on_sent = self.watch.on_sent
        count = options.voters + options.spares
        ids = [NodeId(number) for number in range(1, count + 1)]
        disks = {node_id: self.new_directory_id() for node_id in ids}
        voters = VoterSet.of(
            (Voter(node_id, disks[node_id]), _address(node_id)) for node_id in ids[: options.voters]
        )
        self.members = [
            QuorumMember(
                sim=world.node(f"n{node_id}"),
                node_id=node_id,
                address=_address(node_id),
                directory_id=disks[node_id],
                first_voters=voters if node_id <= options.voters else NO_VOTERS,
            )
            for node_id in ids
        ]
        for member in self.members:
            member.sim.device.lies = bug == "lying-disk"
            self._watch(member)

    @property
    def addresses(self) -> dict[NodeId, str]:
        """The address of each member."""
        return {member.node_id: member.address for member in self.members}

    def member(self, node_id: NodeId) -> QuorumMember:
        """Return the member of a node id."""
        return self.members[node_id - 1]

    @property
    def machines(self) -> list[QuorumMember]:
        """All machines."""
        return self.members

    # --- state ---------------------------------------------------------------------------------

    def nodes_up(self) -> Iterator[tuple[QuorumMember, RaftNode]]:
        """Yield the running members with their nodes."""
        for member in self.members:
            if member.is_up and member.node is not None:
                yield member, member.node

    # --- control -------------------------------------------------------------------------------

    def run(self, virtual_ms: int) -> None:
        """Let time pass, and restart members that are due. Raises AssertionError for a
        violation, and for a member that ended by itself without a reason."""
        history, fabric = self.history, self.world.fabric
        self.world.run_for(virtual_ms, unless=lambda: bool(history.violations))
        for violation in (*history.violations, *fabric.failed_handlers):
            raise AssertionError(f"{type(violation).__name__}: {violation}") from violation
        for member in self.members:
            if member.node is not None:
                member.last_voters = member.node.voters
                self._check_snapshot(member, member.node)
                assert not member.is_damaged, f"{member.name} has not detected the flipped bit"
            self.supervise(member)

    def wipe(self, member: QuorumMember) -> None:
        """Replace a dead member's disk by an empty one; it returns as another voter."""
        super().wipe(member)
        member.first_voters = NO_VOTERS
        member.is_damaged = False
        self._watch(member)

    def may_lose(self, member: QuorumMember) -> bool:
        """Return True if the quorum survives the loss of this member's disk: all members are up,
        and a majority of the voters keeps its disks."""
        voters = self.voters()
        if voters is None or any(not one.is_up for one in self.members):
            return False
        if self.world.now_ms() < self.asked_ms + ASKED_MS:
            return False  # the voters may be changing
        left = sum(voter not in self.gone and voter != member.voter for voter in voters)
        is_settled = all(node.voters == voters for one, node in self.nodes_up())
        return is_settled and left >= voters.majority and len(voters) >= 3

    def ask_leader(self, name: str, ask: Callable[[RaftNode], Awaitable[None]]) -> bool:
        """Run a call on the leader, as in every cluster, and record its time."""
        has_asked = super().ask_leader(name, ask)
        if has_asked:
            self.asked_ms = self.world.now_ms()
        return has_asked

    @property
    def gone(self) -> set[Voter]:
        """Voters with lost disks."""
        return {voter for member in self.members for voter in member.gone}

    # --- inside --------------------------------------------------------------------------------

    def handles_exit(self, machine: QuorumMember, error: BaseException | None) -> bool:
        """Wipe a damaged disk that the member has detected. Return True if this was one."""
        if machine.is_damaged and isinstance(error, CorruptionError):
            self.wipe(machine)
            return True
        return False

    def _check_snapshot(self, member: QuorumMember, node: RaftNode) -> None:
        """Check that the member's newest snapshot has the voters of its log at the snapshot's
        end."""
        state = node._state
        if not state.snapshots or state.snapshots[-1] == member.checked_snapshot:
            return
        snapshot = member.checked_snapshot = state.snapshots[-1]
        ending = f"/{METADATA_FOLDER}/{checkpoint_name(snapshot)}"
        for path, body in member.sim.device.disk.files():
            if path.endswith(ending) and not member.is_damaged:
                decoder = SnapshotDecoder(snapshot, with_values=False)
                decoder.feed(bytes(body.content))
                stored, expected = decoder.finish(), state.voters.at(snapshot.end_offset)
                assert stored == expected, (
                    f"{member.name}: the snapshot to {snapshot.end_offset} has the voters {stored},"
                    f" the log has {expected} there"
                )

    def _watch(self, member: QuorumMember) -> None:
        self.watch.watch(
            member.name,
            WatchedNode(
                node_id=member.node_id,
                directory_id=member.directory_id,
                log=DurableLog(member.sim, DATA),
                voters=lambda: _pairs(member),
            ),
        )

    def _config(self, member: QuorumMember) -> RaftConfig:
        options = self.options
        others = [one.address for one in self.members if one is not member]
        return RaftConfig(
            node_id=member.node_id,
            directory_id=member.directory_id,
            address=member.address,
            bootstrap=tuple(others),
            heartbeat_ms=options.heartbeat_ms,
            election_timeout_ms_min=options.election_timeout_ms[0],
            election_timeout_ms_max=options.election_timeout_ms[1],
            append_bytes_max=options.append_bytes_max,
            inflight_requests_max=options.inflight_requests_max,
            snapshot_chunk_bytes=options.snapshot_chunk_bytes,
        )

    def _node_config(self) -> RaftNodeConfig:
        options = self.options
        return RaftNodeConfig(
            snapshot_every_bytes=options.snapshot_every_bytes,
            tail_bytes_max=options.tail_bytes_max,
            batch_bytes_max=options.batch_bytes_max,
        )

    async def run_process(self, machine: QuorumMember, runtime: Runtime) -> None:
        """Run a process of a member, from its start to its clean stop."""
        member = machine
        if not runtime.files.exists(f"{DATA}/{META_PROPERTIES}"):
            await format_directory(
                runtime,
                DATA,
                cluster_id=CLUSTER_ID,
                node_id=member.node_id,
                directory_id=member.directory_id,
                voters=member.first_voters,
            )
        async with runtime.tasks.scope("member") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=CONFIG)
            registers = Registers(observer=_Observer(self.history, member))
            node = await RaftNode.open(
                runtime,
                scope,
                directory,
                cluster_id=CLUSTER_ID,
                config=self._config(member),
                state_machine=registers,
                node_config=self._node_config(),
            )
            handlers = {
                **node.handlers(),
                **ProposalService(runtime, node).handlers(),
                **RegisterService(_BuggyNode(node, self.bug), registers).handlers(),
            }
            listener = await runtime.network.serve(member.address, handlers)
            await node.start()
            member.node, member.registers = node, registers
            try:
                await asyncio.Event().wait()
            finally:  # cancelled: a clean stop
                member.node = member.registers = None
                await node.close()
                await listener.close(0)
                await directory.close()


@dataclass(frozen=True, slots=True)
class _BuggyNode:
    """The node as the register service sees it, with the planted bug of the run."""

    node: RaftNode
    bug: str

    async def propose(self, values: list[bytes]) -> int:
        """Propose; twice with the bug "double-apply"."""
        if self.bug == "double-apply":
            await propose(self.node, values)
        return await propose(self.node, values)

    async def read_index(self) -> Offset:
        """Return a read index; a stale one with the bug "stale-reads"."""
        if self.bug == "stale-reads":
            return self.node.status().high_watermark
        return await self.node.read_index()


@dataclass(slots=True)
class _Observer:
    """Reports the events of one replica to the shared history."""

    history: CommittedHistory
    member: QuorumMember

    def applied(self, applied: Applied, values: list[bytes]) -> None:
        """Report an applied batch."""
        with self._noting():
            self.history.applied(self.member.name, applied, values)

    def restored(self, applied: Applied) -> None:
        """Report an installed snapshot."""
        with self._noting():
            self.history.restored(self.member.name, applied)

    def leads(self, leader_id: NodeId | None, epoch: int) -> None:
        """Report the leader of an epoch."""
        if leader_id is not None:
            with self._noting():
                self.history.led(leader_id, epoch)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Record violations: the node would handle them as errors of its state machine."""
        try:
            yield
        except AssertionError as violation:
            self.history.violations.append(violation)


def _address(node_id: NodeId) -> str:
    return f"n{node_id}:9093"


def _pairs(member: QuorumMember) -> frozenset[tuple[int, bytes]]:
    node = member.node
    if node is None:
        return frozenset()
    return frozenset((int(voter.node_id), bytes(voter.directory_id)) for voter in node.voters)
