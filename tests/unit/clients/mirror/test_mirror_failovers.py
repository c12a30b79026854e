"""A mirror between clusters of three nodes, with leader failures on both sides."""

from functools import partial

import pytest
from tests.kit.replica_cluster import Cluster, tried, world

from quorumlog.broker.shell.mirror import with_epoch
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.mirror import Mirror, Target
from quorumlog.clients.mirror.target import CopyChunk
from quorumlog.ids import Epoch
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin

from .clusters import Clusters, contents


def is_copied(mirror: Mirror, end: int) -> bool:
    return mirror.copies[0].copied_to == end


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_leader_failures_on_both_sides_create_no_gap_and_no_duplicate(seed: int) -> None:
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


def batch(*offsets: int, value: bytes = b"kept") -> bytes:
    records = [Record(offset, 1, b"k", value) for offset in offsets]
    return encode_batch(records, base_offset=offsets[0])


@pytest.mark.slow
def test_returning_leader_truncates_unacknowledged_batches_before_a_gap_and_a_new_epoch() -> None:
    """Its batches were never acknowledged, and the source has compacted those offsets since."""
    with world() as simulated:
        cluster = Cluster(simulated)
        cluster.start()
        cluster.create(1, 2, 3, mirror_source="x/y")

        async def copy(log: AsyncLog, end: int, batches: bytes) -> None:
            target = Target(log._connection)
            address = await target.leader(("t", 0))
            (done,) = await target.append(address, [CopyChunk(("t", 0), "x/y", end, [batches])])
            if done.error is not None:
                raise done.error

        cluster.run(lambda log: copy(log, 0, batch(0, 1)))
        cluster.everywhere()
        barrier = [*cluster.separate(1, 2), *cluster.separate(1, 3)]
        alone = cluster.replica(1, "t")

        async def append_alone(_: Runtime) -> None:
            parts = cluster.nodes[1].parts
            assert parts.directory is not None
            old = b"".join(batch(offset, value=b"compacted since") for offset in range(2, 12))
            await parts.directory.append(
                alone.log,
                with_epoch(old, Epoch(alone.log.epochs.latest)),
                leader_epoch=alone.log.epochs.latest,
                origin=AppendOrigin.REPLICATED,
                flush=True,
            )

        simulated.run_until(cluster.machine(1).attach(append_alone, name="alone"), virtual_ms=1_000)
        cluster.until(lambda: cluster.leader_beside(1, "t") != 0)
        cluster.crash(1)
        cluster.run(lambda log: tried(lambda: copy(log, 2, batch(8, 9))))
        cluster.join_again(barrier)
        cluster.start(1)
        assert cluster.everywhere() == [b"kept"] * 4
