"""Classic members in a KIP-848 group, and the upgrade and downgrade of a group."""

from typing import Any

import pytest

from quorumlog.broker.groups.classic_group import ClassicGroupMachine
from quorumlog.broker.groups.consumer import classic_upgrade
from quorumlog.broker.groups.consumer.classic_upgrade import CLOCK_SKEW_MS, METADATA_LAG_MS
from quorumlog.broker.groups.consumer_protocol import (
    ConsumerAssignment,
    decode_assignment,
    encode_assignment,
)
from quorumlog.broker.groups.records import (
    ClassicGroup,
    ClassicGroupForgotten,
    ConsumerGroupForgotten,
    StoredMember,
)
from quorumlog.broker.groups.requests import ConsumerBeat, Joined, Leaver, Left, SyncGroup
from quorumlog.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GroupFull,
    GroupNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    RebalanceInProgress,
    TopicAuthorizationFailed,
    UnknownMember,
)

from .play import (
    CLASSIC_SESSION_MS,
    REBALANCE_MS,
    START_MS,
    Play,
    cluster,
    failed,
    of,
    subscription,
)


def test_classic_member_joins_syncs_and_heartbeats_in_a_consumer_group() -> None:
    play = Play()
    play.join("a")
    joined = play.classic_join("k")
    assert joined == Joined(member_id="k", generation=2, protocol_type="consumer", protocol="range")
    assert play.synced("k") == {}
    assert play.classic_beat("k") is None  # its target partitions are not free yet
    play.settle("a")
    assert isinstance(play.classic_beat("k"), RebalanceInProgress)
    assert play.classic_join("k").generation == 2
    assert play.synced("k") == {"t": (2, 3)}
    assert play.classic_beat("k") is None
    assert play.state_name == "Stable"
    assert play.commit_error("k", 2) is None


def test_cooperative_member_revokes_with_its_next_join() -> None:
    play = Play()
    play.classic_join("k")
    assert play.synced("k") == {"t": (0, 1, 2, 3)}
    play.join("a")
    assert isinstance(play.classic_beat("k"), RebalanceInProgress)
    both = (("range", subscription("t", owned={"t": (0, 1, 2, 3)})),)
    assert play.classic_join("k", protocols=both).generation == 1
    assert play.synced("k") == {"t": (0, 1)}
    assert play.beat("a", owned={}).assignment is None
    assert isinstance(play.classic_beat("k"), RebalanceInProgress)
    less = (("range", subscription("t", owned={"t": (0, 1)})),)
    assert play.classic_join("k", protocols=less).generation == 2
    assert play.beat("a", owned={}).assignment == of(t={2, 3})


def test_join_of_an_eager_member_revokes_all_its_partitions() -> None:
    play = Play()
    eager = (("range", subscription("t", version=0)),)
    play.classic_join("k", protocols=eager)
    play.join("a")
    assert play.classic_join("k", protocols=eager).generation == 2
    assert play.beat("a", owned={}).assignment == of(t={2, 3})
    assert decode_assignment(play.sync("k", 2).assignment).version == 0


def test_partitions_of_a_topic_not_in_the_image_yet_stay_with_their_classic_member() -> None:
    """The metadata of a new coordinator may lag behind the metadata of its members."""
    play = Play({"t": 2, "u": 2})
    both = (("range", subscription("t", "u")),)
    play.classic_join("k", protocols=both)
    assert play.synced("k") == {"t": (0, 1), "u": (0, 1)}
    play.image = cluster({"t": 2})
    holds = {"t": (0, 1), "u": (0, 1)}
    assert isinstance(play.classic_beat("k"), RebalanceInProgress)
    play.classic_join("k", protocols=(("range", subscription("t", "u", owned=holds)),))
    play.image = cluster({"t": 2, "u": 2})
    assert play.join("a", "u").assignment == {}  # k has not received its revocation yet
    assert play.synced("k") == {"t": (0, 1)}
    less = (("range", subscription("t", "u", owned={"t": (0, 1)})),)
    play.classic_join("k", protocols=less)
    given = play.beat("a", owned={}).assignment
    assert given is not None
    assert given.keys() == of(u={0}).keys()


