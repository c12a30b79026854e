"""Errors of one topic, partition or group are reported and do not affect others."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from quorumlog.clients.admin.descriptions import Topic
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.mirror import ClusterSource, CopyProgress, MirrorReport, Target
from quorumlog.clients.mirror.source import SourceTopic
from quorumlog.clients.mirror.target import CopyBounds, CopyChunk
from quorumlog.errors import DiskFull, InvalidReplicationFactor

from .clusters import Clusters


def copies(clusters: Clusters) -> dict[tuple[str, int], CopyProgress]:
    mirror = clusters.mirror
    return {} if mirror is None else {progress.place: progress for progress in mirror.copies}


def copied_to(clusters: Clusters, topic: str, partition: int = 0) -> int:
    """Return the copied end offset, -1 if the copy has not started."""
    progress = copies(clusters).get((topic, partition))
    return -1 if progress is None else progress.copied_to


def has_copied(clusters: Clusters, wanted: int) -> bool:
    return copied_to(clusters, "t") >= wanted


def report(clusters: Clusters) -> MirrorReport:
    mirror = clusters.mirror
    assert mirror is not None
    return mirror.report()


def test_busy_partitions_do_not_starve_quiet_ones(clusters: Clusters) -> None:
    """A response is filled in request order, and the first partition may fill it."""
    clusters.create("t", partitions=3)
    for number in range(12):  # one batch each
        clusters.send("t", b"%d" % number, partition=0)
    clusters.send("t", b"a", partition=2)
    clusters.source_type = partial(ClusterSource, fetch_bytes_max=1)
    clusters.start()
    clusters.until(lambda: copied_to(clusters, "t", 2) == 1)
    assert copied_to(clusters, "t", 0) < 6
    clusters.until(lambda: copied_to(clusters, "t", 0) == 12)
    assert len(clusters.same("t", 0)) == 12


class SlowTarget(Target):
    """A target with a slow disk that records the partitions of concurrent appends."""

    under_way: ClassVar[list[int]] = []
    together: ClassVar[set[tuple[int, ...]]] = set()

    async def append(self, address: str, chunks: Sequence[CopyChunk]) -> list[CopyBounds]:
        mine = [each.place[1] for each in chunks if each.parts]
        self.under_way.extend(mine)
        self.together.add(tuple(sorted(self.under_way)))
        if mine:
            await asyncio.sleep(0.5)
        found = await super().append(address, chunks)
        for each in mine:
            self.under_way.remove(each)
        return found


def test_appends_of_several_partitions_are_concurrent_and_of_one_in_turn(
    clusters: Clusters,
) -> None:
    clusters.create("t", partitions=2)
    for number in range(6):
        clusters.send("t", b"%d" % number, partition=0)
        clusters.send("t", b"%d" % number, partition=1)
    SlowTarget.together.clear()
    clusters.target_type = SlowTarget
    clusters.source_type = partial(ClusterSource, fetch_bytes_max=1)
    report = clusters.once()
    assert (report.records, report.problems) == (12, ())
    assert [len(clusters.same("t", partition)) for partition in range(2)] == [6, 6]
    assert SlowTarget.together == {(), (0,), (1,), (0, 1)}


class FullTarget(Target):
    """A target without space for the partitions of `a`."""

    async def append(self, address: str, chunks: Sequence[CopyChunk]) -> list[CopyBounds]:
        taken = [each for each in chunks if not _is_refused(each)]
        found = await super().append(address, taken) if taken else []
        full = DiskFull("no space is left")
        answers = iter(found)
        return [
            CopyBounds(place=each.place, start=0, end=0, high_watermark=0, error=full)
            if _is_refused(each)
            else next(answers)
            for each in chunks
        ]


def _is_refused(chunk: CopyChunk) -> bool:
    return chunk.place[0] == "a" and bool(chunk.parts)


def test_a_partition_that_cannot_be_copied_reports_the_reason(clusters: Clusters) -> None:
    clusters.create("a")
    clusters.create("b")
    clusters.send("a", b"1")
    clusters.send("b", b"1")
    clusters.target_type = FullTarget
    clusters.start()
    clusters.until(lambda: copied_to(clusters, "b") == 1)
    clusters.until(lambda: bool(report(clusters).problems))
    assert "a-0" in report(clusters).problems[0]
    assert "no space is left" in report(clusters).problems[0]
    assert report(clusters).stopped == 0, "the copy is retried without end"
    assert any("no space is left" in sentence for sentence in clusters.said)


class UndeletableRecords(Target):
    """A target that cannot delete records of `a`."""

    async def delete_before(self, topic: str, starts: Mapping[int, int]) -> None:
        if topic == "a":
            raise DiskFull("the checkpoint cannot be written")
        await super().delete_before(topic, starts)


def test_topic_whose_records_cannot_be_deleted_delays_no_other(clusters: Clusters) -> None:
    for topic in ("a", "b"):
        clusters.create(topic)
        clusters.send(topic, b"1", b"2", b"3")
    clusters.target_type = UndeletableRecords
    clusters.start()
    clusters.until(clusters.is_caught_up)

    async def delete(log: AsyncLog) -> None:
        for topic in ("a", "b"):
            await log.admin.delete_records(topic, {0: 2})

    clusters.in_source(delete)
    clusters.until(lambda: copies(clusters)["b", 0].copy_start == 2)
    assert (
        "the checkpoint cannot be written"
        in report(clusters).problems[0] + report(clusters).problems[1]
    )


class FixedPartitions(Target):
    """A target that cannot add partitions to a topic now."""

    async def follow(self, mirror: Topic, topic: SourceTopic) -> list[str]:
        if len(mirror.partitions) < topic.partitions:
            raise InvalidReplicationFactor("too few brokers live")
        return await super().follow(mirror, topic)


def test_topic_without_its_new_partitions_is_copied_in_the_others(
    clusters: Clusters,
) -> None:
    clusters.create("t")
    clusters.once()
    clusters.in_source(lambda log: log.admin.create_partitions("t", 2))
    clusters.send("t", b"1")
    clusters.target_type = FixedPartitions
    clusters.start()
    clusters.until(lambda: copied_to(clusters, "t") == 1)
    assert "too few brokers live" in report(clusters).problems[0]


def test_divergence_is_reported_last(clusters: Clusters) -> None:
    """The command ends with it."""
    clusters.create("a")
    clusters.create("b")
    clusters.start()
    clusters.until(clusters.is_caught_up)
    copies(clusters)["a", 0].differs_at(0)
    copies(clusters)["b", 0].stop("the copy was promoted")
    found = report(clusters)
    assert (found.stopped, found.diverged) == (2, 1)
    assert [problem[:3] for problem in found.problems] == ["b-0", "a-0"]


def test_two_concurrent_mirrors_create_no_gap_and_no_duplicate(clusters: Clusters) -> None:
    clusters.create("t", partitions=2)
    clusters.source_type = partial(ClusterSource, fetch_bytes_max=1)
    clusters.start()
    clusters.start()
    for number in range(15):
        clusters.send("t", b"%d" % number, partition=number % 2)
    clusters.until(lambda: copied_to(clusters, "t", 0) == 8 and copied_to(clusters, "t", 1) == 7)
    assert [len(clusters.same("t", partition)) for partition in range(2)] == [8, 7]
    assert report(clusters).problems == ()


def test_copy_resumes_after_a_mirror_was_killed_during_appends(clusters: Clusters) -> None:
    clusters.create("t", partitions=2)
    for number in range(20):
        clusters.send("t", b"%d" % number, partition=number % 2)
    clusters.source_type = partial(ClusterSource, fetch_bytes_max=1)
    for wanted in (1, 4, 7):
        name = clusters.start()
        clusters.until(partial(has_copied, clusters, wanted))
        clusters.world.node(name).crash()
    assert clusters.once().problems == ()
    assert [len(clusters.same("t", partition)) for partition in range(2)] == [10, 10]
