"""Records of a classic group: storing, loading, describing and deleting."""

from quorumlog.broker.coordinator.decision import Ticket
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.records import ClassicGroup, StoredMember
from quorumlog.broker.groups.requests import ClassicHeartbeat, LeaveGroup
from quorumlog.errors import (
    CoordinatorNotAvailable,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)

from .play import CONFIG, REBALANCE_MS, SESSION_MS, START_MS, Play, subscription


def moved(play: Play, config: GroupConfig = CONFIG) -> Play:
    """Return the group as the next coordinator loads it, a minute later."""
    other = Play(config, drawn=100)
    other.now_ms = play.now_ms + 60_000
    other.machine.load(play.stored, other.now_ms)
    other.machine.check_invariants()
    return other


def test_stored_generation_equals_the_synced_one() -> None:
    play = Play()
    leader, follower = play.stable(2)
    assert play.records == [
        ClassicGroup(
            group="g",
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader=leader.member_id,
            state_ms=START_MS + 6_000,
            members=tuple(
                StoredMember(
                    member_id=member_id,
                    instance_id=None,
                    client_id="c",
                    client_host="/127.0.0.1",
                    rebalance_timeout_ms=REBALANCE_MS,
                    session_timeout_ms=SESSION_MS,
                    subscription=b"r",
                    assignment=f"{member_id}/1".encode(),
                )
                for member_id in (leader.member_id, follower.member_id)
            ),
        )
    ]


def test_loaded_group_equals_the_stored_one() -> None:
    play = Play()
    play.stable_static("i", "j")
    other = moved(play)
    assert other.machine.snapshot() == play.machine.snapshot() == play.stored
    assert other.machine.describe() == play.machine.describe()


def test_members_continue_at_the_next_coordinator_without_a_rebalance() -> None:
    play = Play()
    leader, follower = play.stable(2)
    other = moved(play)
    other.wait(SESSION_MS - 1)
    assert other.beat(leader.member_id, 1) is None
    assert other.beat(follower.member_id, 1) is None
    other.commit(leader.member_id, 1)
    assert other.assignment(other.sync(follower)) == b"c-2/1"
    assert other.state == "Stable"
    assert not other.records


def test_member_without_a_heartbeat_at_the_next_coordinator_is_removed() -> None:
    play = Play()
    leader, _ = play.stable(2)
    other = moved(play)
    other.wait(SESSION_MS - 1)
    other.beat(leader.member_id, 1)
    other.wait(1)
    assert other.joined(other.join(leader.member_id)).generation == 2


def test_sessions_start_at_the_load() -> None:
    play = Play()
    [only] = play.stable(1)
    other = moved(play)
    other.now_ms += 60_000  # the other records are loaded
    other.see(other.machine.take_over(other.now_ms))
    other.wait(SESSION_MS - 1)
    assert other.beat(only.member_id, 1) is None


def test_loaded_group_above_the_size_limit_rebalances_and_removes_the_last_members() -> None:
    play = Play()
    first, second, third = play.stable(3)
    other = moved(play, GroupConfig(size_max=2))
    other.see(other.machine.take_over(other.now_ms))
    assert other.state == "PreparingRebalance"
    tickets = [other.join(first.member_id), other.join(second.member_id)]
    other.join(third.member_id)
    assert {other.joined(ticket).generation for ticket in tickets} == {2}


def test_unsynced_generation_is_lost_at_failover() -> None:
    play = Play()
    [only] = play.stable(1)
    newcomer = play.join()
    play.join(only.member_id)
    joined = play.joined(newcomer)
    other = moved(play)
    other.error(other.sync(joined), UnknownMember)
    assert isinstance(other.beat(only.member_id, 2), IllegalGeneration)
    assert other.joined(other.join(only.member_id)).generation == 2


def test_empty_group_is_loaded_as_empty() -> None:
    play = Play()
    [only] = play.stable(1)
    play.leave(only.member_id)
    other = moved(play)
    assert other.state == "Empty"
    assert other.machine.state_ms == play.stored.state_ms
    assert not other.machine.is_blank
    assert other.machine.deadline_ms() is None
    assert other.gather(other.join())[0].generation == 3


def test_later_record_of_a_group_wins() -> None:
    play = Play()
    [only] = play.stable(1)
    newcomer = play.join()
    members = [play.joined(t) for t in (play.join(only.member_id), newcomer)]
    play.settle(members)
    play.leave(only.member_id, members[1].member_id)
    other = Play()
    for record in play.records:
        assert isinstance(record, ClassicGroup)
        other.machine.load(record, other.now_ms)
        other.machine.check_invariants()
    assert other.state == "Empty"
    assert other.machine.deadline_ms() is None


def test_record_with_invalid_fields_is_loaded() -> None:
    """Records of old versions, which have fewer fields, or of foreign writers."""
    member = StoredMember(
        member_id="a",
        instance_id="i",
        client_id="",
        client_host="",
        rebalance_timeout_ms=-1,
        session_timeout_ms=SESSION_MS,
        subscription=b"",
        assignment=b"",
    )
    record = ClassicGroup(
        group="g",
        protocol_type="consumer",
        generation=7,
        protocol=None,
        leader="nobody",
        state_ms=-1,
        members=(member, member),
    )
    play = Play()
    play.machine.load(record, play.now_ms)
    play.machine.check_invariants()
    assert play.beat("a", 7) is None
    assert play.machine.state_ms == -1


