"""The groups of one partition: requests, stored records, and loads."""

from dataclasses import replace
from typing import TypeVar

import pytest

from quorumlog.broker.coordinator.decision import Answered, Failed, Ticket
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.formats import decode, encode
from quorumlog.broker.groups.records import (
    ClassicGroup,
    ClassicGroupForgotten,
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    GroupDecision,
    GroupRecord,
    OffsetForgotten,
)
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    CommitOffsets,
    ConsumerBeat,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupRequest,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    OffsetToCommit,
    SyncGroup,
)
from quorumlog.broker.groups.shard import GROUPS_A_STEP, GroupShard
from quorumlog.errors import (
    GroupNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    QuorumlogError,
    StaleMemberEpoch,
    UnknownMember,
)
from quorumlog.storage.producer_state import ProducerLimits

from .classic.play import subscription
from .offsets_image import ID, image_of

R = TypeVar("R")

CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_check_ms=1_000, initial_delay_ms=0)
IMAGE = image_of({"t": ID})
START_MS = 1_000_000


class Played:
    """A shard with its clock and its log."""

    def __init__(self, log: list[GroupRecord] | None = None) -> None:
        self.now_ms = START_MS
        self.image = IMAGE
        self.log: list[GroupRecord] = list(log or ())
        self._drawn = self._tickets = 0
        self.shard = GroupShard(CONFIG, self._draw, ProducerLimits())
        for record in self.log:
            key, value = encode(record)
            found = decode(key, value)
            assert found == record
            self.shard.replay(record)
        self.outcomes: dict[Ticket, object] = {}
        self._note(self.shard.loaded(self.image, self.now_ms))

    def _draw(self) -> str:
        self._drawn += 1
        return f"{len(self.log)}-{self._drawn}"

    def _note(self, decision: GroupDecision) -> None:
        self.log += decision.records
        for reply in decision.replies:
            assert reply.ticket not in self.outcomes
            outcome = reply.outcome if isinstance(reply, Answered) else reply.error
            assert isinstance(reply, Answered | Failed)
            self.outcomes[reply.ticket] = outcome

    def begin(self, request: GroupRequest[R]) -> Ticket:
        ticket = Ticket(self._tickets)
        self._tickets += 1
        self._note(self.shard.handle(ticket, request, self.image, self.now_ms))
        return ticket

    def ask(self, request: GroupRequest[R]) -> R:
        """Return the response of a request. Raise the error of a refusal."""
        ticket = self.begin(request)
        if ticket not in self.outcomes:
            self.past(1)
        outcome = self.outcomes[ticket]
        if isinstance(outcome, QuorumlogError):
            raise outcome
        return outcome  # type: ignore[return-value]

    def past(self, ms: int) -> None:
        """Let time pass and run what is due."""
        end_ms = self.now_ms + ms
        for _ in range(10_000):
            due_ms = self.shard.deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self._note(self.shard.expire(self.now_ms, self.image))
        else:
            raise AssertionError("a deadline is due forever")
        self.now_ms = end_ms

    def reload(self) -> "Played":
        """Load the log as another coordinator does."""
        other = Played(self.log)
        other.now_ms, other.image = self.now_ms, self.image
        return other

    def states(self) -> dict[str, str]:
        return {line.group: line.state for line in filter(None, self.shard.listings())}


def commit(offset: int = 5, **fields: object) -> CommitOffsets:
    one = OffsetToCommit(topic="t", partition=0, offset=offset)
    return CommitOffsets(group="g", offsets=(one,), **fields)  # type: ignore[arg-type]


def joined(played: Played, group: str = "g") -> str:
    """Let a classic member join alone and get its assignment. Return its id."""
    request = JoinGroup(
        group=group,
        member_id="",
        client_id="c",
        client_host="/h",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=(("range", subscription("t")),),
        takes_member_id_first=False,
    )
    found: Joined = played.ask(request)
    assert found.leader == found.member_id
    played.ask(
        SyncGroup(
            group=group,
            member_id=found.member_id,
            generation=found.generation,
            assignments={found.member_id: b"all"},
        )
    )
    return found.member_id


def beat(member_id: str = "m", epoch: int = 0) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        group="g",
        member_id=member_id,
        member_epoch=epoch,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5_000,
        topics=frozenset({"t"}) if epoch == 0 else None,
        owned={} if epoch == 0 else None,
    )