def test_classic_member_may_own_a_recreated_topic_not_in_the_image_yet() -> None:
    play = Play()
    play.image = cluster({"t": 2}, lives={"t": 1})
    play.classic_join("k")
    assert play.synced("k") == {"t": (0, 1)}
    play.image = cluster({"t": 2})  # of a coordinator without the metadata of the new topic
    holds = (("range", subscription("t", owned={"t": (0, 1)})),)
    play.classic_join("k", protocols=holds)
    play.image = cluster({"t": 2}, lives={"t": 1})
    assert play.join("a").assignment == {}


def test_classic_member_releases_a_deleted_topic() -> None:
    play = Play({"t": 2, "u": 2})
    play.join("a", "t")
    play.classic_join("k", protocols=(("range", subscription("u")),))
    assert play.synced("k") == {"u": (0, 1)}
    play.image = cluster({"t": 2})
    holds = (("range", subscription("u", owned={"u": (0, 1)})),)
    assert isinstance(play.classic_beat("k"), RebalanceInProgress)
    play.classic_join("k", protocols=holds)
    assert play.synced("k") == {}
    assert isinstance(play.classic_beat("k"), RebalanceInProgress)
    play.classic_join("k", protocols=(("range", subscription("u")),))
    assert (play.owned("k"), play.epoch("k")) == ({}, 3)
    assert play.classic_beat("k") is None


def test_classic_member_gets_its_id_first_if_its_version_allows() -> None:
    play = Play()
    reply = play.classic_join("", takes_member_id_first=True)
    assert reply == Joined(member_id="c-drawn-1", is_member_id_required=True)
    assert play.machine.is_empty
    assert play.classic_join("c-drawn-1").generation == 1
    assert play.classic_join("").member_id == "c-drawn-2"


def test_classic_member_that_does_not_rejoin_in_time_is_removed() -> None:
    play = Play()
    play.classic_join("k", rebalance_timeout_ms=15_000)
    play.synced("k")
    play.join("a")
    for _ in range(4):
        assert isinstance(play.classic_beat("k"), RebalanceInProgress)
        play.wait(4_000)
    play.refused(play.classic_beat("k", 1), UnknownMember)


def test_rejoin_of_a_removed_member_with_owned_partitions_is_rejected() -> None:
    """It would use its former partitions until its sync, although another member owns them."""
    play = Play()
    play.classic_join("k", rebalance_timeout_ms=15_000)
    assert play.synced("k") == {"t": (0, 1, 2, 3)}
    play.join("a")
    for _ in range(4):
        play.classic_beat("k")
        play.wait(4_000)
    holding = (("range", subscription("t", owned={"t": (0, 1, 2, 3)})),)
    play.refused(play.classic_join("k", protocols=holding), UnknownMember)
    assert (
        play.classic_join("k").member_id == "k"
    )  # without owned partitions it may use its id again


def test_classic_member_that_does_not_sync_in_time_is_removed() -> None:
    play = Play()
    play.classic_join("k", rebalance_timeout_ms=5_000)
    play.wait(5_000)
    assert play.machine.is_empty


def test_classic_member_is_removed_after_its_own_session_timeout() -> None:
    play = Play()
    play.classic_join("k")
    play.synced("k")
    play.wait(CLASSIC_SESSION_MS - 1)
    assert not play.machine.is_empty
    play.wait(1)
    assert play.machine.is_empty


def test_classic_member_with_a_wrong_generation_is_rejected() -> None:
    play = Play()
    play.classic_join("k")
    play.refused(play.classic_beat("k", 7), IllegalGeneration)
    play.refused(play.sync("k", 7), IllegalGeneration)
    play.refused(play.classic_beat("x", 1), UnknownMember)
    play.refused(play.sync("k", 1, protocol="other"), InconsistentGroupProtocol)
    play.refused(play.sync("k", 1, protocol_type="connect"), InconsistentGroupProtocol)
    play.join("a")
    play.refused(play.classic_beat("a", 2), UnknownMember)
    play.refused(play.sync("k", 1), RebalanceInProgress)


def test_classic_member_without_a_common_protocol_is_rejected() -> None:
    play = Play()
    play.classic_join("k")
    other = (("sticky", subscription("t")),)
    play.refused(play.classic_join("l", protocols=other), InconsistentGroupProtocol)
    play.refused(play.classic_join("l", protocol_type="connect"), InconsistentGroupProtocol)
    play.refused(play.classic_join("l", protocols=()), InconsistentGroupProtocol)
    broken = (("range", b"\x00"),)
    play.refused(play.classic_join("l", protocols=broken), InconsistentGroupProtocol)
    play.refused(play.classic_join("l", session_timeout_ms=1), InvalidSessionTimeout)
    assert list(play.machine.state.members) == ["k"]


