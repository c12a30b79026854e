"""JoinGroup: member ids, the initial delay, the join phase, the protocol and the leader."""

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


def test_new_member_gets_its_id_first_and_joins_with_it() -> None:
    play = Play()
    reply = play.joined(play.join(takes_id_first=True))
    assert reply.is_member_id_required
    assert reply.member_id == "c-1"
    assert play.machine.is_empty
    [joined] = play.gather(play.join(reply.member_id))
    assert (joined.member_id, joined.generation, joined.leader) == ("c-1", 1, "c-1")
    assert joined.protocol_type == "consumer"


def test_pending_member_id_expires_after_its_session() -> None:
    play = Play()
    reply = play.joined(play.join(takes_id_first=True))
    play.wait(SESSION_MS)
    assert play.machine.is_blank
    assert play.machine.deadline_ms() is None
    play.error(play.join(reply.member_id), UnknownMember)


def test_pending_member_ids_count_toward_the_group_size_limit() -> None:
    play = Play(GroupConfig(size_max=2))
    assert all(play.joined(play.join(takes_id_first=True)) for _ in range(2))
    play.error(play.join(takes_id_first=True), GroupFull)
    play.wait(SESSION_MS)
    play.joined(play.join(takes_id_first=True))


def test_pending_member_id_is_rejected_for_a_static_member() -> None:
    play = Play()
    reply = play.joined(play.join(takes_id_first=True))
    play.error(play.join(reply.member_id, instance="i"), UnknownMember)


def test_join_with_an_id_that_was_not_issued_is_rejected() -> None:
    play = Play()
    play.error(play.join("mine"), UnknownMember)
    assert play.machine.is_blank


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_session_timeout_outside_of_the_bounds_is_rejected(session_ms: int) -> None:
    play = Play()
    play.error(play.join(session_ms=session_ms), InvalidSessionTimeout)
    assert play.machine.is_blank


def test_first_generation_waits_the_initial_rebalance_delay() -> None:
    play = Play()
    first = play.join()
    play.wait(2_999)
    assert play.waits(first)
    assert play.state == "PreparingRebalance"
    play.wait(1)
    assert play.joined(first).generation == 1
    assert play.state == "CompletingRebalance"


def test_each_new_member_extends_the_initial_rebalance_delay() -> None:
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


def test_initial_rebalance_ends_at_the_rebalance_timeout() -> None:
    play = Play()
    first = play.join(rebalance_ms=8_000)
    for _ in range(3):
        play.wait(2_000)
        play.join(rebalance_ms=8_000)
    play.wait(1_999)
    assert play.waits(first)
    play.wait(1)
    assert play.joined(first).generation == 1


def test_initial_rebalance_without_remaining_members_ends_in_an_empty_generation() -> None:
    play = Play()
    reply = play.joined(play.join(takes_id_first=True))
    play.join(reply.member_id)
    assert play.leave(reply.member_id) == [None]
    play.wait(3_000)
    assert play.state == "Empty"
    assert play.machine.deadline_ms() is None
    assert play.gather(play.join())[0].generation == 2


def test_new_member_triggers_a_rebalance() -> None:
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


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    play = Play()
    first, second = play.stable(2, session_ms=600_000)
    third = play.join()
    again = play.join(first.member_id)
    play.wait(REBALANCE_MS - 1)
    assert play.waits(again, third)
    play.wait(1)
    assert len(play.joined(again).members) == 2
    assert isinstance(play.beat(second.member_id, 1), UnknownMember)


def test_join_phase_waits_for_the_longest_rebalance_timeout() -> None:
    play = Play()
    tickets = [play.join(rebalance_ms=ms, session_ms=600_000) for ms in (20_000, 90_000, 5_000)]
    first, *_ = play.gather(*tickets)
    again = play.join(first.member_id, protocols=[("range", b"new")], rebalance_ms=20_000)
    play.wait(89_999)
    assert play.waits(again)
    play.wait(1)
    assert play.joined(again).generation == 2


