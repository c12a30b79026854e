"""A peer with a long connect time is reached, since later attempts have longer timeouts."""

import asyncio

import pytest
from tests.kit.waits import AMPLE_MS

from quorumlog.errors import (
    ConnectionFailed,
    TransportError,
)
from quorumlog.proto.log_pb2 import ProduceRequest, ProduceResponse, PublishRequest, PublishResponse
from quorumlog.runtime import CallContext, Channel, Handler, Runtime, Stream
from quorumlog.runtime.grpc_network import SyncChannel
from quorumlog.runtime.grpc_options import CONNECT_MS, CONNECT_MS_MAX, longer_connect_ms
from quorumlog.runtime.real import run
from quorumlog.services import LOG_PRODUCE, LOG_PUBLISH
from quorumlog.testing import ForwardingProxy

FAR_S = 1.3 * CONNECT_MS / 1000
"""Until a server's first bytes arrive. A TCP connection over a line takes two round trips to that
point, of which this one, through a proxy, has half of one."""

ATTEMPTS = 20  # many more than needed: a busy machine may lose some


async def publish(request: PublishRequest, context: CallContext) -> PublishResponse:
    return PublishResponse()


async def produce(stream: Stream[ProduceResponse, ProduceRequest], context: CallContext) -> None:
    while (request := await stream.receive()) is not None:
        await stream.send(ProduceResponse(correlation_id=request.correlation_id))


HANDLERS = {
    LOG_PUBLISH.path: Handler(LOG_PUBLISH, publish),
    LOG_PRODUCE.path: Handler(LOG_PRODUCE, produce),
}


async def called(channel: Channel) -> bool:
    try:
        await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=AMPLE_MS)
    except ConnectionFailed:
        return False
    return True


async def streamed(channel: Channel) -> bool:
    try:
        stream = await channel.stream(LOG_PRODUCE, timeout_ms=AMPLE_MS)
    except ConnectionFailed:
        return False
    await stream.send(ProduceRequest(correlation_id=1))
    answer = await stream.receive()
    assert answer is not None
    assert answer.correlation_id == 1
    return True


@pytest.mark.slow
@pytest.mark.parametrize("reach", [called, streamed])
def test_a_far_peer_is_reached_after_a_few_attempts(reach) -> None:  # type: ignore[no-untyped-def]
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve("127.0.0.1:0", HANDLERS)
        with ForwardingProxy(listener.address) as proxy:
            proxy.delay_s = FAR_S
            channel = runtime.network.channel(proxy.address)
            outcomes = [await reach(channel)]
            while not outcomes[-1] and len(outcomes) < ATTEMPTS:
                await asyncio.sleep(0.05)  # as callers pause between attempts
                outcomes.append(await reach(channel))
            assert outcomes[-1], f"{len(outcomes)} attempts, and none succeeded"
            assert not outcomes[0], "the peer was not slow"

    run(main)


@pytest.mark.slow
def test_concurrent_calls_reach_a_far_peer() -> None:
    """They all fail together and share the longer attempts."""

    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve("127.0.0.1:0", HANDLERS)

        async def reach(channel: Channel) -> int:
            for attempt in range(ATTEMPTS):
                if await called(channel):
                    return attempt
                await asyncio.sleep(0.05)
            raise AssertionError("no attempt succeeded")

        with ForwardingProxy(listener.address) as proxy:
            proxy.delay_s = FAR_S
            channel = runtime.network.channel(proxy.address)
            attempts = await asyncio.gather(*[reach(channel) for _ in range(3)])
            assert min(attempts) >= 1
            assert proxy.connections <= 2

    run(main)


@pytest.mark.slow
def test_a_far_peer_is_reached_without_a_loop() -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve("127.0.0.1:0", HANDLERS)

        def reach(address: str) -> int:
            with SyncChannel(address) as channel:
                for attempt in range(ATTEMPTS):
                    try:
                        channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=AMPLE_MS)
                    except TransportError:
                        continue
                    requests = [ProduceRequest(correlation_id=7)]
                    answers = channel.stream(LOG_PRODUCE, requests, timeout_ms=AMPLE_MS)
                    assert [answer.correlation_id for answer in answers] == [7]
                    return attempt
            raise AssertionError("no attempt succeeded")

        with ForwardingProxy(listener.address) as proxy:
            proxy.delay_s = FAR_S
            assert await asyncio.to_thread(reach, proxy.address) >= 1

    run(main)


def test_attempts_double_up_to_a_bound_and_what_is_longer_stays() -> None:
    grown, connect_ms = [], CONNECT_MS
    while connect_ms < CONNECT_MS_MAX:
        connect_ms = longer_connect_ms(connect_ms)
        grown.append(connect_ms)
    assert grown == [1_000, 2_000]
    assert longer_connect_ms(CONNECT_MS_MAX) == CONNECT_MS_MAX
    assert longer_connect_ms(AMPLE_MS) == AMPLE_MS
