"""Invariants across the nodes of a quorum, checked during a run.

The checks follow the events at a small cost each: batches that replicas apply
(`CommittedHistory`), messages that leave a node (`MessageInvariants`), and the state that its
disk would keep in a power cut at that moment (`DurableLog`). A violation is an AssertionError
with the offsets and epochs.

1. Equal logs: replicas that applied up to an offset have equal hashes over the log below it.

2. Once: no command is in the log twice.

3. One leader per epoch: only one node sends as the leader of an epoch, and is reported as it.

4. Durable before acknowledged: acknowledgements, votes and candidacies are durable before they are
sent.

5. Committed on a majority: committed entries are on the disks of a majority.

6. The high watermark of an epoch's leader never decreases.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from quorumlog.errors import CorruptionError, QuorumlogError
from quorumlog.ids import NodeId
from quorumlog.proto import raft_pb2 as pb
from quorumlog.raftlog.frames import RAFT_FRAMES
from quorumlog.raftlog.hard_state import QUORUM_STATE_NAME, HardState, decode_hard_state
from quorumlog.raftlog.snapshot_format import snapshot_of_name
from quorumlog.records.batch import HEADER_SIZE, parse_header
from quorumlog.runtime.frame_stream import FrameReader
from quorumlog.services import RAFT_VOTE
from quorumlog.simulation.byte_network import BytesFrame
from quorumlog.simulation.disk import Disk, DiskWrite, FileBody, Folder
from quorumlog.simulation.frames import Open, Result
from quorumlog.simulation.links import LinkEnd
from quorumlog.simulation.world import SimNode

from ..cluster.registers import Applied

LOG_SUFFIX: Final = ".log"
METADATA_FOLDER: Final = "__cluster_metadata-0"


class CommittedHistory:
    """The single log that all replicas must agree on."""

    def __init__(self) -> None:
        self._ends: list[int] = []  # of every batch that a replica applied, ascending
        self._digests: list[bytes] = []
        self._values: dict[bytes, int] = {}  # digest of a command -> its offset
        self._leaders: dict[int, NodeId] = {}  # by epoch
        self.batches = 0  # applied, over all replicas
        # recorded where an exception would be handled by the node
        self.violations: list[AssertionError] = []

    @property
    def end_offset(self) -> int:
        """The end of the offsets applied by any replica."""
        return self._ends[-1] if self._ends else 0

    @property
    def epochs_led(self) -> int:
        """The number of epochs with a leader."""
        return len(self._leaders)

    def applied(self, node: str, applied: Applied, values: list[bytes]) -> None:
        """Check a batch that a replica applied."""
        self.batches += 1
        end = applied.end_offset
        if not self._ends or end > self._ends[-1]:
            assert applied.base_offset >= self.end_offset, (
                f"{node} applied [{applied.base_offset}, {end}), others a batch up to"
                f" {self.end_offset}"
            )
            self._ends.append(end)
            self._digests.append(applied.digest)
            self._note_values(applied.base_offset, values)
            return
        self._compare(node, end, applied.digest, is_exact=True)

    def restored(self, node: str, applied: Applied) -> None:
        """Check a snapshot that a replica installed."""
        self._compare(node, applied.end_offset, applied.digest, is_exact=False)

    def led(self, leader_id: NodeId, epoch: int) -> None:
        """Check the leader of an epoch, as it or another node reports it."""
        known = self._leaders.setdefault(epoch, leader_id)
        assert known == leader_id, f"epoch {epoch} is led by {known} and by {leader_id}"

    def offset_of(self, value: bytes) -> int | None:
        """Return the offset of a command; None if no replica applied it."""
        return self._values.get(_key_of(value))

    def _note_values(self, base_offset: int, values: list[bytes]) -> None:
        for offset, value in enumerate(values, base_offset):
            before = self._values.setdefault(_key_of(value), offset)
            assert before == offset, f"{value[:40]!r} is at offset {before} and at {offset}"

    def _compare(self, node: str, end: int, digest: bytes, *, is_exact: bool) -> None:
        index = bisect_right(self._ends, end) - 1
        there, known = (self._ends[index], self._digests[index]) if index >= 0 else (0, b"")
        assert there == end or not is_exact, f"{node} applied up to {end}, inside another's batch"
        assert known == digest, f"{node} has another state at offset {end} than others had"


def _key_of(value: bytes) -> bytes:
    return blake2b(value, digest_size=12).digest()


# --- disks ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Parsed:
    """The parsed part of a segment."""

    body: FileBody
    ends: list[tuple[int, int]] = field(default_factory=list)  # (position, offset) after each batch
    last_header: bytes = b""  # of the last batch: if it changes, the tail was replaced


class DurableLog:
    """The durable part of a node's metadata log, on the disk that the machine had at creation."""

    def __init__(self, node: SimNode, data_dir: str) -> None:
        self._disk = node.device.disk
        self._data_dir = data_dir
        self._parsed: dict[str, _Parsed] = {}  # by the segment's name
        self._state: tuple[bytes, HardState | None] = (b"", None)  # the last one read

    def hard_state(self) -> HardState | None:
        """Return epoch and vote; None if there are none."""
        folder = _durable_folder(self._disk, self._data_dir)
        entry = None if folder is None else folder.durable.get(QUORUM_STATE_NAME)
        if not isinstance(entry, FileBody):
            return None
        if self._state[0] != entry.durable:
            content = bytes(entry.durable)
            try:
                self._state = (content, decode_hard_state(content))
            except CorruptionError:
                self._state = (content, None)
        return self._state[1]

    def holds(self, end_offset: int) -> bool:
        """Return True if everything below the offset is durable, in the log or in a snapshot."""
        return end_offset == 0 or self.end_offset(at_least=end_offset) >= end_offset

    def end_offset(self, *, at_least: int = 1 << 62) -> int:
        """Return the durable end offset, 0 for none; it may stop at `at_least`."""
        folder = _durable_folder(self._disk, f"{self._data_dir}/{METADATA_FOLDER}")
        if folder is None:
            return 0
        end = self._log_end(folder)
        return end if end >= at_least else max(end, _snapshot_end(folder))

    def _log_end(self, folder: Folder) -> int:
        names = sorted(name for name in folder.entries if name.endswith(LOG_SUFFIX))
        end = 0
        for name in names[-2:]:  # earlier segments were complete when these were created
            body = folder.entries[name]
            if not isinstance(body, FileBody) or folder.durable.get(name) is not body:
                break
            parsed = self._parsed.get(name)
            if parsed is None or parsed.body is not body:
                parsed = self._parsed[name] = _Parsed(body)
            end = _durable_end(parsed, int(name.removesuffix(LOG_SUFFIX)))
        return end


