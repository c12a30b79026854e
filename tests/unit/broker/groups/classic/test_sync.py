"""SyncGroup: the leader's assignment reaches the members of its generation once."""

import pytest

from quorumlog.broker.groups.requests import Joined
from quorumlog.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMember,
)

from .play import REBALANCE_MS, Play


def completing(count: int) -> tuple[Play, list[Joined]]:
    play = Play()
    return play, play.gather(*[play.join(session_ms=600_000) for _ in range(count)])


def test_followers_wait_for_the_assignment_of_the_leader() -> None:
    play, (leader, follower) = completing(2)
    waiting = play.sync(follower)
    assert play.waits(waiting)
    mine = play.sync(leader, {leader.member_id: b"0", follower.member_id: b"1"})
    assert play.assignment(mine) == b"0"
    assert play.assignment(waiting) == b"1"
    assert play.state == "Stable"


def test_sync_of_the_leader_stores_the_assignment() -> None:
    play, (leader,) = completing(1)
    assert not play.records
    play.sync(leader, {leader.member_id: b"0"})
    assert [m.assignment for m in play.stored.members] == [b"0"]


def test_sync_after_the_leaders_is_answered_immediately() -> None:
    play, (leader, follower) = completing(2)
    play.sync(leader, {follower.member_id: b"1"})
    assert play.assignment(play.sync(follower)) == b"1"
    assert play.assignment(play.sync(follower)) == b"1"
    assert play.assignment(play.sync(leader)) == b""


def test_member_without_an_assignment_gets_none_and_unknown_members_are_ignored() -> None:
    play, (leader, follower) = completing(2)
    waiting = play.sync(follower)
    play.sync(leader, {leader.member_id: b"0", "stranger": b"1"})
    assert play.assignment(waiting) == b""
    assert [m.member_id for m in play.stored.members] == [leader.member_id, follower.member_id]


def test_member_missing_from_the_next_assignment_loses_its_partitions() -> None:
    play = Play()
    leader, follower = play.stable(2)
    again = play.join(leader.member_id)
    play.join(follower.member_id)
    play.sync(play.joined(again), {leader.member_id: b"all"})
    assert play.assignment(play.sync(follower, generation=2)) == b""


def test_assignment_of_a_follower_is_ignored() -> None:
    play, (leader, follower) = completing(2)
    waiting = play.sync(follower, {follower.member_id: b"all"})
    assert play.waits(waiting)
    play.sync(leader, {leader.member_id: b"all"})
    assert play.assignment(waiting) == b""


@pytest.mark.parametrize("generation", [-1, 0, 2, 2**31 - 1])
def test_sync_of_another_generation_is_rejected(generation: int) -> None:
    play, (leader, _) = completing(2)
    play.error(play.sync(leader, {}, generation=generation), IllegalGeneration)
    assert play.state == "CompletingRebalance"


def test_sync_of_an_unknown_member_is_rejected() -> None:
    play, _ = completing(1)
    play.error(play.sync(Joined(member_id="stranger", generation=1)), UnknownMember)


def test_sync_in_an_empty_group_is_rejected() -> None:
    play = Play()
    play.error(play.sync(Joined(member_id="c-1", generation=0)), UnknownMember)


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [("connect", "range"), ("consumer", "roundrobin"), (None, "x"), ("", None)],
)
def test_sync_with_another_protocol_is_rejected(kind: str | None, protocol: str | None) -> None:
    play, (leader,) = completing(1)
    play.error(play.sync(leader, {}, kind=kind, protocol=protocol), InconsistentGroupProtocol)
    play.sync(leader, {}, kind="consumer", protocol="range")
    assert play.state == "Stable"


def test_sync_response_has_the_protocol() -> None:
    play, (leader,) = completing(1)
    ticket = play.sync(leader)
    outcome = play.outcomes[ticket]
    assert getattr(outcome, "protocol_type", None) == "consumer"
    assert getattr(outcome, "protocol", None) == "range"


def test_sync_during_join_returns_rebalance_in_progress() -> None:
    play = Play()
    first, second = play.stable(2)
    play.join(first.member_id)
    play.error(play.sync(second), RebalanceInProgress)


def test_new_member_fails_waiting_syncs() -> None:
    play, (leader, follower) = completing(2)
    waiting = play.sync(follower)
    play.join()
    play.error(waiting, RebalanceInProgress)
    play.error(play.sync(leader, {follower.member_id: b"1"}), RebalanceInProgress)


def test_assignment_does_not_reach_the_next_generation() -> None:
    play, (leader, follower) = completing(2)
    play.join(follower.member_id, protocols=[("range", b"n")])
    play.join(leader.member_id)
    play.error(play.sync(leader, {follower.member_id: b"old"}), IllegalGeneration)
    assert play.state == "CompletingRebalance"


def test_previous_assignments_are_kept_until_the_next_assignment() -> None:
    """Members may keep using them: the next coordinator must not assign them to others."""
    play = Play()
    members = play.stable(2)
    third = play.join()
    for member in members:
        play.join(member.member_id)
    play.sync(play.joined(third))
    play.join(members[1].member_id, protocols=[("range", b"n")])
    assert [m.assignment for m in play.machine.snapshot().members] == [b"c-1/1", b"c-2/1", b""]


def test_repeated_sync_completes_the_earlier_one() -> None:
    play, (leader, follower) = completing(2)
    earlier, later = play.sync(follower), play.sync(follower)
    play.error(earlier, RebalanceInProgress)
    play.sync(leader, {follower.member_id: b"1"})
    assert play.assignment(later) == b"1"


def test_leader_that_does_not_sync_in_time_is_removed() -> None:
    play, (leader, follower) = completing(2)
    waiting = play.sync(follower)
    play.wait(REBALANCE_MS - 1)
    assert play.waits(waiting)
    play.wait(1)
    play.error(waiting, RebalanceInProgress)
    assert isinstance(play.beat(leader.member_id, 1), UnknownMember)
    joined = play.joined(play.join(follower.member_id))
    assert (joined.generation, joined.leader) == (2, follower.member_id)


def test_follower_that_does_not_sync_in_time_is_removed_from_a_stable_group() -> None:
    play, (leader, follower) = completing(2)
    play.sync(leader, {follower.member_id: b"1"})
    play.wait(REBALANCE_MS - 1)
    assert play.state == "Stable"
    play.wait(1)
    assert play.state == "PreparingRebalance"
    assert isinstance(play.beat(follower.member_id, 1), UnknownMember)


def test_session_may_expire_with_the_sync_timeout() -> None:
    play = Play()
    play.gather(play.join(session_ms=REBALANCE_MS))
    play.wait(REBALANCE_MS)
    assert play.state == "Empty"


def test_no_member_is_removed_after_all_synced() -> None:
    play, (leader, follower) = completing(2)
    play.sync(leader, {})
    play.sync(follower)
    play.wait(REBALANCE_MS)
    assert play.state == "Stable"


def test_leave_of_the_leader_fails_waiting_syncs() -> None:
    play, (leader, follower) = completing(2)
    waiting = play.sync(follower)
    assert play.leave(leader.member_id) == [None]
    play.error(waiting, RebalanceInProgress)
    assert play.joined(play.join(follower.member_id)).leader == follower.member_id


def test_leave_completes_the_waiting_sync_of_the_member() -> None:
    play, (_, follower) = completing(2)
    waiting = play.sync(follower)
    play.leave(follower.member_id)
    play.error(waiting, UnknownMember)
