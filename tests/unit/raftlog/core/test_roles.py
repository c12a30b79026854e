"""The table of role transitions is complete and sound."""

import pytest

from quorumlog.raftlog.roles import TRANSITIONS, RoleName, Trigger, next_role

PAIRS = [(role, trigger) for role in RoleName for trigger in Trigger]


@pytest.mark.parametrize(("role", "trigger"), PAIRS, ids=lambda each: str(each))
def test_transition_outside_of_the_table_raises(role: RoleName, trigger: Trigger) -> None:
    if (role, trigger) in TRANSITIONS:
        assert next_role(role, trigger) is TRANSITIONS[role, trigger]
    else:
        with pytest.raises(AssertionError, match=f"no transition from {role} on {trigger}"):
            next_role(role, trigger)


def test_only_a_candidate_becomes_leader_and_only_by_votes() -> None:
    """Paper 5.2. A restarted node never continues as leader (B24)."""
    ways = [pair for pair, after in TRANSITIONS.items() if after is RoleName.LEADER]
    assert ways == [(RoleName.CANDIDATE, Trigger.VOTES_WON)]


def test_candidate_has_won_a_pre_vote_or_received_timeout_now() -> None:
    """Thesis 9.6 and 3.10: no epoch is opened without a pre-vote or a transfer."""
    ways = {pair for pair, after in TRANSITIONS.items() if after is RoleName.CANDIDATE}
    assert ways == {
        (RoleName.PRE_CANDIDATE, Trigger.PRE_VOTES_WON),
        (RoleName.FOLLOWER, Trigger.CAMPAIGN_NOW),
    }


def test_a_newer_epoch_ends_every_role() -> None:
    """Paper 5.1."""
    after = {TRANSITIONS[role, Trigger.NEWER_EPOCH] for role in RoleName}
    assert after == {RoleName.UNATTACHED}


def test_a_leader_never_follows_in_its_own_epoch() -> None:
    assert (RoleName.LEADER, Trigger.LEADER_HEARD) not in TRANSITIONS


def test_every_role_can_be_left_and_every_trigger_does_something() -> None:
    assert {role for role, _ in TRANSITIONS} == set(RoleName)
    assert {trigger for _, trigger in TRANSITIONS} == set(Trigger)
