"""Elections among several voters, one rule a test (Raft §5.2, §5.4.1; thesis 9.6; KIP-853)."""

from dataclasses import dataclass, field, replace

import pytest

from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog import (
    HardState,
    LogEnd,
    LogView,
    Message,
    MessageDropped,
    Raft,
    RaftConfig,
    Ready,
    Voter,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.roles import Candidate, Leader, PreCandidate, Unattached
from quorumlog.simulation.entropy import SimEntropy

ONE, TWO, THREE = (Voter(NodeId(n), DirectoryId(bytes([n]) * 16)) for n in (1, 2, 3))
VOTERS = (ONE, TWO, THREE)


def voter(
    me: Voter = ONE,
    *,
    epoch: int = 0,
    vote: Voter | None = None,
    log: tuple[tuple[int, int], ...] = (),
    voters: tuple[Voter, ...] = VOTERS,
) -> Raft:
    """A voter whose log has one record per (epoch, base offset)."""
    config = RaftConfig(node_id=me.node_id, directory_id=me.directory_id, voters=voters)
    view = LogView.of(Offset(0), [(Offset(base), Offset(base + 1), Epoch(of)) for of, base in log])
    state = HardState(Epoch(epoch), vote)
    return Raft(config, view, state, SimEntropy(f"voter/{me.node_id}"), now_ms=0)


def request(
    sender: Voter = TWO,
    receiver: Voter = ONE,
    *,
    epoch: int,
    end: tuple[int, int] = (0, 0),
    pre_vote: bool = False,
) -> VoteRequest:
    return VoteRequest(
        sender=sender,
        receiver=receiver,
        epoch=Epoch(epoch),
        log_end=LogEnd(Epoch(end[0]), Offset(end[1])),
        pre_vote=pre_vote,
    )


def response(sender: Voter, *, epoch: int, granted: bool, pre_vote: bool) -> VoteResponse:
    return VoteResponse(
        sender=sender, receiver=ONE, epoch=Epoch(epoch), granted=granted, pre_vote=pre_vote
    )


def persist(raft: Raft) -> Ready:
    """Take a round that must have something to persist, and make it durable."""
    ready = raft.ready()
    assert ready.token is not None
    raft.persisted(ready.token, 0)
    raft.check_invariants()
    return ready


def answer(raft: Raft, message: VoteRequest) -> VoteResponse:
    """The voter's answer to one request, after whatever it must persist first."""
    raft.step(message, 0)
    ready = raft.ready()
    if ready.token is not None:
        raft.persisted(ready.token, 0)
    raft.check_invariants()
    answers = [*ready.messages_now, *ready.messages_after]
    assert len(answers) == 1
    assert isinstance(answers[0], VoteResponse)
    return answers[0]


def campaigning(raft: Raft) -> Raft:
    """Past the pre-vote: a candidate whose own vote is durable."""
    deadline_ms = raft.next_deadline_ms()
    assert deadline_ms is not None
    raft.tick(deadline_ms)
    raft.ready()
    raft.step(response(TWO, epoch=raft.epoch, granted=True, pre_vote=True), deadline_ms)
    persist(raft)
    return raft


# --- timers ------------------------------------------------------------------------------------


def test_election_timeouts_are_drawn_from_their_range_and_differ() -> None:
    deadlines = [voter(me).next_deadline_ms() for me in VOTERS]
    assert all(deadline is not None and 1000 <= deadline <= 2000 for deadline in deadlines)
    assert len(set(deadlines)) > 1


def test_nothing_happens_before_the_deadline() -> None:
    raft = voter()
    raft.tick(999)
    assert isinstance(raft.role, Unattached)
    assert not raft.has_ready()


# --- pre-vote ----------------------------------------------------------------------------------


def test_pre_vote_changes_nothing_durable_on_either_side() -> None:
    raft = voter(epoch=4, vote=TWO)
    raft.tick(2000)
    ready = raft.ready()
    assert isinstance(raft.role, PreCandidate)
    assert (ready.token, ready.hard_state) == (None, None)
    sent = [m for m in ready.messages_now if isinstance(m, VoteRequest)]
    assert [(m.receiver, m.epoch, m.pre_vote) for m in sent] == [(TWO, 4, True), (THREE, 4, True)]
    asked = voter(epoch=4)
    asked.step(request(epoch=4, pre_vote=True), 0)
    ready = asked.ready()
    assert ready.token is None
    assert [m.granted for m in ready.messages_now if isinstance(m, VoteResponse)] == [True]
    assert asked.vote is None


def test_pre_vote_is_refused_to_a_shorter_log() -> None:
    raft = voter(epoch=3, log=((1, 0), (3, 1)))
    assert not answer(raft, request(epoch=3, end=(3, 1), pre_vote=True)).granted
    assert answer(raft, request(epoch=3, end=(3, 2), pre_vote=True)).granted


def test_majority_of_refused_pre_votes_ends_the_attempt_without_a_new_epoch() -> None:
    raft = voter(epoch=4)
    raft.tick(2000)
    for sender in (TWO, THREE):
        raft.step(response(sender, epoch=4, granted=False, pre_vote=True), 2000)
    assert isinstance(raft.role, Unattached)
    assert raft.epoch == 4


def test_pre_candidate_tries_again_after_a_timeout() -> None:
    raft = voter()
    raft.tick(2000)
    deadline_ms = raft.next_deadline_ms()
    assert deadline_ms is not None
    assert 3000 <= deadline_ms <= 4000
    raft.ready()
    raft.tick(deadline_ms)
    assert len(raft.ready().messages_now) == 2


# --- votes -------------------------------------------------------------------------------------


def test_vote_is_durable_before_the_answer_leaves() -> None:
    raft = voter()
    raft.step(request(epoch=1), 0)
    ready = raft.ready()
    assert ready.hard_state == HardState(Epoch(1), TWO)
    assert ready.messages_now == ()
    assert [m.granted for m in ready.messages_after if isinstance(m, VoteResponse)] == [True]


def test_one_vote_an_epoch_and_a_repeat_is_granted_again() -> None:
    raft = voter()
    assert answer(raft, request(TWO, epoch=1)).granted
    assert not answer(raft, request(THREE, epoch=1)).granted
    assert answer(raft, request(TWO, epoch=1)).granted
    assert answer(raft, request(THREE, epoch=2)).granted


def test_vote_survives_a_restart() -> None:
    """B1: a voter that forgets may vote twice in an epoch."""
    raft = voter()
    answer(raft, request(TWO, epoch=1))
    again = voter(epoch=raft.epoch, vote=raft.vote)
    assert not answer(again, request(THREE, epoch=1)).granted


def test_granted_vote_moves_the_own_campaign_back() -> None:
    raft = voter()
    raft.step(request(epoch=1), 900)
    deadline_ms = raft.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms >= 1900


@pytest.mark.parametrize(
    ("end", "granted"),
    [((3, 1), False), ((2, 9), False), ((3, 2), True), ((3, 3), True), ((4, 1), True)],
)
def test_vote_goes_to_logs_at_least_as_up_to_date(end: tuple[int, int], granted: bool) -> None:
    """Epoch of the last entry first, then length (B9)."""
    raft = voter(epoch=4, log=((1, 0), (3, 1)))
    assert answer(raft, request(epoch=5, end=end)).granted is granted


def test_older_epoch_is_refused_with_the_present_one() -> None:
    raft = voter(epoch=7)
    refused = answer(raft, request(epoch=6, end=(6, 99)))
    assert (refused.granted, refused.epoch) == (False, 7)


def test_candidate_does_not_vote_for_another_in_its_epoch() -> None:
    raft = campaigning(voter())
    assert not answer(raft, request(THREE, epoch=1, end=(1, 9))).granted


def test_newer_epoch_makes_anyone_a_voter_again() -> None:
    raft = campaigning(voter())
    raft.step(response(TWO, epoch=1, granted=True, pre_vote=False), 0)
    assert raft.leader_id == 1
    persist(raft)
    assert answer(raft, request(TWO, epoch=2, end=(1, 1))).granted
    assert isinstance(raft.role, Unattached)
    assert raft.epoch == 2


# --- winning -----------------------------------------------------------------------------------


def test_candidate_leads_with_a_majority_its_own_durable_vote_included() -> None:
    raft = voter()
    raft.tick(2000)
    raft.ready()
    raft.step(response(TWO, epoch=0, granted=True, pre_vote=True), 2000)
    ready = raft.ready()
    assert ready.hard_state == HardState(Epoch(1), ONE)
    assert len(ready.messages_after) == 2, "the vote requests wait for the own vote"
    raft.step(response(TWO, epoch=1, granted=True, pre_vote=False), 2000)
    assert isinstance(raft.role, Candidate), "the own vote is not durable yet"
    assert ready.token is not None
    raft.persisted(ready.token, 2000)
    assert raft.leader_id == 1
    raft.check_invariants()


def test_repeated_grants_of_one_voter_count_once() -> None:
    """B3: five voters, one friend who answers twice."""
    four, five = (Voter(NodeId(n), DirectoryId(bytes([n]) * 16)) for n in (4, 5))
    raft = voter(voters=(*VOTERS, four, five))
    raft.tick(2000)
    for sender in (TWO, THREE):
        raft.step(response(sender, epoch=0, granted=True, pre_vote=True), 2000)
    persist(raft)
    for _ in range(3):
        raft.step(response(TWO, epoch=1, granted=True, pre_vote=False), 2000)
    assert isinstance(raft.role, Candidate)
    raft.step(response(THREE, epoch=1, granted=True, pre_vote=False), 2000)
    assert raft.leader_id == 1


def test_answers_to_an_earlier_campaign_count_for_nothing() -> None:
    """B34."""
    raft = campaigning(voter())
    assert raft.epoch == 1
    deadline_ms = raft.next_deadline_ms()
    assert deadline_ms is not None
    raft.tick(deadline_ms)
    raft.step(response(TWO, epoch=1, granted=True, pre_vote=True), deadline_ms)
    persist(raft)
    assert raft.epoch == 2
    raft.step(response(TWO, epoch=1, granted=True, pre_vote=False), deadline_ms)
    assert isinstance(raft.role, Candidate)


def test_leader_of_several_commits_nothing_on_its_own() -> None:
    raft = campaigning(voter())
    raft.step(response(TWO, epoch=1, granted=True, pre_vote=False), 0)
    ready = persist(raft)
    assert len(ready.append) == 1
    assert raft.high_watermark == 0


def test_votes_of_others_alone_are_not_enough() -> None:
    """A leader that forgets its own vote could vote again in its own epoch."""
    raft = voter()
    raft.tick(2000)
    raft.step(response(TWO, epoch=0, granted=True, pre_vote=True), 2000)
    ready = raft.ready()
    for sender in (TWO, THREE):
        raft.step(response(sender, epoch=1, granted=True, pre_vote=False), 2000)
    assert isinstance(raft.role, Candidate)
    assert ready.token is not None
    raft.persisted(ready.token, 2000)
    assert raft.leader_id == 1


def test_entries_of_older_epochs_are_not_committed_by_counting() -> None:
    """Figure 8 of the paper (B6): two replicas of an old entry are not a commit."""
    raft = campaigning(voter(epoch=1, log=((1, 0), (1, 1))))
    raft.step(response(TWO, epoch=2, granted=True, pre_vote=False), 0)
    leader = raft.role
    assert isinstance(leader, Leader)
    leader.match_end[TWO] = Offset(2)
    persist(raft)
    assert raft.high_watermark == 0
    leader.match_end[TWO] = leader.match_end[ONE]
    raft.propose(count=1, payload=b"x")
    persist(raft)
    assert raft.high_watermark == 3, "the own no-op commits what is before it"


def test_strangers_and_misdirected_messages_are_dropped() -> None:
    """A wiped disk under an old id is a stranger (B15)."""
    wiped = replace(TWO, directory_id=DirectoryId(b"w" * 16))
    raft = voter()
    raft.step(request(wiped, epoch=9), 0)
    raft.step(request(TWO, THREE, epoch=9), 0)
    raft.step(request(ONE, ONE, epoch=9), 0)
    events = raft.ready().events
    assert len([e for e in events if isinstance(e, MessageDropped)]) == 3
    assert raft.epoch == 0


# --- together ----------------------------------------------------------------------------------


@dataclass
class Quorum:
    """Three voters and a network that reorders, drops and repeats; all by a seed."""

    seed: int
    rafts: dict[Voter, Raft] = field(default_factory=dict)
    states: dict[Voter, HardState] = field(default_factory=dict)
    flying: list[Message] = field(default_factory=list)
    leaders: dict[int, Voter] = field(default_factory=dict)

    def run(self, steps: int) -> None:
        draw = SimEntropy(f"quorum/{self.seed}")
        self.rafts = {me: voter(me) for me in VOTERS}
        self.states = {me: HardState(Epoch(0), None) for me in VOTERS}
        now_ms = 0
        for _ in range(steps):
            now_ms += draw.below(10)
            me = VOTERS[draw.below(3)]
            match draw.below(20):
                case 0:
                    state = self.states[me]
                    self.rafts[me] = voter(me, epoch=state.epoch, vote=state.vote)
                case 1 | 2:  # timers that run wild: campaigns meet each other
                    self.rafts[me].tick(now_ms + 10_000)
                case _ if self.flying:
                    at = draw.below(len(self.flying))
                    message = self.flying[at] if draw.below(5) == 0 else self.flying.pop(at)
                    self.rafts[message.receiver].step(message, now_ms)
                case _:
                    pass
            for each in VOTERS:
                self.settle(each, draw, now_ms)

    def settle(self, me: Voter, draw: SimEntropy, now_ms: int) -> None:
        raft = self.rafts[me]
        while raft.has_ready():
            ready = raft.ready()
            self.flying.extend(m for m in ready.messages_now if draw.below(5))
            if ready.token is None:
                continue
            if draw.below(20) == 0:  # the process dies before this write
                state = self.states[me]
                self.rafts[me] = voter(me, epoch=state.epoch, vote=state.vote)
                return
            if ready.hard_state is not None:
                self.states[me] = ready.hard_state
            raft.persisted(ready.token, now_ms)
            self.flying.extend(m for m in ready.messages_after if draw.below(5))
        raft.check_invariants()
        if isinstance(raft.role, Leader):
            other = self.leaders.setdefault(raft.epoch, me)
            assert other == me, f"two leaders in epoch {raft.epoch}"


@pytest.mark.parametrize("seed", range(20))
def test_an_epoch_has_at_most_one_leader_ever(seed: int) -> None:
    quorum = Quorum(seed)
    quorum.run(1500)
    assert quorum.leaders, "nobody was ever elected: the test proves nothing"
