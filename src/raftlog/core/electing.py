"""Roles without a leader: unattached, pre-candidate, candidate; and the granting of votes.

A vote is granted at most once an epoch, to an up-to-date log only, and told only once it is
durable (Raft §5.2, §5.4.1). A pre-vote promises one without changing anything (thesis 9.6,
KIP-996): so a node that cannot win disturbs nobody. Whoever has a live leader gives neither
(thesis 4.2.3), unless the leader itself asked for the campaign.
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
    """Waits for a leader or for its own timer."""

    name = RoleName.UNATTACHED
    deadline_ms: int  # then a voter campaigns, and an observer asks on for the leader

    def on_vote_request(self, replica: Replica, request: VoteRequest, now_ms: int) -> None:
        """Grant a vote of this epoch, or refuse it."""
        if answer_vote(replica, request):
            self.deadline_ms = replica.election_deadline_ms(now_ms)


@dataclass(slots=True, kw_only=True)
class PreCandidate:
    """Collects promises of votes."""

    name = RoleName.PRE_CANDIDATE
    deadline_ms: int
    granted: set[Voter] = field(default_factory=set)  # itself included
    refused: set[Voter] = field(default_factory=set)

    def begin(self, replica: Replica) -> Trigger | None:
        """Ask everybody; changes nothing durable, hence leaves at once."""
        self.granted.add(replica.me)
        for request in vote_requests(replica, pre_vote=True, is_transfer=False):
            replica.send(request)
        return self.outcome(replica)

    def on_vote_response(self, replica: Replica, response: VoteResponse) -> Trigger | None:
        """Count an answer of this campaign."""
        if not response.pre_vote:
            return None
        (self.granted if response.granted else self.refused).add(response.sender)
        return self.outcome(replica)

    def outcome(self, replica: Replica) -> Trigger | None:
        """Whether it is decided."""
        voters = replica.voters.latest
        if _count(replica, self.granted) >= voters.majority:
            return Trigger.PRE_VOTES_WON
        if _count(replica, self.refused) > len(voters) - voters.majority:
            return Trigger.PRE_VOTES_LOST
        return None


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Collects votes in the epoch it opened."""

    name = RoleName.CANDIDATE
    deadline_ms: int
    # Its own vote enters only once it is durable: a vote that a crash can take back counts for
    # nobody, its own caster included.
    granted: set[Voter] = field(default_factory=set)

    def begin(self, replica: Replica, *, is_transfer: bool) -> None:
        """Open the next epoch with the own vote; both are durable before anyone hears of them."""
        assert replica.epoch < EPOCH_MAX, "no epoch is left"
        replica.enter_epoch(Epoch(replica.epoch + 1), replica.me)
        for request in vote_requests(replica, pre_vote=False, is_transfer=is_transfer):
            replica.send_after_write(request)

    def on_vote_response(self, replica: Replica, response: VoteResponse) -> Trigger | None:
        """Count an answer of this campaign."""
        if response.pre_vote or not response.granted:
            return None
        self.granted.add(response.sender)
        return self.outcome(replica)

    def on_persisted(self, replica: Replica) -> Trigger | None:
        """The own vote counts once it is durable."""
        if replica.writes.durable_state == HardState(replica.epoch, replica.me):
            self.granted.add(replica.me)
        return self.outcome(replica)

    def outcome(self, replica: Replica) -> Trigger | None:
        """Whether it is won.

        A majority of others alone is not enough while the own vote is not durable: a leader that
        forgets that it voted for itself could vote again in its own epoch.
        """
        if replica.me not in self.granted:
            return None
        if _count(replica, self.granted) >= replica.voters.latest.majority:
            return Trigger.VOTES_WON
        return None


def vote_requests(replica: Replica, *, pre_vote: bool, is_transfer: bool) -> list[VoteRequest]:
    """One to every other voter."""
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
    """Give the vote of this epoch or refuse it; whether it was given.

    For a node that knows no leader in it. A repeat of the same candidate is granted again. Anybody
    may be asked, also who does not know yet that it votes, or that the candidate does: the
    candidate counts the voters of its own set.
    """
    granted = replica.vote in (None, request.sender) and request.log_end >= replica.log_end
    if granted:
        replica.vote = request.sender
        replica.send_after_write(vote_response(replica, request, granted=True))
    else:
        replica.send(vote_response(replica, request, granted=False))
    return granted


def answer_pre_vote(replica: Replica, request: VoteRequest, *, has_live_leader: bool) -> None:
    """Promise a vote to an up-to-date candidate unless this node has a live leader."""
    granted = (
        request.epoch >= replica.epoch
        and not has_live_leader
        and request.log_end >= replica.log_end
    )
    replica.send(vote_response(replica, request, granted=granted))


def vote_response(replica: Replica, request: VoteRequest, *, granted: bool) -> VoteResponse:
    """The answer to a request."""
    return VoteResponse(
        sender=replica.me,
        receiver=request.sender,
        epoch=replica.epoch,
        granted=granted,
        pre_vote=request.pre_vote,
    )


class Seeker:
    """Asks one address after the other for the leader: how a node without a vote, or one that was
    forgotten, comes to its log."""

    __slots__ = ("_hint", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._hint = ""

    def ask(self, replica: Replica) -> None:
        """Ask the next address, first the one that was named as the leader's."""
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
        """Somebody answered; whether it named another one as the leader."""
        if response.leader is None or response.leader == response.sender:
            return False
        self._hint = response.leader_address
        return bool(self._hint)


def _count(replica: Replica, answered: set[Voter]) -> int:
    """How many of the present voters are in the set."""
    return sum(1 for voter in replica.voters.latest if voter in answered)
