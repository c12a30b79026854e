"""The disk of a member, and a log with a running hash at every end.

A disk outlives processes. A wiped disk is replaced by another one under another directory id; the
invariants keep the old one for comparison.

Fault model: a step of a write is either durable or, after a power cut during it, partly there: any
prefix of appended entries (a torn batch is truncated at the next start), any suffix of a
truncation, epoch and vote or a snapshot's installation entirely or not at all. The unfinished file
of a snapshot is deleted at a start.
"""

import struct
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from tests.kit.raft_member import log_view

from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import LOG_START, Entry, LogEnd, LogView, SnapshotId
from quorumlog.raftlog.messages import SnapshotChunk
from quorumlog.raftlog.voters import Voter, VoterHistory, VoterSet

SNAPSHOT: Final = struct.Struct(">qqq")  # end offset, epoch, running hash
CHECKSUM_BYTES: Final = 8


class RunningLog:
    """Entries of [start, end) by base offset, and the hash of everything below each end.

    The hash covers removed entries too: equal hashes mean equal histories from offset 0.
    """

    __slots__ = ("chains", "end", "entries", "last_epoch", "start")

    def __init__(self) -> None:
        self.start = LOG_START
        self.end = 0
        self.last_epoch = 0
        self.entries: dict[int, Entry] = {}
        self.chains: dict[int, int] = {0: 0}

    def append(self, entry: Entry) -> int:
        """Append an entry and return the hash at its end."""
        end = self.end
        assert entry.base_offset == end, f"entry at {entry.base_offset}, log end {end}"
        self.entries[end] = entry
        self.end = after = end + entry.count
        self.last_epoch = entry.epoch
        chain = hash((self.chains[end], entry.epoch, after, zlib.crc32(entry.payload)))
        self.chains[after] = chain
        return chain

    def between(self, start: int, end: int) -> Iterator[Entry]:
        """Yield the entries of [start, end), both batch boundaries; raises KeyError for a
        missing one."""
        while start < end:
            entry = self.entries[start]
            yield entry
            start += entry.count

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from a boundary on."""
        at = offset
        while at < self.end:
            entry = self.entries.pop(at)
            at += entry.count
            del self.chains[at]
        self.end = offset
        self.last_epoch = self.epoch_before(offset)

    def clean_to(self, start: LogEnd) -> None:
        """Remove the entries below a boundary; their hashes stay."""
        at: int = self.start.offset
        while at < start.offset:
            at += self.entries.pop(at).count
        self.start = start

    def reset(self, start: LogEnd, chain: int) -> None:
        """Make the log empty, starting at a snapshot's end."""
        self.entries.clear()
        self.chains = {start.offset: chain}
        self.start = start
        self.end = start.offset
        self.last_epoch = start.epoch

    def copy_from(self, other: "RunningLog") -> None:
        """Copy the other log."""
        self.start, self.end, self.last_epoch = other.start, other.end, other.last_epoch
        self.entries = dict(other.entries)
        self.chains = dict(other.chains)

    def holds(self, end: int, chain: int) -> bool:
        """Return True if the log had this hash at `end`."""
        known = self.chains.get(end)
        return known == chain if known is not None else end < self.start.offset

    def epoch_before(self, offset: int) -> int:
        """Return the epoch of the entry that ends at a boundary. For checks: it walks back."""
        if offset == self.start.offset:
            return self.start.epoch
        before = offset - 1
        while before not in self.entries:
            before -= 1
        return self.entries[before].epoch


