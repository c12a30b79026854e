"""The state that a Raft node has in every role: log, epoch, vote, voters and pending output.

Roles receive this state and change it; no other code does. It makes no decision that depends on the
role.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..ids import Epoch, Offset
from .config import RaftConfig
from .log_view import Entry, EntryKind, LogEnd, LogView, SnapshotId
from .messages import Message
from .ready import (
    CommittedRange,
    Event,
    HardState,
    MessageDropped,
    Outgoing,
    ReadReady,
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
        self.writes = WriteQueue(hard_state, log.end_offset)
        self.reception: Reception | None = None
        # Everything below is committed. The value is not persisted: after a restart it grows again
        # from the end of the newest snapshot.
        newest = snapshots[-1].end_offset if snapshots else log.start_offset
        assert newest <= log.end_offset, f"{snapshots} above the log's end {log.end_offset}"
        self.high_watermark = newest
        self.applied_end = newest  # the caller applied everything below
        self.committed_out = newest  # everything below was returned by take_committed()
        self.messages_now: list[Outgoing] = []
        self.messages_after: list[Message] = []
        self.events: list[Event] = []
        self.reads: list[ReadReady] = []
        self.reads_lost: list[int] = []
        self.clean_to: SnapshotId | None = None

    # --- queries -------------------------------------------------------------------------------

    @property
    def hard_state(self) -> HardState:
        """The epoch and vote, durable or not."""
        return HardState(self.epoch, self.vote)

    @property
    def log_end(self) -> LogEnd:
        """The last epoch and end offset of this node's log, durable or not."""
        return self.log.end

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

    @property
    def is_epoch_durable(self) -> bool:
        """Return True if the current epoch is durable."""
        return self.writes.durable_epoch == self.epoch

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
        self.messages_after.clear()

    def send(self, message: Outgoing) -> None:
        """Queue a message that is sent at once."""
        self.messages_now.append(message)

    def send_after_write(self, message: Message) -> None:
        """Queue a message that is sent after all current in-memory state is durable."""
        self.messages_after.append(message)

    def drop(self, sender: Voter, reason: str) -> None:
        """Report a dropped message as an event."""
        self.events.append(MessageDropped(sender=sender, reason=reason))

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

    def take_committed(self) -> CommittedRange | None:
        """Return the range that was committed since the last call."""
        if self.committed_out >= self.high_watermark:
            return None
        committed = CommittedRange(start=self.committed_out, end=self.high_watermark)
        self.committed_out = self.high_watermark
        return committed

    def installed(self, write: PendingWrite) -> None:
        """Reset the log and state to the received snapshot, which is durable and loaded."""
        reception = self.reception
        assert reception is not None, f"install of {write.install} without a received snapshot"
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
        """Register a durable snapshot of this node's state.

        The newest two snapshots are kept. The log is kept from the end of the older one.
        """
        assert snapshot.end_offset <= self.applied_end, f"{snapshot} above {self.applied_end}"
        # Other voters may have committed entries that this node has not written. A snapshot above
        # the durable log would leave a gap after a restart.
        durable_end = self.writes.durable_end
        assert snapshot.end_offset <= durable_end, f"{snapshot} above the log on disk {durable_end}"
        if self.snapshots and snapshot <= self.snapshots[-1]:
            return  # a newer snapshot was received in the meantime
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
            self.committed_out,
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
