"""The consensus core's door: messages, time and proposals in, `Ready` out; no I/O, no clock.

Owns which role this member has, and every change of it. Knows nothing of files, networks or of what
a proposal means. In: `step`, `tick`, `propose` and what else a leader is asked for. Out: `ready`.
Two answers that acknowledgements hang on: `persisted`, `applied`.

Sources: Raft (Ongaro, Ousterhout 2014); its dissertation: 3.10 (transfer), 4 (membership), 5
(snapshots), 6.4 (reads), 9.6 (pre-vote); KIP-595 (offsets as indexes, epoch as term, diverging
epochs), KIP-853 (voters with their disks). An entry is a record batch; an end offset is exclusive.

What counts as durable: a leader counts itself, alone or not, only up to the offset whose fsync was
reported by persisted(); its own vote only after the hard state was. A restarted node never resumes
a leadership: it starts unattached in its last epoch (KAFKA-10527).
"""

from typing import TypeAlias

from ...errors import InvalidRequest
from ...ids import Epoch, NodeId, Offset
from ...runtime import Entropy
from .config import EPOCH_MAX, RaftConfig
from .electing import Candidate, PreCandidate, Seeker, Unattached, answer_pre_vote, vote_response
from .following import Follower
from .leading import Leader, not_leading
from .log_view import Entry, LogView, SnapshotId
from .messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    EndEpoch,
    FollowRequest,
    FollowResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from .ready import HardState, Ready, RoleChanged, Token
from .replica import EncodeControl, Replica
from .roles import RoleName, Trigger, next_role
from .soundness import problem_of
from .status import QuorumStatus, describe
from .voters import Voter, VoterHistory

