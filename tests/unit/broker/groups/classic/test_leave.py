"""LeaveGroup by member id, by instance id and for several members, and the rebalance after it."""

from quorumlog.broker.groups.requests import Leaver
from quorumlog.errors import FencedInstance, RebalanceInProgress, UnknownMember

from .play import Play


def test_leave_triggers_a_rebalance() -> None:
    play = Play()
    first, second = play.stable(2)
    assert play.leave(first.member_id) == [None]
    assert isinstance(play.beat(second.member_id, 1), RebalanceInProgress)
    joined = play.joined(play.join(second.member_id))
    assert (joined.generation, joined.leader, len(joined.members)) == (2, second.member_id, 1)


def test_leave_of_the_last_member_stores_an_empty_generation() -> None:
    play = Play()
    [only] = play.stable(1)
    play.leave(only.member_id)
    assert play.state == "Empty"
    assert play.stored.generation == 2
    assert play.stored.protocol_type == "consumer"
    assert (play.stored.protocol, play.stored.leader, play.stored.members) == (None, None, ())
    assert play.stored.state_ms == play.now_ms == play.machine.state_ms
    assert play.machine.deadline_ms() is None


def test_batched_leave_has_a_result_for_each_member() -> None:
    play = Play()
    first, second, third = play.stable(3)
    errors = play.leave(first.member_id, "stranger", third.member_id, first.member_id)
    assert [type(error) for error in errors] == [
        type(None),
        UnknownMember,
        type(None),
        UnknownMember,
    ]
    assert play.joined(play.join(second.member_id)).generation == 2


def test_rejected_leave_changes_nothing() -> None:
    play = Play()
    play.stable(1)
    assert isinstance(play.leave("stranger")[0], UnknownMember)
    assert play.leave() == []
    assert play.state == "Stable"


def test_leave_by_instance_id_removes_a_static_member() -> None:
    play = Play()
    first, second = play.stable_static("i", "j")
    assert play.leave(Leaver(member_id="", instance_id="i")) == [None]
    assert isinstance(play.beat(first.member_id, 1, instance="i"), UnknownMember)
    assert play.joined(play.join(second.member_id, instance="j")).generation == 2


def test_leave_by_an_unknown_instance_id_is_rejected() -> None:
    play = Play()
    play.stable_static("i")
    errors = play.leave(
        Leaver(member_id="", instance_id="j"), Leaver(member_id=""), Leaver(member_id="i")
    )
    assert [type(error) for error in errors] == [UnknownMember] * 3
    assert play.state == "Stable"


def test_leave_of_a_static_member_requires_its_current_id() -> None:
    play = Play()
    first, second = play.stable_static("i", "j")
    errors = play.leave(
        Leaver(member_id=first.member_id, instance_id="j"),
        Leaver(member_id=first.member_id, instance_id="unknown"),
        Leaver(member_id=second.member_id, instance_id="j"),
    )
    assert [type(error) for error in errors] == [FencedInstance, UnknownMember, type(None)]


def test_leave_releases_a_pending_member_id() -> None:
    play = Play()
    [only] = play.stable(1)
    reply = play.joined(play.join(takes_id_first=True))
    assert play.leave(reply.member_id) == [None]
    assert play.state == "Stable"
    assert play.beat(only.member_id, 1) is None
    play.error(play.join(reply.member_id), UnknownMember)


def test_join_phase_does_not_wait_for_a_member_that_left() -> None:
    play = Play()
    first, second = play.stable(2)
    reply = play.joined(play.join(takes_id_first=True))
    again = play.join(first.member_id)
    play.leave(second.member_id)
    assert play.waits(again)
    play.leave(reply.member_id)
    assert play.joined(again).generation == 2


def test_leave_completes_the_waiting_join_of_the_member() -> None:
    play = Play()
    first, second = play.stable(2)
    again = play.join(first.member_id)
    play.leave(first.member_id)
    play.error(again, UnknownMember)
    assert play.joined(play.join(second.member_id)).generation == 2


def test_empty_group_does_not_wait_for_pending_member_ids() -> None:
    play = Play()
    [only] = play.stable(1)
    reply = play.joined(play.join(takes_id_first=True))
    play.leave(only.member_id)
    assert play.state == "Empty"
    [joined] = play.gather(play.join(reply.member_id))
    assert joined.generation == 3
