"""Joining: ids given out first, the first gathering, the barrier, the vote, the leader."""

import pytest

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.errors import (
    GroupFull,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    RebalanceInProgress,
    UnknownMember,
)

from .play import PROTOCOLS, REBALANCE_MS, SESSION_MS, Play


def test_a_new_member_is_told_its_id_first_and_joins_with_it() -> None:
    play = Play()
    reply = play.joined(play.join(takes_id_first=True))
    assert reply.is_member_id_required
    assert reply.member_id == "c-1"
    assert play.machine.is_empty
    [joined] = play.gather(play.join(reply.member_id))
    assert (joined.member_id, joined.generation, joined.leader) == ("c-1", 1, "c-1")
    assert joined.protocol_type == "consumer"


def test_an_id_that_nobody_joins_with_is_void_when_its_session_ends() -> None:
    play = Play()
    reply = play.joined(play.join(takes_id_first=True))
    play.wait(SESSION_MS)
    assert play.machine.is_blank
    assert play.machine.deadline_ms() is None
    play.error(play.join(reply.member_id), UnknownMember)


def test_ids_that_are_given_out_are_bounded_by_the_size_of_a_group() -> None:
    play = Play(GroupConfig(size_max=2))
    assert all(play.joined(play.join(takes_id_first=True)) for _ in range(2))
    play.error(play.join(takes_id_first=True), GroupFull)
    play.wait(SESSION_MS)
    play.joined(play.join(takes_id_first=True))


def test_a_pending_id_cannot_be_taken_by_a_static_member() -> None:
    play = Play()
    reply = play.joined(play.join(takes_id_first=True))
    play.error(play.join(reply.member_id, instance="i"), UnknownMember)


def test_an_id_out_of_thin_air_is_unknown() -> None:
    play = Play()
    play.error(play.join("mine"), UnknownMember)
    assert play.machine.is_blank


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_outside_of_the_bounds_is_refused(session_ms: int) -> None:
    play = Play()
    play.error(play.join(session_ms=session_ms), InvalidSessionTimeout)
    assert play.machine.is_blank


def test_the_first_generation_waits_for_more_members() -> None:
    play = Play()
    first = play.join()
    play.wait(2_999)
    assert play.waits(first)
    assert play.state == "PreparingRebalance"
    play.wait(1)
    assert play.joined(first).generation == 1
    assert play.state == "CompletingRebalance"


def test_each_newcomer_lets_the_first_gathering_go_on() -> None:
    play = Play()
    tickets = [play.join()]
    for _ in range(4):
        play.wait(2_500)
        tickets.append(play.join())
    assert play.waits(*tickets)
    play.wait(4_999)
    assert play.waits(*tickets)
    play.wait(1)
    assert {play.joined(ticket).generation for ticket in tickets} == {1}


def test_the_first_gathering_ends_with_the_members_time_to_join_whoever_comes() -> None:
    play = Play()
    first = play.join(rebalance_ms=8_000)
    for _ in range(3):
        play.wait(2_000)
        play.join(rebalance_ms=8_000)
    play.wait(1_999)
    assert play.waits(first)
    play.wait(1)
    assert play.joined(first).generation == 1


def test_a_first_gathering_that_everybody_leaves_ends_in_an_empty_generation() -> None:
    play = Play()
    reply = play.joined(play.join(takes_id_first=True))
    play.join(reply.member_id)
    assert play.leave(reply.member_id) == [None]
    play.wait(3_000)
    assert play.state == "Empty"
    assert play.machine.deadline_ms() is None
    assert play.gather(play.join())[0].generation == 2


def test_a_newcomer_makes_the_others_join_again() -> None:
    play = Play()
    first, second = play.stable(2)
    third = play.join()
    assert play.state == "PreparingRebalance"
    assert isinstance(play.beat(first.member_id, 1), RebalanceInProgress)
    again = [play.join(first.member_id), play.join(second.member_id)]
    joined = [play.joined(ticket) for ticket in (*again, third)]
    assert {j.generation for j in joined} == {2}
    assert {j.leader for j in joined} == {first.member_id}
    assert [m.member_id for m in joined[0].members] == [j.member_id for j in joined]
    assert [j.members for j in joined[1:]] == [(), ()]


def test_who_does_not_join_again_in_time_has_to_go() -> None:
    play = Play()
    first, second = play.stable(2, session_ms=600_000)
    third = play.join()
    again = play.join(first.member_id)
    play.wait(REBALANCE_MS - 1)
    assert play.waits(again, third)
    play.wait(1)
    assert len(play.joined(again).members) == 2
    assert isinstance(play.beat(second.member_id, 1), UnknownMember)


def test_the_barrier_waits_as_long_as_the_slowest_member_needs() -> None:
    play = Play()
    tickets = [play.join(rebalance_ms=ms, session_ms=600_000) for ms in (20_000, 90_000, 5_000)]
    first, *_ = play.gather(*tickets)
    again = play.join(first.member_id, protocols=[("range", b"new")], rebalance_ms=20_000)
    play.wait(89_999)
    assert play.waits(again)
    play.wait(1)
    assert play.joined(again).generation == 2


