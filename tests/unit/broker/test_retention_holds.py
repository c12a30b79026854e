"""A group's hold on three whole nodes: all replicas keep its unread records."""

import pytest
from tests.kit.node_settings import with_settings
from tests.kit.replica_cluster import Cluster, world

from quorumlog.clients.admin.groups import Group
from quorumlog.clients.log import AsyncLog
from quorumlog.settings.query_groups import HOLD_MS_MAX, Hold

RECORDS = 12  # two of them fill a segment
LOOK_MS = 1_000


async def hold(log: AsyncLog) -> None:
    """Hold the unread records of group `g` against a retention that would delete everything."""
    end_ms = log._connection.runtime.clock.wall_ms() + HOLD_MS_MAX
    configs = {"retention.holds": str(Hold("g", end_ms, 1 << 40)), "retention.ms": "1"}
    await log.admin.alter_configs("t", configs)


def commit(cluster: Cluster, offset: int) -> None:
    async def ask(log: AsyncLog) -> None:
        await log.admin.reset_offsets("g", {("t", 0): offset})

    cluster.run(ask)


def starts(cluster: Cluster) -> set[int]:
    """Return the log start offset on each node."""
    return {replica.log.log_start_offset for _, replica in cluster.all_held("t")}


@pytest.mark.slow
def test_every_replica_keeps_what_the_group_has_not_read() -> None:
    with world() as sim:
        cluster = Cluster(sim)
        for number, config in cluster.configs.items():
            cluster.configs[number] = with_settings(config, retention_check_interval_ms=LOOK_MS)
        cluster.start()
        cluster.create(1, 2, 3, segment_bytes="1024")
        for number in range(RECORDS):
            cluster.send(b"%04d" % number * 100)
        commit(cluster, 6)
        cluster.everywhere()
        cluster.run(hold)
        sim.run_for(10 * LOOK_MS)
        kept = starts(cluster)
        assert all(4 <= start <= 6 for start in kept), kept
        group: Group = cluster.run(lambda log: log.admin.describe_group("g"))
        assert [(each.topic, each.bytes_max) for each in group.holds] == [("t", 1 << 40)]
        assert group.lag == RECORDS - 6
        commit(cluster, RECORDS)
        cluster.until(lambda: starts(cluster) == {RECORDS})
