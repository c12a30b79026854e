"""The cluster watch reads the folders of partitions and finds violations planted by hand.

tests/planted/node has the violations that need a changed program.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.simulation.checkers.cluster_invariants import (
    Committed,
    WatchedPartition,
)
from tests.simulation.checkers.stored_batches import PartitionFiles, StoredBatch
from tests.simulation.checkers.violation import Violation
from tests.simulation.cluster.options import TopicPlan
from tests.simulation.cluster.scripted import ScriptedCluster, options_of
from tests.simulation.faults.cluster_bounds import may_cut_power, may_wipe

from quorumlog.ids import Offset
from quorumlog.records import Record, encode_batch
from quorumlog.simulation import SimNode, SimWorld

FOLDER = "/data/t-0"
FIRST, SECOND = f"{FOLDER}/{0:020d}.log", f"{FOLDER}/{4:020d}.log"
PLACE = ("t", 0)
WHAT = WatchedPartition("t", b"t" * 16, 0)


# --- folders of partitions -----------------------------------------------------------------------


def batch(base_offset: int, count: int, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    """Build a batch as a log stores it."""
    built = bytearray(encode_batch([Record(0, 1, None, value) for _ in range(count)]))
    built[:8] = base_offset.to_bytes(8)
    built[12:16] = epoch.to_bytes(4)
    return bytes(built)


@contextmanager
def folder() -> Iterator[tuple[SimNode, PartitionFiles]]:
    with SimWorld(1) as world:
        node = world.node("n1")
        node.start_process()
        files = node.runtime().files
        files.make_folder("/data")
        files.make_folder(FOLDER)
        for path in ("/", "/data"):
            files.sync_folder(path)
        yield node, PartitionFiles(node, FOLDER)


def write(node: SimNode, path: str, position: int, *batches: bytes, sync: bool = False) -> int:
    """Write batches one after the other. Return their ends."""
    files = node.runtime().files
    file = files.open(path, create=not files.exists(path))
    for each in batches:
        file.write(position, [each])
        position += len(each)
    if sync:
        file.sync()
        files.sync_folder(FOLDER)
    return position


def test_missing_folder_has_no_batches() -> None:
    with SimWorld(1) as world:
        files = PartitionFiles(world.node("n1"), FOLDER)
        assert (files.start_offset(), files.end_offset(), files.durable_end_offset()) == (0, 0, 0)
        assert list(files.batches(0, 100)) == []


def test_batches_are_followed_as_they_come_over_segments() -> None:
    with folder() as (node, found):
        end = write(node, FIRST, 0, batch(0, 2))
        assert found.end_offset() == 2
        write(node, FIRST, end, batch(2, 2))
        write(node, SECOND, 0, batch(4, 3, epoch=1))
        assert [one.base_offset for one in found.batches(0, 100)] == [0, 2, 4]
        assert [one.base_offset for one in found.batches(3, 4)] == [2]
        assert [one.leader_epoch for one in found.batches(4, 5)] == [1]
        assert found.end_offset() == 7


def test_rewritten_batches_are_read_again() -> None:
    with folder() as (node, found):
        end = write(node, FIRST, 0, batch(0, 2))
        write(node, FIRST, end, batch(2, 2))
        (before,) = found.batches(2, 4)
        node.runtime().files.open(FIRST).truncate(end)
        assert found.end_offset() == 2
        write(node, FIRST, end, batch(2, 2, epoch=3, value=b"w"))
        (after,) = found.batches(2, 4)
        assert (before.leader_epoch, after.leader_epoch) == (0, 3)
        assert before.crc != after.crc


def test_only_synced_batches_are_durable() -> None:
    with folder() as (node, found):
        end = write(node, FIRST, 0, batch(0, 2), sync=True)
        write(node, FIRST, end, batch(2, 2))
        assert (found.end_offset(), found.durable_end_offset()) == (4, 2)


def test_durable_batches_stay_durable_when_rewritten() -> None:
    """A recovery rewrites the tail of a log and dies before the sync."""
    with folder() as (node, found):
        position = write(node, FIRST, 0, batch(0, 2), sync=True)
        write(node, FIRST, position, batch(2, 2), sync=True)
        write(node, FIRST, position, batch(2, 2))
        assert found.durable_end_offset() == 4
        write(node, FIRST, position, batch(2, 2, value=b"w"))
        assert found.durable_end_offset() == 2


def test_a_torn_tail_ends_the_log() -> None:
    with folder() as (node, found):
        write(node, FIRST, 0, batch(0, 2), batch(2, 1)[:-3])
        assert found.end_offset() == 2


# --- one history ---------------------------------------------------------------------------------


def stored(base_offset: int, end_offset: int, *, epoch: int = 0, crc: int = 1) -> StoredBatch:
    return StoredBatch(base_offset, end_offset, epoch, crc, 0)


def test_another_batch_at_a_committed_offset_is_found() -> None:
    committed = Committed()
    committed.take("n1", WHAT, stored(0, 3))
    committed.take("n1", WHAT, stored(3, 5))
    committed.take("n2", WHAT, stored(0, 3))
    assert committed.end_offset == 5
    with pytest.raises(AssertionError, match="OneHistory"):
        committed.take("n2", WHAT, stored(3, 5, epoch=1))
    with pytest.raises(AssertionError, match="OneHistory"):
        committed.take("n3", WHAT, stored(3, 5, crc=2))


def test_a_batch_across_the_end_of_what_is_committed_is_found() -> None:
    committed = Committed()
    committed.take("n1", WHAT, stored(0, 3))
    with pytest.raises(AssertionError, match="OneHistory"):
        committed.take("n2", WHAT, stored(2, 5))


# --- running clusters ----------------------------------------------------------------------------


@contextmanager
def stage(*, min_isr: int = 2) -> Iterator[ScriptedCluster]:
    topic = TopicPlan(
        name="t",
        partitions=1,
        replication=3,
        min_isr=min_isr,
        flush_policy="replicated" if min_isr > 1 else "fsync",
    )
    with SimWorld(1) as world:
        running = ScriptedCluster(world, options_of(topic))
        running.start()
        running.produce(PLACE, 3)
        running.run(500)
        yield running


@pytest.mark.slow
@pytest.mark.parametrize(("mark", "rule"), [(100, "HighWatermarkInLog"), (1, "MonotonicReplica")])
def test_invalid_high_watermark_is_found_at_the_next_step(mark: int, rule: str) -> None:
    with stage() as running:
        node = running.leader(PLACE)
        assert node.node is not None
        assert node.node.parts.replicas is not None
        (replica,) = node.node.parts.replicas.hosted
        replica.partition.high_watermark = Offset(mark)
        with pytest.raises(Violation) as caught:
            running.run(5_000)
        assert caught.value.invariant == rule


@pytest.mark.slow
def test_acknowledged_record_missing_from_a_candidate_is_found() -> None:
    with stage() as running:
        follower = running.bystander(PLACE)
        path = f"/var/quorumlog/t-0/{0:020d}.log"
        body = dict(follower.sim.device.disk.files())[path]
        del body.content[:]
        with pytest.raises(Violation) as caught:
            running.produce(PLACE, 1)
        assert caught.value.invariant in ("CompleteCandidates", "OneHistory", "StoredEnd")


@pytest.mark.slow
def test_concurrent_losses_stay_within_what_the_cluster_survives() -> None:
    with stage() as running:
        one, other, _ = running.cluster.nodes
        assert may_wipe(running.cluster, one)
        running.cluster.note_damage(one)
        assert not may_wipe(running.cluster, other), "one replica misses records already"
        assert not may_cut_power(running.cluster, other)
    with stage(min_isr=1) as running:
        one = running.cluster.nodes[0]
        assert may_cut_power(running.cluster, one), "no acknowledged record is unflushed"
        assert not may_wipe(running.cluster, one), "no other replica needs to have it"


@pytest.mark.slow
def test_a_machine_that_lost_its_disk_counts_until_it_is_in_sync_again() -> None:
    with stage() as running:
        one, other, _ = running.cluster.nodes
        running.take_down(one)
        running.cluster.note_damage(one)
        running.cluster.wipe(one)
        running.bring_up(one)
        running.until(lambda: not running.cluster.damaged, "it has registered anew")
        assert not may_wipe(running.cluster, other), "the replica is not in sync yet"
        running.until(lambda: may_wipe(running.cluster, other), "it is in sync again")


@pytest.mark.slow
def test_a_registration_from_before_the_loss_does_not_end_it() -> None:
    with stage() as running:
        one = running.cluster.nodes[0]
        running.cluster.note_damage(one)  # the power is cut in a moment
        running.take_down(one)
        running.bring_up(one)
        running.until(lambda: one.is_ready, "it has registered anew, from the boot that lost")
        assert one.name in running.cluster.damaged
        running.take_down(one, power=True)
        running.bring_up(one)
        running.until(lambda: not running.cluster.damaged, "it has registered from the next boot")
