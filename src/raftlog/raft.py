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
from typing import TYPE_CHECKING, TypeAlias

from ..errors import InvalidRequest
from ..ids import Epoch, NodeId, Offset
from .candidate import (
    Candidate,
    LeaderFinder,
    PreCandidate,
    Unattached,
    answer_pre_vote,
    answer_vote,
    vote_response,
)
from .config import EPOCH_MAX, RaftConfig
from .follower import Follower
from .leader import Leader, not_leader_error
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
    validate_message,
)
from .ready import HardState, Ready, RoleChanged, Token
from .roles import RoleName, Trigger, next_role
from .state import EncodeControl, RaftState
from .status import QuorumStatus, describe
from .voters import Voter, VoterHistory
from .writes import PendingWrite

if TYPE_CHECKING:
    from ..runtime import Entropy

Role: TypeAlias = Unattached | Follower | PreCandidate | Candidate | Leader
SUCCESSOR_STAGGER = 5
"""After a resignation each successor gives its predecessor this fraction of the election
timeout."""


class Raft:
    """One node of the quorum, voter or observer."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        hard_state: HardState,
        voters: VoterHistory,
        entropy: "Entropy",
        *,
        snapshots: tuple[SnapshotId, ...] = (),
        encode_control: EncodeControl,
        now_ms: int,
    ) -> None:
        """Start from durable state.

        Every batch of `log`, the hard state and the snapshots are durable, and the state machine
        was loaded from the newest snapshot.
        """
        self._state = state = RaftState(
            config,
            log,
            hard_state,
            voters,
            entropy,
            snapshots=snapshots,
            encode_control=encode_control,
        )
        self._leader_finder = LeaderFinder()
        self._asked_ms = now_ms  # time of the last follow request
        deadline_ms = now_ms
        if state.may_lead and not state.is_alone:
            deadline_ms = state.election_deadline_ms(now_ms)
        # The current role with its state; read-only for callers.
        self.role: Role = Unattached(deadline_ms=deadline_ms)

    # --- queries -------------------------------------------------------------------------------

    @property
    def config(self) -> RaftConfig:
        return self._state.config

    @property
    def me(self) -> Voter:
        """This node and its data directory."""
        return self._state.me

    @property
    def log(self) -> LogView:
        """The log, durable or not."""
        return self._state.log

    @property
    def unwritten(self) -> Sequence[Entry]:
        """The entries at the log's end that no round has returned for writing yet, in order.

        A SendEntries may include them: until they are written, this is their only copy.
        """
        return self._state.writes.unwritten

    @property
    def voters(self) -> VoterHistory:
        """The voter sets by offset."""
        return self._state.voters

    @property
    def snapshots(self) -> tuple[SnapshotId, ...]:
        """The retained snapshots, ascending."""
        return self._state.snapshots

    @property
    def epoch(self) -> Epoch:
        """The current epoch."""
        return self._state.epoch

    @property
    def vote(self) -> Voter | None:
        """The candidate that this node voted for in the current epoch."""
        return self._state.vote

    @property
    def durable_state(self) -> HardState:
        """The durable epoch and vote."""
        return self._state.writes.durable_state

    @property
    def durable_end(self) -> Offset:
        """The end offset of the durable log."""
        return self._state.writes.durable_end

    @property
    def high_watermark(self) -> Offset:
        """The high watermark: everything below is committed."""
        return self._state.high_watermark

    @property
    def applied_end(self) -> Offset:
        """The end of the entries that the caller applied."""
        return self._state.applied_end

    @property
    def is_voter(self) -> bool:
        """Return True if this node, with this data directory, is in its latest voter set."""
        return self._state.is_voter

    @property
    def is_leader(self) -> bool:
        """Return True if this node leads the current epoch."""
        return isinstance(self.role, Leader)

    @property
    def leader(self) -> Voter | None:
        """The leader of the current epoch, if known."""
        match self.role:
            case Follower(leader=leader):
                return leader
            case Leader():
                return self._state.me
            case Unattached() | PreCandidate() | Candidate():
                return None

    @property
    def leader_id(self) -> NodeId | None:
        """The leader's node id, if known."""
        leader = self.leader
        return None if leader is None else leader.node_id

    @property
    def leader_address(self) -> str:
        """The leader's address, "" if unknown."""
        state, leader = self._state, self.leader
        if leader is None:
            return ""
        if leader == state.me:
            return state.config.address
        return state.voters.latest.address_of(leader) or ""

    def has_live_leader(self, now_ms: int) -> bool:
        """Return True if this node leads, or has received a message of its leader within the
        minimum election timeout (thesis 4.2.3)."""
        match self.role:
            case Follower(contact_ms=contact_ms):
                return now_ms - contact_ms < self._state.config.election_timeout_ms_min
            case Leader():
                return True
            case Unattached() | PreCandidate() | Candidate():
                return False

    def status(self, now_ms: int) -> QuorumStatus:
        """Return the quorum's state as known to this node. Only a leader has the progress of the
        others."""
        leader = self.role if isinstance(self.role, Leader) else None
        return describe(
            self._state,
            role=self.role.name,
            leader=self.leader,
            peers={} if leader is None else leader.peers,
            now_ms=now_ms,
        )

    # --- inputs --------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """Process a message. Drop one for another node or directory, or an invalid one, with an
        event."""
        problem = validate_message(
            message,
            me=self._state.me,
            epoch=self._state.epoch,
            log_end=self._state.log.end_offset,
        )
        if problem:
            self._state.drop(message.sender, problem)
        elif isinstance(message, FollowRequest):
            self._handle_follow_request(message, now_ms)
        elif not (isinstance(message, VoteRequest) and self._should_ignore_vote(message, now_ms)):
            if message.epoch > self._state.epoch:
                self._change(Trigger.NEWER_EPOCH, now_ms, epoch=message.epoch)
            if message.epoch < self._state.epoch:
                self._reject_stale(message)
            else:
                self._dispatch(message, now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return the time at which tick() has work, or None if that depends on another input."""
        return self.role.deadline_ms

    def tick(self, now_ms: int) -> None:
        """Perform due work: campaign, ask for the leader, or send heartbeats."""
        if now_ms < self.role.deadline_ms:
            return
        match self.role:
            case Leader() as role:
                self._change(role.tick(now_ms), now_ms)
            case _ if not self._may_campaign():
                self._wait_for_leader(self.role, now_ms)
            case _:
                self._change(Trigger.ELECTION_TIMEOUT, now_ms)

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
            self._change(Trigger.RESIGNED, now_ms)

    def unreachable(self, peer: Voter, now_ms: int) -> None:
        """Record that the connection to the peer broke and that requests in flight may be lost."""
        if isinstance(self.role, Leader):
            self.role.unreachable(peer)

    # --- outputs -------------------------------------------------------------------------------

    def has_ready(self) -> bool:
        """Return True if ready() may return effects."""
        state = self._state
        return bool(
            state.messages_now
            or state.events
            or state.committed_out < state.high_watermark
            or state.reads
            or state.reads_lost
            or state.clean_to is not None
            or (isinstance(self.role, Leader) and self.role.has_unsent)
            or self._has_write()
        )

    def _has_write(self) -> bool:
        state = self._state
        if state.writes.in_flight is not None:
            return False
        return bool(state.messages_after) or state.writes.has_write(state.hard_state)

    def ready(self) -> Ready:
        """Return the next round of effects; see `Ready` for their order."""
        state = self._state
        if isinstance(self.role, Leader) and self.role.has_unsent:
            self.role.send_due()
        write = None
        messages_after: tuple[Message, ...] = ()
        if self._has_write():
            write = state.writes.begin(state.hard_state, bytes_max=state.config.write_bytes_max)
            messages_after = tuple(state.messages_after)
            state.messages_after.clear()
        ready = Ready(
            token=write.token if write else None,
            hard_state=write.hard_state if write else None,
            chunks=write.chunks if write else (),
            install=write.install if write else None,
            truncate_to=write.truncate_to if write else None,
            append=write.entries if write else (),
            messages_now=tuple(state.messages_now),
            messages_after=messages_after,
            events=tuple(state.events),
            committed=state.take_committed(),
            reads=tuple(state.reads),
            reads_lost=tuple(state.reads_lost),
            clean_to=state.clean_to,
        )
        state.messages_now.clear()
        state.events.clear()
        state.reads.clear()
        state.reads_lost.clear()
        state.clean_to = None
        return ready

    def persisted(self, token: Token, now_ms: int) -> None:
        """Confirm that the write of the token is durable, after which votes, acknowledgements and
        commits may depend on it. An install is complete and the state is loaded."""
        state = self._state
        write = state.writes.complete(token)
        if write.install is not None:
            state.installed(write)
        self._on_persisted(write, now_ms)

    def snapshot_refused(self, token: Token, now_ms: int) -> None:
        """Report a corrupt received snapshot. The rest of the write is durable."""
        state = self._state
        state.writes.refuse(token)
        reception = state.reception
        assert reception is not None, f"token {token}: refused a snapshot that was not received"
        reception.is_whole, reception.position = False, 0
        if isinstance(self.role, Follower):
            self.role.on_refused(state, reception)

    def applied(self, offset: Offset) -> None:
        """Confirm that everything below the offset is applied."""
        assert offset <= self._state.committed_out, (
            f"applied {offset} above the handed out {self._state.committed_out}"
        )
        self._state.applied_end = max(self._state.applied_end, offset)

    def snapshot_taken(self, snapshot: SnapshotId) -> None:
        """Register a durable snapshot of the applied state.

        The newest two snapshots are kept. The log is kept from the end of the older one
        (Ready.clean_to).
        """
        self._state.snapshot_taken(snapshot)

    # --- timers --------------------------------------------------------------------------------

    def _may_campaign(self) -> bool:
        state = self._state
        return state.may_lead and not state.is_installing and state.epoch < EPOCH_MAX

    def _wait_for_leader(
        self, role: "Unattached | Follower | PreCandidate | Candidate", now_ms: int
    ) -> None:
        """Ask for the leader instead of campaigning."""
        if isinstance(role, Follower) and not self._state.may_lead:
            self._change(Trigger.LEADER_LOST, now_ms)
            return
        self._ask_for_leader(now_ms)
        role.deadline_ms = self._ask_deadline_ms(now_ms)

    def _ask_for_leader(self, now_ms: int) -> None:
        self._asked_ms = now_ms
        self._leader_finder.ask(self._state)

    def _ask_deadline_ms(self, now_ms: int) -> int:
        """Return the next time to ask: after two to four heartbeats for an observer, one election
        timeout for a voter."""
        if self._state.may_lead:
            return self._state.election_deadline_ms(now_ms)
        heartbeat_ms = self._state.config.heartbeat_ms
        return now_ms + 2 * heartbeat_ms + self._state.entropy.below(2 * heartbeat_ms + 1)

    # --- messages ------------------------------------------------------------------------------

    def _dispatch(self, message: Message, now_ms: int) -> None:
        """Process a message of the current epoch."""
        match message:
            case VoteRequest():
                self._handle_vote_request(message, now_ms)
            case VoteResponse():
                self._handle_vote_response(message, now_ms)
            case AppendRequest() | Heartbeat() | SnapshotChunk():
                self._handle_leader(message, now_ms)
            case AppendResponse() | AppendRejected() | HeartbeatResponse() | SnapshotResponse():
                if isinstance(self.role, Leader):
                    self._handle_response(self.role, message, now_ms)
            case TimeoutNow() | EndEpoch():
                self._handle_resignation(message, now_ms)
            case FollowResponse():
                self._handle_follow_response(message, now_ms)
            case FollowRequest():
                raise AssertionError(f"{message} reached dispatch, FollowRequest has no epoch rule")

    def _reject_stale(self, message: Message) -> None:
        """Send the current epoch to the sender of a message of an older epoch."""
        match message:
            case VoteRequest():
                self._state.send(vote_response(self._state, message, granted=False))
            case AppendRequest() | Heartbeat() | SnapshotChunk():
                self._state.send(
                    HeartbeatResponse(
                        sender=self._state.me,
                        receiver=message.sender,
                        epoch=self._state.epoch,
                        round=0,
                        match_end=None,
                        received_end=None,
                    )
                )
            case _:
                pass

    # --- elections -----------------------------------------------------------------------------

    def _should_ignore_vote(self, request: VoteRequest, now_ms: int) -> bool:
        """Return True if the vote request was refused because this node has a live leader.

        The refusal ignores the epoch: a partitioned node must not depose the leader (thesis 4.2.3,
        9.6).
        """
        if request.is_transfer and not request.pre_vote:
            return False
        # A request from the leader itself shows that it no longer leads, as after a quick restart.
        is_live = self.has_live_leader(now_ms) and request.sender != self.leader
        if request.pre_vote:
            if request.epoch < self._state.epoch or not is_live:
                return False
            answer_pre_vote(self._state, request, has_live_leader=True)
            return True
        if is_live and request.epoch > self._state.epoch:
            self._state.send(vote_response(self._state, request, granted=False))
            return True
        return False

    def _handle_vote_request(self, request: VoteRequest, now_ms: int) -> None:
        if request.pre_vote:
            answer_pre_vote(self._state, request, has_live_leader=False)
            return
        match self.role:
            case Unattached() as role:
                role.on_vote_request(self._state, request, now_ms)
            case PreCandidate():
                if answer_vote(self._state, request):
                    self._change(Trigger.VOTED, now_ms)
            case Follower() | Candidate() | Leader():
                self._state.send(vote_response(self._state, request, granted=False))

    def _handle_vote_response(self, response: VoteResponse, now_ms: int) -> None:
        if isinstance(self.role, PreCandidate | Candidate):
            self._change(self.role.on_vote_response(self._state, response), now_ms)

    # --- the leader's messages -----------------------------------------------------------------

    def _handle_leader(
        self, message: AppendRequest | Heartbeat | SnapshotChunk, now_ms: int
    ) -> None:
        """Accept the sender as the leader of the current epoch and process its message."""
        match self.role:
            case Leader():
                self._state.drop(message.sender, f"this node leads epoch {self._state.epoch}")
                return
            case Follower(leader=leader) if leader != message.sender:
                self._state.drop(message.sender, f"{leader} leads epoch {self._state.epoch}")
                return
            case Unattached() | PreCandidate() | Candidate():
                self._change(Trigger.LEADER_HEARD, now_ms, leader=message.sender)
            case Follower():
                pass
        assert isinstance(self.role, Follower), f"{self.role} after a message of its leader"
        self.role.record_contact(self._state, now_ms)
        match message:
            case AppendRequest():
                self.role.on_append(self._state, message)
            case Heartbeat():
                self.role.on_heartbeat(self._state, message)
            case SnapshotChunk():
                self.role.on_chunk(self._state, message)

    def _handle_resignation(self, message: TimeoutNow | EndEpoch, now_ms: int) -> None:
        """Campaign or wait after the leader transferred its leadership or resigned."""
        if not isinstance(self.role, Follower) or self.role.leader != message.sender:
            return
        is_first = isinstance(message, TimeoutNow) or message.successors[:1] == (self._state.me,)
        if is_first and self._may_campaign():
            self._change(Trigger.CAMPAIGN_NOW, now_ms)
        elif isinstance(message, EndEpoch):
            self._change(Trigger.LEADER_ENDED, now_ms)
            if self._state.me in message.successors:
                rank = message.successors.index(self._state.me)
                stagger_ms = self._state.config.election_timeout_ms_min // SUCCESSOR_STAGGER
                self.role = Unattached(deadline_ms=now_ms + max(1, rank) * stagger_ms)

    # --- looking for the leader ----------------------------------------------------------------

    def _handle_follow_request(self, request: FollowRequest, now_ms: int) -> None:
        """Replicate to a node that looks for its leader, or return the leader's address."""
        if isinstance(self.role, Leader):
            refusal = self.role.on_follow_request(request, now_ms)
            if refusal:
                self._state.drop(request.sender, refusal)
        self._state.send(
            FollowResponse(
                sender=self._state.me,
                receiver=request.sender,
                epoch=self._state.epoch,
                leader=self.leader,
                leader_address=self.leader_address,
            )
        )

    def _handle_follow_response(self, response: FollowResponse, now_ms: int) -> None:
        """Ask the leader that the response names.

        Two nodes cannot redirect each other forever: a node that names a leader has it in the same
        epoch, and responses of earlier epochs are dropped.
        """
        if (
            self.leader is None
            and self._leader_finder.on_response(response)
            and now_ms > self._asked_ms
        ):
            self._ask_for_leader(now_ms)

    # --- responses to a leader -----------------------------------------------------------------

    def _handle_response(
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

    # --- writes --------------------------------------------------------------------------------

    def _on_persisted(self, write: PendingWrite, now_ms: int) -> None:
        """Perform the actions that wait for a durable write."""
        state = self._state
        match self.role:
            case Candidate() as role:
                self._change(role.on_persisted(state), now_ms)
            case Leader() as role:
                self._change(role.maybe_commit(), now_ms)
            case Follower() as role:
                if write.install is not None:
                    role.on_installed(state, write.install.end_offset)
                else:
                    role.acknowledge(state)
            case Unattached() | PreCandidate():
                pass

    # --- role changes --------------------------------------------------------------------------

    def _change(
        self,
        trigger: Trigger | None,
        now_ms: int,
        *,
        epoch: Epoch | None = None,
        leader: Voter | None = None,
    ) -> None:
        """Enter the role that the trigger leads to, and the roles that follow at once."""
        while trigger is not None:
            trigger = self._become(trigger, now_ms, epoch=epoch, leader=leader)

    def _become(
        self, trigger: Trigger, now_ms: int, *, epoch: Epoch | None, leader: Voter | None
    ) -> Trigger | None:
        """Leave the role and enter the next one. Return the trigger that follows at once."""
        state = self._state
        name = next_role(self.role.name, trigger)
        self._leave(trigger, now_ms)
        if epoch is not None:
            state.enter_epoch(epoch, None)
        after: Trigger | None = None
        deadline_ms = state.election_deadline_ms(now_ms)
        match name:
            case RoleName.UNATTACHED:
                if not state.may_lead:
                    deadline_ms = now_ms + state.entropy.below(self._state.config.heartbeat_ms)
                elif trigger is Trigger.RESIGNED:
                    # successors campaign first
                    deadline_ms += self._state.config.election_timeout_ms_max
                self.role = Unattached(deadline_ms=deadline_ms)
            case RoleName.FOLLOWER:
                assert leader is not None, f"follower without a leader after {trigger}"
                self.role = Follower(leader=leader, deadline_ms=deadline_ms, contact_ms=now_ms)
            case RoleName.PRE_CANDIDATE:
                if not isinstance(self.role, Follower):
                    self._ask_for_leader(
                        now_ms
                    )  # after a failed campaign the node may have been removed
                role = PreCandidate(deadline_ms=deadline_ms)
                self.role = role
                after = role.begin(state)
            case RoleName.CANDIDATE:
                candidate = Candidate(deadline_ms=deadline_ms)
                self.role = candidate
                candidate.begin(state, is_transfer=trigger is Trigger.CAMPAIGN_NOW)
            case RoleName.LEADER:
                self.role = Leader(state, now_ms)
        self._report_role_change(trigger)
        return after

    def _leave(self, trigger: Trigger, now_ms: int) -> None:
        """End the reads and the leadership of a leader."""
        if not isinstance(self.role, Leader):
            return
        self._state.reads_lost.extend(self.role.fail_reads())
        if trigger in (Trigger.RESIGNED, Trigger.REMOVED):
            self.role.announce_end(now_ms)

    def _report_role_change(self, trigger: Trigger) -> None:
        leader = self.leader
        self._state.events.append(
            RoleChanged(
                role=self.role.name,
                epoch=self._state.epoch,
                leader_id=None if leader is None else leader.node_id,
                log_end_offset=self._state.log.end_offset,
                reason=trigger,
            )
        )

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Check the invariants of the node; numbers as in docs/raft.md. Cost O(peers).

        1 to 4 are those of a leader, 5 to 7 those of every role.
        8. A candidate counts itself only when its vote is durable.
        9. A follower's verified end is within its log.
        """
        self._state.check_invariants()
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