def test_rebalance_timeout_defaults_to_the_session_timeout() -> None:
    play = Play()
    a, _b = play.gather(*[play.join(rebalance_ms=-1, session_ms=30_000) for _ in range(2)])
    again = play.join(a.member_id, protocols=[("range", b"n")], rebalance_ms=-1, session_ms=30_000)
    play.wait(29_999)
    assert play.waits(again)
    play.wait(1)
    assert play.joined(again).generation == 2


def test_join_phase_waits_for_pending_member_ids() -> None:
    play = Play()
    [only] = play.stable(1)
    reply = play.joined(play.join(takes_id_first=True))
    again = play.join(only.member_id)
    assert play.waits(again)
    second = play.join(reply.member_id)
    assert len(play.joined(again).members) == 2
    assert play.joined(second).generation == 2


def test_join_phase_does_not_wait_for_an_expired_member_id() -> None:
    play = Play()
    [only] = play.stable(1)
    play.join(takes_id_first=True)
    again = play.join(only.member_id)
    play.wait(SESSION_MS)
    assert play.joined(again).generation == 2


def test_selected_protocol_is_common_to_all_and_has_most_votes() -> None:
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


def test_equal_protocol_votes_are_decided_by_the_earliest_member() -> None:
    play = Play()
    one, other = ("y", b""), ("x", b"")
    tickets = [play.join(protocols=[one, other]), play.join(protocols=[other, one])]
    assert play.gather(*tickets)[0].protocol == "y"


def test_duplicate_protocol_counts_once() -> None:
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
def test_member_without_a_common_protocol_is_rejected(
    kind: str, protocols: list[tuple[str, bytes]]
) -> None:
    play = Play()
    play.stable(2)
    play.error(play.join(kind=kind, protocols=protocols), InconsistentGroupProtocol)
    assert play.state == "Stable"


@pytest.mark.parametrize(("kind", "protocols"), [("", PROTOCOLS), ("consumer", [])])
def test_join_without_protocols_creates_no_group(
    kind: str, protocols: list[tuple[str, bytes]]
) -> None:
    play = Play()
    play.error(play.join(kind=kind, protocols=protocols), InconsistentGroupProtocol)
    assert play.machine.is_blank


def test_empty_group_changes_its_protocol_type() -> None:
    play = Play()
    [only] = play.stable(1)
    play.leave(only.member_id)
    assert play.machine.protocol_type == "consumer"
    [joined] = play.gather(play.join(kind="connect", protocols=[("compatible", b"")]))
    assert joined.protocol_type == "connect"


def test_leader_that_does_not_rejoin_is_replaced_by_a_member_that_did() -> None:
    play = Play()
    first, second, third = play.stable(3, session_ms=600_000)
    tickets = [play.join(third.member_id, protocols=[("range", b"n")]), play.join(second.member_id)]
    play.wait(REBALANCE_MS)
    joined = [play.joined(ticket) for ticket in tickets]
    assert {j.leader for j in joined} == {second.member_id}
    assert [len(j.members) for j in joined] == [0, 2]
    assert isinstance(play.beat(first.member_id, 1), UnknownMember)


def test_rejoin_of_the_leader_triggers_a_rebalance() -> None:
    play = Play()
    first, second = play.stable(2)
    again = play.join(first.member_id)
    assert play.waits(again)
    assert play.state == "PreparingRebalance"
    play.join(second.member_id)
    assert play.joined(again).generation == 2


def test_unchanged_rejoin_of_a_follower_returns_the_current_generation() -> None:
    play = Play()
    _, second = play.stable(2)
    joined = play.joined(play.join(second.member_id))
    assert joined == second
    assert play.state == "Stable"
    assert play.assignment(play.sync(joined)) == b"c-2/1"


def test_changed_subscription_of_a_follower_triggers_a_rebalance() -> None:
    play = Play()
    first, second = play.stable(2)
    again = play.join(second.member_id, protocols=[("range", b"new")])
    assert play.waits(again)
    leader = play.joined(play.join(first.member_id))
    assert play.joined(again).generation == 2
    assert leader.protocol == "range"
    assert [m.subscription for m in leader.members] == [b"r", b"new"]


def test_repeated_join_during_sync_returns_the_generation_again() -> None:
    play = Play()
    leader, follower = play.gather(play.join(), play.join())
    assert play.joined(play.join(leader.member_id)) == leader
    assert play.joined(play.join(follower.member_id)) == follower
    assert play.state == "CompletingRebalance"


