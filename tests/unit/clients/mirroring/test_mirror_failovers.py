"""A mirror between clusters of three nodes, whose leaders die on both sides."""

from functools import partial

import pytest

from quorumlog.clients import AsyncLog
from quorumlog.clients.mirroring import Mirror

from ...broker.whole_nodes import world
from .clusters import Clusters, contents


def is_copied(mirror: Mirror, end: int) -> bool:
    return mirror.courses[0].copied_to == end


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_leaders_that_die_on_both_sides_make_no_hole_and_no_double(seed: int) -> None:
    with world(seed) as simulated:
        clusters = Clusters(simulated, source=(1, 2, 3), target=(4, 5, 6))

        async def create(log: AsyncLog) -> None:
            await log.admin.create_topic("t", partitions=1, replication=3)

        clusters.in_source(create)
        clusters.send("t", *[b"%d" % each for each in range(20)])
        clusters.in_source(lambda log: log.admin.delete_records("t", {0: 5}))
        clusters.start()
        clusters.until(clusters.is_caught_up)
        sent = 20
        for cluster in (clusters.target, clusters.source, clusters.target):
            leader = cluster.leader("t")
            cluster.crash(leader, power=True)
            clusters.send("t", *[b"%d" % each for each in range(sent, sent + 10)])
            sent += 10
            mirror = clusters.mirror
            assert mirror is not None
            clusters.until(partial(is_copied, mirror, sent))
            cluster.start(leader)
        assert [offset for offset, *_ in clusters.same("t")] == list(range(5, sent))
        for cluster in (clusters.source, clusters.target):
            cluster.everywhere()
        assert len(contents(clusters.target, "t")) == sent - 5
