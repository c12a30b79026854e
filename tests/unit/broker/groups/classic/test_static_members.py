"""Static members (KIP-345, KIP-814): a name keeps its place while its program is started again."""

from typing import Any

import pytest

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.requests import JoinedMember
from quorumlog.errors import FencedInstance, RebalanceInProgress, UnknownMember

from .play import REBALANCE_MS, SESSION_MS, Play, subscription


def wants(*topics: str, tail: bytes = b"\0\0\0\0") -> tuple[tuple[str, bytes], ...]:
    return (("range", subscription(*topics, tail=tail)),)


def test_a_static_member_is_added_at_once_with_an_id_of_its_name() -> None:
    play = Play()
    [joined] = play.gather(play.join(instance="i", takes_id_first=True))
    assert joined.member_id == "i-1"
    assert joined.members == (JoinedMember("i-1", "i", b"r"),)


def test_who_comes_again_has_the_old_part_without_a_rebalance() -> None:
    play = Play()
    leader, follower = play.stable_static("i", "j")
    again = play.joined(play.join(instance="j"))
    assert (again.generation, again.leader, again.members) == (1, leader.member_id, ())
    assert again.member_id != follower.member_id
    assert not again.skip_assignment
    assert play.state == "Stable"
    assert play.assignment(play.sync(again, instance="j")) == f"{follower.member_id}/1".encode()


def test_the_new_id_is_stored_with_the_part_before_it_is_told() -> None:
    play = Play()
    _, follower = play.stable_static("i", "j")
    count = len(play.records)
    again = play.joined(play.join(instance="j"))
    assert len(play.records) == count + 1
    member = play.stored.members[-1]
    assert (member.member_id, member.instance_id) == (again.member_id, "j")
    assert member.assignment == f"{follower.member_id}/1".encode()


def test_a_leader_that_comes_again_leads_and_need_not_assign() -> None:
    play = Play()
    leader, _ = play.stable_static("i", "j")
    again = play.joined(play.join(instance="i"))
    assert again.leader == again.member_id == play.stored.leader
    assert again.skip_assignment
    assert len(again.members) == 2
    assert play.assignment(play.sync(again)) == f"{leader.member_id}/1".encode()


def test_a_leader_that_cannot_skip_is_told_that_another_leads() -> None:
    play = Play()
    leader, _ = play.stable_static("i", "j")
    again = play.joined(play.join(instance="i", can_skip=False))
    assert again.leader == leader.member_id != again.member_id
    assert (again.members, again.skip_assignment) == ((), False)
    assert play.assignment(play.sync(again)) == f"{leader.member_id}/1".encode()
    assert play.waits(play.join(again.member_id, instance="i"))  # it leads all the same


def test_the_old_id_is_fenced_from_then_on() -> None:
    play = Play()
    [old] = play.stable_static("i")
    play.join(instance="i")
    assert isinstance(play.beat(old.member_id, 1, instance="i"), FencedInstance)
    assert isinstance(play.beat(old.member_id, 1), UnknownMember)
    play.error(play.join(old.member_id, instance="i"), FencedInstance)
    play.error(play.sync(old, instance="i"), FencedInstance)
    assert play.state == "Stable"


def test_of_two_programs_with_one_name_the_later_one_stays() -> None:
    play = Play()
    earlier, later = play.join(instance="i"), play.join(instance="i")
    play.error(earlier, FencedInstance)
    [joined] = play.gather(later)
    assert [m.instance_id for m in joined.members] == ["i"]


def test_a_sync_that_waits_is_fenced_too_and_the_generation_gathered_anew() -> None:
    play = Play()
    leader, follower = play.gather(play.join(instance="i"), play.join(instance="j"))
    waiting = play.sync(follower)
    again = play.join(instance="j")
    play.error(waiting, FencedInstance)
    assert play.waits(again)
    play.error(play.sync(leader, {follower.member_id: b"1"}), RebalanceInProgress)
    assert play.joined(play.join(leader.member_id, instance="i")).generation == 2
    assert play.joined(again).generation == 2


def test_who_comes_again_while_members_join_waits_with_them() -> None:
    play = Play()
    first, _ = play.stable_static("i", "j")
    again = play.join(first.member_id, instance="i")
    other = play.join(instance="j")
    assert play.joined(again).generation == play.joined(other).generation == 2


def test_who_comes_again_with_other_topics_makes_all_share_anew() -> None:
    play = Play()
    leader, _ = play.stable_static("i", "j", protocols=wants("a"))
    again = play.join(instance="j", protocols=wants("a", "b"))
    assert play.waits(again)
    play.join(leader.member_id, instance="i", protocols=wants("a"))
    assert play.joined(again).generation == 2


