"""Whole nodes with group coordinators, and requests to them without a front end."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.kit.node_settings import with_settings
from tests.kit.replica_cluster import Cluster, world

from quorumlog.broker.groups.config import OFFSETS_TOPIC
from quorumlog.broker.groups.requests import (
    CommitOffsets,
    CommitOutcome,
    FetchOffsets,
    GroupRequest,
    OffsetToCommit,
)
from quorumlog.broker.groups.shell import GroupCoordinator
from quorumlog.errors import QuorumlogError
from quorumlog.metadata import MetadataImage
from quorumlog.runtime import Runtime

R = TypeVar("R")
T = TypeVar("T")

GROUP = "readers"
ANSWER_MS = 20_000


@contextmanager
def cluster(*numbers: int, seed: int = 1, **settings: Any) -> Iterator[Cluster]:
    """Nodes that are not started. `__consumer_offsets` has one partition by default."""
    with world(seed) as simulated:
        nodes = Cluster(simulated, numbers or (1, 2, 3))
        settings.setdefault("offsets_topic_num_partitions", 1)
        nodes.configs = {
            n: with_settings(config, **settings) for n, config in nodes.configs.items()
        }
        yield nodes


def make_topic(nodes: Cluster, name: str = "t", partitions: int = 1) -> None:
    """Create a topic for committed offsets."""
    nodes.run(lambda log: log.admin.create_topic(name, partitions=partitions))
    nodes.until(lambda: all(image(nodes, n).topic(name) is not None for n in nodes.nodes))


def image(nodes: Cluster, number: int) -> MetadataImage:
    publisher = nodes.nodes[number].parts.publisher
    assert publisher is not None
    return publisher.image


def coordinator(nodes: Cluster, number: int) -> GroupCoordinator:
    groups = nodes.nodes[number].parts.groups
    assert groups is not None
    return groups


def on(nodes: Cluster, number: int, work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run something in a node's process."""
    task = nodes.machine(number).attach(work, name="test")
    nodes.world.run_until(task, virtual_ms=60_000)
    found: T = task.result()
    return found


def begun(
    nodes: Cluster, number: int, request: GroupRequest[R], answer_ms: int = ANSWER_MS
) -> "asyncio.Task[R]":
    """Send a request to a node, and return at once."""

    async def main(runtime: Runtime) -> R:
        deadline_ms = runtime.clock.now_ms() + answer_ms
        return await coordinator(nodes, number).ask(request, deadline_ms=deadline_ms)

    return nodes.machine(number).attach(main, name="ask")


def asked(nodes: Cluster, number: int, request: GroupRequest[R], answer_ms: int = ANSWER_MS) -> R:
    """Send a request to a node. Raise its error."""
    task = begun(nodes, number, request, answer_ms)
    nodes.world.run_until(task, virtual_ms=60_000)
    return task.result()


def tried(nodes: Cluster, number: int, request: GroupRequest[R]) -> R:
    """Send a request until the node neither loads nor waits for other nodes."""
    for _ in range(200):
        try:
            return asked(nodes, number, request)
        except QuorumlogError as error:
            if not error.retriable:
                raise
        nodes.world.run_for(100)
    return asked(nodes, number, request)


def leader(nodes: Cluster) -> int:
    """Return the leader of partition 0 of the offsets topic in the metadata of a live node; 0:
    none."""
    number = min(nodes.nodes)
    topic = image(nodes, number).topic(OFFSETS_TOPIC)
    return 0 if topic is None else max(0, topic.partitions[0].leader)


def made(nodes: Cluster) -> int:
    """Create the offsets topic. Return its coordinator."""
    number = min(nodes.nodes)

    async def main(runtime: Runtime) -> None:
        deadline_ms = runtime.clock.now_ms() + ANSWER_MS
        await coordinator(nodes, number).coordinator_of(GROUP, deadline_ms=deadline_ms)

    on(nodes, number, main)
    nodes.until(lambda: leader(nodes) != 0)
    nodes.until(lambda: coordinator(nodes, leader(nodes)).census().partitions_served == 1)
    return leader(nodes)


def commit(
    offset: int, *, topic: str = "t", partition: int = 0, group: str = GROUP
) -> CommitOffsets:
    """Commit offsets without a member."""
    one = OffsetToCommit(topic=topic, partition=partition, offset=offset)
    return CommitOffsets(group=group, offsets=(one,))


def stored(nodes: Cluster, number: int, group: str = GROUP) -> dict[tuple[str, int], int]:
    """Return the complete state of a group at its coordinator."""
    found = tried(nodes, number, FetchOffsets(group=group))
    return {(each.topic, each.partition): each.offset for each in found}


TAKEN = CommitOutcome(errors=(None,))