def test_a_call_that_says_no_time_to_join_means_its_session() -> None:
    play = Play()
    a, _b = play.gather(*[play.join(rebalance_ms=-1, session_ms=30_000) for _ in range(2)])
    again = play.join(a.member_id, protocols=[("range", b"n")], rebalance_ms=-1, session_ms=30_000)
    play.wait(29_999)
    assert play.waits(again)
    play.wait(1)
    assert play.joined(again).generation == 2


def test_ids_that_are_given_out_are_waited_for() -> None:
    play = Play()
    [only] = play.stable(1)
    reply = play.joined(play.join(takes_id_first=True))
    again = play.join(only.member_id)
    assert play.waits(again)
    second = play.join(reply.member_id)
    assert len(play.joined(again).members) == 2
    assert play.joined(second).generation == 2


def test_a_void_id_is_waited_for_no_longer() -> None:
    play = Play()
    [only] = play.stable(1)
    play.join(takes_id_first=True)
    again = play.join(only.member_id)
    play.wait(SESSION_MS)
    assert play.joined(again).generation == 2


def test_the_protocol_is_one_that_all_have_and_most_want() -> None:
    play = Play()
    a, b, c = (b"a", b"b", b"c")
    tickets = [
        play.join(protocols=[("x", a), ("y", a), ("z", a)]),
        play.join(protocols=[("z", b), ("y", b)]),
        play.join(protocols=[("z", c), ("y", c)]),
        play.join(protocols=[("z", c), ("y", c)]),
    ]
    leader = play.gather(*tickets)[0]
    assert leader.protocol == "z"
    assert [m.subscription for m in leader.members] == [a, b, c, c]


def test_equal_votes_are_decided_by_who_came_first() -> None:
    play = Play()
    one, other = ("y", b""), ("x", b"")
    tickets = [play.join(protocols=[one, other]), play.join(protocols=[other, one])]
    assert play.gather(*tickets)[0].protocol == "y"


def test_a_strategy_that_is_named_twice_counts_once() -> None:
    play = Play()
    tickets = [
        play.join(protocols=[("x", b"1"), ("x", b"2"), ("y", b"3")]),
        play.join(protocols=[("y", b"4")]),
    ]
    leader = play.gather(*tickets)[0]
    assert leader.protocol == "y"


@pytest.mark.parametrize(
    ("kind", "protocols"),
    [
        ("connect", PROTOCOLS),
        ("", PROTOCOLS),
        ("consumer", []),
        ("consumer", [("sticky", b"")]),
    ],
)
def test_who_shares_no_protocol_is_refused(kind: str, protocols: list[tuple[str, bytes]]) -> None:
    play = Play()
    play.stable(2)
    play.error(play.join(kind=kind, protocols=protocols), InconsistentGroupProtocol)
    assert play.state == "Stable"


@pytest.mark.parametrize(("kind", "protocols"), [("", PROTOCOLS), ("consumer", [])])
def test_a_member_without_protocols_makes_no_group(
    kind: str, protocols: list[tuple[str, bytes]]
) -> None:
    play = Play()
    play.error(play.join(kind=kind, protocols=protocols), InconsistentGroupProtocol)
    assert play.machine.is_blank


def test_an_empty_group_becomes_one_of_another_kind() -> None:
    play = Play()
    [only] = play.stable(1)
    play.leave(only.member_id)
    assert play.machine.protocol_type == "consumer"
    [joined] = play.gather(play.join(kind="connect", protocols=[("compatible", b"")]))
    assert joined.protocol_type == "connect"


def test_a_leader_that_does_not_join_again_is_followed_by_one_that_did() -> None:
    play = Play()
    first, second, third = play.stable(3, session_ms=600_000)
    tickets = [play.join(third.member_id, protocols=[("range", b"n")]), play.join(second.member_id)]
    play.wait(REBALANCE_MS)
    joined = [play.joined(ticket) for ticket in tickets]
    assert {j.leader for j in joined} == {second.member_id}
    assert [len(j.members) for j in joined] == [0, 2]
    assert isinstance(play.beat(first.member_id, 1), UnknownMember)


def test_a_leader_that_joins_a_stable_group_makes_all_join() -> None:
    play = Play()
    first, second = play.stable(2)
    again = play.join(first.member_id)
    assert play.waits(again)
    assert play.state == "PreparingRebalance"
    play.join(second.member_id)
    assert play.joined(again).generation == 2


def test_a_follower_that_joins_a_stable_group_unchanged_is_told_the_generation() -> None:
    play = Play()
    _, second = play.stable(2)
    joined = play.joined(play.join(second.member_id))
    assert joined == second
    assert play.state == "Stable"
    assert play.assignment(play.sync(joined)) == b"c-2/1"


