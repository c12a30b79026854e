"""The current role of a Raft node and every change of it.

The rules about epochs and senders are here, once for all roles; the role handles the message
itself. Every change passes `change`, and thus the transition table.
"""

from typing import TypeAlias

from ...ids import Epoch
from .config import EPOCH_MAX
from .electing import (
    Candidate,
    LeaderFinder,
    PreCandidate,
    Unattached,
    answer_pre_vote,
    answer_vote,
    vote_response,
)
from .following import Follower
from .leading import Leader
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
from .ready import RoleChanged
from .replica import Replica
from .roles import RoleName, Trigger, next_role
from .soundness import validate_message
from .voters import Voter
from .writes import Write

Role: TypeAlias = Unattached | Follower | PreCandidate | Candidate | Leader
SUCCESSOR_STAGGER = 5
"""After a resignation each successor gives its predecessor this fraction of the election
timeout."""


class Member:
    """One Raft node in its current role."""

    def __init__(self, replica: Replica, now_ms: int) -> None:
        """Start without a leader. A lone voter campaigns, and an observer asks for the leader, at
        once."""
        self._replica = replica
        self._leader_finder = LeaderFinder()
        self._asked_ms = now_ms  # time of the last follow request
        deadline_ms = now_ms
        if replica.may_lead and not replica.is_alone:
            deadline_ms = replica.election_deadline_ms(now_ms)
        self.role: Role = Unattached(deadline_ms=deadline_ms)

    @property
    def leader(self) -> Voter | None:
        """The leader of the current epoch, if known."""
        match self.role:
            case Follower(leader=leader):
                return leader
            case Leader():
                return self._replica.me
            case Unattached() | PreCandidate() | Candidate():
                return None

    @property
    def leader_address(self) -> str:
        """The leader's address, "" if unknown."""
        replica, leader = self._replica, self.leader
        if leader is None:
            return ""
        if leader == replica.me:
            return replica.config.address
        return replica.voters.latest.address_of(leader) or ""

    def has_live_leader(self, now_ms: int) -> bool:
        """Return True if this node leads, or has received a message of its leader within the
        minimum election timeout (thesis 4.2.3)."""
        match self.role:
            case Follower(contact_ms=contact_ms):
                return now_ms - contact_ms < self._replica.config.election_timeout_ms_min
            case Leader():
                return True
            case Unattached() | PreCandidate() | Candidate():
                return False

    # --- time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Perform due work: campaign, ask for the leader, or send heartbeats."""
        if now_ms < self.role.deadline_ms:
            return
        match self.role:
            case Leader() as role:
                self.change(role.tick(now_ms), now_ms)
            case _ if not self._may_campaign():
                self._wait_for_leader(self.role, now_ms)
            case _:
                self.change(Trigger.ELECTION_TIMEOUT, now_ms)

    def _may_campaign(self) -> bool:
        replica = self._replica
        return replica.may_lead and not replica.is_installing and replica.epoch < EPOCH_MAX

    def _wait_for_leader(
        self, role: "Unattached | Follower | PreCandidate | Candidate", now_ms: int
    ) -> None:
        """Ask for the leader instead of campaigning."""
        if isinstance(role, Follower) and not self._replica.may_lead:
            self.change(Trigger.LEADER_LOST, now_ms)
            return
        self._ask_for_leader(now_ms)
        role.deadline_ms = self._ask_deadline_ms(now_ms)

    def _ask_for_leader(self, now_ms: int) -> None:
        self._asked_ms = now_ms
        self._leader_finder.ask(self._replica)

    def _ask_deadline_ms(self, now_ms: int) -> int:
        """Return the next time to ask: after two to four heartbeats for an observer, one election
        timeout for a voter."""
        if self._replica.may_lead:
            return self._replica.election_deadline_ms(now_ms)
        heartbeat_ms = self._replica.config.heartbeat_ms
        return now_ms + 2 * heartbeat_ms + self._replica.entropy.below(2 * heartbeat_ms + 1)

    # --- messages ------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """Process a message. Drop one for another node or directory, or an invalid one, with an
        event."""
        problem = validate_message(
            message,
            me=self._replica.me,
            epoch=self._replica.epoch,
            log_end=self._replica.log.end_offset,
        )
        if problem:
            self._replica.drop(message.sender, problem)
        elif isinstance(message, FollowRequest):
            self._handle_follow_request(message, now_ms)
        elif not (isinstance(message, VoteRequest) and self._should_ignore_vote(message, now_ms)):
            if message.epoch > self._replica.epoch:
                self.change(Trigger.NEWER_EPOCH, now_ms, epoch=message.epoch)
            if message.epoch < self._replica.epoch:
                self._reject_stale(message)
            else:
                self._dispatch(message, now_ms)

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
                self._replica.send(vote_response(self._replica, message, granted=False))
            case AppendRequest() | Heartbeat() | SnapshotChunk():
                self._replica.send(
                    HeartbeatResponse(
                        sender=self._replica.me,
                        receiver=message.sender,
                        epoch=self._replica.epoch,
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
            if request.epoch < self._replica.epoch or not is_live:
                return False
            answer_pre_vote(self._replica, request, has_live_leader=True)
            return True
        if is_live and request.epoch > self._replica.epoch:
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
            case PreCandidate():
                if answer_vote(self._replica, request):
                    self.change(Trigger.VOTED, now_ms)
            case Follower() | Candidate() | Leader():
                self._replica.send(vote_response(self._replica, request, granted=False))

    def _handle_vote_response(self, response: VoteResponse, now_ms: int) -> None:
        if isinstance(self.role, PreCandidate | Candidate):
            self.change(self.role.on_vote_response(self._replica, response), now_ms)

    # --- the leader's messages -----------------------------------------------------------------

    def _handle_leader(
        self, message: AppendRequest | Heartbeat | SnapshotChunk, now_ms: int
    ) -> None:
        """Accept the sender as the leader of the current epoch and process its message."""
        match self.role:
            case Leader():
                self._replica.drop(message.sender, f"this node leads epoch {self._replica.epoch}")
                return
            case Follower(leader=leader) if leader != message.sender:
                self._replica.drop(message.sender, f"{leader} leads epoch {self._replica.epoch}")
                return
            case Unattached() | PreCandidate() | Candidate():
                self.change(Trigger.LEADER_HEARD, now_ms, leader=message.sender)
            case Follower():
                pass
        assert isinstance(self.role, Follower), f"{self.role} after a message of its leader"
        self.role.record_contact(self._replica, now_ms)
        match message:
            case AppendRequest():
                self.role.on_append(self._replica, message)
            case Heartbeat():
                self.role.on_heartbeat(self._replica, message)
            case SnapshotChunk():
                self.role.on_chunk(self._replica, message)

    def _handle_resignation(self, message: TimeoutNow | EndEpoch, now_ms: int) -> None:
        """Campaign or wait after the leader transferred its leadership or resigned."""
        if not isinstance(self.role, Follower) or self.role.leader != message.sender:
            return
        is_first = isinstance(message, TimeoutNow) or message.successors[:1] == (self._replica.me,)
        if is_first and self._may_campaign():
            self.change(Trigger.CAMPAIGN_NOW, now_ms)
        elif isinstance(message, EndEpoch):
            self.change(Trigger.LEADER_ENDED, now_ms)
            if self._replica.me in message.successors:
                rank = message.successors.index(self._replica.me)
                stagger_ms = self._replica.config.election_timeout_ms_min // SUCCESSOR_STAGGER
                self.role = Unattached(deadline_ms=now_ms + max(1, rank) * stagger_ms)

    # --- looking for the leader ----------------------------------------------------------------

    def _handle_follow_request(self, request: FollowRequest, now_ms: int) -> None:
        """Replicate to a node that looks for its leader, or return the leader's address."""
        if isinstance(self.role, Leader):
            refusal = self.role.on_follow_request(request, now_ms)
            if refusal:
                self._replica.drop(request.sender, refusal)
        self._replica.send(
            FollowResponse(
                sender=self._replica.me,
                receiver=request.sender,
                epoch=self._replica.epoch,
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
                self.change(role.on_append_response(message, now_ms), now_ms)
            case AppendRejected():
                role.on_append_rejected(message, now_ms)
            case HeartbeatResponse():
                self.change(role.on_heartbeat_response(message, now_ms), now_ms)
            case SnapshotResponse():
                role.on_snapshot_response(message, now_ms)

    # --- writes --------------------------------------------------------------------------------

    def on_persisted(self, write: Write, now_ms: int) -> None:
        """Perform the actions that wait for a durable write."""
        replica = self._replica
        match self.role:
            case Candidate() as role:
                self.change(role.on_persisted(replica), now_ms)
            case Leader() as role:
                self.change(role.maybe_commit(), now_ms)
            case Follower() as role:
                if write.install is not None:
                    role.on_installed(replica, write.install.end_offset)
                else:
                    role.acknowledge(replica)
            case Unattached() | PreCandidate():
                pass

    # --- role changes --------------------------------------------------------------------------

    def change(
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
        replica = self._replica
        name = next_role(self.role.name, trigger)
        self._leave(trigger, now_ms)
        if epoch is not None:
            replica.enter_epoch(epoch, None)
        after: Trigger | None = None
        deadline_ms = replica.election_deadline_ms(now_ms)
        match name:
            case RoleName.UNATTACHED:
                if not replica.may_lead:
                    deadline_ms = now_ms + replica.entropy.below(self._replica.config.heartbeat_ms)
                elif trigger is Trigger.RESIGNED:
                    # successors campaign first
                    deadline_ms += self._replica.config.election_timeout_ms_max
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
                after = role.begin(replica)
            case RoleName.CANDIDATE:
                candidate = Candidate(deadline_ms=deadline_ms)
                self.role = candidate
                candidate.begin(replica, is_transfer=trigger is Trigger.CAMPAIGN_NOW)
            case RoleName.LEADER:
                self.role = Leader(replica, now_ms)
        self._report_role_change(trigger)
        return after

    def _leave(self, trigger: Trigger, now_ms: int) -> None:
        """End the reads and the leadership of a leader."""
        if not isinstance(self.role, Leader):
            return
        self._replica.reads_lost.extend(self.role.fail_reads())
        if trigger in (Trigger.RESIGNED, Trigger.REMOVED):
            self.role.announce_end(now_ms)

    def _report_role_change(self, trigger: Trigger) -> None:
        leader = self.leader
        self._replica.events.append(
            RoleChanged(
                role=self.role.name,
                epoch=self._replica.epoch,
                leader_id=None if leader is None else leader.node_id,
                log_end_offset=self._replica.log.end_offset,
                reason=trigger,
            )
        )
