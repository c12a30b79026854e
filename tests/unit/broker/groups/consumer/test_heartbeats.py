"""ConsumerGroupHeartbeat: joins, member epochs, fencing, leaves, subscriptions."""

from dataclasses import replace

import pytest

from quorumlog.broker.groups.records import MemberState, TargetAssignment
from quorumlog.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    IllegalGeneration,
    InvalidPattern,
    InvalidRequest,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from quorumlog.metadata.acls import AclTable

from .play import REBALANCE_MS, SESSION_MS, Play, cluster, of, topic_id


def test_first_member_gets_all_partitions_with_its_join() -> None:
    play = Play()
    reply = play.join("a")
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", 1, 5_000)
    assert reply.assignment == of(t={0, 1, 2, 3})
    assert play.state_name == "Stable"
    assert play.machine.subscribed_topics() == {"t"}


def test_unchanged_heartbeat_writes_no_record_and_returns_no_assignment() -> None:
    play = Play()
    play.join("a")
    reply = play.beat("a")
    assert reply.assignment is None
    assert play.last == ()


def test_full_heartbeat_returns_the_assignment_again() -> None:
    play = Play()
    play.join("a")
    reply = play.beat(
        "a", topics=frozenset({"t"}), rebalance_timeout_ms=REBALANCE_MS, owned=of(t={0})
    )
    assert reply.assignment == of(t={0, 1, 2, 3})


def test_coordinator_generates_a_missing_member_id() -> None:
    play = Play()
    assert play.join("").member_id == "drawn-1"
    play.refused(play.ask("", 1), InvalidRequest)


def test_partition_moves_after_its_owner_stops_reporting_it() -> None:
    play = Play()
    play.join("a")
    reply = play.join("b")
    assert (reply.member_epoch, reply.assignment) == (2, {})
    assert play.state_name == "Reconciling"
    asked = play.beat("a", owned=of(t={0, 1, 2, 3}))
    assert (asked.member_epoch, asked.assignment) == (1, of(t={0, 1}))
    assert play.beat("a", owned=of(t={0, 1, 2})).member_epoch == 1
    assert play.beat("a").member_epoch == 1  # it does not report its owned partitions
    assert play.beat("b", owned={}).assignment is None
    assert play.beat("a", owned=of(t={0, 1})).member_epoch == 2
    got = play.beat("b", owned={})
    assert (got.member_epoch, got.assignment) == (2, of(t={2, 3}))
    assert play.state_name == "Stable"


def test_leave_releases_the_partitions_of_the_member() -> None:
    play = Play()
    play.join("a")
    play.join("b")
    play.settle("a", "b")
    left = play.ask("a", -1)
    assert left.member_epoch == -1
    assert play.state_name == "Assigning"
    assert play.beat("b").assignment == of(t={0, 1, 2, 3})
    play.refused(play.ask("a", 2), UnknownMember)


def test_partition_with_two_owners_in_the_log_goes_to_one() -> None:
    """Tombstones expire after a day: a replica that was offline longer may restore a removed
    member."""
    play = Play()
    play.join("a")
    play.join("b")
    play.settle("a", "b")
    for member_id in ("a", "b"):
        record = TargetAssignment(group="g", member_id=member_id, partitions=of(t={0, 1}))
        play.machine.replay(record)
        play.read.replay(record)
    play.join("c")
    targets = [play.machine.state.targets[each].get(topic_id("t"), frozenset()) for each in "abc"]
    assert sorted(index for each in targets for index in each) == [0, 1, 2, 3]


def test_a_group_without_members_is_empty_and_keeps_its_epoch() -> None:
    play = Play()
    play.join("a")
    play.ask("a", -1)
    assert (play.state_name, play.machine.is_empty) == ("Empty", True)
    assert play.machine.state.epoch == play.machine.state.target_epoch == 2
    assert play.join("b").member_epoch == 3


def test_expired_session_removes_the_member() -> None:
    play = Play()
    play.join("a")
    play.join("b")
    play.wait(SESSION_MS - 1)
    play.beat("b")
    play.wait(1)
    assert list(play.machine.state.members) == ["b"]
    play.refused(play.ask("a", 1), UnknownMember)