def _snapshot_end(folder: Folder) -> int:
    """Return the end of the newest durable snapshot; a start uses it if the log ends below it."""
    ends = [
        snapshot.end_offset
        for name, entry in folder.durable.items()
        if (snapshot := snapshot_of_name(name)) is not None
        and isinstance(entry, FileBody)
        and not entry.unsynced
    ]
    return max(ends, default=0)


def _durable_folder(disk: Disk, path: str) -> Folder | None:
    """Return the folder of a path if every name on the path is durable."""
    folder = disk.root
    for part in path.strip("/").split("/"):
        entry = folder.durable.get(part)
        if not isinstance(entry, Folder):
            return None
        folder = entry
    return folder


def _durable_end(parsed: _Parsed, base_offset: int) -> int:
    body = parsed.body
    _forget_replaced(parsed)
    position, end = parsed.ends[-1] if parsed.ends else (0, base_offset)
    content = body.content
    while position + HEADER_SIZE <= len(content):
        try:
            header = parse_header(bytes(content[position : position + HEADER_SIZE]))
        except CorruptionError:
            break
        if header.base_offset != end or position + header.size > len(content):
            break
        parsed.last_header = bytes(content[position : position + HEADER_SIZE])
        position, end = position + header.size, header.next_offset
        parsed.ends.append((position, end))
    bound = min(
        (one.position if isinstance(one, DiskWrite) else one.size for one in body.unsynced),
        default=len(content),
    )
    index = bisect_right(parsed.ends, (bound, 1 << 62)) - 1
    return parsed.ends[index][1] if index >= 0 else base_offset


def _forget_replaced(parsed: _Parsed) -> None:
    if not parsed.ends:
        return
    start = parsed.ends[-2][0] if len(parsed.ends) > 1 else 0
    if parsed.body.content[start : start + HEADER_SIZE] != parsed.last_header:
        parsed.ends.clear()


# --- messages ------------------------------------------------------------------------------------


@dataclass(slots=True)
class WatchedNode:
    """A node under observation."""

    node_id: NodeId
    directory_id: bytes
    log: DurableLog
    voters: Callable[[], frozenset[tuple[int, bytes]]]  # in force by its own log


