"""Traps for a quorum that loses nothing: campaigns that go astray, leaderships that outlive what
they rest on, changes that nobody could undo."""

from quorumlog.ids import Epoch
from quorumlog.raftlog.core.log_view import LOG_START
from quorumlog.raftlog.core.messages import VoteRequest, VoteResponse

from ....scenarios.member import voter
from ....scenarios.quorum import Quorum


def led(*node_ids: int, **options: int) -> Quorum:
    quorum = Quorum(node_ids or (1, 2, 3), **options)
    quorum.elect(1)
    quorum.run(300)
    return quorum


# --- campaigns -----------------------------------------------------------------------------------


def test_a_pre_candidate_goes_on_when_it_refuses_a_candidate_of_its_epoch() -> None:
    quorum = led()
    quorum.crash(1)
    quorum.step(
        VoteResponse(
            sender=voter(3), receiver=voter(2), epoch=Epoch(2), granted=False, pre_vote=False
        )
    )
    quorum.campaign(2)
    quorum.tick(1_000, 3)
    asked = quorum.flying.copy()
    quorum.step(
        VoteRequest(
            sender=voter(3),
            receiver=voter(2),
            epoch=Epoch(2),
            log_end=LOG_START,
            pre_vote=False,
        )
    )
    (refusal,) = (message for message in quorum.flying if message not in asked)
    assert isinstance(refusal, VoteResponse)
    assert not refusal.granted
    assert quorum[2].role.name == "pre_candidate"
    quorum.settle()
    assert quorum[2].is_leader
