"""The consensus core's door: messages, time and proposals in, `Ready` out; no I/O, no clock.

Knows nothing of files, networks or of what a proposal means. In: `step`, `tick`, `propose` and what
else a leader is asked for. Out: `ready`. Two answers that acknowledgements hang on: `persisted`,
`applied`. Roles and their changes are behind it, in `member.py`.

Sources: Raft (Ongaro, Ousterhout 2014); its dissertation: 3.10 (transfer), 4 (membership), 5
(snapshots), 6.4 (reads), 9.6 (pre-vote); KIP-595 (offsets as indexes, epoch as term, diverging
epochs), KIP-853 (voters with their disks). An entry is a record batch; an end offset is exclusive.

What counts as durable: a leader counts itself, alone or not, only up to the offset whose fsync was
reported by persisted(); its own vote only after the hard state was. A restarted node never resumes
a leadership: it starts unattached in its last epoch (KAFKA-10527).
"""

from collections.abc import Sequence

from ...errors import InvalidRequest
from ...ids import Epoch, NodeId, Offset
from ...runtime import Entropy
from .config import RaftConfig
from .electing import Candidate
from .following import Follower
from .leading import Leader, not_leading
from .log_view import Entry, LogView, SnapshotId
from .member import Member, Role
from .messages import Message
from .ready import HardState, Ready, Token
from .replica import EncodeControl, Replica
from .roles import Trigger
from .status import QuorumStatus, describe
from .voters import Voter, VoterHistory