class MessageInvariants:
    """Checks every message of the quorum as it leaves its sender."""

    def __init__(self, history: CommittedHistory) -> None:
        self._history = history
        self._watched: dict[str, WatchedNode] = {}  # by the machine's name
        self._gone: list[WatchedNode] = []  # disks that were wiped since
        self._votes: set[tuple[int, int]] = set()  # (link, call): membership only
        self._readers: dict[LinkEnd, FrameReader[pb.RaftFrame]] = {}  # by end of a connection
        self._committed: dict[int, int] = {}  # epoch -> the highest reported high watermark
        # epoch -> the voters at the last check
        self._voters: dict[int, frozenset[tuple[int, bytes]]] = {}
        self.messages = 0

    def watch(self, name: str, watched: WatchedNode) -> None:
        """Check the messages of this machine, under this identity."""
        before = self._watched.get(name)
        if before is not None and before.directory_id != watched.directory_id:
            self._gone.append(before)
        self._watched[name] = watched

    def on_sent(self, sender: LinkEnd, frame: object) -> None:
        """Check a frame that leaves a process."""
        try:
            self._look(sender, frame)
        except AssertionError as violation:  # the sender would handle it as its own error
            self._history.violations.append(violation)

    def _look(self, sender: LinkEnd, frame: object) -> None:
        match frame:
            case Open():
                self._opened(sender, frame)
            case BytesFrame():
                for sent in self._read(sender, frame.data):
                    for message in sent.messages:
                        self._sent(sender, message)
            case Result():
                is_vote = (sender.link.number, frame.call) in self._votes
                if is_vote and frame.response is not None:
                    self._voted(sender, pb.VoteResponse.FromString(frame.response))
            case _:
                pass

    def _opened(self, sender: LinkEnd, frame: Open) -> None:
        if frame.path == RAFT_VOTE.path:
            self._votes.add((sender.link.number, frame.call))
            assert frame.request is not None, "a vote request without its message"
            self._campaigns(sender, pb.VoteCall.FromString(frame.request))

    def _read(self, sender: LinkEnd, data: bytes) -> Iterator[pb.RaftFrame]:
        """Yield the frames that these bytes complete."""
        reader = self._readers.setdefault(sender, FrameReader(RAFT_FRAMES))
        while data:
            buffer = reader.buffer()
            count = min(len(buffer), len(data))
            buffer[:count], data = data[:count], data[count:]
            for frame in reader.received(count):
                if not isinstance(frame, QuorumlogError):
                    yield frame

    # --- elections ---

    def _campaigns(self, sender: LinkEnd, call: pb.VoteCall) -> None:
        request, watched = call.request, self._watched[sender.process.machine.name]
        if request.pre_vote:
            return
        state = watched.log.hard_state()
        assert state is not None, f"node {watched.node_id} campaigns without a durable epoch"
        is_own = state.vote is not None and state.vote.node_id == watched.node_id
        assert state.epoch > request.epoch or (state.epoch == request.epoch and is_own), (
            f"node {watched.node_id} campaigns for epoch {request.epoch}, on its disk is {state}"
        )

    def _voted(self, sender: LinkEnd, response: pb.VoteResponse) -> None:
        watched = self._watched.get(sender.process.machine.name)
        if watched is None or not response.granted or response.pre_vote:
            return
        state = watched.log.hard_state()
        is_durable = state is not None and state.epoch >= response.epoch
        assert is_durable, f"node {watched.node_id} votes in {response.epoch}, durable is {state}"

    # --- replication ---

    def _sent(self, sender: LinkEnd, message: pb.RaftMessage) -> None:
        self.messages += 1
        watched = self._watched[sender.process.machine.name]
        match message.WhichOneof("message"):
            case "append_request":
                request = message.append_request
                self._leads(watched, request.epoch, request.high_watermark)
            case "heartbeat":
                self._leads(watched, message.heartbeat.epoch, message.heartbeat.high_watermark)
            case "snapshot_chunk":
                self._history.led(watched.node_id, message.snapshot_chunk.epoch)
            case "append_response":
                response = message.append_response
                self._acknowledges(watched, response.epoch, response.match_end)
            case "heartbeat_response":
                answer = message.heartbeat_response
                if answer.HasField("match_end"):
                    self._acknowledges(watched, answer.epoch, answer.match_end)
            case _:
                pass

    def _leads(self, watched: WatchedNode, epoch: int, high_watermark: int) -> None:
        self._history.led(watched.node_id, epoch)
        before = self._committed.get(epoch, 0)
        if high_watermark <= before:
            return  # copies of older messages may be in flight
        self._committed[epoch] = high_watermark
        voters = watched.voters()
        known, self._voters[epoch] = self._voters.get(epoch), voters
        if known != voters:
            return  # earlier entries were committed by other voters
        holding = sum(
            other.log.holds(high_watermark)
            # A disk may have been wiped since the commit.
            for other in (*self._watched.values(), *self._gone)
            if (int(other.node_id), other.directory_id) in voters
        )
        assert holding * 2 > len(voters), (
            f"node {watched.node_id} reports {high_watermark} as committed in epoch {epoch}, on"
            f" {holding} of {len(voters)} disks"
        )

    def _acknowledges(self, watched: WatchedNode, epoch: int, match_end: int) -> None:
        state = watched.log.hard_state()
        assert state is not None, f"node {watched.node_id} acknowledges without a durable epoch"
        assert state.epoch >= epoch, (
            f"node {watched.node_id} acknowledges in epoch {epoch}, durable is {state.epoch}"
        )
        if state.epoch > epoch:
            return  # delayed until a newer leader was elected: it is ignored
        assert watched.log.holds(match_end), (
            f"node {watched.node_id} acknowledges [.., {match_end}), durable is"
            f" [.., {watched.log.end_offset()})"
        )
