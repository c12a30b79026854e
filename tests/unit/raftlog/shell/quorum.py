"""A quorum of whole members on the simulated runtime: disks, network, shell and core."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.kit.raft_node import propose

from quorumlog.errors import QuorumlogError
from quorumlog.ids import ClusterId, DirectoryId, NodeId
from quorumlog.raftlog.config import METADATA_LOG_NAME, RaftConfig
from quorumlog.raftlog.shell import RaftNode, RaftNodeConfig
from quorumlog.raftlog.snapshot_format import BOOTSTRAP, SnapshotEncoder, checkpoint_name
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld
from quorumlog.storage.shell.data_directory import DataDirectory

CLUSTER = ClusterId("c" * 22)
DATA = "/data"
PORT = 9093


@dataclass
class Journal:
    """A state machine that keeps every value in order and all leader changes."""

    values: list[bytes] = field(default_factory=list)
    leaders: list[tuple[int | None, int]] = field(default_factory=list)
    next_offset: int = 0
    restored: int = 0  # number of restores from a snapshot
    gives_snapshots: bool = True

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        assert base_offset >= self.next_offset, f"{base_offset} after {self.next_offset}"
        self.next_offset = base_offset + len(values)
        self.values.extend(values)

    def leadership(self, leader_id: int | None, epoch: int) -> None:
        self.leaders.append((leader_id, epoch))

    def snapshot(self) -> Iterator[list[bytes]] | None:
        if not self.gives_snapshots:
            return None
        kept = list(self.values)
        return (kept[start : start + 100] for start in range(0, len(kept), 100))

    def begin_restore(self) -> None:
        self.values = []

    def restore(self, values: list[bytes]) -> None:
        self.values.extend(values)

    def end_restore(self, end_offset: int, epoch: int) -> None:
        self.next_offset = end_offset
        self.restored += 1


@dataclass
class Member:
    """One machine of the quorum, its directory id, and its current process."""

    voter: Voter
    address: str
    machine: Any  # SimNode
    journal: Journal = field(default_factory=Journal)
    node: RaftNode | None = None  # of the current process, once it is open
    stop: asyncio.Event | None = None

    @property
    def raft(self) -> RaftNode:
        assert self.node is not None, f"{self.address} is not open"
        return self.node

    @property
    def lives(self) -> bool:
        return bool(self.machine.alive) and self.node is not None


class Quorum:
    """Members by node id; `voters` of them are formatted as the voter set."""

    def __init__(
        self,
        world: SimWorld,
        *,
        voters: int,
        node_config: RaftNodeConfig | None = None,
        **config: Any,
    ) -> None:
        self.world = world
        self.config = {"election_timeout_ms_min": 500, "election_timeout_ms_max": 1000} | config
        self.node_config = node_config or RaftNodeConfig()
        self.journal_type = Journal  # the state machine of every process
        self.members: dict[int, Member] = {}
        self.formatted = VoterSet.of(
            (self.member(number).voter, self.member(number).address)
            for number in range(1, voters + 1)
        )

    def member(self, number: int) -> Member:
        """Return the member of a node id, created at first use."""
        if number not in self.members:
            voter = Voter(NodeId(number), DirectoryId(bytes([number]) * 16))
            name = f"n{number}"
            self.members[number] = Member(voter, f"{name}:{PORT}", self.world.node(name))
        return self.members[number]

    def __getitem__(self, number: int) -> Member:
        return self.member(number)

    # --- processes ---

    def start(self, *numbers: int) -> None:
        """Start the members, or all if none is given, each with a new state machine."""
        for number in numbers or tuple(self.members):
            member = self.member(number)
            member.journal, member.node = self.journal_type(), None
            member.machine.spawn(partial(self._live, member))

    def wipe(self, number: int) -> None:
        """Replace the disk of a node by an empty one: the node id becomes another member."""
        member = self.members[number]
        member.machine.wipe()
        drawn = bytes([number, member.voter.directory_id[1] + 1]) * 8
        member.voter = Voter(member.voter.node_id, DirectoryId(drawn))

    async def _live(self, member: Member, runtime: Runtime) -> None:
        await self._format(member, runtime)
        member.stop = asyncio.Event()
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA)
            node = await RaftNode.open(
                runtime,
                scope,
                directory,
                cluster_id=CLUSTER,
                config=RaftConfig(
                    node_id=member.voter.node_id,
                    directory_id=member.voter.directory_id,
                    address=member.address,
                    bootstrap=tuple(each.address for each in self.members.values()),
                    **self.config,
                ),
                state_machine=member.journal,
                node_config=self.node_config,
            )
            listener = await runtime.network.serve(member.address, node.handlers())
            member.node = node
            await node.start()
            await member.stop.wait()
            await node.close()
            await listener.close(100)
            await directory.close()

    async def _format(self, member: Member, runtime: Runtime) -> None:
        if runtime.files.exists(f"{DATA}/meta.properties"):
            return
        voter = member.voter
        await DataDirectory.format(
            runtime,
            DATA,
            cluster_id=CLUSTER,
            node_id=voter.node_id,
            directory_id=voter.directory_id,
        )
        voters = self.formatted if voter in self.formatted else VoterSet(())
        encoder = SnapshotEncoder(BOOTSTRAP, voters)
        folder = f"{DATA}/{METADATA_LOG_NAME}"
        runtime.files.make_folder(folder)
        file = runtime.files.open(f"{folder}/{checkpoint_name(BOOTSTRAP)}", create=True)
        file.write(0, [encoder.header() + encoder.footer()])
        file.sync()
        file.close()
        runtime.files.sync_folder(folder)
        runtime.files.sync_folder(DATA)

    # --- observation ---

    def leader(self) -> Member | None:
        """Return the open member that leads the newest epoch."""
        leading = [
            each for each in self.members.values() if each.lives and each.raft.status().is_leader
        ]
        newest = max(leading, key=lambda each: each.raft.status().epoch, default=None)
        if newest is None or newest.journal.leaders[-1:] != [
            (newest.voter.node_id, newest.raft.status().epoch)
        ]:
            return None
        return newest

    def wait(self, condition: Callable[[], object], virtual_ms: int = 30_000) -> None:
        """Run until a condition is true."""
        self.world.run_until(
            lambda: bool(condition()), virtual_ms=virtual_ms, why=_where(condition)
        )

    def wait_open(self, member: Member) -> None:
        """Run until a started member is open."""
        self.wait(lambda: member.lives)

    def wait_leader(self, *, besides: int = 0) -> Member:
        """Run until there is a leader other than `besides`."""

        def elected() -> bool:
            leader = self.leader()
            return leader is not None and leader.voter.node_id != besides

        self.wait(elected)
        leader = self.leader()
        assert leader is not None, "the elected leader has no open node"
        return leader

    def run(self, member: Member, work: Any, virtual_ms: int = 30_000) -> Any:
        """Run a coroutine in a member's process. Return its result."""
        task = member.machine.attach(lambda runtime: work, name="test")
        self.world.run_until(task, virtual_ms=virtual_ms)
        return task.result()

    def propose(self, *values: bytes, at: Member | None = None) -> int:
        """Commit values through the leader in one proposal. Return the last offset."""
        leader = at or self.wait_leader()
        offset = self.run(leader, propose(leader.raft, list(values)))
        assert isinstance(offset, int), "an offset"
        return offset

    def converge(self, *numbers: int) -> list[bytes]:
        """Run until the given members, or all live ones, have applied the same values. Return
        them."""
        members = [self.members[n] for n in numbers] or [
            each for each in self.members.values() if each.lives
        ]
        leader = self.wait_leader()
        end = leader.raft.status().high_watermark
        self.wait(
            lambda: all(each.lives and each.raft.status().applied_end >= end for each in members)
        )
        values = members[0].journal.values
        for each in members:
            assert each.journal.values == values, f"{each.address} differs"
        return list(values)


def refused(quorum: Quorum, member: Member, work: Any) -> QuorumlogError:
    """Run a coroutine in a member's process and return the typed error that it raises."""
    try:
        quorum.run(member, work)
    except QuorumlogError as error:
        return error
    raise AssertionError("no error was raised")


def _where(condition: Callable[[], object]) -> str:
    code = condition.__code__
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}"
