"""Heartbeats, session timeouts and fencing of commits."""

import pytest

from quorumlog.errors import FencedInstance, IllegalGeneration, RebalanceInProgress, UnknownMember

from .play import REBALANCE_MS, SESSION_MS, Play


def test_heartbeats_keep_a_member() -> None:
    play = Play()
    [only] = play.stable(1)
    for _ in range(20):
        play.wait(SESSION_MS - 1)
        assert play.beat(only.member_id, 1) is None
    assert play.state == "Stable"


def test_expired_session_removes_the_member_and_triggers_a_rebalance() -> None:
    play = Play()
    first, second = play.stable(2)
    play.wait(SESSION_MS - 1)
    assert play.beat(first.member_id, 1) is None
    play.wait(1)
    assert isinstance(play.beat(first.member_id, 1), RebalanceInProgress)
    assert isinstance(play.beat(second.member_id, 1), UnknownMember)
    assert len(play.joined(play.join(first.member_id)).members) == 1


def test_sessions_that_expire_together_trigger_one_rebalance() -> None:
    play = Play()
    first, *_ = play.stable(5)
    play.wait(SESSION_MS - 1)
    play.beat(first.member_id, 1)
    play.wait(SESSION_MS - 1)
    assert play.joined(play.join(first.member_id)).generation == 2


def test_group_is_empty_after_all_sessions_expire() -> None:
    play = Play()
    play.stable(3)
    play.wait(SESSION_MS)
    assert play.state == "Empty"
    assert play.stored.generation == 2
    assert play.stored.members == ()
    assert play.machine.deadline_ms() is None


def test_heartbeat_during_sync_is_accepted() -> None:
    play = Play()
    leader, follower = play.gather(play.join(), play.join())
    assert play.beat(leader.member_id, 1) is None
    play.sync(follower)
    assert play.beat(follower.member_id, 1) is None


def test_heartbeat_during_join_reports_the_rebalance_and_renews_the_session() -> None:
    play = Play()
    first, second = play.stable(2)
    play.join(first.member_id)
    for _ in range(4):
        play.wait(SESSION_MS - 1)
        assert isinstance(play.beat(second.member_id, 1), RebalanceInProgress)
    assert play.joined(play.join(second.member_id)).generation == 2


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_heartbeat_of_another_generation_is_rejected(generation: int) -> None:
    play = Play()
    [only] = play.stable(1)
    play.wait(SESSION_MS - 1)
    assert isinstance(play.beat(only.member_id, generation), IllegalGeneration)
    play.wait(1)
    assert play.state == "Empty"


def test_heartbeat_of_an_unknown_member_is_rejected() -> None:
    play = Play()
    assert isinstance(play.beat("stranger", 0), UnknownMember)
    play.stable(1)
    assert isinstance(play.beat("stranger", 1), UnknownMember)


def test_session_does_not_expire_during_a_waiting_join() -> None:
    play = Play()
    first, _ = play.gather(play.join(), play.join(session_ms=600_000))
    again = play.join(first.member_id, protocols=[("range", b"n")])
    play.wait(REBALANCE_MS)
    assert play.joined(again).generation == 2


def test_session_does_not_expire_after_a_heartbeat_during_a_waiting_join() -> None:
    play = Play()
    first, second = play.gather(play.join(), play.join(session_ms=600_000))
    waiting = play.sync(second)
    assert play.beat(second.member_id, 1) is None
    again = play.join(first.member_id, protocols=[("range", b"n")])
    play.error(waiting, RebalanceInProgress)
    assert isinstance(play.beat(first.member_id, 1), RebalanceInProgress)
    play.wait(SESSION_MS)
    assert play.waits(again)
    play.join(second.member_id, session_ms=600_000)
    assert play.joined(again).generation == 2


def test_join_response_renews_the_session() -> None:
    play = Play()
    [only] = play.gather(play.join())
    play.wait(SESSION_MS - 1)
    assert play.beat(only.member_id, 1) is None
    play.wait(SESSION_MS)
    assert play.state == "Empty"


def test_session_does_not_expire_during_a_waiting_sync() -> None:
    play = Play()
    leader, follower = play.gather(play.join(session_ms=600_000), play.join())
    waiting = play.sync(follower)
    play.wait(REBALANCE_MS - 1)
    play.sync(leader, {follower.member_id: b"1"})
    assert play.assignment(waiting) == b"1"
    play.wait(SESSION_MS - 1)
    assert play.beat(follower.member_id, 1) is None
    play.wait(SESSION_MS)
    assert isinstance(play.beat(follower.member_id, 1), UnknownMember)


def test_offset_commit_renews_the_session() -> None:
    play = Play()
    [only] = play.stable(1)
    for _ in range(5):
        play.wait(SESSION_MS - 1)
        play.commit(only.member_id, 1)
    assert play.state == "Stable"


def test_offset_commit_is_accepted_during_join() -> None:
    play = Play()
    first, second = play.stable(2)
    play.join(first.member_id)
    play.commit(second.member_id, 1)


def test_offset_commit_is_rejected_during_sync() -> None:
    play = Play()
    [only] = play.gather(play.join())
    with pytest.raises(RebalanceInProgress):
        play.commit(only.member_id, 1)


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_offset_commit_of_another_generation_is_rejected(generation: int) -> None:
    play = Play()
    [only] = play.stable(1)
    with pytest.raises(IllegalGeneration):
        play.commit(only.member_id, generation)


def test_offset_commit_of_a_removed_member_is_rejected() -> None:
    play = Play()
    [only] = play.stable(1)
    play.wait(SESSION_MS)
    with pytest.raises(UnknownMember):
        play.commit(only.member_id, 1)


def test_offset_commit_without_a_member_is_accepted_by_an_empty_group() -> None:
    play = Play()
    play.commit()
    [only] = play.stable(1)
    with pytest.raises(UnknownMember):
        play.commit()
    play.leave(only.member_id)
    play.commit()


def test_offset_commit_with_a_generation_requires_a_member() -> None:
    play = Play()
    with pytest.raises(UnknownMember):
        play.commit(generation=0)


def test_offset_commit_of_a_fenced_static_member_is_rejected() -> None:
    play = Play()
    [old] = play.stable_static("i")
    new = play.joined(play.join(instance="i"))
    with pytest.raises(FencedInstance):
        play.commit(old.member_id, 1, instance="i")
    with pytest.raises(UnknownMember):
        play.commit(old.member_id, 1)
    play.commit(new.member_id, 1, instance="i")
    play.commit(new.member_id, 1)


def test_offset_commit_of_an_unknown_static_member_is_rejected() -> None:
    play = Play()
    [only] = play.stable(1)
    with pytest.raises(UnknownMember):
        play.commit(only.member_id, 1, instance="other")
