"""Roles without a leader (unattached, pre-candidate, candidate) and the granting of votes.

A node grants at most one vote per epoch, only to an up-to-date log, and responds only after the
vote is durable (Raft §5.2, §5.4.1). A pre-vote changes no state (thesis 9.6, KIP-996), so a node
that cannot win does not disrupt the quorum. A node with a live leader grants neither (thesis
4.2.3), except for a leadership transfer.
"""

from dataclasses import dataclass, field, replace

from ...ids import Epoch
from .config import EPOCH_MAX
from .messages import FollowRequest, FollowResponse, VoteRequest, VoteResponse
from .ready import HardState
from .replica import Replica
from .roles import RoleName, Trigger
from .voters import Voter


@dataclass(slots=True, kw_only=True)
class Unattached:
    """A node without a leader that waits for one or for its election timer."""

    name = RoleName.UNATTACHED
    deadline_ms: int  # then a voter campaigns, and an observer asks for the leader again

    def on_vote_request(self, replica: Replica, request: VoteRequest, now_ms: int) -> None:
        """Grant or refuse the vote of this epoch."""
        if answer_vote(replica, request):
            self.deadline_ms = replica.election_deadline_ms(now_ms)


@dataclass(slots=True, kw_only=True)
class PreCandidate:
    """A node that collects pre-votes."""

    name = RoleName.PRE_CANDIDATE
    deadline_ms: int
    granted: set[Voter] = field(default_factory=set)  # includes this node
    refused: set[Voter] = field(default_factory=set)

    def begin(self, replica: Replica) -> Trigger | None:
        """Send pre-vote requests to all other voters at once. They depend on no durable state."""
        self.granted.add(replica.me)
        for request in vote_requests(replica, pre_vote=True, is_transfer=False):
            replica.send(request)
        return self.outcome(replica)

    def on_vote_response(self, replica: Replica, response: VoteResponse) -> Trigger | None:
        """Count a response to this campaign."""
        if not response.pre_vote:
            return None
        (self.granted if response.granted else self.refused).add(response.sender)
        return self.outcome(replica)

    def outcome(self, replica: Replica) -> Trigger | None:
        """Return the trigger if the pre-votes are decided."""
        voters = replica.voters.latest
        if _count(replica, self.granted) >= voters.majority:
            return Trigger.PRE_VOTES_WON
        if _count(replica, self.refused) > len(voters) - voters.majority:
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

    def begin(self, replica: Replica, *, is_transfer: bool) -> None:
        """Open the next epoch and vote for this node. Both are durable before any request is
        sent."""
        assert replica.epoch < EPOCH_MAX, f"epoch {replica.epoch} is the last"
        replica.enter_epoch(Epoch(replica.epoch + 1), replica.me)
        for request in vote_requests(replica, pre_vote=False, is_transfer=is_transfer):
            replica.send_after_write(request)

    def on_vote_response(self, replica: Replica, response: VoteResponse) -> Trigger | None:
        """Count a response to this campaign."""
        if response.pre_vote or not response.granted:
            return None
        self.granted.add(response.sender)
        return self.outcome(replica)

    def on_persisted(self, replica: Replica) -> Trigger | None:
        """Count this node's own vote after it is durable."""
        if replica.writes.durable_state == HardState(replica.epoch, replica.me):
            self.granted.add(replica.me)
        return self.outcome(replica)

    def outcome(self, replica: Replica) -> Trigger | None:
        """Return the trigger if the election is won.

        A majority of other voters is not sufficient while this node's own vote is not durable:
        after a crash this node could vote for another candidate in the epoch that it leads.
        """
        if replica.me not in self.granted:
            return None
        if _count(replica, self.granted) >= replica.voters.latest.majority:
            return Trigger.VOTES_WON
        return None


def vote_requests(replica: Replica, *, pre_vote: bool, is_transfer: bool) -> list[VoteRequest]:
    """Return one vote request for every other voter."""
    request = VoteRequest(
        sender=replica.me,
        receiver=replica.me,
        epoch=replica.epoch,
        log_end=replica.log_end,
        pre_vote=pre_vote,
        is_transfer=is_transfer,
    )
    return [replace(request, receiver=voter) for voter in replica.other_voters()]


def answer_vote(replica: Replica, request: VoteRequest) -> bool:
    """Grant or refuse the vote of this epoch. Return True if it is granted.

    The caller has no leader in this epoch. A repeated request of the same candidate is granted
    again. The candidate counts votes by its own voter set, so a node also votes if its own set
    lacks itself or the candidate.
    """
    granted = replica.vote in (None, request.sender) and request.log_end >= replica.log_end
    if granted:
        replica.vote = request.sender
        replica.send_after_write(vote_response(replica, request, granted=True))
    else:
        replica.send(vote_response(replica, request, granted=False))
    return granted


def answer_pre_vote(replica: Replica, request: VoteRequest, *, has_live_leader: bool) -> None:
    """Grant a pre-vote to an up-to-date candidate unless this node has a live leader."""
    granted = (
        request.epoch >= replica.epoch
        and not has_live_leader
        and request.log_end >= replica.log_end
    )
    replica.send(vote_response(replica, request, granted=granted))


def vote_response(replica: Replica, request: VoteRequest, *, granted: bool) -> VoteResponse:
    """Return the response to a vote request."""
    return VoteResponse(
        sender=replica.me,
        receiver=request.sender,
        epoch=replica.epoch,
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

    def ask(self, replica: Replica) -> None:
        """Send a follow request to the next address, preferring the leader address of the last
        response."""
        config = replica.config
        known = [address for voter, address in replica.voters.latest.members if voter != config.me]
        addresses = list(dict.fromkeys(each for each in (*known, *config.bootstrap) if each))
        address, self._hint = self._hint, ""
        if not address:
            if not addresses:
                return
            address = addresses[self._next % len(addresses)]
            self._next += 1
        if address != config.address:
            replica.send(
                FollowRequest(
                    sender=replica.me,
                    receiver_address=address,
                    epoch=replica.epoch,
                    address=config.address,
                )
            )

    def on_response(self, response: FollowResponse) -> bool:
        """Return True if the response names another node as the leader."""
        if response.leader is None or response.leader == response.sender:
            return False
        self._hint = response.leader_address
        return bool(self._hint)


def _count(replica: Replica, answered: set[Voter]) -> int:
    """Return the number of current voters in the set."""
    return sum(1 for voter in replica.voters.latest if voter in answered)