def test_description_has_the_time_since_the_last_heartbeat() -> None:
    play = Play()
    play.join("a")
    play.join("b")
    play.wait(7_000)
    play.beat("b")
    play.wait(1_000)
    described = play.machine.describe(play.image, play.now_ms)
    assert {each.member_id: each.silent_ms for each in described.members} == {
        "a": 8_000,
        "b": 1_000,
    }


def test_member_that_does_not_revoke_is_removed_after_the_rebalance_timeout() -> None:
    play = Play()
    play.join("a", rebalance_timeout_ms=5_000)
    play.join("b")
    play.beat("a", owned=of(t={0, 1, 2, 3}))
    for _ in range(4):
        play.wait(1_000)
        play.beat("a", owned=of(t={0, 1, 2, 3}))
    assert play.machine.state.current_of("a").state is MemberState.UNREVOKED_PARTITIONS
    play.wait(1_000)
    play.refused(play.ask("a", 1, owned=of(t={0, 1})), UnknownMember)
    assert play.beat("b").assignment == of(t={0, 1, 2, 3})


def test_timely_revocation_ends_the_rebalance_timeout() -> None:
    play = Play()
    play.join("a", rebalance_timeout_ms=5_000)
    play.join("b")
    play.beat("a", owned=of(t={0, 1, 2, 3}))
    play.beat("a", owned=of(t={0, 1}))
    play.wait(6_000)
    assert "a" in play.machine.state.members


@pytest.mark.parametrize("epoch", [1, 2, 4, 99])
def test_a_member_with_another_epoch_than_its_own_is_fenced(epoch: int) -> None:
    play = Play()
    play.join("a")
    play.join("b")
    play.settle("a", "b")
    play.join("c")
    play.settle("a", "b", "c")
    assert play.epoch("a") == 3
    play.refused(play.ask("a", epoch, owned=of(t={0, 3})), FencedMemberEpoch)
    assert play.last == ()


def test_previous_epoch_is_accepted_with_a_subset_of_the_assignment() -> None:
    play = Play()
    play.join("a")
    play.join("b")
    play.beat("a", owned=of(t={0, 1, 2, 3}))
    play.beat("a", owned=of(t={0, 1}))  # at epoch 2, which the response did not reach
    play.refused(play.ask("a", 1), FencedMemberEpoch)
    play.refused(play.ask("a", 1, owned=of(t={0, 1, 2})), FencedMemberEpoch)
    reply = play.beaten(play.ask("a", 1, owned=of(t={0, 1})))
    assert (reply.member_epoch, reply.assignment) == (2, of(t={0, 1}))


def test_fenced_member_rejoins_with_the_same_id() -> None:
    play = Play()
    play.join("a")
    play.join("b")
    play.settle("a", "b")
    play.refused(play.ask("a", 99), FencedMemberEpoch)
    reply = play.join("a")
    assert (reply.member_epoch, reply.assignment) == (2, of(t={0, 1}))


def test_repeated_join_keeps_the_pending_revocation() -> None:
    play = Play()
    play.join("a")
    play.join("b")
    play.beat("a", owned=of(t={0, 1, 2, 3}))
    assert play.join("a").assignment == of(t={0, 1})
    assert play.beat("b").assignment == of(t={2, 3})


@pytest.mark.parametrize(
    "said",
    [
        {"rebalance_timeout_ms": -1},
        {"topics": None},
        {"owned": of(t={0})},
        {"instance_id": ""},
        {"rack": ""},
    ],
)
def test_join_with_a_missing_field_is_refused(said: dict[str, object]) -> None:
    play = Play()
    whole = {"topics": frozenset({"t"}), "rebalance_timeout_ms": 1, "owned": {}}
    play.refused(play.ask("a", 0, **(whole | said)), InvalidRequest)
    assert play.machine.is_empty


