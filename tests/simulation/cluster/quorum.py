"""A cluster of whole members of a quorum on simulated machines, and what an operator does to them.

A `Member` is a machine with a data directory, and one process after the other on it: storage, node,
transport, the service of the registers. The `Cluster` starts them, notes why they ended, and starts
them again as a supervisor would; a wiped or damaged disk comes back as another voter.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from quorumlog.errors import CorruptionError, QuorumlogError
from quorumlog.ids import ClusterId, DirectoryId, NodeId, Offset
from quorumlog.raftlog.core.config import RaftConfig
from quorumlog.raftlog.core.voters import Voter, VoterSet
from quorumlog.raftlog.shell import RaftNode, RaftNodeConfig
from quorumlog.raftlog.shell.disk.formatting import format_directory
from quorumlog.raftlog.shell.proposals import ProposalService
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimNode, SimWorld
from quorumlog.storage import DirectoryConfig
from quorumlog.storage.layout import META_PROPERTIES
from quorumlog.storage.shell.data_directory import Directory

from ..checkers.data_directory import prove_directory
from ..checkers.quorum_invariants import Chronicle, DurableLog, FrameWatch, Watched
from .registers import Applied, Registers, RegisterService

CLUSTER_ID: Final = ClusterId("quorum-simulation-1234")
DATA: Final = "/var/quorumlog"
CONFIG: Final = DirectoryConfig()
NOBODY: Final = VoterSet(())
BUGS: Final = ("", "lying-disk", "stale-reads", "double-apply")
"""Left out on purpose, to show that it is found: syncs, the read index, doing a thing once."""
ASKED_MS: Final = 500
"""After so long whatever the leader was asked for is in its log, or will never be."""
RESTART_MS: Final = (50, 3_000)  # until a supervisor starts again what ended by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumOptions:
    """How the members of a run are configured."""

    voters: int  # that the quorum is formed with
    spares: int  # members besides, observers at first
    heartbeat_ms: int
    election_timeout_ms: tuple[int, int]
    snapshot_every_bytes: int
    batch_bytes_max: int
    tail_bytes_max: int
    append_bytes_max: int
    inflight_requests_max: int
    snapshot_chunk_bytes: int


@dataclass(slots=True, eq=False)
class Member:
    """One machine of the cluster and who it is."""

    sim: SimNode
    node_id: NodeId
    address: str
    directory_id: DirectoryId
    first_voters: VoterSet  # what its directory is formatted with; empty: it joins
    node: RaftNode | None = None  # of the process that runs
    registers: Registers | None = None
    restart_at_ms: int = -1  # when it is started again; -1: it runs, or nobody starts it
    is_paused: bool = False
    excuse: str = ""  # why it may end by itself now
    excuse_ends_ms: int = -1  # -1: not before it is mended
    ends: Counter[str] = field(default_factory=Counter)  # by itself, by reason
    is_damaged: bool = False  # a bit of its disk was flipped: it must notice
    last_voters: VoterSet = NOBODY  # in force by its log, as last seen
    gone: list[Voter] = field(default_factory=list)  # who was here before its disk was wiped

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.sim.name

    @property
    def voter(self) -> Voter:
        """This machine with its present disk."""
        return Voter(self.node_id, self.directory_id)

    @property
    def is_up(self) -> bool:
        """Whether its process runs and is not paused."""
        return self.sim.alive and not self.is_paused and self.node is not None


class Cluster:
    """All members of a run."""

    def __init__(
        self, world: SimWorld, options: QuorumOptions, entropy: SimEntropy, *, bug: str = ""
    ) -> None:
        assert bug in BUGS, f"{bug} is none of {BUGS}"
        self.bug = bug
        self.world = world
        self.options = options
        self.chronicle = Chronicle()
        self.watch = FrameWatch(self.chronicle)
        self.restarts = 0
        self.asked_ms = 0  # when the leader was last asked for something
        self.wiped = 0
        self._entropy = entropy
        self._disks_made = 0
        world.fabric.on_sent = self.watch.on_sent
        count = options.voters + options.spares
        ids = [NodeId(number) for number in range(1, count + 1)]
        disks = {node_id: self._new_directory_id() for node_id in ids}
        voters = VoterSet.of(
            (Voter(node_id, disks[node_id]), _address(node_id)) for node_id in ids[: options.voters]
        )
        self.members = [
            Member(
                sim=world.node(f"n{node_id}"),
                node_id=node_id,
                address=_address(node_id),
                directory_id=disks[node_id],
                first_voters=voters if node_id <= options.voters else NOBODY,
            )
            for node_id in ids
        ]
        for member in self.members:
            member.sim.device.lies = bug == "lying-disk"
            self._watch(member)

    @property
    def addresses(self) -> dict[NodeId, str]:
        """Where everybody is reached."""
        return {member.node_id: member.address for member in self.members}

    def member(self, node_id: NodeId) -> Member:
        """The member of a node id."""
        return self.members[node_id - 1]

    def start(self) -> None:
        """Start every member."""
        for member in self.members:
            self.start_member(member)

    def start_member(self, member: Member) -> None:
        """Start a member's next process."""
        member.restart_at_ms = -1
        member.sim.spawn(lambda runtime: self._run(member, runtime))

    # --- what they know ------------------------------------------------------------------------

    def nodes_up(self) -> Iterator[tuple[Member, RaftNode]]:
        """The members that run, with their nodes."""
        for member in self.members:
            if member.is_up and member.node is not None:
                yield member, member.node

    def leader(self) -> Member | None:
        """The running leader of the latest epoch that anybody up leads."""
        leading = [(node.epoch, member) for member, node in self.nodes_up() if node.is_leader]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def voters(self) -> VoterSet | None:
        """The voters as the present leader has them; None without a leader."""
        leader = self.leader()
        return leader.node.voters if leader is not None and leader.node is not None else None

    # --- what is done to them ------------------------------------------------------------------

    def run(self, virtual_ms: int) -> None:
        """Let time pass; whoever is to be started again is. Raises AssertionError for a member
        that ended by itself without an excuse."""
        chronicle, fabric = self.chronicle, self.world.fabric
        self.world.run_for(virtual_ms, unless=lambda: bool(chronicle.violations))
        for violation in (*chronicle.violations, *fabric.failed_handlers):
            raise AssertionError(f"{type(violation).__name__}: {violation}") from violation
        for member in self.members:
            if 0 <= member.excuse_ends_ms < self.world.now_ms() and member.sim.alive:
                member.excuse, member.excuse_ends_ms = "", -1
            if member.node is not None:
                member.last_voters = member.node.voters
                assert not member.is_damaged, f"{member.name} has not noticed the flipped bit"
            self._supervise(member)

    def restart_later(self, member: Member, after_ms: int) -> None:
        """Have a dead member started again."""
        assert not member.sim.alive, f"{member.name} is alive"
        member.node, member.registers, member.is_paused = None, None, False
        member.restart_at_ms = self.world.now_ms() + after_ms

    def pause(self, member: Member) -> None:
        """Stop a member where it is, as SIGSTOP does."""
        member.is_paused = True
        member.sim.pause()

    def resume(self, member: Member) -> None:
        """Let a paused member go on."""
        if member.is_paused and member.sim.alive:
            member.sim.resume()
        member.is_paused = False

    def wipe(self, member: Member) -> None:
        """Put an empty disk into a dead member's machine: it comes back as somebody else."""
        member.gone.append(member.voter)
        member.sim.wipe()
        member.directory_id = self._new_directory_id()
        member.first_voters = NOBODY
        member.is_damaged = False
        self.wiped += 1
        self._watch(member)

    def may_lose(self, member: Member) -> bool:
        """Whether the quorum can do without this member's disk for ever: everybody is up, and
        besides it and those already gone a majority of the voters is left."""
        voters = self.voters()
        if voters is None or any(not one.is_up for one in self.members):
            return False
        if self.world.now_ms() < self.asked_ms + ASKED_MS:
            return False  # the voters may change any moment
        left = sum(voter not in self.gone and voter != member.voter for voter in voters)
        is_settled = all(node.voters == voters for one, node in self.nodes_up())
        return is_settled and left >= voters.majority and len(voters) >= 3

    def ask_leader(self, name: str, ask: Callable[[RaftNode], Awaitable[None]]) -> bool:
        """Have something done on the leader, if there is one; its errors are counted, no more."""
        leader = self.leader()
        if leader is None or leader.node is None:
            return False
        node = leader.node
        self.asked_ms = self.world.now_ms()

        async def do(runtime: Runtime) -> None:
            try:
                await ask(node)
            except QuorumlogError as error:
                leader.ends[f"{name}:{type(error).__name__}"] += 1

        leader.sim.attach(do, name=name)
        return True

    @property
    def gone(self) -> set[Voter]:
        """Voters whose disks are lost."""
        return {voter for member in self.members for voter in member.gone}

    # --- inside --------------------------------------------------------------------------------

    def _supervise(self, member: Member) -> None:
        now_ms = self.world.now_ms()
        if member.sim.alive:
            return
        if member.restart_at_ms >= 0:
            if now_ms >= member.restart_at_ms:
                self.restarts += 1
                self.start_member(member)
            return
        sim = member.sim
        if not sim.killed and (sim.exit_error is not None or sim.stops):
            self._judge(member)
        self.restart_later(member, self._entropy.spread(*RESTART_MS))

    def _judge(self, member: Member) -> None:
        """A process ended by itself: was there a reason?"""
        error, stops = member.sim.exit_error, member.sim.stops
        reason = f"{type(error).__name__}: {error}" if error is not None else f"stopped: {stops}"
        member.sim.stops = []
        member.ends[type(error).__name__ if error is not None else "stopped"] += 1
        if member.is_damaged and isinstance(error, CorruptionError):
            self.wipe(member)
            return
        if not member.excuse or isinstance(error, AssertionError):
            raise AssertionError(f"{member.name} ended by itself: {reason}") from error
        if member.excuse == "sync":
            # What a failed sync left in the page cache is gone with the next power cut: now.
            member.sim.power_cut()

    def _watch(self, member: Member) -> None:
        self.watch.watch(
            member.name,
            Watched(
                node_id=member.node_id,
                directory_id=member.directory_id,
                log=DurableLog(member.sim, DATA),
                voters=lambda: _pairs(member),
            ),
        )

    def _new_directory_id(self) -> DirectoryId:
        self._disks_made += 1
        return DirectoryId(self._entropy.stream(f"disk/{self._disks_made}").token(16))

    def _config(self, member: Member) -> RaftConfig:
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

    async def _run(self, member: Member, runtime: Runtime) -> None:
        """A process of a member, from its start to its orderly end."""
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
            directory = await Directory.open(runtime, scope, DATA, config=CONFIG)
            registers = Registers(observer=_Observer(self.chronicle, member))
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
                **RegisterService(_Careless(node, self.bug), registers).handlers(),
            }
            listener = await runtime.network.serve(member.address, handlers)
            await node.start()
            member.node, member.registers = node, registers
            try:
                await asyncio.Event().wait()
            finally:  # cancelled: an orderly stop
                member.node = member.registers = None
                await node.close()
                await listener.close(0)
                await directory.close()

    def prove_directories(self) -> int:
        """Kill everybody and prove what lies on the disks; return how many notes there were."""
        return sum(prove_directory(member.sim, DATA) for member in self.members)


