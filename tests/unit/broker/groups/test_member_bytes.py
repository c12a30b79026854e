"""The memory of names, subscriptions and assignments is bounded for each client and a broker."""

from collections import Counter
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.coordinator.decision import Answered, Ticket
from quorumlog.broker.groups import member_bytes
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.member_bytes import (
    GROUPS_KEPT,
    SWEEP_MS,
    MemberBytesLimits,
    text_bytes,
)
from quorumlog.broker.groups.requests import (
    ConsumerHeartbeat,
    DescribeGroup,
    GroupRequest,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    SyncGroup,
)
from quorumlog.broker.groups.shard import GroupShard
from quorumlog.errors import GroupFull
from quorumlog.storage.producer_state import ProducerLimits

from .classic.play import subscription
from .coordinated import asked, cluster, coordinator, made, make_topic
from .offsets_image import ID, image_of

R = TypeVar("R")

IMAGE = image_of({"t": ID})
KIB = 1 << 10
LONG = "n" * 8_000
"""A name of nearly the maximum length."""


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the bytes to 100 KiB for each client and 150 KiB in all."""
    monkeypatch.setattr(member_bytes, "CLIENT_BYTES_MAX", 100 * KIB)
    monkeypatch.setattr(member_bytes, "BYTES_MAX", 150 * KIB)


def joining(client: str, group: str, kib: int, member_id: str = "") -> JoinGroup:
    return JoinGroup(
        group=group,
        client=client,
        member_id=member_id,
        client_id="c",
        client_host="/h",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="connect",
        protocols=(("p", bytes(kib * KIB)),),
        takes_member_id_first=False,
    )


def started(nodes: Cluster) -> None:
    """Have a coordinator."""
    nodes.start()
    make_topic(nodes)
    made(nodes)


def test_client_cannot_use_the_memory_of_all_groups() -> None:
    with cluster(1, offsets_topic_num_partitions=3) as nodes:
        started(nodes)
        nodes.until(lambda: coordinator(nodes, 1).census().partitions_served == 3)
        joined = [asked(nodes, 1, joining("mallory", f"m{each}", 30)) for each in range(3)]
        with pytest.raises(GroupFull, match="mallory has added"):
            asked(nodes, 1, joining("mallory", "m3", 30))
        with pytest.raises(GroupFull, match="mallory has added"):  # a subscription that grows
            asked(nodes, 1, joining("mallory", "m0", 60, joined[0].member_id))
        rejoined = asked(nodes, 1, joining("mallory", "m0", 30, joined[0].member_id))
        assert rejoined.member_id == joined[0].member_id
        asked(nodes, 1, joining("alice", "a", 30))
        with pytest.raises(GroupFull, match="all groups of the broker"):
            asked(nodes, 1, joining("bob", "b", 40))


def test_groups_without_members_free_the_memory_of_their_client() -> None:
    with cluster(1) as nodes:
        started(nodes)
        joined: Joined = asked(nodes, 1, joining("alice", "a", 90))
        with pytest.raises(GroupFull):
            asked(nodes, 1, joining("alice", "other", 90))
        leavers = (Leaver(member_id=joined.member_id),)
        asked(nodes, 1, LeaveGroup(group="a", leavers=leavers))
        nodes.world.run_for(member_bytes.SWEEP_MS)
        asked(nodes, 1, joining("alice", "other", 90))
        assert coordinator(nodes, 1).figures.reloads == 0


def test_removed_groups_are_forgotten() -> None:
    present = {(0, f"g{number}"): 1 for number in range(10)}
    limits = MemberBytesLimits(
        lambda: 0, lambda partition, group: present.get((partition, group), 0)
    )
    for number in range(5 * GROUPS_KEPT):
        limits.check("alice", f"g{number}", number * SWEEP_MS, 1)
        limits.add("alice", 0, f"g{number}", 1)
        assert limits.remembered("alice") <= GROUPS_KEPT
    assert limits.remembered("alice") >= len(present)


def test_assignments_and_topics_count() -> None:
    with cluster(1) as nodes:
        started(nodes)
        joined: Joined = asked(nodes, 1, joining("alice", "a", 60))
        sync = SyncGroup(
            group="a",
            client="alice",
            member_id=joined.member_id,
            generation=joined.generation,
            assignments={joined.member_id: bytes(60 * KIB)},
        )
        with pytest.raises(GroupFull, match="alice has added"):
            asked(nodes, 1, sync)
        asked(nodes, 1, replace(sync, assignments={joined.member_id: bytes(30 * KIB)}))
        beat = ConsumerHeartbeat(
            group="b",
            client="alice",
            member_id="m",
            member_epoch=0,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=30_000,
            topics=frozenset(f"{number:0200}" for number in range(100)),
            owned={},
        )
        with pytest.raises(GroupFull, match="alice has added"):
            asked(nodes, 1, beat)
        asked(nodes, 1, replace(beat, topics=frozenset(("t",))))


def test_names_of_classic_members_count_for_their_client() -> None:
    def join(number: int) -> JoinGroup:
        request = joining("mallory", f"m{number}", 0)
        return replace(request, instance_id=LONG, client_id=LONG, protocols=((LONG, b""),))

    with cluster(1) as nodes:
        started(nodes)
        for number in range(3):
            asked(nodes, 1, join(number))
        with pytest.raises(GroupFull, match="mallory has added"):
            asked(nodes, 1, join(3))
        asked(nodes, 1, joining("alice", "a", 30))


def test_names_of_kip_848_members_count_without_topics() -> None:
    def join(number: int) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            group="g",
            client="mallory",
            member_id=f"{number}{LONG}",
            member_epoch=0,
            instance_id=f"{number}{LONG}",
            client_id=LONG,
            client_host="/h",
            rebalance_timeout_ms=30_000,
            topics=frozenset(),
            owned={},
        )

    with cluster(1) as nodes:
        started(nodes)
        joined = [asked(nodes, 1, join(number)) for number in range(4)]
        with pytest.raises(GroupFull, match="mallory has added"):
            asked(nodes, 1, join(4))
        beat = ConsumerHeartbeat(
            group="g",
            client="mallory",
            member_id=joined[3].member_id,
            member_epoch=joined[3].member_epoch,
            client_id=LONG,
            client_host="/h",
        )
        with pytest.raises(GroupFull, match="mallory has added"):
            asked(nodes, 1, replace(beat, rack=LONG))
        assert asked(nodes, 1, beat).member_epoch == joined[3].member_epoch


def test_pending_member_ids_count_until_they_leave_or_expire() -> None:
    request = joining("mallory", "m", 0)
    request = replace(request, client_id=LONG, takes_member_id_first=True)
    with cluster(1) as nodes:
        started(nodes)
        issued = [asked(nodes, 1, request) for _ in range(12)]
        assert all(each.is_member_id_required for each in issued)
        with pytest.raises(GroupFull, match="mallory has added"):
            asked(nodes, 1, request)
        leavers = tuple(Leaver(member_id=each.member_id) for each in issued[:6])
        asked(nodes, 1, LeaveGroup(group="m", leavers=leavers))
        nodes.world.run_for(SWEEP_MS)
        asked(nodes, 1, joining("mallory", "other", 30))
        with pytest.raises(GroupFull, match="mallory has added"):
            asked(nodes, 1, joining("mallory", "another", 30))
        nodes.world.run_for(request.session_timeout_ms)
        asked(nodes, 1, joining("mallory", "another", 60))


class Charging:
    """A shard of groups, and the bytes that it counts for each client."""

    def __init__(self, group_bytes_max: int = 1 << 20) -> None:
        self.charged: Counter[str] = Counter()
        self.config = GroupConfig(initial_delay_ms=0, group_bytes_max=group_bytes_max)
        self.now_ms = 1_000_000
        self.shard = GroupShard(self.config, lambda: "drawn", ProducerLimits(), self._charge)
        self.shard.loaded(IMAGE, self.now_ms)

    def _charge(self, client: str, group: str, growth: int) -> None:
        assert growth > 0
        self.charged[client] += growth

    def ask(self, request: GroupRequest[R]) -> R:
        """Return the response of a request. Raise the error of a refusal."""
        decision = self.shard.handle(Ticket(0), request, IMAGE, self.now_ms)
        if not decision.replies:
            decision = self.shard.expire(self.now_ms, IMAGE)
        (reply,) = decision.replies
        self.shard.check_invariants()
        if isinstance(reply, Answered):
            return cast(R, reply.outcome)
        raise reply.error


def beating(member_epoch: int = 0, **fields: Any) -> ConsumerHeartbeat:
    if member_epoch == 0:
        fields |= {"topics": frozenset(("t",)), "owned": {}, "rebalance_timeout_ms": 30_000}
    return ConsumerHeartbeat(
        group="g",
        client="carol",
        member_id="m",
        member_epoch=member_epoch,
        client_id="c",
        client_host="/h",
        **fields,
    )


def test_group_bounds_what_heartbeats_add() -> None:
    shard = Charging(group_bytes_max=10_000)
    found = shard.ask(beating())
    shard.ask(beating(found.member_epoch, rack=LONG))
    with pytest.raises(GroupFull, match="the subscriptions of its members"):
        shard.ask(replace(beating(found.member_epoch), client_id=LONG))


def test_join_with_a_pending_id_does_not_count_the_id_twice() -> None:
    shard = Charging()
    request = replace(joining("alice", "g", 0), takes_member_id_first=True, client_id=LONG)
    issued = shard.ask(request)
    assert shard.charged["alice"] == len(issued.member_id)
    shard.ask(replace(request, member_id=issued.member_id))
    assert shard.charged["alice"] == len(issued.member_id) + len(f"{LONG}/hpconnect")


@pytest.mark.parametrize("is_late", [False, True])
def test_all_bytes_of_a_group_count_for_clients(is_late: bool) -> None:
    shard = Charging()
    members = shard.shard.members
    classic = replace(
        joining("alice", "g", 0),
        protocol_type="consumer",
        protocols=(("range", subscription("t")),),
        session_timeout_ms=1_800_000,
    )
    joined = shard.ask(classic)
    assert shard.charged == {"alice": members.total}
    sync = SyncGroup(
        group="g",
        client="bob",
        member_id=joined.member_id,
        generation=joined.generation,
        assignments={joined.member_id: bytes(10)},
    )
    shard.ask(sync)
    assert shard.charged["bob"] == 10
    shard.ask(beating())  # upgrades the group
    assert shard.charged.total() >= members.total
    before = shard.charged.total() - members.total
    if is_late:
        shard.now_ms += shard.config.consumer_session_ms
        shard.shard.expire(shard.now_ms, IMAGE)
    else:
        shard.ask(beating(-1))
    described = shard.ask(DescribeGroup(group="g"))
    assert described.is_classic
    assert shard.charged.total() - members.total >= before
    shard.shard.check_invariants()


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 1), ("name", 1), ("n\xe4me", 1), ("\u4e00", 2), ("\U00020000", 4), ("a\U00020000", 4)],
)
def test_size_of_a_text_bounds_its_encoding_and_its_memory(text: str, width: int) -> None:
    size = text_bytes((text, "ascii"))
    assert size >= len(text.encode()) + 5
    assert size >= len(text) * width + 5
    assert size == len(text) + 5 or not text.isascii()
