"""A mirror between two whole simulated clusters."""

import base64

import pytest
from tests.kit.replica_cluster import CLUSTER, produce

from quorumlog.clients.log import AsyncLog
from quorumlog.clients.mirror import CopyState, Target
from quorumlog.clients.mirror.source import source_name
from quorumlog.clients.mirror.target import CopyChunk
from quorumlog.errors import NotDelivered
from quorumlog.records import Record, encode_batch

from .clusters import Clusters, contents


def test_copies_have_the_offsets_times_and_keys_of_their_source(clusters: Clusters) -> None:
    clusters.create("orders", partitions=2, retention_ms="123456789")
    clusters.create("other")
    clusters.send("orders", b"a", b"b", b"c")
    clusters.send("orders", b"d", partition=1)
    report = clusters.once("orders")
    assert (report.topics, report.partitions, report.caught_up, report.records) == (1, 2, 2, 4)
    assert len(clusters.same("orders")) == 3
    assert len(clusters.same("orders", 1)) == 1
    topics = clusters.in_target(lambda log: log.admin.describe_topics())
    assert [topic.name for topic in topics] == ["orders"]
    assert topics[0].configs["retention.ms"] == "123456789"


def test_a_mirror_resumes_where_the_previous_one_stopped(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.send("t", b"a", b"b")
    clusters.once()
    clusters.send("t", b"c")
    assert clusters.once().records == 1
    assert clusters.once().records == 0
    assert [value for _, _, value, _ in clusters.same("t")] == [b"a", b"b", b"c"]


def test_producers_write_a_copy_only_after_its_promotion(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.send("t", b"a")
    clusters.start()
    clusters.until(clusters.is_caught_up)
    with pytest.raises(NotDelivered, match="quorumlog mirror promote t"):
        clusters.in_target(lambda log: produce(log, "t", [b"mine"]))

    async def promote(log: AsyncLog) -> None:
        await log.admin.alter_configs("t", delete=["mirror.source"])

    clusters.in_target(promote)
    clusters.in_target(lambda log: produce(log, "t", [b"mine"]))
    clusters.send("t", b"theirs")
    mirror = clusters.mirror
    assert mirror is not None
    clusters.until(lambda: mirror.copies[0].state is CopyState.STOPPED)
    held = [(offset, value) for offset, _, value, _ in contents(clusters.target, "t")]
    assert held == [(0, b"a"), (1, b"mine")]
    assert "promoted" in clusters.said[-1]


def test_a_topic_that_exists_and_is_no_mirror_is_left_alone(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.create("u")
    clusters.send("t", b"a")

    async def create(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=1)

    clusters.in_target(create)
    report = clusters.once()
    assert report.topics == 1, "the other topic is mirrored"
    assert contents(clusters.target, "t") == []
    assert "no mirror" in report.problems[0]


def test_new_topics_partitions_and_configs_are_copied(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.start()
    clusters.until(clusters.is_caught_up)

    async def grow(log: AsyncLog) -> None:
        await log.admin.create_topic("new", partitions=1)
        await log.admin.create_partitions("t", 3)
        await log.admin.alter_configs("t", {"retention.ms": 5_000_000})

    clusters.in_source(grow)
    clusters.send("new", b"n")
    clusters.send("t", b"p", partition=2)
    mirror = clusters.mirror
    assert mirror is not None
    clusters.until(lambda: sum(progress.records for progress in mirror.copies) == 2)
    assert len(clusters.same("new")) == len(clusters.same("t", 2)) == 1
    topic = clusters.in_target(lambda log: log.admin.describe_topic("t"))
    assert topic.configs["retention.ms"] == "5000000"


def test_deleted_records_are_removed_and_a_deleted_topic_stays(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.send("t", b"a", b"b", b"c")
    clusters.start()
    clusters.until(clusters.is_caught_up)
    clusters.in_source(lambda log: log.admin.delete_records("t", {0: 2}))
    clusters.send("t", b"d")
    mirror = clusters.mirror
    assert mirror is not None
    clusters.until(lambda: mirror.copies[0].copy_start == 2 and mirror.copies[0].copied_to == 4)
    assert [offset for offset, *_ in clusters.same("t")] == [2, 3]
    clusters.in_source(lambda log: log.admin.delete_topic("t"))
    clusters.until(lambda: mirror.copies[0].state is CopyState.STOPPED)
    assert "deleted in the source; the copy remains" in clusters.said[-1]
    assert len(contents(clusters.target, "t")) == 2


def test_copy_of_a_source_that_starts_above_0_starts_there(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.send("t", *[b"%d" % each for each in range(10)])
    clusters.in_source(lambda log: log.admin.delete_records("t", {0: 7}))
    clusters.once()
    assert [offset for offset, *_ in clusters.same("t")] == [7, 8, 9]


def test_a_recreated_topic_is_not_copied_onto_the_old_copy(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.send("t", b"old")
    clusters.once()

    async def anew(log: AsyncLog) -> None:
        await log.admin.delete_topic("t")
        await log.admin.create_topic("t", partitions=1)

    clusters.in_source(anew)
    clusters.send("t", b"new", b"newer")
    report = clusters.once()
    assert "deleted and created again" in report.problems[0]
    assert [value for _, _, value, _ in contents(clusters.target, "t")] == [b"old"]


@pytest.mark.long
@pytest.mark.parametrize("side", ["source", "target", "both"])
def test_a_mirror_survives_the_loss_of_either_side_for_minutes(
    clusters: Clusters, side: str
) -> None:
    clusters.create("t")
    clusters.send("t", b"a", b"b")
    clusters.start()
    clusters.until(clusters.is_caught_up)
    lost = [
        (cluster, number)
        for name, cluster, number in (
            ("source", clusters.source, 1),
            ("target", clusters.target, 2),
        )
        if side in (name, "both")
    ]
    if side == "target":
        clusters.send("t", b"c")
    for cluster, number in lost:
        cluster.crash(number, power=True)
    clusters.world.run_for(180_000)
    for cluster, number in lost:
        cluster.start(number)
    clusters.send("t", b"d")
    mirror = clusters.mirror
    assert mirror is not None
    wanted = 4 if side == "target" else 3
    clusters.until(lambda: mirror.copies[0].copied_to == wanted)
    assert len(clusters.same("t")) == wanted


@pytest.mark.parametrize(
    ("copied", "why"),
    [
        ([b"a", b"lost"], "another record than the copy at offset 0"),
        ([b"a", b"b", b"lost"], "the source ends at offset 2 and the copy at 3"),
    ],
)
def test_source_that_lost_copied_records_stops_its_partition_with_a_reason(
    clusters: Clusters, copied: list[bytes], why: str
) -> None:
    """The copy has the records that the source had before, for example, an unclean election."""
    clusters.create("t")
    clusters.create("fine")
    clusters.send("t", b"a", b"b")
    clusters.send("fine", b"f")

    async def topic_id(log: AsyncLog) -> str:
        topic = await log.admin.describe_topic("t")
        return base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")

    source = source_name(CLUSTER, clusters.in_source(topic_id))

    async def copy(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=1, configs={"mirror.source": source})
        records = [Record(place, 1, b"k", value) for place, value in enumerate(copied)]
        target = Target(log._connection)
        address = await target.leader(("t", 0))
        (done,) = await target.append(
            address, [CopyChunk(("t", 0), source, 0, [encode_batch(records, leader_epoch=3)])]
        )
        assert done.error is None

    clusters.in_target(copy)
    report = clusters.once()
    assert (report.diverged, report.stopped, report.caught_up) == (1, 1, 1)
    assert why in report.problems[0]
    assert len(contents(clusters.target, "t")) == len(copied), "the copy was not truncated"
    assert len(clusters.same("fine")) == 1
