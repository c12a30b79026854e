"""What members of the quorum say to each other: frozen values, one class a message.

The transport translates them; the core neither knows nor cares how. `epoch` is always the sender's
and is looked at first: a newer one is adopted, an older one answered with the receiver's. A message
is for one node with one disk: under another directory id it is for somebody else.
"""

from dataclasses import dataclass
from typing import TypeAlias

from ...ids import Epoch, Offset
from .log_view import Entry, LogEnd, SnapshotId
from .voters import Voter, VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate asks for a vote; with `pre_vote` it only asks whether it would get one
    (thesis 9.6, KIP-996)."""

    sender: Voter
    receiver: Voter
    epoch: Epoch  # a pre-vote carries the sender's present epoch, not the one it would open
    log_end: LogEnd
    pre_vote: bool
    # The old leader asked for this campaign: the receiver need not wait for that one's silence
    # (thesis 4.2.3).
    is_transfer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """The answer; a granted vote is sent only after it is durable."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    granted: bool
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """The leader's entries right behind `prev`; none: a probe whether the log matches there."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    prev: LogEnd
    entries: tuple[Entry, ...]  # contiguous from prev.offset on
    high_watermark: Offset

    @property
    def end_offset(self) -> Offset:
        """Offset behind its last entry."""
        return self.entries[-1].next_offset if self.entries else self.prev.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResponse:
    """The follower's log is the leader's up to `received_end`, and fsynced up to `match_end`.

    Both hold in `epoch`, which is durable there.
    """

    sender: Voter
    receiver: Voter
    epoch: Epoch
    match_end: Offset  # <= received_end
    received_end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRejected:
    """The follower's log is another one at `prev`; `hint` is where they may part (KIP-595)."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    prev: LogEnd  # of the request
    hint: LogEnd  # largest epoch of the follower's log at or below prev's, and where it ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The leader lives; says how far the log is committed."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    high_watermark: Offset
    round: int  # counts up; 0: only news of the commit, no answer wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """Sent at once, whatever the disk does. Also the answer to whatever a deposed leader says:
    then only `epoch` counts."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    round: int
    # As in AppendResponse; None: nothing of this leader was taken in yet, or not durably.
    match_end: Offset | None
    received_end: Offset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunk:
    """A piece of the leader's snapshot, for a peer whose next entry is no longer in the log."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    snapshot: SnapshotId
    voters: VoterSet  # in force where the snapshot ends
    size: int  # bytes of the whole file, >= 1
    position: int  # of this piece in it
    content: bytes

    @property
    def is_last(self) -> bool:
        """Whether the file ends with it."""
        return self.position + len(self.content) >= self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResponse:
    """How far the snapshot was received, durably enough to go on from there. An installed one is
    told by an AppendResponse."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    snapshot: SnapshotId
    position: int  # where to go on; 0: from the start


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow:
    """The leader asks a caught-up voter to campaign at once (thesis 3.10)."""

    sender: Voter
    receiver: Voter
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEpoch:
    """The leader has given up its leadership; who should succeed, best first (KIP-595)."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    successors: tuple[Voter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowRequest:
    """A node that knows no leader asks whoever is at an address to be led, or pointed to the
    leader. So observers, new voters and forgotten ones come to their log."""

    sender: Voter
    receiver_address: str
    epoch: Epoch
    address: str  # where the sender is reached


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowResponse:
    """Who leads, as far as the asked one knows. A leader answers with itself and starts to send."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    leader: Voter | None
    leader_address: str  # "" when unknown


Message: TypeAlias = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | AppendRejected
    | Heartbeat
    | HeartbeatResponse
    | SnapshotChunk
    | SnapshotResponse
    | TimeoutNow
    | EndEpoch
    | FollowRequest
    | FollowResponse
)
