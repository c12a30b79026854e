"""Members that go while their coordinator waits for its replicas: they hold nothing there."""

import asyncio
from typing import Any

from tests.kit.kafka_client import RawClient
from tests.kit.simulated_cluster import Play, cluster

from quorumlog.broker.groups.config import OFFSETS_TOPIC

from . import group_calls as calls
from .three_nodes import ask, create

COMMIT: dict[str, Any] = {
    "group_id": calls.GROUP,
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
    "topics": [
        {
            "name": "t",
            "partitions": [
                {
                    "partition_index": 0,
                    "committed_offset": 7,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            ],
        }
    ],
}
WAITS_S = 0.2


def coordinator(play: Play) -> int:
    """Who coordinates all groups, once it does."""

    def leads() -> int:
        topic = play[1].image.topic(OFFSETS_TOPIC)
        return 0 if topic is None else max(0, topic.partitions[0].leader)

    play.until(lambda: leads() > 0)
    return leads()


def test_who_goes_while_it_waits_for_a_commit_takes_nobodys_place() -> None:
    with cluster(
        brokers=3, combined=True, kafka=("{}:9092",), offsets_partitions=1, group_waits_max=2
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