def stored(played: Played) -> dict[tuple[str, int], int]:
    found = played.ask(FetchOffsets(group="g"))
    return {(each.topic, each.partition): each.offset for each in found}


def test_a_commit_without_members_makes_an_empty_group_that_a_load_brings_back() -> None:
    played = Played()
    played.ask(commit())
    assert played.states() == {"g": "Empty"}
    anew = played.reload()
    assert anew.states() == {"g": "Empty"}
    assert stored(anew) == {("t", 0): 5}


def test_a_commit_of_a_generation_needs_a_group() -> None:
    played = Played()
    with pytest.raises(IllegalGeneration):
        played.ask(commit(generation=3, member_id="m"))
    assert played.states() == {}
    assert played.log == []


@pytest.mark.parametrize(
    "request_",
    [
        SyncGroup(group="g", member_id="m", generation=1),
        ClassicHeartbeat(group="g", member_id="m", generation=1),
        LeaveGroup(group="g", leavers=()),
        beat(epoch=3),
    ],
)
def test_members_of_a_missing_group_are_unknown(request_: GroupRequest[object]) -> None:
    with pytest.raises(UnknownMember):
        Played().ask(request_)


@pytest.mark.parametrize(
    "request_",
    [
        DescribeGroup(group="g"),
        DeleteGroup(group="g"),
        DeleteOffsets(group="g", partitions=(("t", 0),)),
    ],
)
def test_description_of_a_missing_group_is_dead(request_: GroupRequest[object]) -> None:
    with pytest.raises(GroupNotFound):
        Played().ask(request_)


def test_a_refused_join_leaves_no_group_behind() -> None:
    played = Played()
    request = JoinGroup(
        group="g",
        member_id="stranger",
        client_id="c",
        client_host="/h",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        takes_member_id_first=False,
    )
    with pytest.raises(UnknownMember):
        played.ask(request)
    assert played.states() == {}
    assert played.shard.deadline_ms() == START_MS + CONFIG.offsets_check_ms


def test_next_coordinator_has_the_classic_member_and_its_commits() -> None:
    played = Played()
    member = joined(played)
    played.ask(commit(7, member_id=member, generation=1))
    anew = played.reload()
    assert anew.states() == {"g": "Stable"}
    anew.ask(ClassicHeartbeat(group="g", member_id=member, generation=1))
    assert stored(anew) == {("t", 0): 7}
    anew.past(6_001)
    assert anew.states() == {"g": "Empty"}
    assert [type(each) for each in anew.log[len(played.log) :]] == [ClassicGroup]


def test_next_coordinator_has_the_kip_848_member() -> None:
    played = Played()
    found: ConsumerBeat = played.ask(beat())
    assert found.assignment == {ID: frozenset({0, 1})}
    anew = played.reload()
    again: ConsumerBeat = anew.ask(beat(epoch=found.member_epoch))
    assert again.member_epoch == found.member_epoch
    with pytest.raises(StaleMemberEpoch):
        anew.ask(FetchOffsets(group="g", member_id="m", member_epoch=99))
    anew.past(44_999)
    assert anew.states() == {"g": "Stable"}
    anew.past(2_000)  # silent for a whole session, and nothing is committed
    assert anew.states() == {}
    assert ConsumerGroupForgotten(group="g") in anew.log


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets() -> None:
    played = Played()
    played.ask(commit())
    found: ConsumerBeat = played.ask(beat())
    assert not any(line.is_classic for line in filter(None, played.shard.listings()))
    assert stored(played.reload()) == {("t", 0): 5}
    played.ask(beat(epoch=-1))
    assert found.member_epoch > 0
    member = joined(played)
    assert all(line.is_classic for line in filter(None, played.shard.listings()))
    anew = played.reload()
    assert anew.states() == {"g": "Stable"}
    anew.ask(ClassicHeartbeat(group="g", member_id=member, generation=1))
    assert stored(anew) == {("t", 0): 5}


def test_a_group_with_members_is_not_deleted() -> None:
    played = Played()
    member = joined(played)
    with pytest.raises(NonEmptyGroup):
        played.ask(DeleteGroup(group="g"))
    (error,) = played.ask(DeleteOffsets(group="g", partitions=(("t", 0),))).errors
    assert isinstance(error, GroupSubscribedToTopic)
    assert played.states() == {"g": "Stable"}
    assert member


