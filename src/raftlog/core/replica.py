"""What a member has in every role: its log, epoch and vote, the voters, and what goes out.

Roles are handed one of these and change it; nothing else does. It takes no decision that depends
on the role.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ...ids import Epoch, Offset
from ...runtime import Entropy
from .config import RaftConfig
from .log_view import Entry, EntryKind, LogEnd, LogView, SnapshotId
from .messages import Message
from .ready import (
    Committed,
    Event,
    HardState,
    MessageDropped,
    Outgoing,
    ReadReady,
    VotersChanged,
)
from .voters import Voter, VoterHistory, VoterSet
from .writes import Write, Writes

EncodeControl: TypeAlias = Callable[[EntryKind, Offset, Epoch, VoterSet | None], bytes]
"""(kind, base offset, epoch, voters of a VOTERS entry) -> the stamped control batch of one
record."""


@dataclass(slots=True)
class Reception:
    """A snapshot that is being received."""

    snapshot: SnapshotId
    voters: VoterSet
    size: int
    epoch: Epoch  # of the leader that sends it
    position: int = 0  # everything below was taken in
    is_whole: bool = False  # handed out to be installed


class Replica:
    """One member's log and state."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        hard_state: HardState,
        voters: VoterHistory,
        entropy: Entropy,
        *,
        snapshots: tuple[SnapshotId, ...],
        encode_control: EncodeControl,
    ) -> None:
        assert hard_state.epoch >= log.last_epoch, f"{hard_state.epoch} < {log.last_epoch}"
        assert list(snapshots) == sorted(snapshots), f"{snapshots} out of order"
        assert log.start_offset == 0 or snapshots, "the log's start is in no snapshot"
        self.config = config
        self.me = config.me
        self.log = log
        self.epoch = hard_state.epoch
        self.vote = hard_state.vote
        self.voters = voters
        self.snapshots = snapshots  # kept, ascending: the oldest ends where the log starts
        self.entropy = entropy
        self.encode_control = encode_control
        self.writes = Writes(hard_state, log.end_offset)
        self.reception: Reception | None = None
        # Everything below is committed. It is not persisted: after a restart it grows from the
        # newest snapshot's end again.
        newest = snapshots[-1].end_offset if snapshots else log.start_offset
        assert newest <= log.end_offset, f"{snapshots} above the log's end {log.end_offset}"
        self.high_watermark = newest
        self.applied_end = newest  # everything below was applied by the caller
        self.committed_out = newest  # end of what was handed out as committed
        self.messages_now: list[Outgoing] = []
        self.messages_after: list[Message] = []
        self.events: list[Event] = []
        self.reads: list[ReadReady] = []
        self.reads_lost: list[int] = []
        self.clean_to: SnapshotId | None = None

    # --- what is so ----------------------------------------------------------------------------

    @property
    def hard_state(self) -> HardState:
        """Epoch and vote, durable or not."""
        return HardState(self.epoch, self.vote)

    @property
    def log_end(self) -> LogEnd:
        """How far this node's log reaches, written or not."""
        return self.log.end

    @property
    def is_voter(self) -> bool:
        """Whether this node, with this disk, votes by its newest voter set."""
        return self.me in self.voters.latest

    @property
    def may_lead(self) -> bool:
        """Whether this node stands for election: it votes, or it did until a change that may be
        uncommitted. Whoever removes itself may be the only one that holds the change: the others
        could elect nobody without it, and its own set nobody but those (thesis 4.2.2)."""
        if self.is_voter:
            return True
        changed = self.voters.latest_offset
        return changed >= self.high_watermark and self.me in self.voters.at(changed)

    @property
    def is_alone(self) -> bool:
        """Whether it is the only voter."""
        return len(self.voters.latest) == 1 and self.is_voter

    @property
    def is_installing(self) -> bool:
        """Whether a whole snapshot is on its way into the log's place: until then this node neither
        campaigns nor takes entries in."""
        return self.reception is not None and self.reception.is_whole

    @property
    def is_epoch_durable(self) -> bool:
        """Whether the present epoch would survive a power cut."""
        return self.writes.durable_epoch == self.epoch

    def other_voters(self) -> list[Voter]:
        """Every voter but this node, ascending."""
        return [voter for voter in self.voters.latest if voter != self.me]

    def election_deadline_ms(self, now_ms: int) -> int:
        """A new random election time-out."""
        low, high = self.config.election_timeout_ms_min, self.config.election_timeout_ms_max
        return now_ms + low + self.entropy.below(high - low + 1)

    # --- what changes --------------------------------------------------------------------------

    def enter_epoch(self, epoch: Epoch, vote: Voter | None) -> None:
        """Go on to a later epoch. What waited for the epoch before to be durable waits in vain:
        that never will be, and nobody needs it any more."""
        assert epoch > self.epoch, f"epoch {epoch} after {self.epoch}"
        self.epoch, self.vote = epoch, vote
        self.messages_after.clear()

    def send(self, message: Outgoing) -> None:
        """Send at once."""
        self.messages_now.append(message)

    def send_after_write(self, message: Message) -> None:
        """Send once everything that is in memory now is durable."""
        self.messages_after.append(message)

    def drop(self, sender: Voter, reason: str) -> None:
        """Say that a message was not taken in."""
        self.events.append(MessageDropped(sender=sender, reason=reason))

    def append(self, entry: Entry) -> None:
        """Add an entry at the log's end; a voter set in it is in force from now on."""
        self.log.append(entry.base_offset, entry.next_offset, entry.epoch, entry.size)
        self.writes.append(entry)
        if entry.kind is EntryKind.VOTERS:
            assert entry.voters is not None, f"no voters in the entry at {entry.base_offset}"
            self.voters.append(entry.base_offset, entry.voters)
            self._voters_changed()

    def truncate_to(self, offset: Offset) -> None:
        """Drop what conflicts with the leader's log; what is committed never does."""
        assert offset >= self.high_watermark, (
            f"truncation to {offset} below the high watermark {self.high_watermark}: committed"
            " data was lost elsewhere"
        )
        self.log.truncate_to(offset)
        self.writes.truncate_to(offset)
        if self.voters.truncate_to(offset):
            self._voters_changed()

    def commit_to(self, offset: Offset) -> bool:
        """Everything below the offset is committed; whether that is news."""
        if offset <= self.high_watermark:
            return False
        assert self.log.is_boundary(offset), f"commit inside a batch at {offset}"
        self.high_watermark = offset
        return True

    def take_committed(self) -> Committed | None:
        """What is newly committed since the last call."""
        if self.committed_out >= self.high_watermark:
            return None
        committed = Committed(start=self.committed_out, end=self.high_watermark)
        self.committed_out = self.high_watermark
        return committed

    def installed(self, write: Write) -> None:
        """The received snapshot is in the log's place, durable and loaded."""
        reception = self.reception
        assert reception is not None, "a snapshot was installed that nobody received"
        assert write.install == reception.snapshot, f"{write.install} is not {reception.snapshot}"
        snapshot = reception.snapshot
        assert snapshot.end_offset > self.high_watermark, f"{snapshot} is older than the state"
        self.reception = None
        self.log.reset(snapshot.log_end)
        self.writes.reset(snapshot.end_offset)
        self.voters = VoterHistory(reception.voters, start_offset=snapshot.end_offset)
        self.snapshots = (snapshot,)
        self.clean_to = None
        self.high_watermark = snapshot.end_offset
        self.committed_out = self.applied_end = snapshot.end_offset
        self._voters_changed()

    def snapshot_taken(self, snapshot: SnapshotId) -> None:
        """A snapshot of the own state is durable: keep the newest two, the log from the older."""
        assert snapshot.end_offset <= self.applied_end, f"{snapshot} above {self.applied_end}"
        # Others may have committed what this node has not written yet: a snapshot above the log on
        # disk would leave a gap at a restart.
        durable_end = self.writes.durable_end
        assert snapshot.end_offset <= durable_end, f"{snapshot} above the log on disk {durable_end}"
        if self.snapshots and snapshot <= self.snapshots[-1]:
            return  # one that was received meanwhile is newer
        assert self.log.is_boundary(snapshot.end_offset), f"{snapshot} ends inside a batch"
        assert self.log.epoch_before(snapshot.end_offset) == snapshot.epoch, f"{snapshot}"
        self.snapshots = (*self.snapshots, snapshot)[-2:]
        oldest = self.snapshots[0]
        if oldest.end_offset > self.log.start_offset and len(self.snapshots) > 1:
            self.log.clean_to(oldest.log_end)
            self.voters.clean_to(oldest.end_offset)
            self.clean_to = oldest

    def _voters_changed(self) -> None:
        voters = self.voters
        self.events.append(VotersChanged(voters=voters.latest, offset=voters.latest_offset))

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """What holds in every role; numbers as in docs/raft.md."""
        self.log.check_invariants()
        # 5. start <= applied <= handed out <= committed <= log end; batches stay whole.
        offsets = (
            self.log.start_offset,
            self.applied_end,
            self.committed_out,
            self.high_watermark,
            self.log.end_offset,
        )
        assert offsets == tuple(sorted(offsets)), f"{offsets} out of order"
        assert self.log.is_boundary(self.high_watermark), f"hw {self.high_watermark}"
        # 6. A lone voter commits nothing before it is durable here.
        alone = self.is_alone and len(self.voters.at(self.high_watermark)) == 1
        assert not alone or self.high_watermark <= self.writes.durable_end
        # 7. Epoch and vote never go back, and the log's epochs never pass the node's.
        assert self.writes.durable_epoch <= self.epoch, f"epoch {self.epoch} went back"
        assert self.log.last_epoch <= self.epoch, f"log epoch {self.log.last_epoch}"
        assert self.writes.durable_end <= self.log.end_offset