def test_batched_leave_of_classic_members_has_a_result_for_each() -> None:
    play = Play()
    play.join("a")
    play.classic_join("k")
    play.classic_join("", instance_id="s")
    left = play.classic_leave(
        Leaver(member_id="k"),
        Leaver(member_id="k"),
        Leaver(member_id="nobody"),
        Leaver(member_id="x", instance_id="s"),
        Leaver(member_id="", instance_id="s"),
    )
    assert isinstance(left, Left)
    kinds = [type(error) for error in left.errors]
    assert kinds == [type(None), UnknownMember, UnknownMember, FencedInstance, type(None)]
    assert list(play.machine.state.members) == ["a"]


def test_leave_group_removes_consumer_protocol_members_by_id_and_instance_id() -> None:
    """As in Apache Kafka since 4.0 (KAFKA-18188): Admin.removeMembersFromConsumerGroup lists all
    members."""
    play = Play()
    play.join("a")
    play.join("b", instance_id="s")
    play.join("c")
    play.settle("a", "b", "c")
    left = play.classic_leave(
        Leaver(member_id="a"), Leaver(member_id="", instance_id="s"), Leaver(member_id="a")
    )
    assert [type(error) for error in left.errors] == [type(None), type(None), UnknownMember]
    assert list(play.machine.state.members) == ["c"]
    play.settle("c")
    assert play.owned("c") == of(t={0, 1, 2, 3})
    play.refused(play.ask("a", 3), UnknownMember)


def test_static_member_changes_its_protocol_and_keeps_its_partitions() -> None:
    play = Play(migration="upgrade")
    play.join("a", instance_id="s")
    joined = play.classic_join("", instance_id="s")
    assert play.synced(joined.member_id) == {"t": (0, 1, 2, 3)}
    reply = play.join("b", instance_id="s")
    assert reply.assignment == of(t={0, 1, 2, 3})
    assert list(play.machine.state.members) == ["b"]


def test_commit_of_a_replaced_static_member_is_fenced() -> None:
    """With UNKNOWN_MEMBER_ID it would join again and replace the other member in turn."""
    play = Play()
    play.join("a")
    old = play.classic_join("", instance_id="s")
    young = play.classic_join("", instance_id="s")
    error = play.commit_error(old.member_id, old.generation, instance_id="s")
    assert isinstance(error, FencedInstance)
    assert play.commit_error(young.member_id, young.generation, instance_id="s") is None
    gone = play.commit_error("nobody", young.generation, instance_id="t")
    assert isinstance(gone, UnknownMember)


# --- upgrade --------------------------------------------------------------------------------------


def classic_group(
    play: Play, owned: tuple[int, ...] = (), **parts: tuple[int, ...]
) -> ClassicGroupMachine:
    """Return a stable classic group of these members; the first one has owned partitions."""
    machine = ClassicGroupMachine("g", play.config, play.draw)
    members = tuple(
        StoredMember(
            member_id=name,
            instance_id=None,
            client_id="c",
            client_host="h",
            rebalance_timeout_ms=REBALANCE_MS,
            session_timeout_ms=CLASSIC_SESSION_MS,
            subscription=subscription("t", owned={"t": owned if number == 0 else ()}),
            assignment=encode_assignment(ConsumerAssignment(version=1, partitions={"t": indices})),
        )
        for number, (name, indices) in enumerate(parts.items())
    )
    record = ClassicGroup(
        group="g",
        protocol_type="consumer" if members else "",
        generation=7,
        protocol="range" if members else None,
        leader=members[0].member_id if members else None,
        state_ms=START_MS,
        members=members,
    )
    machine.load(record, START_MS)
    return machine


def test_first_consumer_protocol_member_upgrades_a_classic_group() -> None:
    play = Play()
    reply = play.upgraded(classic_group(play, k=(0, 1), l=(2, 3)), "a")
    assert isinstance(reply, ConsumerBeat)
    assert (reply.member_epoch, reply.assignment) == (8, {})
    assert isinstance(play.last[0], ClassicGroupForgotten)
    assert play.owned("k") == of(t={0, 1})
    assert isinstance(play.classic_beat("k", 7), RebalanceInProgress)
    for name, has in (("k", (0, 1)), ("l", (2, 3))):
        owned = (("range", subscription("t", owned={"t": has})),)
        play.classic_join(name, protocols=owned)
    assert (play.epoch("k"), play.epoch("l")) == (8, 7)  # it has to revoke one
    assert play.synced("k") == {"t": (0, 1)}
    assert play.synced("l") == {"t": (2,)}
    again = (("range", subscription("t", owned={"t": (2,)})),)
    play.classic_join("l", protocols=again)
    assert play.beat("a", owned={}).assignment == of(t={3})


