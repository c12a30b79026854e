"""LeaveGroup by member id, by instance id and for several members, and the rebalance after it."""

from quorumlog.broker.groups.requests import Leaver
from quorumlog.errors import FencedInstance, RebalanceInProgress, UnknownMember

from .play import Play


def test_who_leaves_makes_the_others_share_anew() -> None:
    play = Play()
    first, second = play.stable(2)
    assert play.leave(first.member_id) == [None]
    assert isinstance(play.beat(second.member_id, 1), RebalanceInProgress)
    joined = play.joined(play.join(second.member_id))
    assert (joined.generation, joined.leader, len(joined.members)) == (2, second.member_id, 1)


def test_the_last_one_leaves_an_empty_generation_that_is_stored() -> None:
    play = Play()
    [only] = play.stable(1)
    play.leave(only.member_id)
    assert play.state == "Empty"
    assert play.stored.generation == 2
    assert play.stored.protocol_type == "consumer"
    assert (play.stored.protocol, play.stored.leader, play.stored.members) == (None, None, ())
    assert play.stored.state_ms == play.now_ms == play.machine.state_ms
    assert play.machine.deadline_ms() is None


def test_many_leave_at_once_and_each_is_told_its_own() -> None:
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


def test_a_leave_that_is_refused_changes_nothing() -> None:
    play = Play()
    play.stable(1)
    assert isinstance(play.leave("stranger")[0], UnknownMember)
    assert play.leave() == []
    assert play.state == "Stable"


def test_an_administrator_removes_a_static_member_by_its_name() -> None:
    play = Play()
    first, second = play.stable_static("i", "j")
    assert play.leave(Leaver(member_id="", instance_id="i")) == [None]
    assert isinstance(play.beat(first.member_id, 1, instance="i"), UnknownMember)
    assert play.joined(play.join(second.member_id, instance="j")).generation == 2


def test_a_name_that_nobody_has_cannot_be_removed() -> None:
    play = Play()
    play.stable_static("i")
    errors = play.leave(
        Leaver(member_id="", instance_id="j"), Leaver(member_id=""), Leaver(member_id="i")
    )
    assert [type(error) for error in errors] == [UnknownMember] * 3
    assert play.state == "Stable"


def test_a_static_member_leaves_only_as_itself() -> None:
    play = Play()
    first, second = play.stable_static("i", "j")
    errors = play.leave(
        Leaver(member_id=first.member_id, instance_id="j"),
        Leaver(member_id=first.member_id, instance_id="unknown"),
        Leaver(member_id=second.member_id, instance_id="j"),
    )
    assert [type(error) for error in errors] == [FencedInstance, UnknownMember, type(None)]


def test_an_id_that_was_given_out_is_given_back() -> None:
    play = Play()
    [only] = play.stable(1)
    reply = play.joined(play.join(takes_id_first=True))
    assert play.leave(reply.member_id) == [None]
    assert play.state == "Stable"
    assert play.beat(only.member_id, 1) is None
    play.error(play.join(reply.member_id), UnknownMember)


def test_who_leaves_is_waited_for_no_longer() -> None:
    play = Play()
    first, second = play.stable(2)
    reply = play.joined(play.join(takes_id_first=True))
    again = play.join(first.member_id)
    play.leave(second.member_id)
    assert play.waits(again)
    play.leave(reply.member_id)
    assert play.joined(again).generation == 2


def test_who_leaves_while_its_join_waits_is_answered() -> None:
    play = Play()
    first, second = play.stable(2)
    again = play.join(first.member_id)
    play.leave(first.member_id)
    play.error(again, UnknownMember)
    assert play.joined(play.join(second.member_id)).generation == 2


def test_when_the_last_members_leave_ids_given_out_are_not_waited_for() -> None:
    play = Play()
    [only] = play.stable(1)
    reply = play.joined(play.join(takes_id_first=True))
    play.leave(only.member_id)
    assert play.state == "Empty"
    [joined] = play.gather(play.join(reply.member_id))
    assert joined.generation == 3