Role: TypeAlias = Unattached | Follower | PreCandidate | Candidate | Leader
SUCCESSOR_STAGGER = 5
"""After a leader's farewell each successor gives the one before it this part of the election
time-out."""


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
        self._seeker = Seeker()
        self._asked_ms = now_ms  # when the leader was last asked for
        # A lone voter has nobody to wait for; an observer asks at once.
        deadline_ms = now_ms
        if self._replica.is_voter and not self._replica.is_alone:
            deadline_ms = self._replica.election_deadline_ms(now_ms)
        self.role: Role = Unattached(deadline_ms=deadline_ms)

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
        match self.role:
            case Follower(leader=leader):
                return leader
            case Leader():
                return self.me
            case Unattached() | PreCandidate() | Candidate():
                return None

    @property
    def leader_id(self) -> NodeId | None:
        """Its node id."""
        leader = self.leader
        return None if leader is None else leader.node_id

    @property
    def leader_address(self) -> str:
        """Where it is reached, "" when that is not known."""
        leader = self.leader
        if leader is None:
            return ""
        if leader == self.me:
            return self.config.address
        return self.voters.latest.address_of(leader) or ""

    def has_live_leader(self, now_ms: int) -> bool:
        """Whether this node leads, or heard of its leader within the shortest election time-out
        (thesis 4.2.3)."""
        match self.role:
            case Follower(heard_ms=heard_ms):
                return now_ms - heard_ms < self.config.election_timeout_ms_min
            case Leader():
                return True
            case Unattached() | PreCandidate() | Candidate():
                return False

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

    # --- time ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When tick() has something to do next; None: not before something else happens."""
        return self.role.deadline_ms

    def tick(self, now_ms: int) -> None:
        """Let time pass: campaign, look for the leader, or send heartbeats, when that is due."""
        if now_ms < self.role.deadline_ms:
            return
        match self.role:
            case Leader() as role:
                self._change(role.tick(now_ms), now_ms)
            case _ if not self._may_campaign():
                self._wait_on(self.role, now_ms)
            case _:
                self._change(Trigger.ELECTION_TIMEOUT, now_ms)

    def _may_campaign(self) -> bool:
        replica = self._replica
        return replica.is_voter and not replica.is_installing and replica.epoch < EPOCH_MAX

    def _wait_on(
        self, role: "Unattached | Follower | PreCandidate | Candidate", now_ms: int
    ) -> None:
        """No campaign: look for the leader instead."""
        if isinstance(role, Follower) and not self._replica.is_voter:
            self._change(Trigger.LEADER_LOST, now_ms)
            return
        self._seek(now_ms)
        role.deadline_ms = self._seek_deadline_ms(now_ms)

    def _seek(self, now_ms: int) -> None:
        self._asked_ms = now_ms
        self._seeker.ask(self._replica)

    def _seek_deadline_ms(self, now_ms: int) -> int:
        """An observer asks on after two to four heartbeats; a voter has its election timer."""
        if self._replica.is_voter:
            return self._replica.election_deadline_ms(now_ms)
        heartbeat_ms = self.config.heartbeat_ms
        return now_ms + 2 * heartbeat_ms + self._replica.entropy.below(2 * heartbeat_ms + 1)

    # --- messages ------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """Take in a message. What is not for this node and its disk, or cannot be meant, is
        dropped with an event."""
        problem = problem_of(message, me=self.me, epoch=self.epoch, log_end=self.log.end_offset)
        if problem:
            self._replica.drop(message.sender, problem)
        elif isinstance(message, FollowRequest):
            self._handle_follow_request(message, now_ms)
        elif not (isinstance(message, VoteRequest) and self._is_undue(message, now_ms)):
            if message.epoch > self.epoch:
                self._change(Trigger.NEWER_EPOCH, now_ms, epoch=message.epoch)
            if message.epoch < self.epoch:
                self._answer_stale(message)
            else:
                self._dispatch(message, now_ms)

    def _dispatch(self, message: Message, now_ms: int) -> None:
        """Take in a message of the present epoch."""
        match message:
            case VoteRequest():
                self._handle_vote_request(message, now_ms)
            case VoteResponse():
                self._handle_vote_response(message, now_ms)
            case AppendRequest() | Heartbeat() | SnapshotChunk():
                self._handle_leader(message, now_ms)
            case AppendResponse() | AppendRejected() | HeartbeatResponse() | SnapshotResponse():
                if isinstance(self.role, Leader):
                    self._handle_answer(self.role, message, now_ms)
            case TimeoutNow() | EndEpoch():
                self._handle_farewell(message, now_ms)
            case FollowResponse():
                self._handle_follow_response(message, now_ms)
            case FollowRequest():
                raise AssertionError("it is of no epoch")

    def _answer_stale(self, message: Message) -> None:
        """Tell whoever speaks of an older epoch that it is over."""
        match message:
            case VoteRequest():
                self._replica.send(vote_response(self._replica, message, granted=False))
            case AppendRequest() | Heartbeat() | SnapshotChunk():
                self._replica.send(
                    HeartbeatResponse(
                        sender=self.me,
                        receiver=message.sender,
                        epoch=self.epoch,
                        round=0,
                        match_end=None,
                        received_end=None,
                    )
                )
            case _:
                pass

    # --- elections -----------------------------------------------------------------------------

    def _is_undue(self, request: VoteRequest, now_ms: int) -> bool:
        """Refuse a campaign while the leader lives, whatever its epoch: a node that was cut off
        must not depose it (thesis 4.2.3, 9.6)."""
        if request.is_transfer and not request.pre_vote:
            return False
        is_live = self.has_live_leader(now_ms)
        if request.pre_vote:
            # The leader itself asks: it leads no more.
            is_live = is_live and request.sender != self.leader
            if request.epoch < self.epoch or not is_live:
                return False
            answer_pre_vote(self._replica, request, has_live_leader=True)
            return True
        if is_live and request.epoch > self.epoch:
            self._replica.send(vote_response(self._replica, request, granted=False))
            return True
        return False

    def _handle_vote_request(self, request: VoteRequest, now_ms: int) -> None:
        if request.pre_vote:
            answer_pre_vote(self._replica, request, has_live_leader=False)
            return
        match self.role:
            case Unattached() as role:
                role.on_vote_request(self._replica, request, now_ms)
            case PreCandidate() if self.vote in (None, request.sender):
                self._change(Trigger.VOTED, now_ms)
                self._handle_vote_request(request, now_ms)
            case PreCandidate() | Follower() | Candidate() | Leader():
                self._replica.send(vote_response(self._replica, request, granted=False))

    def _handle_vote_response(self, response: VoteResponse, now_ms: int) -> None:
        if isinstance(self.role, PreCandidate | Candidate):
            self._change(self.role.on_vote_response(self._replica, response), now_ms)

    # --- the leader's messages -----------------------------------------------------------------

    def _handle_leader(
        self, message: AppendRequest | Heartbeat | SnapshotChunk, now_ms: int
    ) -> None:
        """Whoever sends these in the present epoch leads it."""
        match self.role:
            case Leader():
                self._replica.drop(message.sender, f"this node leads epoch {self.epoch}")
                return
            case Follower(leader=leader) if leader != message.sender:
                self._replica.drop(message.sender, f"{leader} leads epoch {self.epoch}")
                return
            case Unattached() | PreCandidate() | Candidate():
                self._change(Trigger.LEADER_HEARD, now_ms, leader=message.sender)
            case Follower():
                pass
        assert isinstance(self.role, Follower), f"{self.role} after its leader spoke"
        self.role.hear(self._replica, now_ms)
        match message:
            case AppendRequest():
                self.role.on_append(self._replica, message)
            case Heartbeat():
                self.role.on_heartbeat(self._replica, message)
            case SnapshotChunk():
                self.role.on_chunk(self._replica, message)

    def _handle_farewell(self, message: TimeoutNow | EndEpoch, now_ms: int) -> None:
        """The leader gives its leadership away, or up."""
        if not isinstance(self.role, Follower) or self.role.leader != message.sender:
            return
        is_first = isinstance(message, TimeoutNow) or message.successors[:1] == (self.me,)
        if is_first and self._may_campaign():
            self._change(Trigger.CAMPAIGN_NOW, now_ms)
        elif isinstance(message, EndEpoch):
            self._change(Trigger.LEADER_ENDED, now_ms)
            if self.me in message.successors:
                rank = message.successors.index(self.me)
                stagger_ms = self.config.election_timeout_ms_min // SUCCESSOR_STAGGER
                self.role = Unattached(deadline_ms=now_ms + max(1, rank) * stagger_ms)

    # --- looking for the leader ----------------------------------------------------------------

    def _handle_follow_request(self, request: FollowRequest, now_ms: int) -> None:
        """Lead a node that looks for its leader, or say who does."""
        if isinstance(self.role, Leader):
            refusal = self.role.on_follow_request(request, now_ms)
            if refusal:
                self._replica.drop(request.sender, refusal)
        self._replica.send(
            FollowResponse(
                sender=self.me,
                receiver=request.sender,
                epoch=self.epoch,
                leader=self.leader,
                leader_address=self.leader_address,
            )
        )

    def _handle_follow_response(self, response: FollowResponse, now_ms: int) -> None:
        """Ask the leader that was named, once between two deadlines."""
        if self.leader is None and self._seeker.on_response(response) and now_ms > self._asked_ms:
            self._seek(now_ms)

    # --- answers to a leader -------------------------------------------------------------------

    def _handle_answer(
        self,
        role: Leader,
        message: AppendResponse | AppendRejected | HeartbeatResponse | SnapshotResponse,
        now_ms: int,
    ) -> None:
        match message:
            case AppendResponse():
                self._change(role.on_append_response(message, now_ms), now_ms)
            case AppendRejected():
                role.on_append_rejected(message, now_ms)
            case HeartbeatResponse():
                self._change(role.on_heartbeat_response(message, now_ms), now_ms)
            case SnapshotResponse():
                role.on_snapshot_response(message, now_ms)

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
            voters = voters.moving(self.me, self.config.address)  # a lone voter needed none
        role.check_caught_up(voter)
        return role.change_voters(voters, now_ms)

    def remove_voter(self, voter: Voter, now_ms: int) -> Entry:
        """Take a voter's vote away; a leader that removes itself leads until that is committed.

        Raises NotController, VoterNotFound, VoterChangePending, InvalidRequest for the last one.
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
            self._change(Trigger.RESIGNED, now_ms)

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
        match self.role:
            case Candidate() as role:
                self._change(role.on_persisted(replica), now_ms)
            case Leader() as role:
                self._change(role.maybe_commit(), now_ms)
            case Follower() as role:
                if write.install is not None:
                    role.on_installed(replica, write.install.end_offset)
                else:
                    role.acknowledge(replica)
            case Unattached() | PreCandidate():
                pass

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

    # --- role changes --------------------------------------------------------------------------

    def _change(
        self,
        trigger: Trigger | None,
        now_ms: int,
        *,
        epoch: Epoch | None = None,
        leader: Voter | None = None,
    ) -> None:
        """Take the role that the trigger leads to, and those that follow at once."""
        while trigger is not None:
            trigger = self._become(trigger, now_ms, epoch=epoch, leader=leader)

    def _become(
        self, trigger: Trigger, now_ms: int, *, epoch: Epoch | None, leader: Voter | None
    ) -> Trigger | None:
        """Leave the role and enter the next; returns what that brings about."""
        replica = self._replica
        name = next_role(self.role.name, trigger)
        self._leave(trigger)
        if epoch is not None:
            assert epoch > replica.epoch, f"epoch {epoch} after {replica.epoch}"
            replica.epoch, replica.vote = epoch, None
        after: Trigger | None = None
        deadline_ms = replica.election_deadline_ms(now_ms)
        match name:
            case RoleName.UNATTACHED:
                if not replica.is_voter:
                    deadline_ms = now_ms + replica.entropy.below(self.config.heartbeat_ms)
                elif trigger is Trigger.RESIGNED:
                    deadline_ms += self.config.election_timeout_ms_max  # others go first
                self.role = Unattached(deadline_ms=deadline_ms)
            case RoleName.FOLLOWER:
                assert leader is not None, "a follower of nobody"
                self.role = Follower(leader=leader, deadline_ms=deadline_ms, heard_ms=now_ms)
            case RoleName.PRE_CANDIDATE:
                if trigger is Trigger.ELECTION_TIMEOUT and isinstance(self.role, PreCandidate):
                    self._seek(now_ms)  # it may be forgotten, or the voters moved
                role = PreCandidate(deadline_ms=deadline_ms)
                self.role = role
                after = role.begin(replica)
            case RoleName.CANDIDATE:
                candidate = Candidate(deadline_ms=deadline_ms)
                self.role = candidate
                candidate.begin(replica, is_transfer=trigger is Trigger.CAMPAIGN_NOW)
            case RoleName.LEADER:
                self.role = Leader(replica, now_ms)
        self._report(trigger)
        return after

    def _leave(self, trigger: Trigger) -> None:
        """End what only the present role has."""
        if not isinstance(self.role, Leader):
            return
        self._replica.reads_lost.extend(self.role.lose_reads())
        if trigger in (Trigger.RESIGNED, Trigger.REMOVED):
            self.role.say_end()

    def _report(self, trigger: Trigger) -> None:
        self._replica.events.append(
            RoleChanged(
                role=self.role.name,
                epoch=self.epoch,
                leader_id=self.leader_id,
                log_end_offset=self.log.end_offset,
                reason=trigger,
            )
        )

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
                assert role.verified_end <= self.log.end_offset, f"{role.verified_end}"
            case _:
                pass