def test_partition_assigned_to_two_members_goes_to_the_first() -> None:
    play = Play()
    play.upgraded(classic_group(play, k=(0, 1), l=(1, 2)), "a")
    assert (play.owned("k"), play.owned("l")) == (of(t={0, 1}), of(t={2}))


def test_cooperative_member_owns_revoked_partitions_until_it_rejoins() -> None:
    """The last generation left the partition out for the other member, which gets it in the next
    one."""
    play = Play()
    reply = play.upgraded(classic_group(play, owned=(0, 1, 2, 3), k=(0, 1), l=()), "a")
    assert reply.assignment == {}
    assert isinstance(play.classic_beat("l", 7), RebalanceInProgress)
    play.classic_join("l", protocols=(("range", subscription("t", owned={"t": ()})),))
    assert play.synced("l") == {}
    assert isinstance(play.classic_beat("k", 7), RebalanceInProgress)
    play.classic_join("k", protocols=(("range", subscription("t", owned={"t": (0, 1)})),))
    assert play.synced("k") != {}
    assert play.beat("a", owned={}).assignment != {}


def test_owned_partition_assigned_to_another_member_is_lost() -> None:
    play = Play()
    play.upgraded(classic_group(play, owned=(0, 1, 2), k=(0, 1), l=(2, 3)), "a")
    assert (play.owned("k"), play.owned("l")) == (of(t={0, 1}), of(t={2, 3}))
    play.classic_join("l", protocols=(("range", subscription("t", owned={"t": (2, 3)})),))
    assert play.synced("l") == {"t": (2,)}


def test_empty_classic_group_is_replaced() -> None:
    play = Play(migration="disabled")
    reply = play.upgraded(classic_group(play), "a")
    assert reply.assignment == of(t={0, 1, 2, 3})


def test_group_is_not_upgraded_if_the_policy_forbids_it() -> None:
    play = Play(migration="downgrade")
    classic = classic_group(play, k=(0,))
    play.refused(play.upgraded(classic, "a"), GroupNotFound)
    assert play.last == ()
    assert not classic.is_dead


@pytest.mark.parametrize("topics", [{"t": 4}, {}], ids=["topic exists", "topic does not exist"])
def test_client_without_rights_on_the_topics_of_a_classic_group_does_not_upgrade_it(
    topics: dict[str, int],
) -> None:
    play = Play(topics)
    classic = classic_group(play, k=(0,))
    answer = play.upgraded(classic, "a", describes={"u"}.__contains__)
    play.refused(answer, TopicAuthorizationFailed)
    assert play.last == ()
    assert not classic.is_dead


@pytest.mark.parametrize("topics", [{"t": 4}, {}], ids=["topic exists", "topic does not exist"])
def test_upgrade_does_not_disclose_topics_to_a_classic_member(topics: dict[str, int]) -> None:
    """Its client may describe no topic, and that of the upgrade every topic."""
    play, describes = Play(topics), {"u"}.__contains__
    classic = classic_group(play, owned=(0, 1), k=(2, 3))
    play.now_ms += METADATA_LAG_MS
    assert play.upgraded(classic, "a").assignment == {}
    assert isinstance(play.sync("k", 7, describes=describes), RebalanceInProgress)
    claims = (("range", subscription("t", owned={"t": (0, 1, 2, 3)})),)
    assert play.classic_join("k", protocols=claims, describes=describes).generation == 9
    synced = play.sync("k", 9, describes=describes)
    assert decode_assignment(synced.assignment).partitions == {}


def test_sync_leaves_out_topics_that_the_client_may_no_longer_describe() -> None:
    play = Play({"t": 1, "u": 1})
    play.classic_join("k", protocols=(("range", subscription("t", "u")),))
    assert play.synced("k") == {"t": (0,), "u": (0,)}
    synced = play.sync("k", play.epoch("k"), describes={"u"}.__contains__)
    assert decode_assignment(synced.assignment).partitions == {"u": (0,)}


