"""Commits that the replicas do not store in time fail and release their place."""

import asyncio
from typing import Any

import pytest
from tests.kit.kafka_client import RawClient
from tests.kit.simulated_cluster import cluster

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.errors import CoordinatorNotAvailable
from quorumlog.frontends.kafka.api import ANSWER_MS_MAX
from quorumlog.frontends.kafka.deadlines import STEP_MS

from . import group_calls as calls
from .three_nodes import COMMIT, ask, coordinator, create

LATE_MS_MAX = 2 * STEP_MS
PATIENCE_S = 2 * ANSWER_MS_MAX / 1_000


async def commit(client: RawClient) -> int:
    """Commit one partition. Return the error code."""
    client.patience_s = PATIENCE_S
    answer: Any = await client.ask(calls.OFFSET_COMMIT, 9, **COMMIT)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(client: RawClient) -> None:
    """Commit as soon as the replicas are back."""
    for _ in range(calls.TRIES):
        if not await commit(client):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the replicas are back, but no commit succeeded")


@pytest.mark.slow
def test_commit_that_is_not_stored_in_time_is_retriable_and_leaves_nothing() -> None:
    """The controllers are reachable, so the coordinator stays. Its replicas are partitioned off, so
    the high watermark stays. With `group_waits_max` one waiting commit would block all others."""
    with cluster(
        brokers=3,
        kafka=("{}:9092",),
        groups=GroupConfig(offsets_partitions=1, offsets_replicas=3, waits_max=1),
    ) as play:
        create(play, "t", (1, 2, 3))

        async def find(client: RawClient) -> None:
            await client.ask(calls.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=("g",))

        ask(play, find)
        number = coordinator(play)
        ask(play, calls.ready, node=number)
        others = [play[each] for each in (1, 2, 3) if each != number]
        for machine in others:
            machine.sim.pause()

        node = play[number].node
        assert node is not None
        server = node.parts.kafka
        assert server is not None
        began_ms = play.world.now_ms()
        assert ask(play, commit, node=number) == CoordinatorNotAvailable.code
        took_ms = play.world.now_ms() - began_ms
        assert ANSWER_MS_MAX <= took_ms <= ANSWER_MS_MAX + LATE_MS_MAX
        assert (server.figures.open, server.memory.taken) == (0, 0)
        # Refused at once for the missing replicas: the place of the first commit is free.
        assert ask(play, commit, node=number) == CoordinatorNotAvailable.code
        assert play.world.now_ms() - began_ms < took_ms + LATE_MS_MAX

        for machine in others:
            machine.sim.resume()
        ask(play, committed, node=number)
