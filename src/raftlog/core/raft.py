"""The consensus core: messages, time and proposals in, `Ready` out. No I/O, no clock.

Inputs are `step`, `tick`, `propose` and the other requests to a leader. The output is `ready`; the
caller confirms its effects with `persisted` and `applied`. The content of proposals is opaque.

Sources: Raft (Ongaro, Ousterhout 2014); its dissertation: 3.10 (transfer), 4 (membership), 5
(snapshots), 6.4 (reads), 9.6 (pre-vote); KIP-595 (offsets as indexes, epoch as term, diverging
epochs), KIP-853 (voters with their disks). An entry is a record batch; an end offset is exclusive.

Durability: a leader, even a lone one, counts itself only up to the offset that persisted()
confirmed, and its own vote only after the hard state is durable. A restarted node never resumes a
leadership: it starts unattached in its last epoch (KAFKA-10527).
"""

from collections.abc import Sequence

from ...errors import InvalidRequest
from ...ids import Epoch, NodeId, Offset
from ...runtime import Entropy
from .config import RaftConfig
from .electing import Candidate
from .following import Follower
from .leading import Leader, not_leader_error
from .log_view import Entry, LogView, SnapshotId
from .member import Member, Role
from .messages import Message
from .ready import HardState, Ready, Token
from .replica import EncodeControl, Replica
from .roles import Trigger
from .status import QuorumStatus, describe
from .voters import Voter, VoterHistory


