"""Requests to simulated nodes that are reached as n1, n2 and so on."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.kit.kafka_client import RawClient, connected
from tests.kit.simulated_cluster import Play

from quorumlog.runtime import Runtime

CREATE_TOPICS = 19
TIMEOUT_MS = 60_000
T = TypeVar("T")


def ask(play: Play, work: Callable[[RawClient], Awaitable[T]], *, node: int = 1) -> T:
    """Do something as a client of one node."""

    async def main(runtime: Runtime) -> T:
        async with connected(runtime, f"n{node}:9092") as client:
            return await work(client)

    return play.ask(main)


def create(play: Play, name: str, *replicas: tuple[int, ...]) -> None:
    assignments = [
        {"partition_index": index, "broker_ids": nodes} for index, nodes in enumerate(replicas)
    ]
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
        "configs": (),
    }

    async def work(client: RawClient) -> None:
        answer = await client.ask(CREATE_TOPICS, 7, topics=[topic], timeout=TIMEOUT_MS)
        assert answer.topics[0].error_code == 0

    ask(play, work)
