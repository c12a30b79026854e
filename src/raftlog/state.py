"""The state that a Raft node has in every role: log, epoch, vote, voters and pending output.

`Raft` and the roles change it, its creator reads it. It makes no decision that depends on the role.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..ids import Epoch, NodeId, Offset
from .config import RaftConfig
from .hard_state import HardState
from .log_view import Entry, EntryKind, LogView, SnapshotId
from .messages import Message
from .ready import (
    CommittedRange,
    Event,
    MessageDropped,
    Outgoing,
    ReadReady,
    Ready,
    VotersChanged,
)
from .voters import Voter, VoterHistory, VoterSet
from .writes import PendingWrite, WriteQueue

if TYPE_CHECKING:
    from ..runtime import Entropy

EncodeControl: TypeAlias = Callable[[EntryKind, Offset, Epoch, VoterSet | None], bytes]
"""(kind, base offset, epoch, voters of a VOTERS entry) -> the stamped control batch with one
record."""


@dataclass(slots=True)
class Reception:
    """The state of a snapshot that is being received."""

    snapshot: SnapshotId
    voters: VoterSet
    size: int
    epoch: Epoch  # the epoch of the sending leader
    position: int = 0  # every byte below it is received
    is_whole: bool = False  # every byte is received and the install is handed out


class PendingReady:
    """The effects that the next rounds return."""

    __slots__ = (
        "clean_to",
        "committed_out",
        "events",
        "messages_after",
        "messages_now",
        "reads",
        "reads_lost",
    )

    def __init__(self, *, committed_out: Offset) -> None:
        self.committed_out = committed_out  # everything below was returned by take()
        self.messages_now: list[Outgoing] = []
        self.messages_after: list[Message] = []
        self.events: list[Event] = []
        self.reads: list[ReadReady] = []
        self.reads_lost: list[int] = []
        self.clean_to: SnapshotId | None = None

    def send(self, message: Outgoing) -> None:
        """Queue a message that is sent at once."""
        self.messages_now.append(message)

    def send_after_write(self, message: Message) -> None:
        """Queue a message that is sent after all current in-memory state is durable."""
        self.messages_after.append(message)

    def drop(self, sender: Voter, reason: str) -> None:
        """Report a dropped message as an event."""
        self.events.append(MessageDropped(sender=sender, reason=reason))

    def is_empty(self, high_watermark: Offset) -> bool:
        """Return True if take() would return no effects, apart from a write."""
        return not (
            self.messages_now
            or self.events
            or self.committed_out < high_watermark
            or self.reads
            or self.reads_lost
            or self.clean_to is not None
        )

    def take(self, write: PendingWrite | None, high_watermark: Offset) -> Ready:
        """Return a round with these effects and the write, and forget them.

        Messages that wait for a write stay if there is none.
        """
        committed = None
        if self.committed_out < high_watermark:
            committed = CommittedRange(start=self.committed_out, end=high_watermark)
            self.committed_out = high_watermark
        ready = Ready(
            token=write.token if write else None,
            hard_state=write.hard_state if write else None,
            chunks=write.chunks if write else (),
            install=write.install if write else None,
            truncate_to=write.truncate_to if write else None,
            append=write.entries if write else (),
            messages_now=tuple(self.messages_now),
            messages_after=tuple(self.messages_after) if write else (),
            events=tuple(self.events),
            committed=committed,
            reads=tuple(self.reads),
            reads_lost=tuple(self.reads_lost),
            clean_to=self.clean_to,
        )
        if write:
            self.messages_after.clear()
        self.messages_now.clear()
        self.events.clear()
        self.reads.clear()
        self.reads_lost.clear()
        self.clean_to = None
        return ready


class RaftState:
    """The log and the state of one Raft node."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        hard_state: HardState,
        voters: VoterHistory,
        entropy: "Entropy",
        *,
        snapshots: tuple[SnapshotId, ...],
        encode_control: EncodeControl,
    ) -> None:
        assert hard_state.epoch >= log.last_epoch, f"{hard_state.epoch} < {log.last_epoch}"
        assert list(snapshots) == sorted(snapshots), f"{snapshots} out of order"
        assert log.start_offset == 0 or snapshots, (
            f"log start {log.start_offset} without a snapshot"
        )
        self.config = config
        self.me = config.me
        self.log = log
        self.epoch = hard_state.epoch
        self.vote = hard_state.vote
        self.voters = voters
        self.snapshots = snapshots  # ascending; the oldest one ends at or below the log's start
        self.entropy = entropy
        self.encode_control = encode_control
        self.leader: Voter | None = None  # of the current epoch, if known
        self.writes = WriteQueue(hard_state, log.end_offset)
        self.reception: Reception | None = None
        # Everything below is committed. The value is not persisted: after a restart it grows again
        # from the end of the newest snapshot.
        newest = snapshots[-1].end_offset if snapshots else log.start_offset
        assert newest <= log.end_offset, f"{snapshots} above the log's end {log.end_offset}"
        self.high_watermark = newest
        self.applied_end = newest  # the caller applied everything below
        self.output = PendingReady(committed_out=newest)

    # --- queries -------------------------------------------------------------------------------

    @property
    def hard_state(self) -> HardState:
        """The epoch and vote, durable or not."""
        return HardState(self.epoch, self.vote)

    @property
    def is_leader(self) -> bool:
        """Return True if this node leads the current epoch."""
        return self.leader == self.me

    @property
    def leader_id(self) -> NodeId | None:
        """The leader's node id, if known."""
        return None if self.leader is None else self.leader.node_id

    @property
    def is_voter(self) -> bool:
        """Return True if this node, with this data directory, is in its latest voter set."""
        return self.me in self.voters.latest

    @property
    def may_lead(self) -> bool:
        """Return True if this node may campaign.

        It is a voter, or it was one before the last change, which may be uncommitted.

        A leader that removes itself may be the only node that has the change. The old set could
        then not elect a leader without this node (thesis 4.2.2).
        """
        if self.is_voter:
            return True
        changed = self.voters.latest_offset
        return changed >= self.high_watermark and self.me in self.voters.at(changed)

    @property
    def is_alone(self) -> bool:
        """Return True if this node is the only voter."""
        return len(self.voters.latest) == 1 and self.is_voter

    @property
    def is_installing(self) -> bool:
        """True while a complete snapshot is being installed. Until then this node neither campaigns
        nor accepts entries."""
        return self.reception is not None and self.reception.is_whole

    def other_voters(self) -> list[Voter]:
        """Return every voter except this node, ascending."""
        return [voter for voter in self.voters.latest if voter != self.me]

    def election_deadline_ms(self, now_ms: int) -> int:
        """Return the deadline of a new random election timeout."""
        low, high = self.config.election_timeout_ms_min, self.config.election_timeout_ms_max
        return now_ms + low + self.entropy.below(high - low + 1)

    # --- changes -------------------------------------------------------------------------------

    def enter_epoch(self, epoch: Epoch, vote: Voter | None) -> None:
        """Enter a later epoch.

        Messages that wait for a write of the previous epoch are dropped: they are stale in the new
        epoch.
        """
        assert epoch > self.epoch, f"epoch {epoch} after {self.epoch}"
        self.epoch, self.vote = epoch, vote
        self.output.messages_after.clear()

    def append(self, entry: Entry) -> None:
        """Append an entry at the log's end. A voter set in it takes effect at once."""
        self.log.append(entry.base_offset, entry.next_offset, entry.epoch, entry.size)
        self.writes.append(entry)
        if entry.kind is EntryKind.VOTERS:
            assert entry.voters is not None, f"no voters in the entry at {entry.base_offset}"
            self.voters.append(entry.base_offset, entry.voters)
            self._voters_changed()

    def truncate_to(self, offset: Offset) -> None:
        """Truncate entries that conflict with the leader's log. Committed entries never
        conflict."""
        assert offset >= self.high_watermark, (
            f"truncation to {offset} below the high watermark {self.high_watermark}: the quorum"
            " lost committed data"
        )
        # sometimes: a follower truncates at a conflict
        # sometimes if self.writes.in_flight is not None: a follower truncates during a write
        # sometimes if offset == self.high_watermark: a follower truncates to its high watermark
        self.log.truncate_to(offset)
        self.writes.truncate_to(offset)
        if self.voters.truncate_to(offset):
            self._voters_changed()

    def commit_to(self, offset: Offset) -> bool:
        """Commit everything below the offset. Return True if the high watermark advanced."""
        if offset <= self.high_watermark:
            return False
        assert self.log.is_boundary(offset), f"commit inside a batch at {offset}"
        self.high_watermark = offset
        return True

    def installed(self, write: PendingWrite) -> None:
        """Reset the log and state to the received snapshot, which is durable and loaded."""
        reception = self.reception
        assert reception is not None, f"install of {write.install} without a received snapshot"
        assert write.install == reception.snapshot, f"{write.install} is not {reception.snapshot}"
        snapshot = reception.snapshot
        assert snapshot.end_offset > self.high_watermark, f"{snapshot} is older than the state"
        # sometimes if self.log.end_offset > self.high_watermark: a snapshot drops uncommitted data
        self.reception = None
        self.log.reset(snapshot.log_end)
        self.writes.reset(snapshot.end_offset)
        self.voters = VoterHistory(reception.voters, start_offset=snapshot.end_offset)
        self.snapshots = (snapshot,)
        self.output.clean_to = None
        self.output.committed_out = snapshot.end_offset
        self.high_watermark = self.applied_end = snapshot.end_offset
        self._voters_changed()

    def _voters_changed(self) -> None:
        voters = self.voters
        self.output.events.append(VotersChanged(voters=voters.latest, offset=voters.latest_offset))

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Check the invariants of every role; numbers as in docs/raft.md.

        5. start <= applied <= handed out <= committed <= log end, and batches stay whole.
        6. A lone voter commits nothing before it is durable.
        7. Epoch and vote never go back, and the log's epochs never exceed the node's.
        """
        self.log.check_invariants()
        # 5. start <= applied <= handed out <= committed <= log end; batches stay whole.
        offsets = (
            self.log.start_offset,
            self.applied_end,
            self.output.committed_out,
            self.high_watermark,
            self.log.end_offset,
        )
        assert offsets == tuple(sorted(offsets)), f"{offsets} out of order"
        assert self.log.is_boundary(self.high_watermark), f"hw {self.high_watermark}"
        # 6. A lone voter commits nothing before it is durable here.
        alone = self.is_alone and len(self.voters.at(self.high_watermark)) == 1
        assert not alone or self.high_watermark <= self.writes.durable_end, (
            f"hw {self.high_watermark}, durable end {self.writes.durable_end}"
        )
        # 7. Epoch and vote never go back. The log's epochs never exceed the node's epoch.
        assert self.writes.durable_epoch <= self.epoch, f"epoch {self.epoch} went back"
        assert self.log.last_epoch <= self.epoch, f"log epoch {self.log.last_epoch}"
        assert self.writes.durable_end <= self.log.end_offset, f"{self.writes.durable_end}"
