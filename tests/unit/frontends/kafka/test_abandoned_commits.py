"""Connections that close during a commit release their place in the coordinator."""

import asyncio

from tests.kit.kafka_client import RawClient
from tests.kit.simulated_cluster import cluster

from quorumlog.broker.groups.config import GroupConfig

from . import group_calls as calls
from .three_nodes import COMMIT, ask, coordinator, create

WAITS_S = 0.2


def test_connection_closed_during_a_commit_releases_its_place() -> None:
    with cluster(
        brokers=3,
        combined=True,
        kafka=("{}:9092",),
        groups=GroupConfig(offsets_partitions=1, waits_max=2),
    ) as play:
        create(play, "t", (1, 2, 3))

        async def find(client: RawClient) -> None:
            await client.ask(calls.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=("g",))

        ask(play, find)
        node = coordinator(play)
        ask(play, calls.ready, node=node)
        for number, machine in play.machines.items():
            if number != node:
                machine.sim.pause()

        async def go(client: RawClient) -> None:
            client.send(calls.OFFSET_COMMIT, 9, **COMMIT)
            await asyncio.sleep(WAITS_S)

        async def stay(client: RawClient) -> int | None:
            client.send(calls.OFFSET_COMMIT, 9, **COMMIT)
            try:
                async with asyncio.timeout(WAITS_S):
                    _, answer = await client.answer(calls.OFFSET_COMMIT, 9)
            except TimeoutError:
                return None
            return int(answer.topics[0].partitions[0].error_code)

        ask(play, go, node=node)
        ask(play, go, node=node)
        assert ask(play, stay, node=node) is None
