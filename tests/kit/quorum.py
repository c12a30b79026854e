"""A quorum of cores controlled step by step, with disks in memory and a network under the test's
control.

No event occurs by itself. A message stays in flight until it is delivered or dropped, a write until
it is persisted, and every node has its own clock. So a test creates exactly one history. After each
action the cores' invariants are checked, and over the whole history: an epoch has one leader, a
committed entry never changes, and no member applies another entry.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from quorumlog.errors import VoterNotFound
from quorumlog.ids import Epoch, NodeId
from quorumlog.raftlog.config import RaftConfig
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import Entry, EntryKind, SnapshotId
from quorumlog.raftlog.messages import (
    AppendRequest,
    AppendResponse,
    FollowRequest,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.raft import Raft
from quorumlog.raftlog.ready import Outgoing, Ready, SendChunk, SendEntries
from quorumlog.raftlog.state import RaftState
from quorumlog.raftlog.status import QuorumStatus, describe_quorum
from quorumlog.raftlog.voters import Voter, VoterAddition, VoterRemoval, VoterSet

from .raft_member import Disk, Member, SnapshotFile, address_of, data, voter, voters

ROUNDS_MAX: Final = 10_000
"""The maximum number of steps until all messages and writes are complete."""


class Quorum:
    """The members, and the messages in flight between them."""

    def __init__(self, node_ids: Iterable[int] = (1, 2, 3), **options: Any) -> None:
        """Create voters with empty logs; options are fields of RaftConfig."""
        self.members: dict[int, Member] = {}
        self.flying: list[Message] = []
        self.cut: set[tuple[int, int]] = set()  # (from, to): messages that are lost
        self.options = options
        self.sent: Callable[[int, Message], None] = lambda node_id, message: None
        self.happened: Callable[[int, object], None] = lambda node_id, what: None
        self.leaders: dict[int, Voter] = {}  # by epoch, over the whole history
        self.committed: dict[int, tuple[Epoch, bytes]] = {}  # by base offset
        ids = list(node_ids)
        for node_id in ids:
            self.add_member(node_id, initial=voters(*ids))

    # --- members -------------------------------------------------------------------------------

    def add_member(self, node_id: int, *, initial: VoterSet, disk: int = 0) -> Member:
        """Start a node with an empty disk; with an empty `initial` set it is an observer."""
        me = voter(node_id, disk)
        known = [each for each in self.members if each != node_id]
        config = RaftConfig(
            node_id=me.node_id,
            directory_id=me.directory_id,
            address=address_of(node_id),
            bootstrap=tuple(address_of(each) for each in known) if not initial else (),
            **self.options,
        )
        member = Member(config, Disk(me, initial), extra_ms=100 * (node_id - 1))
        self.members[node_id] = member
        member.now_ms = max(each.now_ms for each in self.members.values())
        member.start()
        self.settle_ready(node_id)
        return member

    def observer(self, node_id: int) -> Member:
        """Start a node without a vote that fetches from the leader."""
        return self.add_member(node_id, initial=VoterSet(()))

    def __getitem__(self, node_id: int) -> RaftState:
        return self.members[node_id].raft_state

    def raft(self, node_id: int) -> Raft:
        return self.members[node_id].raft

    def status(self, node_id: int, now_ms: int = 0) -> QuorumStatus:
        return describe_quorum(self[node_id], self.raft(node_id).role, now_ms)

    def running(self) -> Iterator[tuple[int, Member]]:
        return ((n, each) for n, each in sorted(self.members.items()) if each.core is not None)

    def me(self, node_id: int) -> Voter:
        """Return the voter identity of a node with its current disk."""
        return self.members[node_id].config.me

    # --- clocks and clients --------------------------------------------------------------------

    def tick(self, ms: int, *node_ids: int) -> None:
        """Advance the clocks of the nodes, or of all; each core checks its deadlines once."""
        for node_id in node_ids or [node_id for node_id, _ in self.running()]:
            member = self.members[node_id]
            member.now_ms += ms
            member.raft.tick(member.now_ms)
            self.settle_ready(node_id)

    def campaign(self, node_id: int) -> None:
        """Advance the clock of one node until its election timeout expires."""
        member = self.members[node_id]
        for _ in range(ROUNDS_MAX):
            if member.raft.role.name in ("pre_candidate", "candidate") and member.raft.has_ready():
                break
            deadline_ms = member.raft.next_deadline_ms()
            assert deadline_ms is not None, f"node {node_id} has no deadline"
            before = len(member.events)
            member.now_ms = max(member.now_ms, deadline_ms)
            member.raft.tick(member.now_ms)
            self.settle_ready(node_id)
            roles = [getattr(event, "role", "") for event in member.events[before:]]
            if "pre_candidate" in roles or "candidate" in roles:
                break
        else:
            raise AssertionError(f"node {node_id} does not campaign")

    def propose(self, node_id: int, value: str, *, count: int = 1) -> Entry:
        member = self.members[node_id]
        entry = member.raft.propose(count=count, payload=value.encode())
        self.remember(node_id, entry)
        return entry

    def read(self, node_id: int, context: int) -> None:
        member = self.members[node_id]
        member.raft.read_index(context, member.now_ms)
        self.settle_ready(node_id)

    def add_voter(self, node_id: int, added: int) -> None:
        """Let the leader `node_id` add `added`, with its current disk, as a voter."""
        member = self.members[node_id]
        change = VoterAddition(self.me(added), address_of(added))
        entry = member.raft.change_voters(change, member.now_ms)
        self.remember(node_id, entry)

    def remove_voter(self, node_id: int, removed: int) -> None:
        member = self.members[node_id]
        present = member.raft_state.voters.latest.with_node_id(NodeId(removed))
        if present is None:
            raise VoterNotFound(f"node {removed} does not vote")
        self.remember(node_id, member.raft.change_voters(VoterRemoval(present), member.now_ms))

    def transfer(self, node_id: int, to: int | None) -> None:
        member = self.members[node_id]
        member.raft.transfer_leadership(None if to is None else NodeId(to), member.now_ms)
        self.settle_ready(node_id)

    def resign(self, node_id: int) -> None:
        member = self.members[node_id]
        member.raft.resign(member.now_ms)
        self.settle_ready(node_id)

    def unreachable(self, node_id: int, peer: int) -> None:
        member = self.members[node_id]
        member.raft.unreachable(self.me(peer), member.now_ms)
        self.settle_ready(node_id)

    def snapshot(self, node_id: int) -> SnapshotId:
        taken = self.members[node_id].take_snapshot()
        self.settle_ready(node_id)
        return taken

    def step(self, message: Message) -> None:
        """Deliver a message to its receiver without sending it."""
        member = self.members[self.target(message)]
        member.raft.step(message, member.now_ms)
        self.settle_ready(member.config.node_id)

    def prepare(self, node_id: int, epochs: list[int], *, vote: Voter | None = None) -> None:
        """Stop the node and write one entry of each epoch to its disk; the last epoch is its
        current one."""
        self.crash(node_id)
        disk = self.members[node_id].disk
        disk.hard_state = HardState(Epoch(max([0, *epochs])), vote)
        disk.entries = [data(base, epoch) for base, epoch in enumerate(epochs)]

    def crash(self, node_id: int) -> None:
        self.members[node_id].crash()

    def restart(self, node_id: int) -> None:
        member = self.members[node_id]
        if member.core is not None:
            member.crash()
        member.start()
        self.settle_ready(node_id)

    def wipe(self, node_id: int) -> None:
        """Restart the node with an empty disk, and so as an unknown observer."""
        count = self.members[node_id].disk.me.directory_id[-1] + 1
        self.add_member(node_id, initial=VoterSet(()), disk=count)

    # --- writes --------------------------------------------------------------------------------

    def persist(self, node_id: int, *, only: str = "") -> bool:
        """Complete the pending write; `only` "hard_state" or "truncate" stops after that part, as a
        power cut would. Return True if there was one."""
        member = self.members[node_id]
        ready, disk = member.writing, member.disk
        if ready is None:
            return False
        assert ready.token is not None
        if ready.hard_state is not None:
            assert ready.hard_state.epoch >= disk.hard_state.epoch, "the epoch decreased"
            disk.hard_state = ready.hard_state
        if only == "hard_state":
            return True
        for chunk in ready.chunks:
            disk.unfinished = disk.unfinished if chunk.position else b""
            assert chunk.position == len(disk.unfinished), f"a hole in {chunk}"
            disk.unfinished += chunk.content
        if ready.install is not None and member.refuses_snapshots:
            disk.unfinished, member.writing = b"", None
            member.raft.persisted(ready.token, member.now_ms, is_snapshot_damaged=True)
            self.settle_ready(node_id)
            return True
        if ready.install is not None:
            self._install(member, ready)
        if ready.truncate_to is not None:
            disk.truncate_to(ready.truncate_to)
        if only == "truncate":
            return True
        disk.append(ready.append)
        member.writing = None
        member.raft.persisted(ready.token, member.now_ms)
        for message in ready.messages_after:
            self._send(node_id, message)
        self._finish(member, ready)
        self.settle_ready(node_id)
        return True

    def _install(self, member: Member, ready: Ready) -> None:
        snapshot, disk = ready.install, member.disk
        assert snapshot is not None
        disk.snapshots = {snapshot: SnapshotFile(disk.unfinished)}
        disk.entries, disk.start, disk.unfinished = [], snapshot.log_end, b""
        member.load(snapshot)

    # --- messages ------------------------------------------------------------------------------

    def target(self, message: Message) -> int:
        """Return the node at the destination address of a message."""
        if isinstance(message, FollowRequest):
            host = message.receiver_address.partition(":")[0]
            return int(host.removeprefix("host-"))
        return message.receiver.node_id

    def deliver(self, message: Message) -> bool:
        """Deliver one message in flight. Return False if it was lost: no node is there."""
        self.flying.remove(message)
        node_id = self.target(message)
        member = self.members.get(node_id)
        if member is None or member.core is None:
            return False
        member.raft.step(message, member.now_ms)
        self.settle_ready(node_id)
        return True

    def deliver_all(self, *, to: int | None = None) -> None:
        """Deliver the messages that are in flight now, in order; not those sent in response."""
        for message in list(self.flying):
            if to is None or self.target(message) == to:
                self.deliver(message)

    def settle(self) -> None:
        """Persist and deliver until nothing is pending, without advancing the clocks."""
        for _ in range(ROUNDS_MAX):
            if any([self.persist(node_id) for node_id, _ in list(self.running())]):
                continue
            if not self.flying:
                return
            self.deliver(self.flying[0])
        raise AssertionError(f"messages are pending after {ROUNDS_MAX} steps: {self.flying[:3]}")

    def run(self, ms: int) -> None:
        """Advance all clocks together, from deadline to deadline, and settle at each."""
        self.settle()
        left_ms = ms
        while left_ms >= 0:
            waits = [
                deadline_ms - member.now_ms
                for _, member in self.running()
                if (deadline_ms := member.raft.next_deadline_ms()) is not None
            ]
            step_ms = max(1, min([*waits, left_ms]))
            if step_ms > left_ms:
                return
            left_ms -= step_ms
            self.tick(step_ms)
            self.settle()

    def elect(self, node_id: int) -> None:
        """Elect a node with the votes of all members, and let all receive the result."""
        self.campaign(node_id)
        self.settle()
        assert self[node_id].is_leader, f"{self.raft(node_id).role} after a campaign"

    def isolate(self, node_id: int) -> None:
        """Drop all messages from and to the node."""
        for other in self.members:
            if other != node_id:
                self.cut |= {(node_id, other), (other, node_id)}

    def split(self, *groups: set[int]) -> None:
        """Drop messages between different groups."""
        self.cut = {
            (left, right)
            for group in groups
            for left in group
            for right in set(self.members) - group
        }

    def heal(self) -> None:
        self.cut = set()

    # --- rounds of effects ---------------------------------------------------------------------

    def remember(self, node_id: int, entry: Entry) -> None:
        """Store an entry before the core returns it for writing."""
        self.members[node_id].tail[entry.base_offset] = entry
        self.settle_ready(node_id)

    def settle_ready(self, node_id: int) -> None:
        """Process all ready rounds of a core; a write is then pending, not durable."""
        member = self.members[node_id]
        for _ in range(ROUNDS_MAX):
            for entry in member.raft_state.writes.unwritten:
                member.tail[entry.base_offset] = entry
            if not member.raft.has_ready():
                break
            self._take(member, member.raft.ready())
        else:
            raise AssertionError(f"node {node_id} has more than {ROUNDS_MAX} rounds")
        self._check(member)

    def _take(self, member: Member, ready: Ready) -> None:
        node_id = member.config.node_id
        for entry in ready.append:
            member.tail[entry.base_offset] = entry
        for event in ready.events:
            member.events.append(event)
            self.happened(node_id, event)
        for message in ready.messages_now:
            self._send(node_id, message)
        if ready.token is None:
            work = (ready.hard_state, ready.install, ready.truncate_to)
            assert work == (None,) * 3, f"a write without a token: {ready}"
            assert not ready.append
            assert not ready.chunks
            assert not ready.messages_after
            self._finish(member, ready)
            return
        assert member.writing is None, "a second write while one is pending"
        member.writing = ready
        self.happened(node_id, ready)
        if ready.install is None:
            # Committed entries are durable on a majority: they do not wait for the node's own
            # write.
            self._finish(member, replace(ready, clean_to=None))
            member.writing = replace(ready, committed=None, reads=(), reads_lost=())

    def _finish(self, member: Member, ready: Ready) -> None:
        """Process the commits, reads and deletable files of a round."""
        node_id = member.config.node_id
        if ready.committed is not None:
            assert ready.committed.start == member.state_end, f"{ready.committed} out of order"
            for entry in member.entries(ready.committed.start, ready.committed.end):
                self._apply(member, entry)
            member.raft.applied(ready.committed.end)
            self.happened(node_id, ready.committed)
        for read in ready.reads:
            assert read.offset <= member.state_end, f"{read} before {member.state_end}"
            member.reads.append((read.context, read.offset))
            self.happened(node_id, read)
        for context in ready.reads_lost:
            member.reads_lost.append(context)
            self.happened(node_id, context)
        if ready.clean_to is not None:
            member.disk.clean_to(ready.clean_to)
            self.happened(node_id, ready.clean_to)

    def _apply(self, member: Member, entry: Entry) -> None:
        known = self.committed.setdefault(entry.base_offset, (entry.epoch, entry.payload))
        assert known == (entry.epoch, entry.payload), f"{entry} committed at the offset of {known}"
        if entry.kind is EntryKind.DATA:
            member.state.append(entry.payload.decode())
        member.state_end = entry.next_offset

    def _send(self, node_id: int, out: Outgoing) -> None:
        member = self.members[node_id]
        message = self._message_of(member, out)
        if message is None:
            return
        self._check_sent(member, message)
        self.sent(node_id, message)
        if (node_id, self.target(message)) not in self.cut:
            self.flying.append(message)

    def _message_of(self, member: Member, out: Outgoing) -> Message | None:
        if isinstance(out, SendEntries):
            return AppendRequest(
                sender=member.config.me,
                receiver=out.receiver,
                epoch=out.epoch,
                prev=out.prev,
                entries=member.entries(out.prev.offset, out.end),
                high_watermark=out.high_watermark,
            )
        if isinstance(out, SendChunk):
            file = member.disk.snapshots.get(out.snapshot)
            if file is None:
                return None
            return SnapshotChunk(
                sender=member.config.me,
                receiver=out.receiver,
                epoch=out.epoch,
                snapshot=out.snapshot,
                voters=out.voters,
                size=len(file.content),
                position=out.position,
                content=file.content[out.position : out.position + out.bytes_max],
            )
        return out

    def _check_sent(self, member: Member, message: Message) -> None:
        """Check that a message promises only durable state."""
        disk = member.disk
        match message:
            case VoteResponse(granted=True, pre_vote=False):
                assert disk.hard_state == HardState(message.epoch, message.receiver), f"{message}"
            case VoteRequest(pre_vote=False):
                assert disk.hard_state == HardState(message.epoch, member.config.me), f"{message}"
            case AppendResponse() | HeartbeatResponse() if message.match_end is not None:
                assert message.match_end <= disk.end_offset, f"{message}, disk {disk.end_offset}"
                assert disk.hard_state.epoch == message.epoch, f"{message}, {disk.hard_state}"
            case _:
                pass

    def _check(self, member: Member) -> None:
        member.raft.check_invariants()
        state = member.raft_state
        if state.is_leader:
            leader = self.leaders.setdefault(state.epoch, state.me)
            assert leader == state.me, f"{leader} and {state.me} led epoch {state.epoch}"


def quorum_with_leader(*node_ids: int, observers: Iterable[int] = (), **options: Any) -> Quorum:
    """Return a quorum with leader 1; all members, observers too, have its whole log."""
    quorum = Quorum(node_ids or (1, 2, 3), **options)
    quorum.elect(1)
    for node_id in observers:
        quorum.observer(node_id)
    quorum.run(300)
    return quorum
