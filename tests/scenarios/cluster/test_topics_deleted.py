"""A topic is deleted and created again while clients write to it and read from it."""

import asyncio
from dataclasses import dataclass, field

import pytest
from tests.scenarios.cluster.cluster_under_test import PLACE, asked, in_sync, plan, started
from tests.simulation.checkers.stored_batches import visible_folder
from tests.simulation.cluster.machines import DATA
from tests.simulation.cluster.scripted import ScriptedCluster

from quorumlog.errors import (
    QuorumlogError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from quorumlog.runtime import Runtime

pytestmark = pytest.mark.slow

GONE = (UnknownTopicOrPartition, UnknownTopicId)


@dataclass(slots=True)
class Notes:
    """The results of the clients of a test."""

    stored: list[bytes] = field(default_factory=list)  # acknowledged, in order
    refused: list[QuorumlogError] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)  # by the reader
    ended: QuorumlogError | None = None  # of the reader


async def write(stage: ScriptedCluster, notes: Notes, life: str) -> None:
    """Write records in sequence until one is permanently rejected."""
    async with stage.client().producer(linger_ms=0) as producer:
        for number in range(1_000_000):
            value = f"{life}:{number}".encode()
            try:
                await producer.send_and_wait("t", value, partition=0)
            except QuorumlogError as error:
                notes.refused.append(error)
                return
            notes.stored.append(value)


async def read(stage: ScriptedCluster, notes: Notes) -> None:
    """Read until an error."""
    async with stage.client().consumer("t") as consumer:
        while True:
            try:
                records = await consumer.poll(timeout_ms=500)
            except QuorumlogError as error:
                notes.ended = error
                return
            notes.seen += [record.value or b"" for record in records]


async def recreate(stage: ScriptedCluster, runtime: Runtime) -> None:
    """Create the topic again."""
    topic = stage.options.topics[0]
    for _ in range(50):
        try:
            await stage.client().admin.create_topic(
                "t",
                partitions=topic.partitions,
                replication=topic.replication,
                configs=topic.configs,
            )
        except TopicAlreadyExists:
            await asyncio.sleep(0.1)
        else:
            return


def folders(stage: ScriptedCluster) -> list[str]:
    """Return the machines with files of the partition."""
    path = f"{DATA}/{PLACE[0]}-{PLACE[1]}"
    return [n.name for n in stage.cluster.brokers if visible_folder(n.sim, path) is not None]


def test_writers_and_readers_of_a_deleted_topic_get_an_error() -> None:
    with started() as stage:
        notes = Notes()
        tasks = [
            stage.begin(lambda runtime: write(stage, notes, "a")),
            stage.begin(lambda runtime: read(stage, notes)),
        ]
        stage.until(lambda: len(notes.seen) > 20, "some are written and read")
        asked(stage, lambda admin: admin.delete_topic("t"))
        stage.until(
            lambda: all(task.done() for task in tasks), "both have ended", virtual_ms=15_000
        )
        assert isinstance(notes.refused[0], GONE)
        assert "create it" in notes.refused[0].message or "look" in notes.refused[0].message
        assert isinstance(notes.ended, GONE)
        assert notes.seen == notes.stored[: len(notes.seen)]
        stage.until(lambda: folders(stage) == [], "nothing is left on any disk")
        assert not stage.cluster.violations


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_recreated_topic_starts_empty_and_accepts_only_new_writers(
    seed: int,
) -> None:
    """Writers of the deleted topic are rejected; none of their records is stored in the new one."""
    with started(seed=seed) as stage:
        old, new = Notes(), Notes()
        writing = [stage.begin(lambda runtime: write(stage, old, f"old{n}")) for n in range(3)]  # noqa: B023
        stage.until(lambda: len(old.stored) > 30, "some are written")
        asked(stage, lambda admin: admin.delete_topic("t"))
        stage.do(lambda runtime: recreate(stage, runtime))
        again = stage.begin(lambda runtime: write(stage, new, "new"))
        stage.until(lambda: len(new.stored) > 10, "the new one is written")
        stage.until(lambda: all(task.done() for task in writing), "the old ones are refused")
        assert [isinstance(error, UnknownTopicId) for error in old.refused] == [True] * 3
        again.cancel()
        stage.run(1_000)
        values = stage.read(PLACE)
        assert [value for value in values if not value.startswith(b"new:")] == []
        assert values[: len(new.stored)] == new.stored
        stage.until(lambda: len(stage.partition(PLACE).isr) == 3, "all are in sync")
        stage.check_logs()
        stage.cluster.check_directories()


def test_a_broker_that_was_down_while_a_topic_was_recreated_has_only_the_new_one() -> None:
    """While it is down the topic is deleted and created twice, with records each time."""
    with started() as stage:
        stage.produce(PLACE, 30)
        down = stage.followers(PLACE)[0]
        stage.take_down(down)
        stage.until(lambda: not in_sync(stage, down), "it has left")
        for life in ("second", "third"):
            notes = Notes()
            asked(stage, lambda admin: admin.delete_topic("t"))
            # the broker that is down is a replica of the new topic too
            asked(
                stage,
                lambda admin: admin.create_topic(
                    "t", assignments=[(1, 2, 3)], configs=plan().configs
                ),
            )
            writing = stage.begin(lambda runtime: write(stage, notes, life))  # noqa: B023
            stage.until(lambda: len(notes.stored) > 5, "it is written")  # noqa: B023
            writing.cancel()
        stage.bring_up(down)
        stage.until(lambda: in_sync(stage, down), "it is in sync")
        stage.notes.is_clean = False  # the records are in these notes
        stored = stage.finish()[PLACE]
        assert [value for _, value in stored][: len(notes.stored)] == notes.stored
        assert all(value.startswith(b"third:") for _, value in stored)


def test_a_broker_that_was_down_during_a_deletion_deletes_its_replica() -> None:
    with started() as stage:
        stage.produce(PLACE, 30)
        down = stage.leader(PLACE)
        stage.take_down(down)
        stage.until(lambda: not in_sync(stage, down), "it has left")
        asked(stage, lambda admin: admin.delete_topic("t"))
        assert folders(stage) == [down.name]
        stage.bring_up(down)
        stage.until(lambda: down.is_ready and folders(stage) == [], "its folder is swept")
