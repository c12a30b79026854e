"""One member of a step-by-step quorum: its disk, its core, and readable names."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog.config import RaftConfig
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import LOG_START, Entry, EntryKind, LogEnd, LogView, SnapshotId
from quorumlog.raftlog.raft import Raft
from quorumlog.raftlog.ready import Event, Ready
from quorumlog.raftlog.state import RaftState
from quorumlog.raftlog.voters import Voter, VoterHistory, VoterSet


def voter(node_id: int, disk: int = 0) -> Voter:
    """Return the voter identity of a node; `disk` counts its wipes."""
    return Voter(NodeId(node_id), DirectoryId(bytes([node_id] * 15 + [disk])))


def address_of(node_id: int) -> str:
    """Return the address of a node, independent of its disk."""
    return f"host-{node_id}:9090"


def voters(*node_ids: int) -> VoterSet:
    """Return the voter set of the nodes with their first disks."""
    return VoterSet.of((voter(node_id), address_of(node_id)) for node_id in node_ids)


def encode_control(kind: EntryKind, base_offset: int, epoch: int, of: VoterSet | None) -> bytes:
    """Return a readable control batch for transcripts; 24 bytes or more, as a real one."""
    names = "" if of is None else " " + ",".join(str(each.node_id) for each in of)
    return f"{kind}{names} @{base_offset} epoch {epoch}".encode()


def data(base: int, epoch: int, value: str = "") -> Entry:
    """Return an entry of one record."""
    return Entry(
        kind=EntryKind.DATA,
        epoch=Epoch(epoch),
        base_offset=Offset(base),
        count=1,
        payload=(value or f"v{base}").encode(),
    )


def log_view(start: LogEnd, batches: Iterable[tuple[Offset, Offset, Epoch, int]]) -> LogView:
    """Return a view of these batches: (base offset, next offset, epoch, size) of each, in order."""
    view = LogView(start)
    for base_offset, next_offset, epoch, size in batches:
        view.append(base_offset, next_offset, epoch, size)
    return view


def batches_of(log: LogView, start: Offset) -> list[tuple[Offset, Offset, Epoch]]:
    """Return (base offset, next offset, epoch) of every batch from a boundary on."""
    found = []
    while start < log.end_offset:
        end, _ = log.range_end(start, bytes_max=1)
        found.append((start, end, log.epoch_at(start)))
        start = end
    return found


class Drawn:
    """Entropy without randomness: the next election timeouts are the minimum plus `extra_ms`."""

    def __init__(self, extra_ms: int) -> None:
        self.extra_ms = extra_ms

    def stream(self, purpose: str) -> "Drawn":
        return self

    def below(self, end: int) -> int:
        return min(self.extra_ms, end - 1)

    def uniform(self, low: float, high: float) -> float:
        return low

    def token(self, size: int) -> bytes:
        return bytes(size)


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A snapshot on a disk: the state, and the voters at its end."""

    content: bytes

    @classmethod
    def of(cls, state: list[str], of: VoterSet) -> "SnapshotFile":
        names = [(each.node_id, each.directory_id[-1]) for each in of]
        return cls(json.dumps([names, state], separators=(",", ":")).encode())

    @property
    def voters(self) -> VoterSet:
        names = json.loads(self.content)[0]
        return VoterSet.of((voter(node_id, disk), address_of(node_id)) for node_id, disk in names)

    @property
    def state(self) -> list[str]:
        values: list[str] = json.loads(self.content)[1]
        return values


