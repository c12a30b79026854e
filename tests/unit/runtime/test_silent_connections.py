"""A silent connection, open without traffic, is detected and replaced."""

import asyncio

import pytest
from tests.kit.waits import AMPLE_MS

from quorumlog.errors import (
    StreamBroken,
    TimedOut,
    TransportError,
)
from quorumlog.proto.log_pb2 import ProduceRequest, ProduceResponse, PublishRequest, PublishResponse
from quorumlog.runtime import CallContext, Channel, Handler, Runtime, Stream
from quorumlog.runtime.byte_network import ByteNetwork
from quorumlog.runtime.grpc_network import GrpcNetwork
from quorumlog.runtime.real import run
from quorumlog.services import LOG_PRODUCE, LOG_PUBLISH
from quorumlog.testing import ForwardingProxy

WAIT_MS = AMPLE_MS
KEEPALIVE_MS = 300


async def publish(request: PublishRequest, context: CallContext) -> PublishResponse:
    return PublishResponse()


async def produce(stream: Stream[ProduceResponse, ProduceRequest], context: CallContext) -> None:
    while (request := await stream.receive()) is not None:
        await stream.send(ProduceResponse(correlation_id=request.correlation_id))


async def talking(channel: Channel) -> Stream[ProduceRequest, ProduceResponse]:
    """A stream that has responded.

    A busy machine may be silent for longer than KEEPALIVE_MS, which takes several attempts.
    """
    while True:
        try:
            stream = await channel.stream(LOG_PRODUCE, timeout_ms=0)
            await stream.send(ProduceRequest(correlation_id=1))
            answer = await stream.receive()
        except TransportError:
            await asyncio.sleep(0)
            continue
        assert answer is not None
        assert answer.correlation_id == 1
        return stream


@pytest.mark.slow
def test_stream_on_a_silent_connection_breaks_and_the_next_call_succeeds() -> None:
    async def main(runtime: Runtime) -> None:
        sockets = ByteNetwork(runtime.tasks)
        network = GrpcNetwork(
            runtime.clock,
            sockets.why_not_bindable,
            keepalive_ms=KEEPALIVE_MS,
            connect_ms=AMPLE_MS,
        )
        listener = await network.serve(
            "127.0.0.1:0",
            {
                LOG_PUBLISH.path: Handler(LOG_PUBLISH, publish),
                LOG_PRODUCE.path: Handler(LOG_PRODUCE, produce),
            },
        )
        try:
            async with asyncio.timeout(WAIT_MS / 1000):
                with ForwardingProxy(listener.address) as proxy:
                    channel = network.channel(proxy.address)
                    stream = await talking(channel)
                    proxy.silence()
                    with pytest.raises(StreamBroken):
                        await stream.receive()
                    while (
                        True
                    ):  # attempts fail with the old connection, and quickly behind a failed one
                        try:
                            await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
                            break
                        except (TransportError, TimedOut):
                            await asyncio.sleep(0)
                    await channel.close()
        finally:
            await network.close()
            await sockets.close()

    run(main)
