"""A node receives almost valid requests of every key and version: it responds or ends the
connection, serves other clients, and keeps no memory for them."""

import asyncio
import gc
import logging
import tracemalloc
from collections import Counter
from random import Random

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka

from quorumlog import simulation
from quorumlog.runtime import Runtime

from ..unit.frontends.kafka.any_request import OFFERED
from .kafka_targets import is_survived, mangled

MEMORY_MAX = 64 << 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_node_survives_requests_that_are_almost_valid(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    outcomes: Counter[str] = Counter()

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/data") as kafka:
            await round_of(kafka)  # loads every schema
            tracemalloc.start()
            try:
                await round_of(kafka)
                gc.collect()
                assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
            finally:
                tracemalloc.stop()
            assert (await kafka.client.ask(18, 0)).error_code == 0
            server = kafka.node.parts.kafka
            assert server is not None
            async with asyncio.timeout(60):
                while server.connection_count > 1:  # noqa: ASYNC110 (no event signals it)
                    await asyncio.sleep(0.1)
            assert server.memory.taken == 0

    async def round_of(kafka: KafkaNode) -> None:
        """Send one request of every key and version."""
        for number, (key, version) in enumerate(OFFERED):
            frame = mangled(number, random)
            before = len(caplog.records)
            outcomes[await is_survived(kafka.runtime, kafka.address, frame)] += 1
            for record in caplog.records[before:]:
                if record.levelno >= logging.ERROR:
                    what = f"key {key} version {version}, {frame.hex()}: {record.getMessage()}"
                    raise AssertionError(what) from (record.exc_info or (None, None))[1]

    with caplog.at_level(logging.ERROR):
        simulation.run(main)
    assert min(outcomes["answered"], outcomes["ended"]) > 0.1 * outcomes.total(), outcomes
