"""Events that stop a partition's copy, and events that resume it without a new mirror."""

from quorumlog.clients.log import AsyncLog
from quorumlog.clients.mirror import CopyProgress, CopyState, Target
from quorumlog.clients.mirror.source import SourceTopic
from quorumlog.errors import OutcomeUnknown, TopicAlreadyExists

from .clusters import Clusters, contents


def the_course(clusters: Clusters) -> CopyProgress:
    mirror = clusters.mirror
    assert mirror is not None
    (progress,) = mirror.copies
    return progress


def test_a_copy_deleted_after_it_stopped_is_copied_again(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.send("t", b"a", b"b")
    clusters.start()
    clusters.until(clusters.is_caught_up)
    the_course(clusters).differs_at(1)
    clusters.in_target(lambda log: log.admin.delete_topic("t"))
    clusters.until(lambda: the_course(clusters).is_caught_up)
    assert the_course(clusters).state is CopyState.COPYING
    assert len(clusters.same("t")) == 2


def test_topic_that_was_temporarily_unlisted_is_copied_again(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.send("t", b"a")
    clusters.start()
    clusters.until(clusters.is_caught_up)
    progress = the_course(clusters)
    progress.stop("the topic was deleted where it is copied from", is_gone=True)
    clusters.send("t", b"b")
    clusters.until(lambda: the_course(clusters).copied_to == 2)
    assert len(clusters.same("t")) == 2


def test_a_topic_recreated_under_a_running_mirror_is_not_reported_as_promoted(
    clusters: Clusters,
) -> None:
    clusters.create("t")
    clusters.start()
    clusters.until(clusters.is_caught_up)

    async def anew(log: AsyncLog) -> None:
        await log.admin.delete_topic("t")
        await log.admin.create_topic("t", partitions=1)

    clusters.in_source(anew)
    clusters.send("t", b"new")
    mirror = clusters.mirror
    assert mirror is not None
    clusters.until(lambda: bool(mirror._problems))
    assert "deleted and created again" in mirror.report().problems[0]
    assert contents(clusters.target, "t") == [], (
        "an empty copy does not belong to the new topic either"
    )


class FailingCreation(Target):
    """A target that temporarily fails to create topic `a`."""

    async def create(self, topic: SourceTopic, source: str) -> None:
        if topic.name == "a":
            raise OutcomeUnknown("the controller does not answer")
        await super().create(topic, source)


def test_topic_that_cannot_be_created_now_delays_no_other(clusters: Clusters) -> None:
    clusters.create("a")
    clusters.create("b")
    clusters.send("b", b"1")
    clusters.target_type = FailingCreation
    clusters.start()
    mirror = clusters.mirror
    clusters.until(lambda: bool(clusters.mirror and clusters.mirror.copies))
    clusters.until(lambda: the_course(clusters).copied_to == 1)
    mirror = clusters.mirror
    assert mirror is not None
    assert "the controller does not answer" in mirror.report().problems[0]
    assert not mirror._is_done(), "`--once` continues while an error may be temporary"


class ConcurrentCreation(Target):
    """A target where another mirror creates each topic just before."""

    async def create(self, topic: SourceTopic, source: str) -> None:
        await super().create(topic, source)
        raise TopicAlreadyExists(f"{topic.name} exists")


def test_topic_created_by_another_mirror_is_copied_before_once_ends(
    clusters: Clusters,
) -> None:
    clusters.create("t")
    clusters.send("t", b"1")
    clusters.target_type = ConcurrentCreation
    assert clusters.once().records == 1


def test_a_recreated_copy_is_filled_without_new_source_records(
    clusters: Clusters,
) -> None:
    clusters.create("t")
    clusters.send("t", b"a", b"b")
    clusters.start()
    clusters.until(clusters.is_caught_up)
    clusters.until(lambda: the_course(clusters).copy_life is not None)
    source = the_course(clusters).source

    async def anew(log: AsyncLog) -> None:
        await log.admin.delete_topic("t")
        await log.admin.create_topic("t", partitions=1, configs={"mirror.source": source})

    clusters.in_target(anew)
    clusters.world.run_for(10_000)
    assert len(clusters.same("t")) == 2
