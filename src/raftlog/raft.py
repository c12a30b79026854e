"""The consensus core: messages, time and proposals in, `Ready` out. No I/O, no clock.

Inputs are `step`, `tick`, `propose` and the other requests to a leader. The output is `ready`; the
caller confirms its effects with `persisted` and `applied`. The caller creates the `RaftState`, and
may read it at any time. The content of proposals is opaque.

Sources: Raft (Ongaro, Ousterhout 2014); its dissertation: 3.10 (transfer), 4 (membership), 5
(snapshots), 6.4 (reads), 9.6 (pre-vote); KIP-595 (offsets as indexes, epoch as term, diverging
epochs), KIP-853 (voters with their disks). An entry is a record batch; an end offset is exclusive.

Durability: a leader, even a lone one, counts itself only up to the offset that persisted()
confirmed, and its own vote only after the hard state is durable. A restarted node never resumes a
leadership: it starts unattached in its last epoch (KAFKA-10527).
"""

from typing import TypeAlias

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
from .config import EPOCH_MAX
from .follower import Follower
from .hard_state import HardState
from .leader import Leader, not_leader_error
from .log_view import Entry, SnapshotId
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
from .ready import Ready, RoleChanged, Token
from .roles import RoleName, Trigger, next_role
from .state import RaftState
from .voters import Voter, VoterChange
from .writes import PendingWrite

Role: TypeAlias = Unattached | Follower | PreCandidate | Candidate | Leader
SUCCESSOR_STAGGER = 5
"""After a resignation each successor gives its predecessor this fraction of the election
timeout."""