def test_load_restores_known_protocols_of_all_members() -> None:
    play = Play()
    [only] = play.stable(1)
    other = Play(drawn=100)
    other.machine.load(play.stored, other.now_ms, play.machine.protocols())
    assert other.machine.protocols() == {only.member_id: (("range", b"r"), ("roundrobin", b"b"))}
    newcomer = other.join(protocols=[("roundrobin", b"n")])
    other.join(only.member_id)
    assert other.joined(newcomer).protocol == "roundrobin"


def test_forced_rebalance_makes_members_rejoin() -> None:
    play = Play()
    [only] = play.stable(1)
    play.see(play.machine.rebalance(play.now_ms))
    assert isinstance(play.beat(only.member_id, 1), RebalanceInProgress)
    play.see(play.machine.rebalance(play.now_ms))
    assert play.joined(play.join(only.member_id)).generation == 2


def test_group_without_members_does_not_rebalance() -> None:
    play = Play()
    play.see(play.machine.rebalance(play.now_ms))
    assert play.state == "Empty"


def test_waiting_joins_fail_when_the_group_is_unloaded() -> None:
    play = Play()
    first, second = play.stable(2)
    waiting = play.join(first.member_id)
    play.see(play.machine.drop())
    play.error(waiting, UnknownMember)
    assert play.machine.is_dead
    assert play.machine.is_empty
    assert play.machine.deadline_ms() is None
    play.error(play.join(second.member_id), CoordinatorNotAvailable)
    play.error(play.sync(second), CoordinatorNotAvailable)
    assert isinstance(play.beat(second.member_id, 1), CoordinatorNotAvailable)
    refused = play.machine.leave(Ticket(99), LeaveGroup(group="g", leavers=()), play.now_ms)
    assert isinstance(refused.replies[0].error, CoordinatorNotAvailable)  # type: ignore[union-attr]


def test_waiting_syncs_fail_with_the_error_of_the_unload() -> None:
    play = Play()
    _, follower = play.gather(play.join(), play.join())
    waiting = play.sync(follower)
    play.see(play.machine.drop(RebalanceInProgress("another protocol from now on")))
    play.error(waiting, RebalanceInProgress)


def test_description_has_subscriptions_and_assignments_of_a_stable_group() -> None:
    play = Play()
    leader, _ = play.stable(2)
    seen = play.machine.describe()
    assert (seen.state, seen.is_classic, seen.protocol) == ("Stable", True, "range")
    assert (seen.generation, seen.protocol_type) == (1, "consumer")
    assert [(m.subscription, m.assignment) for m in seen.members] == [
        (b"r", b"c-1/1"),
        (b"r", b"c-2/1"),
    ]
    play.join(leader.member_id)
    seen = play.machine.describe()
    assert (seen.state, seen.protocol) == ("PreparingRebalance", "")
    assert [m.subscription for m in seen.members] == [b"", b""]


def test_description_has_the_time_since_the_last_heartbeat() -> None:
    play = Play()
    leader, follower = play.stable(2)
    play.wait(3_000)
    play.beat(follower.member_id, follower.generation)
    play.wait(500)
    described = play.machine.describe(play.now_ms).members
    silent_ms = {each.member_id: each.silent_ms for each in described}
    assert silent_ms == {leader.member_id: 3_500, follower.member_id: 500}
    play.join(leader.member_id)
    described = play.machine.describe(play.now_ms).members
    assert {each.member_id: each.silent_ms for each in described}[leader.member_id] == 0


def test_subscribed_topics_cover_all_members() -> None:
    play = Play()
    play.gather(
        play.join(protocols=[("range", subscription("a", "b"))]),
        play.join(protocols=[("range", subscription("c", "b"))]),
    )
    assert play.machine.subscribed_topics() == frozenset({"a", "b", "c"})
    play.leave("c-2")
    assert play.machine.subscribed_topics() == frozenset({"a", "b"})
    play.leave("c-1")
    assert play.machine.subscribed_topics() == frozenset()


def test_one_unreadable_subscription_makes_the_subscribed_topics_unknown() -> None:
    play = Play()
    [only] = play.stable(1, protocols=[("range", subscription("a"))])
    play.join(protocols=[("range", b"?")])
    assert play.machine.subscribed_topics() is None
    assert play.beat(only.member_id, 9) is not None


def test_members_of_another_protocol_type_have_no_known_topics() -> None:
    play = Play()
    assert play.machine.subscribed_topics() == frozenset()
    play.gather(play.join(kind="connect", protocols=[("compatible", subscription("a"))]))
    assert play.machine.subscribed_topics() is None


def test_group_that_was_only_queried_is_blank() -> None:
    play = Play()
    request = ClassicHeartbeat(group="g", member_id="x", generation=1)
    play.see(play.machine.heartbeat(Ticket(50), request, play.now_ms))
    play.commit()
    assert play.machine.is_blank
    play.join(takes_id_first=True)
    assert not play.machine.is_blank