def test_a_deleted_group_leaves_only_tombstones() -> None:
    played = Played()
    joined(played)
    played.past(7_000)
    played.ask(commit())
    played.ask(DeleteGroup(group="g"))
    kinds = [type(each) for each in played.log[-2:]]
    assert kinds == [OffsetForgotten, ClassicGroupForgotten]
    assert played.reload().states() == {}


def test_a_deleted_group_of_kip_848_leaves_only_tombstones() -> None:
    played = Played()
    played.ask(beat())
    with pytest.raises(NonEmptyGroup):
        played.ask(DeleteGroup(group="g"))
    played.ask(beat(epoch=-1))
    played.ask(commit())
    played.ask(DeleteGroup(group="g"))
    assert ConsumerGroupForgotten(group="g") in played.log
    assert played.reload().states() == {}


def test_only_offsets_of_unsubscribed_topics_can_be_deleted() -> None:
    played = Played()
    played.ask(commit())
    assert played.ask(DeleteOffsets(group="g", partitions=(("t", 0), ("t", 1)))).errors == (
        None,
        None,
    )
    assert stored(played) == {}


@pytest.mark.parametrize("is_read_anew", [False, True])
def test_offsets_of_a_quiet_group_are_kept_for_a_retention_after_its_last_member_left(
    is_read_anew: bool,
) -> None:
    played = Played()
    epoch = played.ask(beat()).member_epoch
    assert played.ask(commit(member_id="m", generation=epoch)).errors == (None,)
    for _ in range(3):  # longer than the retention, without a commit
        played.past(30_000)
        played.ask(beat(epoch=epoch))
    played.ask(beat(epoch=-1))
    if is_read_anew:
        played = played.reload()
    played.past(59_000)
    assert stored(played) == {("t", 0): 5}
    played.past(3_000)
    assert stored(played) == {}


def test_no_offset_expires_while_a_classic_group_rebalances() -> None:
    played = Played()
    member_id = joined(played)
    assert played.ask(commit(member_id=member_id, generation=1)).errors == (None,)
    for _ in range(13):
        played.past(5_000)
        played.ask(ClassicHeartbeat(group="g", member_id=member_id, generation=1))
    played.ask(LeaveGroup(group="g", leavers=(Leaver(member_id=member_id),)))
    other = JoinGroup(
        group="g",
        member_id="",
        client_id="c",
        client_host="/h",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=(("range", subscription("another")),),
        takes_member_id_first=False,
    )
    played.ask(other)
    played.past(1_500)  # the member that reads this topic restarts as well
    assert played.states() == {"g": "CompletingRebalance"}
    assert stored(played) == {("t", 0): 5}


def test_empty_group_and_its_offsets_expire_after_the_retention() -> None:
    played = Played()
    joined(played)
    played.past(6_500)  # the member sends no heartbeat
    played.ask(commit())
    played.past(60_000)
    assert stored(played) == {("t", 0): 5}
    played.past(1_500)
    assert played.states() == {}
    assert played.reload().states() == {}


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    played = Played()
    found: ConsumerBeat = played.ask(beat())
    epoch = found.member_epoch
    played.ask(commit(member_id="m", generation=epoch))
    for _ in range(12):
        played.past(10_000)
        played.ask(beat(epoch=epoch))
    assert stored(played) == {("t", 0): 5}


def test_deleted_topic_is_removed_from_every_group() -> None:
    played = Played()
    played.ask(commit())
    topic = IMAGE.topic("t")
    assert topic is not None
    played.image = image_of({})
    decision = played.shard.image_changed(played.image, played.now_ms, deleted=[topic])
    assert decision.records == (OffsetForgotten(group="g", topic="t", partition=0),)
    assert stored(played) == {}


def test_due_groups_are_spread_over_several_steps() -> None:
    played = Played()
    for number in range(GROUPS_A_STEP + 1):
        played.ask(replace(beat(), group=f"g{number}"))
    decision = played.shard.expire(played.now_ms + 60_000, played.image)
    gone = {each.group for each in decision.records if isinstance(each, ConsumerMemberForgotten)}
    assert len(gone) == GROUPS_A_STEP
    due_ms = played.shard.deadline_ms()
    assert due_ms is not None
    assert due_ms <= played.now_ms + 60_000
    played.past(60_000)
    assert set(played.states().values()) <= {"Empty"}


def test_shard_without_groups_only_has_the_offset_expiry_deadline() -> None:
    played = Played()
    assert played.shard.deadline_ms() == START_MS + CONFIG.offsets_check_ms
    played.past(5_000)
    assert played.log == []