@dataclass(frozen=True, slots=True)
class _Careless:
    """The node as the service of the registers sees it, with the bug of the run."""

    node: RaftNode
    bug: str

    async def propose(self, values: list[bytes]) -> int:
        """Propose, twice where that is the bug."""
        if self.bug == "double-apply":
            await self.node.propose(values)
        return await self.node.propose(values)

    async def read_index(self) -> Offset:
        """Ask the quorum, or do not."""
        if self.bug == "stale-reads":
            return self.node.high_watermark
        return await self.node.read_index()


@dataclass(slots=True)
class _Observer:
    """Passes what one replica does on to the one history."""

    chronicle: Chronicle
    member: Member

    def applied(self, applied: Applied, values: list[bytes]) -> None:
        """A batch was applied."""
        with self._noting():
            self.chronicle.applied(self.member.name, applied, values)

    def restored(self, applied: Applied) -> None:
        """A snapshot was taken over."""
        with self._noting():
            self.chronicle.restored(self.member.name, applied)

    def leads(self, leader_id: NodeId | None, epoch: int) -> None:
        """Somebody leads."""
        if leader_id is not None:
            with self._noting():
                self.chronicle.led(leader_id, epoch)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """The node would take a violation for an error of its state machine."""
        try:
            yield
        except AssertionError as violation:
            self.chronicle.violations.append(violation)


def _address(node_id: NodeId) -> str:
    return f"n{node_id}:9093"


def _pairs(member: Member) -> frozenset[tuple[int, bytes]]:
    node = member.node
    if node is None:
        return frozenset()
    return frozenset((int(voter.node_id), bytes(voter.directory_id)) for voter in node.voters)