class Raft:
    """One node of the quorum, voter or observer."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        hard_state: HardState,
        voters: VoterHistory,
        entropy: Entropy,
        *,
        snapshots: tuple[SnapshotId, ...] = (),
        encode_control: EncodeControl,
        now_ms: int,
    ) -> None:
        """Start from durable state.

        Every batch of `log`, the hard state and the snapshots are durable, and the state machine
        was loaded from the newest snapshot.
        """
        self._replica = Replica(
            config,
            log,
            hard_state,
            voters,
            entropy,
            snapshots=snapshots,
            encode_control=encode_control,
        )
        self._member = Member(self._replica, now_ms)

    # --- queries -------------------------------------------------------------------------------

    @property
    def config(self) -> RaftConfig:
        return self._replica.config

    @property
    def me(self) -> Voter:
        """This node and its data directory."""
        return self._replica.me

    @property
    def log(self) -> LogView:
        """The log, durable or not."""
        return self._replica.log

    @property
    def unwritten(self) -> Sequence[Entry]:
        """The entries at the log's end that no round has returned for writing yet, in order.

        A SendEntries may include them: until they are written, this is their only copy.
        """
        return self._replica.writes.unwritten

    @property
    def voters(self) -> VoterHistory:
        """The voter sets by offset."""
        return self._replica.voters

    @property
    def snapshots(self) -> tuple[SnapshotId, ...]:
        """The retained snapshots, ascending."""
        return self._replica.snapshots

    @property
    def epoch(self) -> Epoch:
        """The current epoch."""
        return self._replica.epoch

    @property
    def vote(self) -> Voter | None:
        """The candidate that this node voted for in the current epoch."""
        return self._replica.vote

    @property
    def durable_state(self) -> HardState:
        """The durable epoch and vote."""
        return self._replica.writes.durable_state

    @property
    def durable_end(self) -> Offset:
        """The end offset of the durable log."""
        return self._replica.writes.durable_end

    @property
    def high_watermark(self) -> Offset:
        """The high watermark: everything below is committed."""
        return self._replica.high_watermark

    @property
    def applied_end(self) -> Offset:
        """The end of the entries that the caller applied."""
        return self._replica.applied_end

    @property
    def is_voter(self) -> bool:
        """Return True if this node, with this data directory, is in its latest voter set."""
        return self._replica.is_voter

    @property
    def is_leader(self) -> bool:
        """Return True if this node leads the current epoch."""
        return isinstance(self.role, Leader)

    @property
    def leader(self) -> Voter | None:
        """The leader of the current epoch, if known."""
        return self._member.leader

    @property
    def leader_id(self) -> NodeId | None:
        """The leader's node id, if known."""
        leader = self.leader
        return None if leader is None else leader.node_id

    @property
    def leader_address(self) -> str:
        """The leader's address, "" if unknown."""
        return self._member.leader_address

    @property
    def role(self) -> Role:
        """The current role with its state."""
        return self._member.role

    def has_live_leader(self, now_ms: int) -> bool:
        """Return True if this node leads, or has received a message of its leader within the
        minimum election timeout."""
        return self._member.has_live_leader(now_ms)

    def status(self, now_ms: int) -> QuorumStatus:
        """Return the quorum's state as known to this node. Only a leader has the progress of the
        others."""
        leader = self.role if isinstance(self.role, Leader) else None
        return describe(
            self._replica,
            role=self.role.name,
            leader=self.leader,
            peers={} if leader is None else leader.peers,
            now_ms=now_ms,
        )

    # --- inputs --------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """Process a message. Drop one for another node or directory, or an invalid one, with an
        event."""
        self._member.step(message, now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return the time at which tick() has work, or None if that depends on another input."""
        return self.role.deadline_ms

    def tick(self, now_ms: int) -> None:
        """Perform due work: campaign, ask for the leader, or send heartbeats."""
        self._member.tick(now_ms)

    # --- requests to the leader ----------------------------------------------------------------

    def _require_leader(self) -> Leader:
        if not isinstance(self.role, Leader):
            raise not_leader_error(self.leader)
        return self.role

    def propose(self, *, count: int, payload: bytes) -> Entry:
        """Append one batch in the current epoch and return its entry.

        The batch is committed once Ready.committed passes it. `payload` is stamped with
        log.end_offset and the current epoch. Raise NotController unless this node leads. Raise
        Overloaded if too many bytes are uncommitted or a leadership transfer is in progress;
        nothing was appended then.
        """
        assert count >= 1, f"a batch of {count} records"
        return self._require_leader().propose(count, payload)

    def read_index(self, context: int, now_ms: int) -> None:
        """Request a linearizable read.

        Ready.reads returns the offset that must be applied first; Ready.reads_lost reports the end
        of the leadership. Raise NotController unless this node leads, Overloaded if too many reads
        are queued.
        """
        self._require_leader().read_index(context)

    def add_voter(self, voter: Voter, address: str, now_ms: int) -> Entry:
        """Make a caught-up observer a voter. It votes at once; the change is done when committed.

        Raise NotController, DuplicateVoter, VoterLagging or VoterChangePending.
        """
        role = self._require_leader()
        voters = self.voters.latest.adding(voter, address)
        if self.me in voters and self.config.address:
            voters = voters.moving(self.me, self.config.address)
        role.check_caught_up(voter)
        return role.change_voters(voters, now_ms)

    def remove_voter(self, voter: Voter, now_ms: int) -> Entry:
        """Remove a voter. A leader that removes itself leads until the change is committed.

        Raise NotController, VoterNotFound, VoterChangePending, InvalidRequest for the last voter,
        or VoterLagging if no majority of the others responds.
        """
        role = self._require_leader()
        return role.change_voters(self.voters.latest.removing(voter), now_ms)

    def move_voter(self, voter: Voter, address: str, now_ms: int) -> Entry:
        """Change the address of a voter.

        Raise NotController, VoterNotFound or VoterChangePending.
        """
        role = self._require_leader()
        return role.change_voters(self.voters.latest.moving(voter, address), now_ms)

    def transfer_leadership(self, to: NodeId | None, now_ms: int) -> None:
        """Transfer the leadership to a voter, or to the most up-to-date one if None.

        Proposals are refused until the transfer ends, at most for the minimum election timeout.
        Raise NotController, VoterNotFound, or InvalidRequest if `to` is this node.
        """
        role = self._require_leader()
        if to == self.me.node_id:
            raise InvalidRequest(f"leadership transfer: node {to} is the leader already")
        role.begin_transfer(to, now_ms)

    def resign(self, now_ms: int) -> None:
        """Resign as leader and announce the preferred successors.

        Uncommitted entries may still be committed by a successor.
        """
        if isinstance(self.role, Leader):
            self._member.change(Trigger.RESIGNED, now_ms)

    def unreachable(self, peer: Voter, now_ms: int) -> None:
        """Record that the connection to the peer broke and that requests in flight may be lost."""
        if isinstance(self.role, Leader):
            self.role.unreachable(peer)

    # --- outputs -------------------------------------------------------------------------------

    def has_ready(self) -> bool:
        """Return True if ready() may return effects."""
        replica = self._replica
        return bool(
            replica.messages_now
            or replica.events
            or replica.committed_out < replica.high_watermark
            or replica.reads
            or replica.reads_lost
            or replica.clean_to is not None
            or (isinstance(self.role, Leader) and self.role.has_unsent)
            or self._has_write()
        )

    def _has_write(self) -> bool:
        replica = self._replica
        if replica.writes.in_flight is not None:
            return False
        return bool(replica.messages_after) or replica.writes.has_write(replica.hard_state)

    def ready(self) -> Ready:
        """Return the next round of effects; see `Ready` for their order."""
        replica = self._replica
        if isinstance(self.role, Leader) and self.role.has_unsent:
            self.role.send_due()
        write = None
        messages_after: tuple[Message, ...] = ()
        if self._has_write():
            write = replica.writes.begin(
                replica.hard_state, bytes_max=replica.config.write_bytes_max
            )
            messages_after = tuple(replica.messages_after)
            replica.messages_after.clear()
        ready = Ready(
            token=write.token if write else None,
            hard_state=write.hard_state if write else None,
            chunks=write.chunks if write else (),
            install=write.install if write else None,
            truncate_to=write.truncate_to if write else None,
            append=write.entries if write else (),
            messages_now=tuple(replica.messages_now),
            messages_after=messages_after,
            events=tuple(replica.events),
            committed=replica.take_committed(),
            reads=tuple(replica.reads),
            reads_lost=tuple(replica.reads_lost),
            clean_to=replica.clean_to,
        )
        replica.messages_now.clear()
        replica.events.clear()
        replica.reads.clear()
        replica.reads_lost.clear()
        replica.clean_to = None
        return ready

    def persisted(self, token: Token, now_ms: int) -> None:
        """Confirm that the write of the token is durable, after which votes, acknowledgements and
        commits may depend on it. An install is complete and the state is loaded."""
        replica = self._replica
        write = replica.writes.complete(token)
        if write.install is not None:
            replica.installed(write)
        self._member.on_persisted(write, now_ms)

    def snapshot_refused(self, token: Token, now_ms: int) -> None:
        """Report a corrupt received snapshot. The rest of the write is durable."""
        replica = self._replica
        replica.writes.refuse(token)
        reception = replica.reception
        assert reception is not None, f"token {token}: refused a snapshot that was not received"
        reception.is_whole, reception.position = False, 0
        if isinstance(self.role, Follower):
            self.role.on_refused(replica, reception)

    def applied(self, offset: Offset) -> None:
        """Confirm that everything below the offset is applied."""
        assert offset <= self._replica.committed_out, (
            f"applied {offset} above the handed out {self._replica.committed_out}"
        )
        self._replica.applied_end = max(self._replica.applied_end, offset)

    def snapshot_taken(self, snapshot: SnapshotId) -> None:
        """Register a durable snapshot of the applied state.

        The newest two snapshots are kept. The log is kept from the end of the older one
        (Ready.clean_to).
        """
        self._replica.snapshot_taken(snapshot)

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Check the invariants of every state; numbers as in docs/raft.md. Cost O(peers)."""
        self._replica.check_invariants()
        match self.role:
            case Leader() as role:
                role.check_invariants()
            case Candidate() as role if self.me in role.granted:
                # 8. A candidate counts itself only when its vote is durable.
                assert self.durable_state == HardState(self.epoch, self.me), f"{self.durable_state}"
            case Follower() as role if role.verified_end is not None:
                # 9. A follower's verified end is within its log.
                assert role.verified_end <= self.log.end_offset, f"{role.verified_end}"
            case _:
                pass