def test_changed_subscription_during_sync_triggers_a_rebalance() -> None:
    play = Play()
    leader, follower = play.gather(play.join(), play.join())
    waiting = play.sync(follower)
    again = play.join(leader.member_id, protocols=[("range", b"n")])
    play.error(waiting, RebalanceInProgress)
    play.join(follower.member_id)
    assert play.joined(again).generation == 2


def test_repeated_join_completes_the_earlier_one() -> None:
    play = Play()
    first, second = play.stable(2)
    earlier = play.join(first.member_id)
    later = play.join(first.member_id)
    play.error(earlier, RebalanceInProgress)
    assert play.waits(later)
    play.join(second.member_id)
    assert play.joined(later).generation == 2


def test_full_group_accepts_its_members_only() -> None:
    play = Play(GroupConfig(size_max=2))
    first, second = play.stable(2)
    play.error(play.join(), GroupFull)
    reply = play.join(takes_id_first=True)
    play.error(reply, GroupFull)
    again = [play.join(first.member_id), play.join(second.member_id)]
    assert {play.joined(ticket).generation for ticket in again} == {2}


def test_pending_member_id_is_rejected_by_a_full_group() -> None:
    play = Play(GroupConfig(size_max=1))
    reply = play.joined(play.join(takes_id_first=True))
    play.gather(play.join())
    play.error(play.join(reply.member_id), GroupFull)
    play.error(play.join(reply.member_id), GroupFull)
    play.wait(SESSION_MS)


def test_last_members_to_join_a_full_rebalance_are_removed() -> None:
    play = Play(GroupConfig(size_max=2))
    first, second = play.stable(2)
    third = play.join(first.member_id)
    newcomer = play.join()
    assert play.waits(newcomer)
    play.error(play.join(second.member_id), GroupFull)
    assert play.joined(third).generation == 2
    assert len(play.joined(third).members) == 2
    assert play.joined(newcomer).generation == 2


def test_waiting_member_may_repeat_its_join_in_a_full_group() -> None:
    play = Play(GroupConfig(size_max=1))
    reply = play.joined(play.join(takes_id_first=True))
    play.join(reply.member_id)
    again = play.join(reply.member_id)
    assert play.waits(again)
    assert play.gather(again)[0].generation == 1


def test_new_member_waits_at_most_five_minutes_for_its_first_generation() -> None:
    """A member whose connection broke and that joined again under another id looks the same."""
    play = Play()
    slow = play.join(rebalance_ms=900_000, session_ms=900_000)
    play.gather(slow)
    newcomer = play.join()
    play.wait(299_999)
    assert play.waits(newcomer)
    play.wait(1)
    play.error(newcomer, UnknownMember)
    assert play.state == "PreparingRebalance"


def test_cooperative_members_rejoin_at_once_for_revoked_partitions() -> None:
    """It takes two generations: in the first, no member gets a partition that another one owns."""
    play = Play()
    cooperative = [("cooperative-sticky", b"owns 0,1")]
    [first] = play.stable(1, protocols=cooperative)
    newcomer = play.join(protocols=[("cooperative-sticky", b"owns nothing")])
    leader = play.joined(play.join(first.member_id, protocols=cooperative))
    second = play.joined(newcomer)
    waiting = play.sync(second)
    mine = play.sync(leader, {leader.member_id: b"0", second.member_id: b""})
    assert (play.assignment(mine), play.assignment(waiting)) == (b"0", b"")
    # It revoked 1, so it owns less and joins again; the other member's heartbeat reports that.
    again = play.join(first.member_id, protocols=[("cooperative-sticky", b"owns 0")])
    assert isinstance(play.beat(second.member_id, 2), RebalanceInProgress)
    play.join(second.member_id, protocols=[("cooperative-sticky", b"owns nothing")])
    leader = play.joined(again)
    assert leader.generation == 3
    assert [m.subscription for m in leader.members] == [b"owns 0", b"owns nothing"]
    mine = play.sync(leader, {leader.member_id: b"0", second.member_id: b"1"})
    assert play.assignment(mine) == b"0"
    assert play.state == "Stable"