class Raft:
    """One node of the quorum, voter or observer."""

    def __init__(self, state: RaftState, *, now_ms: int) -> None:
        """Start from durable state: its log, hard state and snapshots are durable, and the state
        machine was loaded from the newest snapshot.

        From now on the caller only reads `state`.
        """
        self._state = state
        self._leader_finder = LeaderFinder()
        self._asked_ms = now_ms  # time of the last follow request
        deadline_ms = now_ms
        if state.may_lead and not state.is_alone:
            deadline_ms = state.election_deadline_ms(now_ms)
        # The current role with its state; read-only for callers.
        self.role: Role = Unattached(deadline_ms=deadline_ms)

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
            self._state.output.drop(message.sender, problem)
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
            raise not_leader_error(self._state.leader)
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

    def change_voters(self, change: VoterChange, now_ms: int) -> Entry:
        """Add, remove or move a voter. It takes effect at once; the change is done when committed.

        An added voter is a caught-up observer before. A leader that removes itself leads until the
        change is committed. Raise NotController, VoterChangePending, DuplicateVoter, VoterNotFound,
        InvalidRequest for the last voter, or VoterLagging if the added voter is behind or no
        majority of the changed voters responds.
        """
        return self._require_leader().change_voters(change, now_ms)

    def transfer_leadership(self, to: NodeId | None, now_ms: int) -> None:
        """Transfer the leadership to a voter, or to the most up-to-date one if None.

        Proposals are refused until the transfer ends, at most for the minimum election timeout.
        Raise NotController, VoterNotFound, or InvalidRequest if `to` is this node.
        """
        role = self._require_leader()
        if to == self._state.me.node_id:
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
        return (
            not state.output.is_empty(state.high_watermark)
            or (isinstance(self.role, Leader) and self.role.has_unsent)
            or self._has_write()
        )

    def _has_write(self) -> bool:
        state = self._state
        if state.writes.in_flight is not None:
            return False
        return bool(state.output.messages_after) or state.writes.has_write(state.hard_state)

    def ready(self) -> Ready:
        """Return the next round of effects; see `Ready` for their order."""
        state = self._state
        if isinstance(self.role, Leader) and self.role.has_unsent:
            self.role.send_due()
        write = None
        if self._has_write():
            write = state.writes.begin(state.hard_state, bytes_max=state.config.write_bytes_max)
        return state.output.take(write, state.high_watermark)

    def persisted(self, token: Token, now_ms: int, *, is_snapshot_damaged: bool = False) -> None:
        """Confirm that the write of the token is durable, after which votes, acknowledgements and
        commits may depend on it.

        An install is complete and the state is loaded. If the received snapshot is damaged, only
        the rest of the write is durable, and the snapshot is requested again.
        """
        if is_snapshot_damaged:
            self._on_snapshot_damaged(token)
            return
        state = self._state
        write = state.writes.complete(token)
        if write.install is not None:
            state.installed(write)
        self._on_persisted(write, now_ms)

    def applied(self, offset: Offset) -> None:
        """Confirm that everything below the offset is applied."""
        state = self._state
        assert offset <= state.output.committed_out, (
            f"applied {offset} above the handed out {state.output.committed_out}"
        )
        state.applied_end = max(state.applied_end, offset)

    def snapshot_taken(self, snapshot: SnapshotId) -> None:
        """Register a durable snapshot of the applied state.

        The newest two snapshots are kept. The log is kept from the end of the older one
        (Ready.clean_to).
        """
        state = self._state
        log = state.log
        assert snapshot.end_offset <= state.applied_end, f"{snapshot} above {state.applied_end}"
        # Other voters may have committed entries that this node has not written. A snapshot above
        # the durable log would leave a gap after a restart.
        durable_end = state.writes.durable_end
        assert snapshot.end_offset <= durable_end, f"{snapshot} above the log on disk {durable_end}"
        if state.snapshots and snapshot <= state.snapshots[-1]:
            # sometimes: a snapshot is taken after a newer one was received
            return  # a newer snapshot was received in the meantime
        assert log.is_boundary(snapshot.end_offset), f"{snapshot} ends inside a batch"
        assert log.epoch_before(snapshot.end_offset) == snapshot.epoch, f"{snapshot}"
        state.snapshots = (*state.snapshots, snapshot)[-2:]
        oldest = state.snapshots[0]
        if oldest.end_offset > log.start_offset and len(state.snapshots) > 1:
            log.clean_to(oldest.log_end)
            state.voters.clean_to(oldest.end_offset)
            state.output.clean_to = oldest

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
                    self._change(self.role.on_response(message, now_ms), now_ms)
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
                self._state.output.send(vote_response(self._state, message, granted=False))
            case AppendRequest() | Heartbeat() | SnapshotChunk():
                self._state.output.send(
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
        is_live = self._has_live_leader(now_ms) and request.sender != self._state.leader
        if request.pre_vote:
            if request.epoch < self._state.epoch or not is_live:
                return False
            answer_pre_vote(self._state, request, has_live_leader=True)
            return True
        if is_live and request.epoch > self._state.epoch:
            self._state.output.send(vote_response(self._state, request, granted=False))
            return True
        return False

    def _has_live_leader(self, now_ms: int) -> bool:
        """Return True if this node leads, or has received a message of its leader within the
        minimum election timeout (thesis 4.2.3)."""
        match self.role:
            case Follower(contact_ms=contact_ms):
                return now_ms - contact_ms < self._state.config.election_timeout_ms_min
            case Leader():
                return True
            case Unattached() | PreCandidate() | Candidate():
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
                self._state.output.send(vote_response(self._state, request, granted=False))

    def _handle_vote_response(self, response: VoteResponse, now_ms: int) -> None:
        if isinstance(self.role, PreCandidate | Candidate):
            self._change(self.role.on_vote_response(self._state, response), now_ms)

    # --- the leader's messages -----------------------------------------------------------------

    def _handle_leader(
        self, message: AppendRequest | Heartbeat | SnapshotChunk, now_ms: int
    ) -> None:
        """Accept the sender as the leader of the current epoch and process its message."""
        state = self._state
        # sometimes if isinstance(self.role, Candidate): a candidate loses to a leader of its epoch
        match self.role:
            case Leader():
                state.output.drop(message.sender, f"this node leads epoch {state.epoch}")
                return
            case Follower(leader=leader) if leader != message.sender:
                state.output.drop(message.sender, f"{leader} leads epoch {state.epoch}")
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
                self._state.output.drop(request.sender, refusal)
        self._state.output.send(
            FollowResponse(
                sender=self._state.me,
                receiver=request.sender,
                epoch=self._state.epoch,
                leader=self._state.leader,
                leader_address=self._leader_address(),
            )
        )

    def _leader_address(self) -> str:
        """Return the leader's address, "" if unknown."""
        state = self._state
        if state.leader is None:
            return ""
        if state.is_leader:
            return state.config.address
        return state.voters.latest.address_of(state.leader) or ""

    def _handle_follow_response(self, response: FollowResponse, now_ms: int) -> None:
        """Ask the leader that the response names.

        Two nodes cannot redirect each other forever: a node that names a leader has it in the same
        epoch, and responses of earlier epochs are dropped.
        """
        if (
            self._state.leader is None
            and self._leader_finder.on_response(response)
            and now_ms > self._asked_ms
        ):
            self._ask_for_leader(now_ms)

    # --- writes --------------------------------------------------------------------------------

    def _on_snapshot_damaged(self, token: Token) -> None:
        """Receive the damaged snapshot again from its start."""
        state = self._state
        state.writes.refuse(token)
        reception = state.reception
        assert reception is not None, f"token {token}: refused a snapshot that was not received"
        reception.is_whole, reception.position = False, 0
        if isinstance(self.role, Follower):
            self.role.on_refused(state, reception)

    def _on_persisted(self, write: PendingWrite, now_ms: int) -> None:
        """Perform the actions that wait for a durable write."""
        state = self._state
        # sometimes if write.hard_state not in (None, state.hard_state): a vote is durable too late
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
        state.leader = None
        if epoch is not None:
            # sometimes if state.is_installing: an epoch ends while a snapshot is installed
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
                state.leader = leader
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
                state.leader = state.me
                self.role = Leader(state, now_ms)
        self._report_role_change(trigger)
        return after

    def _leave(self, trigger: Trigger, now_ms: int) -> None:
        """End the reads and the leadership of a leader."""
        if not isinstance(self.role, Leader):
            return
        self._state.output.reads_lost.extend(self.role.fail_reads())
        if trigger in (Trigger.RESIGNED, Trigger.REMOVED):
            self.role.announce_end(now_ms)

    def _report_role_change(self, trigger: Trigger) -> None:
        state = self._state
        state.output.events.append(
            RoleChanged(
                role=self.role.name,
                epoch=state.epoch,
                leader_id=state.leader_id,
                log_end_offset=state.log.end_offset,
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
        state = self._state
        state.check_invariants()
        match self.role:
            case Leader() as role:
                role.check_invariants()
            case Candidate() as role if state.me in role.granted:
                # 8. A candidate counts itself only when its vote is durable.
                durable = state.writes.durable_state
                assert durable == HardState(state.epoch, state.me), f"{durable}"
            case Follower() as role if role.verified_end is not None:
                # 9. A follower's verified end is within its log.
                assert role.verified_end <= state.log.end_offset, f"{role.verified_end}"
            case _:
                pass
