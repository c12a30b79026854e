"""Requests to simulated nodes with the hosts n1, n2 and so on."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.kit.kafka_client import RawClient, connected
from tests.kit.simulated_cluster import Play
from tests.unit.frontends.kafka import group_calls as calls

from quorumlog.broker.groups.config import OFFSETS_TOPIC
from quorumlog.runtime import Runtime

CREATE_TOPICS = 19
TIMEOUT_MS = 60_000
T = TypeVar("T")


def ask(play: Play, work: Callable[[RawClient], Awaitable[T]], *, node: int = 1) -> T:
    """Run something as a client of one node."""

    async def main(runtime: Runtime) -> T:
        async with connected(runtime, f"n{node}:9092") as client:
            return await work(client)

    return play.ask(main)


def create(play: Play, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
    assignments = [
        {"partition_index": index, "broker_ids": nodes} for index, nodes in enumerate(replicas)
    ]
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
        "configs": [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ],
    }

    async def work(client: RawClient) -> None:
        answer = await client.ask(CREATE_TOPICS, 7, topics=[topic], timeout=TIMEOUT_MS)
        assert answer.topics[0].error_code == 0

    ask(play, work)


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


def coordinator(play: Play) -> int:
    """Wait for the coordinator of all groups. Return its node id."""

    def leads() -> int:
        topic = play[1].image.topic(OFFSETS_TOPIC)
        return 0 if topic is None else max(0, topic.partitions[0].leader)

    play.until(lambda: leads() > 0)
    return leads()