class SnapshotFile:
    """A snapshot's bytes and voters."""

    __slots__ = ("content", "voters")

    def __init__(self, content: bytes, voters: VoterSet) -> None:
        self.content = content
        self.voters = voters

    @classmethod
    def of(cls, snapshot: SnapshotId, chain: int, voters: VoterSet, *, size: int) -> "SnapshotFile":
        """Return the file of a state, equal on every member, of about `size` bytes."""
        header = SNAPSHOT.pack(snapshot.end_offset, snapshot.epoch, chain)
        names = b"".join(b"%d" % voter.node_id + voter.directory_id for voter in voters)
        filler = bytes(max(0, size - len(header) - len(names) - CHECKSUM_BYTES))
        body = header + names + filler
        return cls(body + blake2b(body, digest_size=CHECKSUM_BYTES).digest(), voters)

    @staticmethod
    def chain_in(content: bytes, snapshot: SnapshotId) -> int | None:
        """Return the hash of the state; None if the file is damaged."""
        body, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
        if len(body) < SNAPSHOT.size:
            return None
        if blake2b(body, digest_size=CHECKSUM_BYTES).digest() != checksum:
            return None
        end_offset, epoch, chain = SNAPSHOT.unpack_from(body)
        return chain if (end_offset, epoch) == (snapshot.end_offset, snapshot.epoch) else None


class MemberDisk:
    """The durable state of one voter or observer."""

    def __init__(self, node_id: NodeId, directory_id: DirectoryId, formatted: VoterSet) -> None:
        self.me = Voter(node_id, directory_id)
        self.formatted = formatted  # initial voters of the formatted directory; empty: unknown
        self.hard_state = HardState(Epoch(0), None)
        self.log = RunningLog()
        self.snapshots: dict[SnapshotId, SnapshotFile] = {}  # ascending
        self.part = bytearray()  # the unfinished file
        self.part_of: SnapshotId | None = None
        self.part_voters = formatted
        self.is_wiped = False

    @property
    def newest(self) -> SnapshotId | None:
        """The newest snapshot."""
        return next(reversed(self.snapshots), None)

    def voters_at_start(self) -> VoterSet:
        """Return the voters in force at the start of the log."""
        if self.log.start.offset == 0:
            return self.formatted
        return next(iter(self.snapshots.values())).voters

    def view(self) -> LogView:
        """Return the log view of a starting core."""
        log = self.log
        entries = log.between(log.start.offset, log.end)
        return log_view(
            log.start, ((e.base_offset, e.next_offset, e.epoch, len(e.payload)) for e in entries)
        )

    def history(self) -> VoterHistory:
        """Return the voter sets of the log."""
        log = self.log
        history = VoterHistory(self.voters_at_start(), start_offset=log.start.offset)
        for entry in log.between(log.start.offset, log.end):
            if entry.voters is not None:
                history.append(entry.base_offset, entry.voters)
        return history

    def write_chunk(self, chunk: SnapshotChunk) -> None:
        """Write a chunk into the unfinished file; position 0 starts the file again."""
        if chunk.position == 0:
            self.part.clear()
            self.part_of, self.part_voters = chunk.snapshot, chunk.voters
        assert self.part_of == chunk.snapshot, f"{chunk.snapshot} in the file of {self.part_of}"
        assert chunk.position == len(self.part), f"{chunk.position} in {len(self.part)} bytes"
        self.part += chunk.content

    def install(self, snapshot: SnapshotId) -> bool:
        """Replace the log by the complete unfinished file. Return False if it is corrupt; then
        only that file is removed."""
        assert self.part_of == snapshot, f"{snapshot} installed from the file of {self.part_of}"
        content = bytes(self.part)
        self.forget_part()
        chain = SnapshotFile.chain_in(content, snapshot)
        if chain is None:
            return False
        self.log.reset(snapshot.log_end, chain)
        self.snapshots = {snapshot: SnapshotFile(content, self.part_voters)}
        return True

    def forget_part(self) -> None:
        """Delete the unfinished file."""
        self.part.clear()
        self.part_of = None

    def clean_to(self, snapshot: SnapshotId) -> None:
        """Remove everything below a snapshot."""
        self.log.clean_to(snapshot.log_end)
        self.snapshots = {each: file for each, file in self.snapshots.items() if each >= snapshot}

    def end_offset(self) -> Offset:
        """Return the log end offset."""
        return Offset(self.log.end)
