"""A quota applies at every broker of the cluster, at each one separately."""

import pytest
from tests.kit.batches import batch_of
from tests.kit.kafka_client import connected
from tests.kit.simulated_cluster import cluster

from quorumlog.clients.log import make_log
from quorumlog.runtime import Runtime

from .produce_fetch import produce_fields

pytestmark = pytest.mark.slow  # three nodes

PRODUCE = 0
RATE = 10_000
BURST = 10 * RATE


async def told_ms(runtime: Runtime, node: int, partition: int, size: int) -> int:
    """Produce to the partition's leader. Return the throttle time."""
    async with connected(runtime, f"n{node}:9092") as client:
        fields = produce_fields(9, (partition, batch_of(bytes(size))), acks=1)
        answer = await client.ask(PRODUCE, 9, **fields)
        assert answer.responses[0].partition_responses[0].error_code == 0
        throttle_ms: int = round(answer.throttle_time.total_seconds() * 1000)
        return throttle_ms


def test_a_quota_holds_for_every_broker_once_it_is_set() -> None:
    async def main(runtime: Runtime) -> None:
        async with make_log(runtime, "n1:9094") as log:
            await log.admin.create_topic("t", assignments=[[1], [2], [3]])
            await log.admin.alter_quotas({"client_id": "raw"}, {"producer_byte_rate": RATE})
            for node in (1, 2, 3):
                assert await told_ms(runtime, node, node - 1, BURST - RATE) == 0
                owed_ms = await told_ms(runtime, node, node - 1, 5 * RATE)
                assert 4_000 <= owed_ms <= 4_200, node

    with cluster(brokers=3, combined=True, kafka=("{}:9092",)) as play:
        play.ask(main)