@dataclass(slots=True)
class Disk:
    """The durable data of a member."""

    me: Voter
    initial: VoterSet  # as formatted
    hard_state: HardState = field(default_factory=lambda: HardState(Epoch(0), None))
    start: LogEnd = LOG_START
    entries: list[Entry] = field(default_factory=list)
    snapshots: dict[SnapshotId, SnapshotFile] = field(default_factory=dict)
    unfinished: bytes = b""

    @property
    def end_offset(self) -> Offset:
        return self.entries[-1].next_offset if self.entries else self.start.offset

    def log_view(self) -> LogView:
        return log_view(
            self.start, ((e.base_offset, e.next_offset, e.epoch, e.size) for e in self.entries)
        )

    def voter_history(self) -> VoterHistory:
        initial = self.initial
        if self.start.offset > 0:
            at_start = [each for each in self.snapshots if each.end_offset == self.start.offset]
            assert at_start, f"the log starts at {self.start}, without a snapshot that ends there"
            initial = self.snapshots[at_start[0]].voters
        history = VoterHistory(initial, start_offset=self.start.offset)
        for entry in self.entries:
            if entry.voters is not None:
                history.append(entry.base_offset, entry.voters)
        return history

    def truncate_to(self, offset: Offset) -> None:
        assert self.start.offset <= offset <= self.end_offset, f"truncate to {offset}"
        self.entries = [entry for entry in self.entries if entry.next_offset <= offset]
        assert self.end_offset == offset, f"{offset} is inside a batch"

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            assert entry.base_offset == self.end_offset, f"{entry} after {self.end_offset}"
            self.entries.append(entry)

    def clean_to(self, snapshot: SnapshotId) -> None:
        assert snapshot in self.snapshots, f"{snapshot} is not on the disk"
        self.entries = [e for e in self.entries if e.base_offset >= snapshot.end_offset]
        self.start = snapshot.log_end
        for older in [each for each in self.snapshots if each < snapshot]:
            del self.snapshots[older]


class Member:
    """One node: its disk, and its core while it runs."""

    def __init__(self, config: RaftConfig, disk: Disk, *, extra_ms: int) -> None:
        self.config = config
        self.disk = disk
        self.entropy = Drawn(extra_ms)
        self.now_ms = 0
        self.core: Raft | None = None
        self.raft_state: RaftState  # of the last start
        self.writing: Ready | None = None  # returned by the core, not yet durable
        self.tail: dict[int, Entry] = {}  # log entries, written or not, by base offset
        self.state: list[str] = []  # values applied, the state machine
        self.state_end = 0
        self.events: list[Event] = []
        self.reads: list[tuple[int, int]] = []  # (context, offset) that are ready
        self.reads_lost: list[int] = []
        self.refuses_snapshots = False  # damage: an installed snapshot is invalid

    @property
    def raft(self) -> Raft:
        assert self.core is not None, f"node {self.config.node_id} does not run"
        return self.core

    def start(self) -> None:
        """Start from the durable data."""
        disk = self.disk
        self.tail = {entry.base_offset: entry for entry in disk.entries}
        self.writing, self.state, self.state_end = None, [], 0
        snapshots = tuple(sorted(disk.snapshots))
        if snapshots:
            self.load(snapshots[-1])
        self.raft_state = RaftState(
            self.config,
            disk.log_view(),
            disk.hard_state,
            disk.voter_history(),
            self.entropy,
            snapshots=snapshots,
            encode_control=encode_control,
        )
        self.core = Raft(self.raft_state, now_ms=self.now_ms)

    def crash(self) -> None:
        """Lose all data that is not durable."""
        self.core, self.writing = None, None
        self.state, self.state_end = [], 0

    def load(self, snapshot: SnapshotId) -> None:
        """Load the state from a snapshot."""
        self.state = self.disk.snapshots[snapshot].state
        self.state_end = snapshot.end_offset

    def take_snapshot(self) -> SnapshotId:
        """Write the state durably as a snapshot, and report it to the core."""
        end = self.raft_state.applied_end
        assert end == self.state_end, f"applied {end}, the state is at {self.state_end}"
        snapshot = SnapshotId(end, self.raft_state.log.epoch_before(end))
        self.disk.snapshots[snapshot] = SnapshotFile.of(self.state, self.raft_state.voters.at(end))
        self.raft.snapshot_taken(snapshot)
        return snapshot

    def entries(self, start: int, end: int) -> tuple[Entry, ...]:
        """Return the log's batches in [start, end)."""
        found = []
        while start < end:
            assert start in self.tail, f"no entry at {start} of [.., {end})"
            entry = self.tail[start]
            assert entry.epoch == self.raft_state.log.epoch_at(Offset(start)), (
                f"stale entry {entry}"
            )
            found.append(entry)
            start = entry.next_offset
        assert start == end, f"{end} is inside a batch"
        return tuple(found)