def test_invalid_member_epoch_is_rejected() -> None:
    play = Play()
    play.join("a")
    play.refused(play.ask("a", -3), InvalidRequest)
    play.refused(play.ask("a", -2), InvalidRequest)


def test_unknown_assignor_is_rejected_by_name() -> None:
    play = Play()
    whole = {"topics": frozenset({"t"}), "rebalance_timeout_ms": 1, "assignor": "sticky"}
    error = play.refused(play.ask("a", 0, **whole), UnsupportedAssignor)
    assert "uniform, range" in str(error)


def test_assignor_of_most_members_is_used() -> None:
    play = Play({"t": 4, "u": 4})
    play.join("a", "t", "u", assignor="range")
    play.join("b", "t", "u")
    play.settle("a", "b")
    assert play.owned("a") == of(t={0, 1}, u={0, 1})
    assert play.machine.describe(play.image).protocol == "range"


def test_full_consumer_group_accepts_its_members_only() -> None:
    play = Play(size_max=2)
    play.join("a")
    play.join("b", instance_id="s")
    whole = {"topics": frozenset({"t"}), "rebalance_timeout_ms": 1}
    play.refused(play.ask("c", 0, **whole), GroupFull)
    play.refused(play.ask("", 0, **whole), GroupFull)
    play.join("a")
    play.ask("b", -2, instance_id="s")
    play.join("c", instance_id="s")


# --- static members -------------------------------------------------------------------------------


def test_static_member_that_left_temporarily_gets_its_partitions_back() -> None:
    play = Play()
    play.join("a", instance_id="s")
    play.join("b")
    play.settle("a", "b")
    had, epoch = play.owned("a"), play.machine.state.epoch
    assert play.ask("a", -2, instance_id="s").member_epoch == -2
    play.settle("b")
    reply = play.join("a2", instance_id="s")
    assert (reply.assignment, reply.member_epoch) == (had, epoch)
    assert play.machine.state.epoch == epoch  # no other member changed
    play.refused(play.ask("a", epoch, instance_id="s"), FencedInstance)
    play.refused(play.ask("a", epoch), UnknownMember)


def test_absent_static_member_is_removed_after_its_session() -> None:
    play = Play()
    play.join("a", instance_id="s")
    play.ask("a", -2, instance_id="s")
    play.refused(play.ask("a", 1, instance_id="s"), FencedMemberEpoch)
    play.wait(SESSION_MS)
    assert play.machine.is_empty


def test_second_live_member_with_one_instance_id_is_rejected() -> None:
    play = Play()
    play.join("a", instance_id="s")
    whole = {"topics": frozenset({"t"}), "rebalance_timeout_ms": 1, "instance_id": "s"}
    play.refused(play.ask("b", 0, **whole), UnreleasedInstance)
    play.refused(play.ask("b", 1, instance_id="s"), FencedInstance)
    play.refused(play.ask("b", -1, instance_id="s"), FencedInstance)
    play.refused(play.ask("a", 1, instance_id="x"), UnknownMember)
    assert play.join("a", instance_id="s").member_epoch == 1


def test_static_member_rejoins_with_its_previous_member_id() -> None:
    play = Play()
    play.join("a", instance_id="s")
    play.ask("a", -2, instance_id="s")
    assert play.join("a", instance_id="s").assignment == of(t={0, 1, 2, 3})


def test_static_member_cannot_rejoin_with_a_foreign_member_id() -> None:
    play = Play()
    play.join("a", instance_id="s")
    play.join("b")
    play.ask("a", -2, instance_id="s")
    whole = {"topics": frozenset({"t"}), "rebalance_timeout_ms": 1, "instance_id": "s"}
    play.refused(play.ask("b", 0, **whole), InvalidRequest)


# --- commits and fetches --------------------------------------------------------------------------


