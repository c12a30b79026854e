"""The memory of subscriptions and assignments is bounded for each client and for a broker."""

from dataclasses import replace

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.groups import member_bytes
from quorumlog.broker.groups.member_bytes import GROUPS_KEPT, SWEEP_MS, MemberBytesLimits
from quorumlog.broker.groups.requests import (
    ConsumerHeartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    SyncGroup,
)
from quorumlog.errors import GroupFull

from .coordinated import asked, cluster, coordinator, made, make_topic

KIB = 1 << 10


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
        limits.add("alice", 0, f"g{number}", 1, number * SWEEP_MS)
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
