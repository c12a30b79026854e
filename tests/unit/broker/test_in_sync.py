"""The ISR on whole simulated nodes: shrink, expansion and too few replicas."""

from functools import partial

import pytest
from tests.kit.replica_cluster import LAG_MS, Cluster, world

from quorumlog.broker import Acks
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.offsets import TimestampMs
from quorumlog.errors import (
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    OffsetNotAvailable,
)
from quorumlog.simulation import SimWorld
from quorumlog.simulation.links import Direction

LEAVES_MS = 2 * LAG_MS
"""Longer than a follower may lag and until somebody looks."""


def led_beside_the_controller(sim: SimWorld, **configs: str) -> tuple[Cluster, int, list[int]]:
    """Return five nodes with "t" on three that do not lead the quorum: its leader and followers."""
    cluster = Cluster(sim, (1, 2, 3, 4, 5))
    cluster.start()
    cluster.until(lambda: cluster.controller() != 0)
    leader, *others = [number for number in cluster.numbers if number != cluster.controller()][:3]
    cluster.create(leader, *others, **configs)
    cluster.send(b"first")
    assert cluster.everywhere(leader, *others) == [b"first"]
    return cluster, leader, others


def starve(cluster: Cluster, leader: int, *followers: int) -> list[Direction]:
    """Partition followers from the leader while they stay registered."""
    return [pair for other in followers for pair in cluster.separate(leader, other)]


def test_a_follower_that_lags_leaves_and_joins_again_when_it_has_caught_up() -> None:
    with world() as sim:
        cluster, leader, others = led_beside_the_controller(sim)
        slow = others[0]
        barrier = starve(cluster, leader, slow)
        task = cluster.append(leader, "t", b"second", acks=Acks.ALL)
        cluster.until(lambda: cluster.isr("t") == {leader, others[1]}, LEAVES_MS)
        sim.run_until(task, virtual_ms=1_000)
        assert cluster.marks("t")[leader] == 2, (
            "records that only the slow follower lacked are committed"
        )
        cluster.join_again(barrier)
        assert cluster.everywhere(leader, *others) == [b"first", b"second"]


def test_append_that_only_the_leader_stored_gets_its_own_error() -> None:
    with world() as sim:
        cluster, leader, others = led_beside_the_controller(sim, min_insync_replicas="3")
        slow = others[0]
        starve(cluster, leader, slow)
        early = cluster.append(leader, "t", b"second", acks=Acks.ALL, timeout_ms=LEAVES_MS)
        cluster.until(lambda: cluster.isr("t") == {leader, others[1]}, LEAVES_MS)
        late = cluster.append(leader, "t", b"third", acks=Acks.ALL)
        sim.run_until(late, virtual_ms=1_000)
        with pytest.raises(NotEnoughReplicas, match=r"2 of min\.insync\.replicas=3"):
            late.result()
        sim.run_until(early, virtual_ms=LEAVES_MS)
        with pytest.raises(NotEnoughReplicasAfterAppend):
            early.result()
        assert cluster.marks("t")[leader] == 1


def test_seek_by_time_waits_until_a_new_leader_has_committed_its_epochs_start() -> None:
    """KIP-207: the record of that time was acknowledged by all, and the log end would skip it."""
    late_ms = 2**41
    with world() as sim:
        cluster, old, others = led_beside_the_controller(
            sim, message_timestamp_after_max_ms=str(2**62)
        )
        new, third = others
        barrier = cluster.separate(new, third)
        cluster.append(old, "t", b"second", acks=Acks.ALL, timestamp_ms=late_ms)
        cluster.until(lambda: min(cluster.ends("t").values()) == 2)
        assert cluster.marks("t")[new] == 1
        cluster.crash(old)
        cluster.until(lambda: cluster.leader("t") == new)

        async def seek(log: AsyncLog, timeout_ms: int) -> dict[int, int]:
            return await log.list_offsets("t", at=TimestampMs(late_ms), timeout_ms=timeout_ms)

        with pytest.raises(OffsetNotAvailable, match="up to offset 1 of 2"):
            cluster.run(partial(seek, timeout_ms=500))
        assert cluster.marks("t")[new] == 1
        cluster.join_again(barrier)
        assert cluster.run(partial(seek, timeout_ms=20_000)) == {0: 1}


def test_new_leader_returns_no_high_watermark_before_it_commits_in_its_epoch() -> None:
    """The high watermark of the previous leader must not decrease (KIP-966)."""
    with world() as sim:
        cluster, old, others = led_beside_the_controller(sim)
        new, third = others
        barrier = cluster.separate(new, third)
        cluster.append(old, "t", b"second", acks=Acks.ALL)
        cluster.until(lambda: min(cluster.ends("t").values()) == 2)
        assert cluster.marks("t")[new] == 1
        cluster.crash(old)
        cluster.until(lambda: cluster.leader("t") == new)
        with pytest.raises(OffsetNotAvailable, match="up to offset 1 of 2"):
            cluster.latest(new, "t")
        cluster.join_again(barrier)
        cluster.until(lambda: cluster.marks("t")[new] == 2)
        assert cluster.latest(new, "t") == 2