class Raft:
    """One member of the quorum, voter or observer."""

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
        """Start from what is durable: every batch of `log`, the hard state and the snapshots must
        be; the state was loaded from the newest snapshot."""
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

    # --- what is so ----------------------------------------------------------------------------

    @property
    def config(self) -> RaftConfig:
        """As given."""
        return self._replica.config

    @property
    def me(self) -> Voter:
        """This node with its disk."""
        return self._replica.me

    @property
    def log(self) -> LogView:
        """The log, written or not."""
        return self._replica.log

    @property
    def unwritten(self) -> Sequence[Entry]:
        """The entries at the log's end that no round has handed out for writing yet, in order. A
        SendEntries may name them: until they are written they are nowhere else."""
        return self._replica.writes.unwritten

    @property
    def voters(self) -> VoterHistory:
        """Who votes, by offset."""
        return self._replica.voters

    @property
    def snapshots(self) -> tuple[SnapshotId, ...]:
        """The snapshots that are kept, ascending."""
        return self._replica.snapshots

    @property
    def epoch(self) -> Epoch:
        """The present epoch."""
        return self._replica.epoch

    @property
    def vote(self) -> Voter | None:
        """Who got this node's vote in it."""
        return self._replica.vote

    @property
    def durable_state(self) -> HardState:
        """Epoch and vote that would survive a power cut."""
        return self._replica.writes.durable_state

    @property
    def durable_end(self) -> Offset:
        """End of the log that would."""
        return self._replica.writes.durable_end

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed."""
        return self._replica.high_watermark

    @property
    def applied_end(self) -> Offset:
        """Everything below was applied by the caller."""
        return self._replica.applied_end

    @property
    def is_voter(self) -> bool:
        """Whether this node, with this disk, votes by its newest voter set."""
        return self._replica.is_voter

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the present epoch."""
        return isinstance(self.role, Leader)

    @property
    def leader(self) -> Voter | None:
        """The leader of the present epoch, if known."""
        return self._member.leader

    @property
    def leader_id(self) -> NodeId | None:
        """Its node id."""
        leader = self.leader
        return None if leader is None else leader.node_id

    @property
    def leader_address(self) -> str:
        """Where it is reached, "" when that is not known."""
        return self._member.leader_address

    @property
    def role(self) -> Role:
        """The present role, with the state that is valid in it."""
        return self._member.role

    def has_live_leader(self, now_ms: int) -> bool:
        """Whether this node leads, or heard of its leader within the shortest election time-out."""
        return self._member.has_live_leader(now_ms)

    def status(self, now_ms: int) -> QuorumStatus:
        """What this node knows of the quorum; of the others' progress only a leader does."""
        leader = self.role if isinstance(self.role, Leader) else None
        return describe(
            self._replica,
            role=self.role.name,
            leader=self.leader,
            peers={} if leader is None else leader.peers,
            now_ms=now_ms,
        )

    # --- in ------------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """Take in a message. What is not for this node and its disk, or cannot be meant, is
        dropped with an event."""
        self._member.step(message, now_ms)

    def next_deadline_ms(self) -> int | None:
        """When tick() has something to do next; None: not before something else happens."""
        return self.role.deadline_ms

    def tick(self, now_ms: int) -> None:
        """Let time pass: campaign, look for the leader, or send heartbeats, when that is due."""
        self._member.tick(now_ms)

    # --- what a leader is asked for ------------------------------------------------------------

    def _leading(self) -> Leader:
        if not isinstance(self.role, Leader):
            raise not_leading(self.leader)
        return self.role

    def propose(self, *, count: int, payload: bytes) -> Entry:
        """Append one batch in the own epoch and return where it goes; it is committed once
        Ready.committed passes it. `payload` is stamped for log.end_offset and the present epoch.

        Raises NotController unless this node leads, Overloaded when too many bytes are uncommitted
        or the leadership is being handed over (nothing was appended then).
        """
        assert count >= 1, f"a batch of {count} records"
        return self._leading().propose(count, payload)

    def read_index(self, context: int, now_ms: int) -> None:
        """Ask for a linearizable read: Ready.reads says from which offset on it may be answered,
        Ready.reads_lost that the leadership ended first.

        Raises NotController unless this node leads, Overloaded when too many wait.
        """
        self._leading().read_index(context)

    def add_voter(self, voter: Voter, address: str, now_ms: int) -> Entry:
        """Have an observer that is caught up vote; in force at once, done when committed.

        Raises NotController, DuplicateVoter, VoterLagging, VoterChangePending.
        """
        role = self._leading()
        voters = self.voters.latest.adding(voter, address)
        if self.me in voters and self.config.address:
            voters = voters.moving(self.me, self.config.address)
        role.check_caught_up(voter)
        return role.change_voters(voters, now_ms)

    def remove_voter(self, voter: Voter, now_ms: int) -> Entry:
        """Take a voter's vote away; a leader that removes itself leads until that is committed.

        Raises NotController, VoterNotFound, VoterChangePending, InvalidRequest for the last one,
        VoterLagging when no majority of the others answers.
        """
        role = self._leading()
        return role.change_voters(self.voters.latest.removing(voter), now_ms)

    def move_voter(self, voter: Voter, address: str, now_ms: int) -> Entry:
        """Say where a voter is reached now; who votes stays.

        Raises NotController, VoterNotFound, VoterChangePending.
        """
        role = self._leading()
        return role.change_voters(self.voters.latest.moving(voter, address), now_ms)

    def transfer_leadership(self, to: NodeId | None, now_ms: int) -> None:
        """Hand the leadership to a voter, None: the one that holds most. Proposals are refused
        until it is done or given up, after the shortest election time-out.

        Raises NotController, VoterNotFound, InvalidRequest when it is this node.
        """
        role = self._leading()
        if to == self.me.node_id:
            raise InvalidRequest(f"node {to} leads already")
        role.begin_transfer(to, now_ms)

    def resign(self, now_ms: int) -> None:
        """Give up a leadership at once and say who should follow. What is uncommitted may yet be
        committed by a successor."""
        if isinstance(self.role, Leader):
            self._member.change(Trigger.RESIGNED, now_ms)

    def unreachable(self, peer: Voter, now_ms: int) -> None:
        """A stream to the peer broke: what was under way may be lost."""
        if isinstance(self.role, Leader):
            self.role.unreachable(peer)

    # --- out -----------------------------------------------------------------------------------

    def has_ready(self) -> bool:
        """Whether ready() would carry anything, or may."""
        replica = self._replica
        return bool(
            replica.messages_now
            or replica.events
            or replica.committed_out < replica.high_watermark
            or replica.reads
            or replica.reads_lost
            or replica.clean_to is not None
            or (isinstance(self.role, Leader) and self.role.is_dirty)
            or self._has_write()
        )

    def _has_write(self) -> bool:
        replica = self._replica
        if replica.writes.in_flight is not None:
            return False
        return bool(replica.messages_after) or replica.writes.has_write(replica.hard_state)

    def ready(self) -> Ready:
        """Hand out what is to be done next; see `Ready` for the order."""
        replica = self._replica
        if isinstance(self.role, Leader) and self.role.is_dirty:
            self.role.fill()
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
        """The write of the token is durable: only now may votes, acknowledgements and commits
        depend on it. Of an install: it was done, and the state is loaded."""
        replica = self._replica
        write = replica.writes.complete(token)
        if write.install is not None:
            replica.installed(write)
        self._member.on_persisted(write, now_ms)

    def snapshot_refused(self, token: Token, now_ms: int) -> None:
        """The received snapshot proved bad; everything else of the write is durable."""
        replica = self._replica
        replica.writes.refuse(token)
        reception = replica.reception
        assert reception is not None, "a snapshot was refused that nobody received"
        reception.is_whole, reception.position = False, 0
        if isinstance(self.role, Follower):
            self.role.on_refused(replica, reception)

    def applied(self, offset: Offset) -> None:
        """Everything below the offset has been applied."""
        assert offset <= self._replica.committed_out, f"applied {offset}, never handed out"
        self._replica.applied_end = max(self._replica.applied_end, offset)

    def snapshot_taken(self, snapshot: SnapshotId) -> None:
        """A snapshot of the state at its end is durable: the newest two are kept, and the log
        from the older one on (Ready.clean_to)."""
        self._replica.snapshot_taken(snapshot)

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """What holds after every call; numbers as in docs/raft.md. Cost O(peers)."""
        self._replica.check_invariants()
        match self.role:
            case Leader() as role:
                role.check_invariants()
            case Candidate() as role if self.me in role.granted:
                # 8. A candidate counts itself only when its vote is durable.
                assert self.durable_state == HardState(self.epoch, self.me), "vote not durable"
            case Follower() as role if role.verified_end is not None:
                # 9. A follower verified no more than it has.
                assert role.verified_end <= self.log.end_offset, f"{role.verified_end}"
            case _:
                pass
