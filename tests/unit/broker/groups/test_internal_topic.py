"""Only a coordinator creates, writes or deletes the offsets topic."""

import pytest
from tests.kit.replica_cluster import Cluster, produce

from quorumlog.broker.groups.config import OFFSETS_TOPIC
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import InvalidPartitions, InvalidTopic, NotDelivered

from .coordinated import TAKEN, asked, cluster, commit, made, make_topic, stored


async def written(log: AsyncLog) -> None:
    await produce(log, OFFSETS_TOPIC, [b"x"])


async def deleted(log: AsyncLog) -> None:
    await log.admin.delete_topic(OFFSETS_TOPIC)


async def created(log: AsyncLog) -> None:
    await log.admin.create_topic(OFFSETS_TOPIC)


async def widened(log: AsyncLog) -> None:
    await log.admin.create_partitions(OFFSETS_TOPIC, 2)


def refused(nodes: Cluster) -> None:
    with pytest.raises(NotDelivered, match="internal topic"):
        nodes.run(written)
    with pytest.raises(InvalidTopic, match="internal topic"):
        nodes.run(deleted)


def test_clients_neither_make_nor_write_nor_delete_the_topic_of_offsets() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        with pytest.raises(InvalidTopic, match="internal topic"):
            nodes.run(created)
        made(nodes)
        assert asked(nodes, 1, commit(5)) == TAKEN
        refused(nodes)
        task = nodes.append(1, OFFSETS_TOPIC, b"x")
        nodes.world.run_until(task, virtual_ms=1_000)
        assert isinstance(task.exception(), InvalidTopic)
        assert stored(nodes, 1) == {("t", 0): 5}


def test_offsets_topic_keeps_its_number_of_partitions() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        for group in ("a", "b", "c", "d"):
            assert asked(nodes, 1, commit(5, group=group)) == TAKEN
        with pytest.raises(InvalidPartitions, match="which cannot change"):
            nodes.run(widened)
        for group in ("a", "b", "c", "d"):
            assert stored(nodes, 1, group) == {("t", 0): 5}


def test_the_topic_of_offsets_can_be_read() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        asked(nodes, 1, commit(5))
        values = nodes.values(1, OFFSETS_TOPIC)
        assert len(values) == 1
        listed = nodes.run(lambda log: log.admin.list_topics(internal=True))
        assert [(each.name, each.is_internal) for each in listed] == [
            (OFFSETS_TOPIC, True),
            ("t", False),
        ]
        listed = nodes.run(lambda log: log.admin.list_topics())
        assert [each.name for each in listed] == ["t"]
