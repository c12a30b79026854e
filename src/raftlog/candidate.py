"""Roles without a leader (unattached, pre-candidate, candidate) and the granting of votes.

A node grants at most one vote per epoch, only to an up-to-date log, and responds only after the
vote is durable (Raft §5.2, §5.4.1). A pre-vote changes no state (thesis 9.6, KIP-996), so a node
that cannot win does not disrupt the quorum. A node with a live leader grants neither (thesis
4.2.3), except for a leadership transfer.
"""

from dataclasses import dataclass, field, replace

from ..ids import Epoch
from .config import EPOCH_MAX
from .hard_state import HardState
from .messages import FollowRequest, FollowResponse, VoteRequest, VoteResponse
from .roles import RoleName, Trigger
from .state import RaftState
from .voters import Voter


@dataclass(slots=True, kw_only=True)
class Unattached:
    """A node without a leader that waits for one or for its election timer."""

    name = RoleName.UNATTACHED
    deadline_ms: int  # then a voter campaigns, and an observer asks for the leader again

    def on_vote_request(self, state: RaftState, request: VoteRequest, now_ms: int) -> None:
        """Grant or refuse the vote of this epoch."""
        if answer_vote(state, request):
            self.deadline_ms = state.election_deadline_ms(now_ms)


@dataclass(slots=True, kw_only=True)
class PreCandidate:
    """A node that collects pre-votes."""

    name = RoleName.PRE_CANDIDATE
    deadline_ms: int
    granted: set[Voter] = field(default_factory=set)  # includes this node
    refused: set[Voter] = field(default_factory=set)

    def begin(self, state: RaftState) -> Trigger | None:
        """Send pre-vote requests to all other voters at once. They depend on no durable state."""
        self.granted.add(state.me)
        for request in vote_requests(state, pre_vote=True, is_transfer=False):
            state.output.send(request)
        return self.outcome(state)

    def on_vote_response(self, state: RaftState, response: VoteResponse) -> Trigger | None:
        """Count a response to this campaign."""
        if not response.pre_vote:
            return None
        (self.granted if response.granted else self.refused).add(response.sender)
        return self.outcome(state)

    def outcome(self, state: RaftState) -> Trigger | None:
        """Return the trigger if the pre-votes are decided."""
        voters = state.voters.latest
        if _count(state, self.granted) >= voters.majority:
            return Trigger.PRE_VOTES_WON
        if _count(state, self.refused) > len(voters) - voters.majority:
            return Trigger.PRE_VOTES_LOST
        return None


@dataclass(slots=True, kw_only=True)
class Candidate:
    """A node that collects votes in the epoch it opened."""

    name = RoleName.CANDIDATE
    deadline_ms: int
    # This node's own vote is added only after it is durable. A vote that a crash can revoke counts
    # for no candidate, including this one.
    granted: set[Voter] = field(default_factory=set)

    def begin(self, state: RaftState, *, is_transfer: bool) -> None:
        """Open the next epoch and vote for this node. Both are durable before any request is
        sent."""
        assert state.epoch < EPOCH_MAX, f"epoch {state.epoch} is the last"
        state.enter_epoch(Epoch(state.epoch + 1), state.me)
        for request in vote_requests(state, pre_vote=False, is_transfer=is_transfer):
            state.output.send_after_write(request)

    def on_vote_response(self, state: RaftState, response: VoteResponse) -> Trigger | None:
        """Count a response to this campaign."""
        if response.pre_vote or not response.granted:
            return None
        self.granted.add(response.sender)
        return self.outcome(state)

    def on_persisted(self, state: RaftState) -> Trigger | None:
        """Count this node's own vote after it is durable."""
        if state.writes.durable_state == HardState(state.epoch, state.me):
            self.granted.add(state.me)
        return self.outcome(state)

    def outcome(self, state: RaftState) -> Trigger | None:
        """Return the trigger if the election is won.

        A majority of other voters is not sufficient while this node's own vote is not durable:
        after a crash this node could vote for another candidate in the epoch that it leads.
        """
        if state.me not in self.granted:
            return None
        if _count(state, self.granted) >= state.voters.latest.majority:
            return Trigger.VOTES_WON
        return None


def vote_requests(state: RaftState, *, pre_vote: bool, is_transfer: bool) -> list[VoteRequest]:
    """Return one vote request for every other voter."""
    request = VoteRequest(
        sender=state.me,
        receiver=state.me,
        epoch=state.epoch,
        log_end=state.log.end,
        pre_vote=pre_vote,
        is_transfer=is_transfer,
    )
    return [replace(request, receiver=voter) for voter in state.other_voters()]


def answer_vote(state: RaftState, request: VoteRequest) -> bool:
    """Grant or refuse the vote of this epoch. Return True if it is granted.

    The caller has no leader in this epoch. A repeated request of the same candidate is granted
    again. The candidate counts votes by its own voter set, so a node also votes if its own set
    lacks itself or the candidate.
    """
    granted = state.vote in (None, request.sender) and request.log_end >= state.log.end
    if granted:
        state.vote = request.sender
        state.output.send_after_write(vote_response(state, request, granted=True))
    else:
        state.output.send(vote_response(state, request, granted=False))
    return granted


def answer_pre_vote(state: RaftState, request: VoteRequest, *, has_live_leader: bool) -> None:
    """Grant a pre-vote to an up-to-date candidate unless this node has a live leader."""
    granted = (
        request.epoch >= state.epoch and not has_live_leader and request.log_end >= state.log.end
    )
    state.output.send(vote_response(state, request, granted=granted))


def vote_response(state: RaftState, request: VoteRequest, *, granted: bool) -> VoteResponse:
    """Return the response to a vote request."""
    return VoteResponse(
        sender=state.me,
        receiver=request.sender,
        epoch=state.epoch,
        granted=granted,
        pre_vote=request.pre_vote,
    )


class LeaderFinder:
    """Cycles through known addresses to find the leader.

    Observers, new voters and nodes that the leader dropped use it.
    """

    __slots__ = ("_hint", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._hint = ""

    def ask(self, state: RaftState) -> None:
        """Send a follow request to the next address, preferring the leader address of the last
        response."""
        config = state.config
        known = [address for voter, address in state.voters.latest.members if voter != config.me]
        addresses = list(dict.fromkeys(each for each in (*known, *config.bootstrap) if each))
        address, self._hint = self._hint, ""
        if not address:
            if not addresses:
                return
            address = addresses[self._next % len(addresses)]
            self._next += 1
        if address != config.address:
            state.output.send(
                FollowRequest(
                    sender=state.me,
                    receiver_address=address,
                    epoch=state.epoch,
                    address=config.address,
                )
            )

    def on_response(self, response: FollowResponse) -> bool:
        """Return True if the response names another node as the leader."""
        if response.leader is None or response.leader == response.sender:
            return False
        self._hint = response.leader_address
        return bool(self._hint)


def _count(state: RaftState, answered: set[Voter]) -> int:
    """Return the number of current voters in the set."""
    return sum(1 for voter in state.voters.latest if voter in answered)