@pytest.mark.parametrize("tail", [b"", b"what it owned"])
def test_who_comes_again_with_the_same_topics_goes_on_whatever_it_owned(tail: bytes) -> None:
    play = Play()
    play.stable_static("i", "j", protocols=wants("b", "a"))
    again = play.join(instance="j", protocols=wants("a", "b", tail=tail))
    assert play.joined(again).generation == 1
    assert play.stored.members[-1].subscription == subscription("a", "b", tail=tail)


def test_who_comes_again_so_that_another_protocol_is_chosen_makes_all_share_anew() -> None:
    play = Play()
    both, turned = [("x", b""), ("y", b"")], [("y", b"")]
    [leader] = play.stable_static("i", protocols=both)
    assert leader.protocol == "x"
    again = play.join(instance="i", protocols=turned)
    assert play.joined(again).generation == 2
    assert play.joined(again).protocol == "y"


def test_a_static_member_keeps_its_place_when_it_does_not_join_again_in_time() -> None:
    play = Play()
    how: dict[str, Any] = {"session_ms": 600_000}
    first, absent = play.gather(play.join(instance="i", **how), play.join(instance="j", **how))
    play.settle([first, absent])
    again = play.join(first.member_id, instance="i", **how)
    play.wait(REBALANCE_MS)
    joined = play.joined(again)
    assert [m.instance_id for m in joined.members] == ["i", "j"]
    play.sync(joined, {joined.member_id: b"0", absent.member_id: b"1"})
    play.wait(REBALANCE_MS)
    assert play.state == "Stable"
    back = play.joined(play.join(absent.member_id, instance="j", **how))
    assert back.generation == 2
    assert play.assignment(play.sync(back)) == b"1"


def test_a_static_leader_that_does_not_join_again_in_time_leads_no_longer() -> None:
    play = Play()
    how: dict[str, Any] = {"session_ms": 600_000}
    absent, other = play.gather(play.join(instance="i", **how), play.join(instance="j", **how))
    play.settle([absent, other])
    again = play.join(other.member_id, instance="j", protocols=[("range", b"n")], **how)
    play.wait(REBALANCE_MS)
    joined = play.joined(again)
    assert joined.leader == other.member_id
    assert len(joined.members) == 2


def test_the_session_ends_the_place_of_a_static_member() -> None:
    play = Play()
    first, _ = play.stable_static("i", "j")
    play.wait(SESSION_MS - 1)
    play.beat(first.member_id, 1)
    play.wait(1)
    assert play.state == "PreparingRebalance"
    assert len(play.joined(play.join(first.member_id)).members) == 1


def test_where_only_absent_static_members_are_left_the_group_goes_on_gathering() -> None:
    play = Play()
    how: dict[str, Any] = {"session_ms": 200_000, "rebalance_ms": 10_000}
    first, _ = play.gather(play.join(instance="i", **how), play.join(instance="j", **how))
    play.join(protocols=[("range", b"r")], session_ms=6_000, rebalance_ms=10_000)
    play.leave("c-3")
    assert play.state == "PreparingRebalance"
    play.wait(35_000)
    assert play.state == "PreparingRebalance"
    again = play.join(first.member_id, instance="i", **how)
    play.wait(10_000)
    assert play.joined(again).generation == 2
    assert len(play.joined(again).members) == 2


def test_the_group_is_empty_when_the_sessions_of_absent_static_members_end() -> None:
    play = Play()
    play.gather(play.join(instance="i", session_ms=200_000, rebalance_ms=1))
    play.wait(200_000)
    assert play.state == "Empty"


def test_a_static_member_of_a_full_group_comes_again() -> None:
    play = Play(GroupConfig(size_max=1))
    play.stable_static("i")
    assert play.joined(play.join(instance="i")).generation == 1


def test_a_static_name_with_an_id_that_it_never_had_is_fenced() -> None:
    play = Play()
    play.stable_static("i")
    play.error(play.join("i-99", instance="i"), FencedInstance)
    play.error(play.join("j-99", instance="j"), UnknownMember)


def test_who_came_again_before_it_synced_is_waited_for_under_its_new_id() -> None:
    play = Play()
    leader, follower = play.gather(*[play.join(instance=i, session_ms=600_000) for i in ("i", "j")])
    play.sync(leader, {follower.member_id: b"1"})
    again = play.joined(play.join(instance="j", session_ms=600_000))
    assert again.generation == 1
    play.wait(REBALANCE_MS)
    assert play.state == "PreparingRebalance"
    assert isinstance(play.beat(again.member_id, 1), UnknownMember)
