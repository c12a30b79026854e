"""Static members (KIP-345, KIP-814): an instance id keeps its assignment across restarts."""

from typing import Any

import pytest

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.requests import JoinedMember
from quorumlog.errors import FencedInstance, RebalanceInProgress, UnknownMember

from .play import REBALANCE_MS, SESSION_MS, Play, subscription


def wants(*topics: str, tail: bytes = b"\0\0\0\0") -> tuple[tuple[str, bytes], ...]:
    return (("range", subscription(*topics, tail=tail)),)


def test_static_member_joins_at_once_with_an_id_of_its_instance_id() -> None:
    play = Play()
    [joined] = play.gather(play.join(instance="i", takes_id_first=True))
    assert joined.member_id == "i-1"
    assert joined.members == (JoinedMember("i-1", "i", b"r"),)


def test_rejoined_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    play = Play()
    leader, follower = play.stable_static("i", "j")
    again = play.joined(play.join(instance="j"))
    assert (again.generation, again.leader, again.members) == (1, leader.member_id, ())
    assert again.member_id != follower.member_id
    assert not again.skip_assignment
    assert play.state == "Stable"
    assert play.assignment(play.sync(again, instance="j")) == f"{follower.member_id}/1".encode()


def test_new_id_of_a_static_member_is_stored_before_the_response() -> None:
    play = Play()
    _, follower = play.stable_static("i", "j")
    count = len(play.records)
    again = play.joined(play.join(instance="j"))
    assert len(play.records) == count + 1
    member = play.stored.members[-1]
    assert (member.member_id, member.instance_id) == (again.member_id, "j")
    assert member.assignment == f"{follower.member_id}/1".encode()


def test_rejoined_static_leader_leads_and_skips_the_assignment() -> None:
    play = Play()
    leader, _ = play.stable_static("i", "j")
    again = play.joined(play.join(instance="i"))
    assert again.leader == again.member_id == play.stored.leader
    assert again.skip_assignment
    assert len(again.members) == 2
    assert play.assignment(play.sync(again)) == f"{leader.member_id}/1".encode()


def test_static_leader_without_skip_assignment_is_a_follower() -> None:
    play = Play()
    leader, _ = play.stable_static("i", "j")
    again = play.joined(play.join(instance="i", can_skip=False))
    assert again.leader == leader.member_id != again.member_id
    assert (again.members, again.skip_assignment) == ((), False)
    assert play.assignment(play.sync(again)) == f"{leader.member_id}/1".encode()
    assert play.waits(play.join(again.member_id, instance="i"))  # it is the leader nevertheless


def test_old_id_of_a_static_member_is_fenced() -> None:
    play = Play()
    [old] = play.stable_static("i")
    play.join(instance="i")
    assert isinstance(play.beat(old.member_id, 1, instance="i"), FencedInstance)
    assert isinstance(play.beat(old.member_id, 1), UnknownMember)
    play.error(play.join(old.member_id, instance="i"), FencedInstance)
    play.error(play.sync(old, instance="i"), FencedInstance)
    assert play.state == "Stable"


def test_later_member_of_two_with_one_instance_id_stays() -> None:
    play = Play()
    earlier, later = play.join(instance="i"), play.join(instance="i")
    play.error(earlier, FencedInstance)
    [joined] = play.gather(later)
    assert [m.instance_id for m in joined.members] == ["i"]


def test_rejoin_of_a_static_member_fences_its_waiting_sync_and_rebalances() -> None:
    play = Play()
    leader, follower = play.gather(play.join(instance="i"), play.join(instance="j"))
    waiting = play.sync(follower)
    again = play.join(instance="j")
    play.error(waiting, FencedInstance)
    assert play.waits(again)
    play.error(play.sync(leader, {follower.member_id: b"1"}), RebalanceInProgress)
    assert play.joined(play.join(leader.member_id, instance="i")).generation == 2
    assert play.joined(again).generation == 2


