"""A message above a limit fails with one typed error that names the limit.

The sender refuses it before it is sent, or the receiver does, whose limit may be another.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kit.waits import AMPLE_MS, run_patiently

from quorumlog.errors import MessageTooLarge, StreamBroken
from quorumlog.proto.log_pb2 import ProduceRequest, ProduceResponse, PublishRequest, PublishResponse
from quorumlog.runtime import CallContext, Channel, Handler, Runtime
from quorumlog.runtime.byte_network import ByteNetwork
from quorumlog.runtime.grpc_network import GrpcNetwork
from quorumlog.services import LOG_PRODUCE, LOG_PUBLISH

WAIT_MS = AMPLE_MS
SMALL, LARGE = 1000, 1 << 20  # message limit of each side, in bytes


async def publish(request: PublishRequest, context: CallContext) -> PublishResponse:
    """Respond with as many results as requested."""
    response = PublishResponse()
    for _ in range(request.timeout_ms):
        response.results.add(partition=1, base_offset=1)
    return response


async def produce(stream: Any, context: CallContext) -> None:
    """Respond to each request with as many results as its number."""
    while (request := await stream.receive()) is not None:
        response = ProduceResponse(correlation_id=request.correlation_id)
        for _ in range(request.correlation_id):
            response.results.add(topic="t")
        await stream.send(response)


def with_channel(
    client: Callable[[Channel], Awaitable[None]], *, server_max: int, client_max: int
) -> None:
    """Run a client and a server, each with its own limit."""

    @asynccontextmanager
    async def network(runtime: Runtime, message_size_max: int) -> AsyncIterator[GrpcNetwork]:
        sockets = ByteNetwork(runtime.tasks)
        made = GrpcNetwork(
            runtime.clock, sockets.why_not_bindable, message_size_max=message_size_max
        )
        try:
            yield made
        finally:
            await made.close()
            await sockets.close()

    async def main(runtime: Runtime) -> None:
        handlers = {
            LOG_PUBLISH.path: Handler(LOG_PUBLISH, publish),
            LOG_PRODUCE.path: Handler(LOG_PRODUCE, produce),
        }
        async with (
            asyncio.timeout(WAIT_MS / 1000),
            network(runtime, server_max) as servers,
            network(runtime, client_max) as clients,
        ):
            listener = await servers.serve("127.0.0.1:0", handlers)
            await client(clients.channel(listener.address))

    run_patiently(main)


async def exchange(stream: Any, request: ProduceRequest) -> None:
    await stream.send(request)
    await stream.receive()


@pytest.mark.parametrize(
    ("server_max", "client_max"), [(SMALL, LARGE), (LARGE, SMALL), (SMALL, SMALL)]
)
def test_a_request_too_large_names_the_smaller_bound(server_max: int, client_max: int) -> None:
    async def client(channel: Channel) -> None:
        large = PublishRequest(topic="x" * 2 * SMALL)
        with pytest.raises(MessageTooLarge, match=str(SMALL)):
            await channel.call(LOG_PUBLISH, large, timeout_ms=WAIT_MS)
        await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
        stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
        request = ProduceRequest()
        request.partitions.add(records=bytes(2 * SMALL))
        with pytest.raises(MessageTooLarge, match=str(SMALL)):
            await exchange(stream, request)

    with_channel(client, server_max=server_max, client_max=client_max)


@pytest.mark.parametrize(
    ("server_max", "client_max"), [(SMALL, LARGE), (LARGE, SMALL), (SMALL, SMALL)]
)
def test_an_answer_too_large_names_the_smaller_bound(server_max: int, client_max: int) -> None:
    async def client(channel: Channel) -> None:
        request = PublishRequest(timeout_ms=SMALL)
        with pytest.raises(MessageTooLarge, match=str(SMALL)):
            await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
        await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
        stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
        with pytest.raises(MessageTooLarge, match=str(SMALL)):
            await exchange(stream, ProduceRequest(correlation_id=SMALL))
        with pytest.raises((MessageTooLarge, StreamBroken)):
            await exchange(stream, ProduceRequest())

    with_channel(client, server_max=server_max, client_max=client_max)
