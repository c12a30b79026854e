"""Offsets beyond the log, a topic that is deleted and recreated, a group that is deleted while it
has members."""

import pytest
from tests.scenarios.groups.group_under_test import at_work, started
from tests.simulation.levels.groups import calls
from tests.simulation.levels.groups.plan import MemberKind
from tests.simulation.levels.groups.scripted import GROUP, TOPIC, ScriptedGroup

from quorumlog.clients.groups.group_consumer import AsyncGroupConsumer
from quorumlog.errors import OffsetOutOfRange, QuorumlogError
from quorumlog.ids import TopicPartition
from quorumlog.runtime import Runtime

pytestmark = pytest.mark.slow

NON_EMPTY_GROUP = 68


async def read(consumer: AsyncGroupConsumer, count: int) -> list[tuple[int, int]]:
    """Poll until so many records are there; return their partitions and offsets."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        records = await consumer.poll(timeout_ms=500)
        found += [(record.partition, record.offset) for record in records]
    return sorted(found)


def commit_beyond(scene: ScriptedGroup) -> None:
    """Commit an offset of a million for each partition of the group."""
    beyond = dict.fromkeys(scene.places, (1_000_000, ""))
    assert set(scene.ask(lambda asking: asking.commit("", "", -1, beyond)).values()) == {0}


@pytest.mark.parametrize(("rule", "first"), [("earliest", 0), ("latest", 10)])
def test_an_offset_beyond_the_log_is_reset_by_the_consumers_policy(rule: str, first: int) -> None:
    with started(MemberKind.OWN) as scene:
        scene.produce(10)
        commit_beyond(scene)

        async def consume(runtime: Runtime) -> list[tuple[int, int]]:
            log = scene.stage.client()
            async with log.group_consumer(GROUP, TOPIC, on_out_of_range=rule) as consumer:
                found: list[tuple[int, int]] = []
                while consumer.positions().get(TopicPartition(TOPIC, 0)) != 10:
                    found += await _poll_on(consumer)
                async with log.producer(linger_ms=0) as producer:
                    await producer.send_and_wait(TOPIC, b"new", partition=0)
                while (0, 10) not in found:
                    found += await _poll_on(consumer)
                return found

        found = scene.stage.do(consume)
        assert [offset for index, offset in found if index == 0] == list(range(first, 11))


def test_an_offset_beyond_the_log_raises_an_error_without_a_reset_policy() -> None:
    with started(MemberKind.OWN) as scene:
        scene.produce(10)
        commit_beyond(scene)

        async def consume(runtime: Runtime) -> QuorumlogError | None:
            consumer = scene.stage.client().group_consumer(GROUP, TOPIC)
            try:
                for _ in range(20):
                    await consumer.poll(timeout_ms=500)
            except OffsetOutOfRange as error:
                return error
            finally:
                await consumer.close()
            return None

        error = scene.stage.do(consume)
        assert error is not None
        assert "1000000" in str(error).replace(",", "")


def test_members_follow_a_topic_that_is_deleted_and_recreated() -> None:
    """One consumer throughout: it has no records while there is no topic, then those of the new one
    from its start, despite the committed offsets of the old one."""
    with started(MemberKind.OWN) as scene:
        topic = scene.stage.options.topics[0]
        events: list[tuple[str, int]] = []

        async def live(runtime: Runtime) -> list[tuple[int, int]]:
            log = scene.stage.client()
            admin = log.admin

            async def write() -> None:
                async with log.producer(linger_ms=0) as producer:
                    for _, index in scene.places:
                        await producer.send_and_wait(TOPIC, b"one", partition=index)

            consumer = log.group_consumer(
                GROUP,
                TOPIC,
                on_assigned=lambda places: events.append(("assigned", len(places))),
                on_revoked=lambda places: events.append(("revoked", len(places))),
            )
            await write()
            await write()
            assert len(await read(consumer, 8)) == 8
            await consumer.commit()
            await admin.delete_topic(TOPIC)
            while ("revoked", 4) not in events:
                await _poll_on(consumer)
            await admin.create_topic(
                TOPIC,
                partitions=topic.partitions,
                replication=topic.replication,
                configs=topic.configs,
            )
            await write()
            found: list[tuple[int, int]] = []
            while len(found) < 4:
                found += await _poll_on(consumer)
            await consumer.close()
            return sorted(found)

        assert scene.stage.do(live) == [(index, 0) for _, index in scene.places]
        assert events[:2] == [("assigned", 4), ("revoked", 4)]


async def _poll_on(consumer: AsyncGroupConsumer) -> list[tuple[int, int]]:
    """Poll once; the error of a deleted topic is expected."""
    try:
        records = await consumer.poll(timeout_ms=300)
    except QuorumlogError:
        return []
    return [(record.partition, record.offset) for record in records]


@pytest.mark.long
@pytest.mark.parametrize("kind", [MemberKind.EAGER, MemberKind.BEATING])
def test_a_group_with_live_members_is_not_deleted(kind: MemberKind) -> None:
    with at_work(kind, "m1", "m2") as scene:
        assert scene.ask(lambda asking: asking.delete_group()) == NON_EMPTY_GROUP
        scene.produce(5)
        scene.finish()


@pytest.mark.long
@pytest.mark.parametrize("kind", [MemberKind.EAGER, MemberKind.COOPERATIVE, MemberKind.BEATING])
def test_a_paused_member_of_a_deleted_group_joins_again(kind: MemberKind) -> None:
    with at_work(kind, "m1") as scene:
        scene.hang("m1")
        scene.until(
            lambda: scene.ask(lambda asking: asking.delete_group()) == calls.NONE,
            "its session is over, and the group is deleted",
        )
        assert set(scene.offsets().values()) == {-1}
        late = scene.group_history.counts["late commits"]
        scene.wake("m1")
        scene.until(lambda: scene.group_history.counts["late commits"] > late, "it commits late")
        scene.until(lambda: bool(scene.held("m1")), "it has joined again")
        offsets = scene.offsets()
        assert all(offset in (-1, 10) for offset in offsets.values()), offsets