def test_a_follower_with_another_subscription_makes_all_join() -> None:
    play = Play()
    first, second = play.stable(2)
    again = play.join(second.member_id, protocols=[("range", b"new")])
    assert play.waits(again)
    leader = play.joined(play.join(first.member_id))
    assert play.joined(again).generation == 2
    assert leader.protocol == "range"
    assert [m.subscription for m in leader.members] == [b"r", b"new"]


def test_who_did_not_hear_of_a_generation_that_is_completing_is_told_again() -> None:
    play = Play()
    leader, follower = play.gather(play.join(), play.join())
    assert play.joined(play.join(leader.member_id)) == leader
    assert play.joined(play.join(follower.member_id)) == follower
    assert play.state == "CompletingRebalance"


def test_who_changes_while_a_generation_is_completing_makes_all_join() -> None:
    play = Play()
    leader, follower = play.gather(play.join(), play.join())
    waiting = play.sync(follower)
    again = play.join(leader.member_id, protocols=[("range", b"n")])
    play.error(waiting, RebalanceInProgress)
    play.join(follower.member_id)
    assert play.joined(again).generation == 2


def test_a_join_that_is_sent_again_answers_the_earlier_one() -> None:
    play = Play()
    first, second = play.stable(2)
    earlier = play.join(first.member_id)
    later = play.join(first.member_id)
    play.error(earlier, RebalanceInProgress)
    assert play.waits(later)
    play.join(second.member_id)
    assert play.joined(later).generation == 2


def test_a_full_group_takes_nobody_but_its_members() -> None:
    play = Play(GroupConfig(size_max=2))
    first, second = play.stable(2)
    play.error(play.join(), GroupFull)
    reply = play.join(takes_id_first=True)
    play.error(reply, GroupFull)
    again = [play.join(first.member_id), play.join(second.member_id)]
    assert {play.joined(ticket).generation for ticket in again} == {2}


def test_an_id_that_comes_to_a_full_group_is_void() -> None:
    play = Play(GroupConfig(size_max=1))
    reply = play.joined(play.join(takes_id_first=True))
    play.gather(play.join())
    play.error(play.join(reply.member_id), GroupFull)
    play.error(play.join(reply.member_id), GroupFull)
    play.wait(SESSION_MS)


def test_the_last_to_come_to_a_gathering_that_is_full_have_to_go() -> None:
    play = Play(GroupConfig(size_max=2))
    first, second = play.stable(2)
    third = play.join(first.member_id)
    newcomer = play.join()
    assert play.waits(newcomer)
    play.error(play.join(second.member_id), GroupFull)
    assert play.joined(third).generation == 2
    assert len(play.joined(third).members) == 2
    assert play.joined(newcomer).generation == 2


def test_a_member_that_waits_may_ask_again_in_a_full_gathering() -> None:
    play = Play(GroupConfig(size_max=1))
    reply = play.joined(play.join(takes_id_first=True))
    play.join(reply.member_id)
    again = play.join(reply.member_id)
    assert play.waits(again)
    assert play.gather(again)[0].generation == 1


def test_a_newcomer_that_was_in_no_generation_waits_five_minutes_at_most() -> None:
    """Nobody can tell it from one whose connection broke, and that came again as another."""
    play = Play()
    slow = play.join(rebalance_ms=900_000, session_ms=900_000)
    play.gather(slow)
    newcomer = play.join()
    play.wait(299_999)
    assert play.waits(newcomer)
    play.wait(1)
    play.error(newcomer, UnknownMember)
    assert play.state == "PreparingRebalance"


def test_cooperative_members_join_again_at_once_to_get_what_others_gave_back() -> None:
    """Two generations in a row: in the first nobody gets what another one still has."""
    play = Play()
    cooperative = [("cooperative-sticky", b"owns 0,1")]
    [first] = play.stable(1, protocols=cooperative)
    newcomer = play.join(protocols=[("cooperative-sticky", b"owns nothing")])
    leader = play.joined(play.join(first.member_id, protocols=cooperative))
    second = play.joined(newcomer)
    waiting = play.sync(second)
    mine = play.sync(leader, {leader.member_id: b"0", second.member_id: b""})
    assert (play.assignment(mine), play.assignment(waiting)) == (b"0", b"")
    # It gave 1 back, so it owns less, and joins again; the other one is told by a heartbeat.
    again = play.join(first.member_id, protocols=[("cooperative-sticky", b"owns 0")])
    assert isinstance(play.beat(second.member_id, 2), RebalanceInProgress)
    play.join(second.member_id, protocols=[("cooperative-sticky", b"owns nothing")])
    leader = play.joined(again)
    assert leader.generation == 3
    assert [m.subscription for m in leader.members] == [b"owns 0", b"owns nothing"]
    mine = play.sync(leader, {leader.member_id: b"0", second.member_id: b"1"})
    assert play.assignment(mine) == b"0"
    assert play.state == "Stable"