def test_static_member_that_rejoins_during_join_waits_for_the_generation() -> None:
    play = Play()
    first, _ = play.stable_static("i", "j")
    again = play.join(first.member_id, instance="i")
    other = play.join(instance="j")
    assert play.joined(again).generation == play.joined(other).generation == 2


def test_static_member_with_other_topics_triggers_a_rebalance() -> None:
    play = Play()
    leader, _ = play.stable_static("i", "j", protocols=wants("a"))
    again = play.join(instance="j", protocols=wants("a", "b"))
    assert play.waits(again)
    play.join(leader.member_id, instance="i", protocols=wants("a"))
    assert play.joined(again).generation == 2


@pytest.mark.parametrize("tail", [b"", b"what it owned"])
def test_static_member_with_equal_topics_continues_regardless_of_owned_partitions(
    tail: bytes,
) -> None:
    play = Play()
    play.stable_static("i", "j", protocols=wants("b", "a"))
    again = play.join(instance="j", protocols=wants("a", "b", tail=tail))
    assert play.joined(again).generation == 1
    assert play.stored.members[-1].subscription == subscription("a", "b", tail=tail)


def test_static_member_that_changes_the_selected_protocol_triggers_a_rebalance() -> None:
    play = Play()
    both, turned = [("x", b""), ("y", b"")], [("y", b"")]
    [leader] = play.stable_static("i", protocols=both)
    assert leader.protocol == "x"
    again = play.join(instance="i", protocols=turned)
    assert play.joined(again).generation == 2
    assert play.joined(again).protocol == "y"


def test_static_member_that_does_not_rejoin_in_time_stays_a_member() -> None:
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


def test_static_leader_that_does_not_rejoin_in_time_is_replaced() -> None:
    play = Play()
    how: dict[str, Any] = {"session_ms": 600_000}
    absent, other = play.gather(play.join(instance="i", **how), play.join(instance="j", **how))
    play.settle([absent, other])
    again = play.join(other.member_id, instance="j", protocols=[("range", b"n")], **how)
    play.wait(REBALANCE_MS)
    joined = play.joined(again)
    assert joined.leader == other.member_id
    assert len(joined.members) == 2


def test_expired_session_removes_a_static_member() -> None:
    play = Play()
    first, _ = play.stable_static("i", "j")
    play.wait(SESSION_MS - 1)
    play.beat(first.member_id, 1)
    play.wait(1)
    assert play.state == "PreparingRebalance"
    assert len(play.joined(play.join(first.member_id)).members) == 1


def test_rebalance_continues_while_only_absent_static_members_remain() -> None:
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


def test_group_is_empty_after_sessions_of_absent_static_members_expire() -> None:
    play = Play()
    play.gather(play.join(instance="i", session_ms=200_000, rebalance_ms=1))
    play.wait(200_000)
    assert play.state == "Empty"


def test_static_member_rejoins_a_full_group() -> None:
    play = Play(GroupConfig(size_max=1))
    play.stable_static("i")
    assert play.joined(play.join(instance="i")).generation == 1


def test_instance_id_with_a_foreign_member_id_is_fenced() -> None:
    play = Play()
    play.stable_static("i")
    play.error(play.join("i-99", instance="i"), FencedInstance)
    play.error(play.join("j-99", instance="j"), UnknownMember)


def test_sync_phase_waits_for_the_new_id_of_a_static_member() -> None:
    play = Play()
    leader, follower = play.gather(*[play.join(instance=i, session_ms=600_000) for i in ("i", "j")])
    play.sync(leader, {follower.member_id: b"1"})
    again = play.joined(play.join(instance="j", session_ms=600_000))
    assert again.generation == 1
    play.wait(REBALANCE_MS)
    assert play.state == "PreparingRebalance"
    assert isinstance(play.beat(again.member_id, 1), UnknownMember)