def test_classic_member_gets_the_topics_that_its_client_may_describe() -> None:
    play = Play({"t": 1, "u": 1})
    play.join("a", "other")
    both = (("range", subscription("t", "u")),)
    play.classic_join("k", protocols=both, describes={"u"}.__contains__)
    assert play.synced("k") == {"u": (0,)}
    assert play.machine.subscribed_topics() == {"u", "other"}


def test_group_with_too_many_subscribed_topics_is_not_upgraded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal subscriptions count once."""
    monkeypatch.setattr(classic_upgrade, "ENTRIES_MAX", 6)
    play = Play()
    assert play.upgraded(classic_group(play, k=(0,), l=(), m=()), "a").member_epoch == 8
    classic = classic_group(play, owned=(1,), k=(0,), l=(), m=())
    play.refused(play.upgraded(classic, "a"), GroupNotFound)
    assert not classic.is_dead


def test_rejected_heartbeat_does_not_upgrade_the_group() -> None:
    play = Play()
    classic = classic_group(play, k=(0,))
    play.refused(play.upgraded(classic, "a", owned=of(t={0})), InvalidRequest)
    assert not classic.is_dead


def test_group_is_not_upgraded_while_its_topics_may_be_missing_from_the_image() -> None:
    """Otherwise partitions of a topic that is missing from the image would get a second owner."""
    play = Play()
    classic = classic_group(play, k=(0, 1))
    known, play.image = play.image, cluster({})
    play.refused(play.upgraded(classic, "a"), CoordinatorNotAvailable)
    assert not classic.is_dead
    play.image = known
    assert isinstance(play.upgraded(classic, "a"), ConsumerBeat)
    assert play.owned("k") == of(t={0, 1})


def test_topic_unknown_after_a_delay_counts_as_deleted_and_allows_the_upgrade() -> None:
    play = Play()
    classic = classic_group(play, k=(0, 1))
    play.image = cluster({})
    play.wait(METADATA_LAG_MS)
    assert isinstance(play.upgraded(classic, "a"), ConsumerBeat)
    assert play.owned("k") == {}


def test_group_stored_by_a_fast_clock_does_not_count_as_old() -> None:
    play = Play()
    classic = classic_group(play, k=(0, 1))
    play.image = cluster({})
    play.now_ms -= CLOCK_SKEW_MS
    play.refused(play.upgraded(classic, "a"), CoordinatorNotAvailable)
    play.now_ms -= 1  # a timestamp in the future must not delay the upgrade forever
    assert isinstance(play.upgraded(classic, "a"), ConsumerBeat)


def test_waiting_classic_member_must_rejoin_after_the_upgrade() -> None:
    play = Play()
    classic = classic_group(play, k=(0,), l=(1,))
    request = play.classic_request("k")
    classic.join(play.ticket(), request, play.now_ms)
    reply = play.upgraded(classic, "a")
    assert isinstance(reply, ConsumerBeat)
    [error] = failed(play.decision)
    assert isinstance(error, RebalanceInProgress)


# --- downgrade ------------------------------------------------------------------------------------


def test_group_is_downgraded_when_its_last_consumer_protocol_member_leaves() -> None:
    play = Play()
    play.join("a")
    play.classic_join("k")
    play.synced("k")
    play.ask("a", -1)
    classic = play.machine.downgraded
    assert classic is not None
    assert isinstance(play.last[-2], ConsumerGroupForgotten)
    assert isinstance(play.last[-1], ClassicGroup)
    described = classic.describe()
    assert described.state == "PreparingRebalance"
    assert [member.member_id for member in described.members] == ["k"]


def test_downgraded_group_is_described_with_the_assignments_of_its_leader_only() -> None:
    """Those from before the downgrade have the topics of the classic group that exist."""
    play = Play()
    play.upgraded(classic_group(play, k=(0, 1)), "a")
    play.ask("a", -1)
    classic = play.machine.downgraded
    assert classic is not None
    assert [each.assignment for each in classic.describe().members] == [b""]
    joined = play.took(classic.join(play.ticket(), play.classic_request("k"), play.now_ms))
    assert [each.assignment for each in classic.describe().members] == [b""]
    request = SyncGroup(
        group="g", member_id="k", generation=joined.generation, assignments={"k": b"mine"}
    )
    play.took(classic.sync(play.ticket(), request, play.now_ms))
    assert [each.assignment for each in classic.describe().members] == [b"mine"]


def test_group_is_downgraded_when_its_last_consumer_protocol_member_is_removed() -> None:
    play = Play()
    play.join("a")
    play.classic_join("k")
    play.synced("k")
    play.classic_leave(Leaver(member_id="a"))
    assert play.machine.downgraded is not None


def test_downgrade_reads_only_the_first_strategy_of_each_member() -> None:
    """A join reads the first one only."""
    play = Play()
    play.join("a")
    play.classic_join("k", protocols=(("range", subscription("t")), ("sticky", b"x")))
    play.classic_join("l", protocols=(("sticky", subscription("t")),))
    play.ask("a", -1)
    classic = play.machine.downgraded
    assert classic is not None
    assert [each.member_id for each in classic.describe().members] == ["k", "l"]


def test_group_is_downgraded_when_the_session_of_its_last_consumer_protocol_member_expires() -> (
    None
):
    play = Play()
    play.join("a")
    play.classic_join("k", session_timeout_ms=60_000)
    play.synced("k")
    play.wait(45_000)
    assert play.machine.downgraded is not None


def test_group_is_not_downgraded_if_the_policy_forbids_it() -> None:
    play = Play(migration="upgrade")
    play.join("a")
    play.classic_join("k")
    play.ask("a", -1)
    assert play.machine.downgraded is None
    assert play.classic_join("k").generation == 3
    assert play.synced("k") == {"t": (0, 1, 2, 3)}


def test_classic_static_member_replaces_the_last_consumer_protocol_member() -> None:
    play = Play()
    play.join("a", instance_id="s")
    play.classic_join("k")
    play.synced("k")
    assert play.classic_join("", instance_id="s") is None  # it waits for the other members
    assert play.machine.downgraded is not None
    assert {each.instance_id for each in play.machine.downgraded.describe().members} == {None, "s"}


def test_invalid_classic_join_replaces_no_member() -> None:
    play = Play()
    play.join("a", instance_id="s")
    play.classic_join("k")
    for said, error in (
        ({"session_timeout_ms": 1}, InvalidSessionTimeout),
        ({"protocols": (("range", b""),)}, InconsistentGroupProtocol),
        ({"protocols": (("sticky", subscription("t")),)}, InconsistentGroupProtocol),
    ):
        play.refused(play.classic_join("", instance_id="s", **said), error)
        assert play.last == ()
    assert play.machine.downgraded is None


def test_first_of_two_protocols_with_one_name_counts_after_a_downgrade() -> None:
    play = Play()
    play.join("a")
    wanted = subscription("t")
    play.classic_join("k", protocols=(("range", wanted), ("range", b"other")))
    play.ask("a", -1)
    assert play.machine.downgraded is not None
    [stored] = play.machine.downgraded.snapshot().members
    assert stored.subscription == wanted
    [record] = [each for each in play.log if isinstance(each, ClassicGroup)]
    assert record.members[0].subscription == wanted


def test_classic_join_that_is_too_large_replaces_no_member() -> None:
    def refuse(growth: int) -> None:
        raise GroupFull("too many bytes")

    play = Play()
    play.join("a", instance_id="s")
    play.classic_join("k")
    large = (("range", subscription(*"tuvwx")),)
    said: dict[str, Any] = {"client_id": "long" * 9, "check_growth": refuse}
    answer = play.classic_join("", instance_id="s", protocols=large, **said)
    play.refused(answer, GroupFull)
    assert play.last == ()
    assert play.machine.downgraded is None


def test_unrevoked_partitions_stay_with_their_member_across_downgrade_and_upgrade() -> None:
    """The classic protocol has no revocation state, so the partitions are assigned to the
    member."""
    play = Play()
    play.classic_join("k")
    assert play.synced("k") == {"t": (0, 1, 2, 3)}
    play.join("a")
    assert isinstance(play.classic_beat("k"), RebalanceInProgress)
    holds = (("range", subscription("t", owned={"t": (0, 1, 2, 3)})),)
    play.classic_join("k", protocols=holds)
    assert play.synced("k") == {"t": (0, 1)}  # it revokes the other partitions slowly
    play.ask("a", -1)
    classic = play.machine.downgraded
    assert classic is not None
    reply = play.upgraded(classic, "b")
    assert isinstance(reply, ConsumerBeat)
    assert reply.assignment == {}
    assert play.owned("k") == of(t={0, 1, 2, 3})
