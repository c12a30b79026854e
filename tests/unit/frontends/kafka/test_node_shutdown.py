"""Kafka clients of a node that stops."""

import asyncio

import pytest
from tests.kit.batches import batch_of
from tests.kit.kafka_client import ConnectionEnded
from tests.kit.kafka_node import serving_kafka

from quorumlog.runtime import Runtime
from quorumlog.simulation import run

from .produce_fetch import FETCH, create, fetch_fields, produce


def test_node_stop_does_not_wait_for_long_polls() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/data", shutdown_grace_ms=60_000) as kafka:
            await create(kafka, "t")
            await produce(kafka.client, batch_of(b"a"))
            idle, waiting = await kafka.connect(), await kafka.connect()
            waiting.send(FETCH, 11, **fetch_fields(11, (0, 1), max_wait=600_000))
            asked = asyncio.ensure_future(waiting.frame())
            await asyncio.sleep(1)
            assert not asked.done()
            began_ms = runtime.clock.now_ms()
        assert runtime.clock.now_ms() - began_ms < 10_000
        assert await idle.ended() is None
        with pytest.raises(ConnectionEnded):
            await asked

    run(main)
