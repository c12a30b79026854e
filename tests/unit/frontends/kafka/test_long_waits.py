"""Requests that wait for other clients, for minutes if necessary."""

from dataclasses import replace

import pytest
from tests.kit.kafka_client import body_of, connected

from quorumlog import simulation
from quorumlog.errors import InvalidRequest
from quorumlog.frontends.kafka.codecs.primitives import TEXT_BYTES_MAX
from quorumlog.frontends.kafka.request_limits import step_over, walk_message
from quorumlog.runtime import Runtime

from .any_request import schema_of
from .bare_server import GATED_KEY, Gate, bare_server, is_served

LONG = "x" * 20_000


def waiting() -> Gate:
    """A gate whose requests count as waiting for other clients."""
    gate = Gate()
    gate.api = replace(gate.api, waits_for_others=True)
    return gate


def test_request_that_waits_for_others_keeps_no_request_memory() -> None:
    async def main(runtime: Runtime) -> None:
        gate = waiting()
        async with (
            bare_server(runtime, gate.api, requests_bytes_max=10_000) as (server, addresses),
            connected(runtime, addresses["one"]) as waits,
            connected(runtime, addresses["one"]) as other,
        ):
            sent = waits.send(GATED_KEY, 4, topic_names=[LONG], timeout=1)
            await gate.reached(1)
            assert server.memory.taken == 0
            assert await is_served(other)
            gate.open(1)
            assert (await waits.answer(GATED_KEY, 4))[0] == sent
            assert server.memory.taken == 0

    simulation.run(main)


def test_connection_closed_during_a_long_wait_leaves_nothing() -> None:
    async def main(runtime: Runtime) -> None:
        gate = waiting()
        async with bare_server(runtime, gate.api) as (server, addresses):
            async with connected(runtime, addresses["one"]) as waits:
                waits.send(GATED_KEY, 4, topic_names=[LONG], timeout=1)
                waits.send(GATED_KEY, 4, topic_names=[LONG], timeout=2)  # waits for its turn
                await gate.reached(1)
            async with connected(runtime, addresses["one"]) as other:
                assert await is_served(other)
            assert (server.memory.taken, server.figures.open) == (0, 0)

    simulation.run(main)


def test_close_does_not_wait_for_long_waits() -> None:
    async def main(runtime: Runtime) -> None:
        gate = waiting()
        async with (
            bare_server(runtime, gate.api) as (server, addresses),
            connected(runtime, addresses["one"]) as waits,
        ):
            waits.send(GATED_KEY, 4, topic_names=["t"], timeout=1)
            await gate.reached(1)
            began_ms = runtime.clock.now_ms()
            await server.close(60_000)
            assert await waits.ended() is None
            assert runtime.clock.now_ms() - began_ms < 1_000

    simulation.run(main)


@pytest.mark.parametrize("size", [TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1])
def test_error_message_fits_every_version(size: int) -> None:
    body = memoryview(body_of(10, 6, {"key_type": 0, "coordinator_keys": ["x" * size]}))
    if size <= TEXT_BYTES_MAX:
        assert walk_message(step_over(schema_of(10, 6)), body, 0).cuts == []
    else:
        with pytest.raises(InvalidRequest, match="32768 bytes"):
            walk_message(step_over(schema_of(10, 6)), body, 0)