def test_a_commit_needs_the_epoch_of_the_member() -> None:
    play = Play()
    assert play.commit_error("", -1) is None  # the group has no members
    play.join("a")
    assert play.commit_error("a", 1) is None
    assert isinstance(play.commit_error("a", 0), StaleMemberEpoch)
    assert isinstance(play.commit_error("a", 2), StaleMemberEpoch)
    assert isinstance(play.commit_error("b", 1), UnknownMember)
    assert isinstance(play.commit_error("", -1), UnknownMember)
    play.classic_join("k")
    assert isinstance(play.commit_error("k", 99), IllegalGeneration)


def test_commit_of_a_temporarily_absent_static_member_is_rejected() -> None:
    play = Play()
    play.join("a", instance_id="s")
    play.ask("a", -2, instance_id="s")
    for epoch in (-2, -1, 1):
        assert isinstance(play.commit_error("a", epoch), StaleMemberEpoch)


def test_offset_fetch_of_a_member_checks_its_epoch() -> None:
    play = Play()
    play.join("a")
    assert play.fetch_error("", -1) is None
    assert play.fetch_error("a", 1) is None
    assert isinstance(play.fetch_error("a", 0), StaleMemberEpoch)
    assert isinstance(play.fetch_error("b", 1), UnknownMember)


# --- changes of topics ----------------------------------------------------------------------------


def test_new_partitions_are_assigned_with_the_next_heartbeat() -> None:
    play = Play({"t": 2})
    play.join("a")
    play.image = cluster({"t": 3})
    reply = play.beat("a")
    assert (reply.member_epoch, reply.assignment) == (2, of(t={0, 1, 2}))


def test_change_of_an_unsubscribed_topic_raises_no_epoch() -> None:
    play = Play({"t": 2})
    play.join("a")
    play.image = cluster({"t": 2, "u": 5})
    assert play.beat("a").member_epoch == 1


def test_recreated_topic_is_another_topic() -> None:
    play = Play({"t": 2})
    play.join("a")
    play.image = cluster({})
    assert play.beat("a", owned=of(t={0, 1})).assignment == {}
    play.settle("a")
    play.image = cluster({"t": 1}, lives={"t": 1})
    reply = play.beat("a", owned={})
    assert reply.assignment is not None
    assert list(reply.assignment) == [play.image.topics_by_name["t"]]


def test_next_coordinator_detects_deleted_topics() -> None:
    play = Play()
    play.join("a")
    anew = Play({})
    for record in play.log:
        anew.read.replay(record)
        anew.machine.replay(record)
    anew.machine.loaded(anew.now_ms)
    reply = anew.beat("a", owned={})
    assert (reply.member_epoch, reply.assignment) == (2, {})


def test_changed_subscription_revokes_the_old_topics() -> None:
    play = Play({"t": 2, "u": 2})
    play.join("a", "t")
    asked = play.beat("a", topics=frozenset({"u"}), owned=of(t={0, 1}))
    assert (asked.member_epoch, asked.assignment) == (1, {})
    got = play.beat("a", owned={})
    assert (got.member_epoch, got.assignment) == (2, of(u={0, 1}))


def test_pattern_subscribes_to_new_topics_that_match_entirely() -> None:
    play = Play({"ta": 1, "tb": 1, "xta": 1, "__consumer_offsets": 50})
    reply = play.join("a", topics=None, pattern="t.|__.*")
    assert reply.assignment == of(ta={0}, tb={0})
    play.now_ms += 1_000
    play.image = cluster({"ta": 1, "tc": 1})
    assert play.beat("a", owned=of(ta={0})).assignment == of(ta={0}, tc={0})
    assert play.machine.subscribed_topics() == {"ta", "tc"}
    assert play.beat("a", pattern="", topics=frozenset({"ta"}), owned=of(ta={0})).assignment == of(
        ta={0}
    )
    play.beat("a")
    assert play.machine.state.patterns == {}


def test_a_pattern_is_matched_once_a_second_at_most() -> None:
    play = Play({"ta": 1})
    play.join("a", topics=None, pattern="t.")
    play.image = cluster({"ta": 1, "tb": 1})
    play.now_ms += 999
    assert play.beat("a").assignment is None
    play.now_ms += 1
    assert play.beat("a").assignment == of(ta={0}, tb={0})


