"""Retention gets the committed offsets of groups from their coordinators, on every node."""

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.groups.config import OFFSETS_TOPIC
from quorumlog.broker.groups.shell.committed_offsets import ANSWER_MS, SILENT_MS
from quorumlog.errors import CoordinatorNotAvailable, QuorumlogError
from quorumlog.runtime import Runtime

from .coordinated import (
    GROUP,
    TAKEN,
    asked,
    begun,
    cluster,
    commit,
    coordinator,
    image,
    leader,
    made,
    make_topic,
    on,
    tried,
)


def committed_offset(
    nodes: Cluster, number: int, log: str = "t-0", group: str = GROUP
) -> int | None:
    """Return the committed offset that the retention of a node receives."""

    async def main(runtime: Runtime) -> int | None:
        directory = nodes.nodes[number].parts.directory
        assert directory is not None
        return await directory.maintenance.committed(log, group)

    return on(nodes, number, main)


def test_every_node_gets_the_committed_offsets_of_a_group() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        assert asked(nodes, made(nodes), commit(7)) == TAKEN
        assert {committed_offset(nodes, number) for number in nodes.numbers} == {7}
        assert committed_offset(nodes, 1, group="nobody") is None
        assert committed_offset(nodes, 1, log="no-such-topic-3") is None


@pytest.mark.slow
def test_silent_coordinator_is_not_queried_for_each_group() -> None:
    """Otherwise one silent coordinator would delay the retention of all logs of a directory."""
    with cluster(offsets_topic_num_partitions=9) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        node, groups = max(((n, led(nodes, n)) for n in nodes.numbers), key=lambda e: len(e[1]))
        for group in groups:
            tried(nodes, node, commit(0, group=group))
        assert len(groups) > 1
        for other in nodes.numbers:
            if other != node:
                nodes.machine(other).pause()
        waiting = [begun(nodes, node, commit(1, group=group)) for group in groups]
        nodes.world.run_for(10)
        before_ms = nodes.world.now_ms()
        for group in groups:
            with pytest.raises(QuorumlogError):
                committed_offset(nodes, node, group=group)
        assert ANSWER_MS <= nodes.world.now_ms() - before_ms < 1.5 * ANSWER_MS
        assert not any(task.done() for task in waiting)


def led(nodes: Cluster, number: int) -> list[str]:
    """Return a group in each offsets partition that a node leads."""
    topic = image(nodes, number).topic(OFFSETS_TOPIC)
    assert topic is not None
    mine = {index for index, state in topic.partitions.items() if state.leader == number}
    found: dict[int, str] = {}
    for each in range(100):
        partition = coordinator(nodes, number).partition_of(f"g{each}")
        if partition in mine:
            found.setdefault(partition, f"g{each}")
    return list(found.values())


def test_query_does_not_create_the_offsets_topic() -> None:
    with cluster() as nodes:
        nodes.start()
        assert committed_offset(nodes, 1) is None
        assert not coordinator(nodes, 1).has_topic


def test_group_without_a_response_is_queried_again_after_a_delay() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        old = made(nodes)
        assert asked(nodes, old, commit(7)) == TAKEN
        other = next(number for number in nodes.numbers if number != old)
        nodes.crash(old)
        with pytest.raises(QuorumlogError):
            committed_offset(nodes, other)
        nodes.until(lambda: leader(nodes) not in (0, old))
        with pytest.raises(CoordinatorNotAvailable, match="failed to answer recently"):
            committed_offset(nodes, other)
        nodes.world.run_for(SILENT_MS)
        assert committed_offset(nodes, other) == 7