def test_a_pattern_matches_the_topics_that_the_client_of_its_member_may_describe() -> None:
    play = Play({"ta": 1, "tb": 1})
    reply = play.join("a", topics=None, pattern="t.", describes={"ta"}.__contains__)
    assert reply.assignment == of(ta={0})
    play.join("b", "other")  # by a client with all permissions
    play.now_ms += play.config.pattern_refresh_ms
    play.beat("b")
    assert play.machine.subscribed_topics() == {"ta", "other"}
    play.beat("a", describes={"ta"}.__contains__, owned=of(ta={0}))
    play.now_ms += 1_000
    play.image = replace(play.image, acls=AclTable())
    given = play.beat("a", describes={"tb"}.__contains__, owned=of(ta={0}))
    assert given.assignment == {}  # it has to revoke the old topic first
    assert play.beat("a", describes={"tb"}.__contains__, owned={}).assignment == of(tb={0})


def test_complex_pattern_is_not_matched_with_topics_that_the_client_may_not_describe() -> None:
    """Such a pattern takes milliseconds for each name."""
    complex_pattern = "t(.?){20}"
    asked = []

    def describes(name: str) -> bool:
        asked.append(name)
        return name == "ta"

    play = Play({"ta": 1, "tb": 1, "u": 1})
    reply = play.join("a", topics=None, pattern=complex_pattern, describes=describes)
    assert reply.assignment == of(ta={0})
    assert set(asked) == {"ta", "tb", "u"}
    asked.clear()
    play.join("b", topics=None, pattern="t.", describes=describes)
    assert set(asked) == {"ta", "tb"}


@pytest.mark.parametrize(
    "pattern",
    ["t(", "(?=t)", "(t)\\1", "t" * 4_001, "(.?){1000}", r"(?i)(\pL|\pN){200}"],
    ids=lambda pattern: pattern[:12],
)
def test_invalid_re2_pattern_is_refused_and_changes_nothing(pattern: str) -> None:
    play = Play()
    play.join("a")
    play.refused(play.ask("a", 1, pattern=pattern), InvalidPattern)
    assert play.last == ()
    assert play.machine.state.members["a"].pattern is None


def test_a_pattern_that_would_stall_a_backtracking_engine_is_quick() -> None:
    name = "a" * 200
    play = Play({name: 1, name + "b": 1})
    reply = play.join("m", topics=None, pattern="(a|a)*c|(a+)+b")
    assert reply.assignment is not None
    assert len(reply.assignment) == 1


# --- large groups ---------------------------------------------------------------------------------


def test_large_group_is_reassigned_at_most_once_a_second() -> None:
    play = Play({"t": 300})
    for number in range(101):
        play.join(f"m{number:03}")
    made = play.machine.state.target_epoch
    assert play.join("x").assignment == {}
    assert play.machine.state.target_epoch == made
    assert play.epoch("x") == made
    play.wait(1_000)
    assert play.machine.state.target_epoch == play.machine.state.epoch
    assert play.machine.state.targets["x"]


def test_stale_target_assigns_no_unsubscribed_topic() -> None:
    play = Play({"t": 102, "u": 102})
    members = [f"m{number:03}" for number in range(102)]
    for member_id in members:
        play.join(member_id, "t")
    play.wait(1_000)
    play.settle(*members)
    play.join("x", "t")  # the next target is computed in a second
    made = play.machine.state.target_epoch
    asked = play.beat("m000", topics=frozenset({"u"}), owned=play.owned("m000"))
    assert asked.assignment == {}
    assert (asked.member_epoch, play.machine.state.target_epoch) == (made, made)
    assert play.beat("m000", owned={}).assignment is None
    play.wait(1_000)
    assert play.beat("m000", owned={}).assignment == of(u=set(range(102)))


def test_id_that_the_coordinator_draws_counts_as_memory_of_its_client() -> None:
    checked: list[int] = []
    play = Play()
    joined = play.join("", check_growth=checked.append)
    assert joined.member_id == "drawn-1"
    assert checked == [play.machine.member_bytes]
