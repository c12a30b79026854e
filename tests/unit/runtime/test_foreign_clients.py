"""The gRPC server with plain grpc clients: typed details and invalid requests.

Also the synchronous channel, for code without an event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_status import rpc_status
from tests.kit.waits import AMPLE_MS, AMPLE_S, run_patiently

from quorumlog.errors import (
    ConnectionFailed,
    InvalidRequest,
    MessageTooLarge,
    NotImplementedHere,
    NotLeaderOrFollower,
    StreamBroken,
    TimedOut,
)
from quorumlog.proto import errors_pb2
from quorumlog.proto.log_pb2 import (
    ListOffsetsRequest,
    ProduceRequest,
    ProduceResponse,
    PublishRequest,
    PublishResponse,
    SubscribeRequest,
    SubscribeResponse,
)
from quorumlog.runtime import CallContext, Handler, Runtime
from quorumlog.runtime.grpc_network import MESSAGE_SIZE_MAX, SyncChannel
from quorumlog.services import LOG_LIST_OFFSETS, LOG_PRODUCE, LOG_PUBLISH, LOG_SUBSCRIBE

WAIT_S = AMPLE_S


async def publish(request: PublishRequest, context: CallContext) -> PublishResponse:
    """Respond as the topic requests."""
    if request.topic == "typed":
        raise NotLeaderOrFollower("ask node 2", topic="typed", partition=4)
    if request.topic == "slow":
        await asyncio.sleep(3600)
    return PublishResponse(partition=1)


async def produce(stream: Any, context: CallContext) -> None:
    """Echo the correlation ids; negative ones are refused."""
    while (request := await stream.receive()) is not None:
        if request.correlation_id < 0:
            raise InvalidRequest("negative")
        await stream.send(ProduceResponse(correlation_id=request.correlation_id))


async def subscribe(stream: Any, context: CallContext) -> None:
    """Send three responses to one request, as a server-streaming method."""
    request = await stream.receive()
    assert await stream.receive() is None
    for number in range(3):
        await stream.send(SubscribeResponse(next_offset=request.offset + number))


HANDLERS = {
    LOG_PUBLISH.path: Handler(LOG_PUBLISH, publish),
    LOG_PRODUCE.path: Handler(LOG_PRODUCE, produce),
    LOG_SUBSCRIBE.path: Handler(LOG_SUBSCRIBE, subscribe),
}


def with_server(client: Callable[[str], Awaitable[None]]) -> None:
    """Run an async client with a server; it gets the address."""

    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve("127.0.0.1:0", HANDLERS)
        async with asyncio.timeout(WAIT_S):
            await client(listener.address)

    run_patiently(main)


def with_sync_client(client: Callable[[SyncChannel], None]) -> None:
    """Run a synchronous client in a thread with a server."""

    def in_thread(address: str) -> None:
        with SyncChannel(address, connect_ms=AMPLE_MS) as channel:
            client(channel)

    with_server(lambda address: asyncio.to_thread(in_thread, address))


# --- foreign clients -----------------------------------------------------------------------------


def test_foreign_client_gets_status_and_typed_detail() -> None:
    async def client(address: str) -> None:
        async with aio.insecure_channel(address) as channel:
            call = channel.unary_unary(
                LOG_PUBLISH.path,
                PublishRequest.SerializeToString,
                PublishResponse.FromString,
            )
            assert (await call(PublishRequest(topic="t"))).partition == 1
            with pytest.raises(aio.AioRpcError) as caught:
                await call(PublishRequest(topic="typed"))
        failure = caught.value
        assert failure.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert failure.details() == "typed-4: ask node 2"
        status = await rpc_status.aio.from_call(_Ended(failure))
        assert status is not None
        detail = errors_pb2.Error()
        assert status.details[0].Unpack(detail)
        assert detail == errors_pb2.Error(
            code=6,
            name="NOT_LEADER_OR_FOLLOWER",
            message="ask node 2",
            retriable=True,
            topic="typed",
            partition=4,
        )

    with_server(client)


class _Ended:
    """A failed call in the form that rpc_status expects."""

    def __init__(self, failure: aio.AioRpcError) -> None:
        self._failure = failure

    async def code(self) -> grpc.StatusCode:
        return self._failure.code()

    async def details(self) -> str | None:
        return self._failure.details()

    async def trailing_metadata(self) -> Any:
        return self._failure.trailing_metadata()


def test_foreign_client_may_send_invalid_requests() -> None:
    async def client(address: str) -> None:
        async with aio.insecure_channel(address) as channel:
            unary: Any = channel.unary_unary(LOG_PUBLISH.path)
            with pytest.raises(aio.AioRpcError) as caught:
                await unary(b"\xff\xff\xff")
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            stream: Any = channel.stream_stream(LOG_PRODUCE.path)()
            await stream.write(b"\xff\xff\xff")
            with pytest.raises(aio.AioRpcError) as caught:
                await stream.read()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            unknown: Any = channel.unary_unary("/quorumlog.v1.Log/Nothing")
            with pytest.raises(aio.AioRpcError) as caught:
                await unknown(b"")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    with_server(client)


def test_server_streaming_method_answers_a_unary_stream_stub() -> None:
    async def client(address: str) -> None:
        async with aio.insecure_channel(address) as channel:
            call = channel.unary_stream(
                LOG_SUBSCRIBE.path,
                SubscribeRequest.SerializeToString,
                SubscribeResponse.FromString,
            )(SubscribeRequest(offset=5))
            assert [response.next_offset async for response in call] == [5, 6, 7]

    with_server(client)


# --- the synchronous channel ----------------------------------------------------------------------


@pytest.mark.slow
def test_sync_channel_calls_and_raises_the_same_errors() -> None:
    def client(channel: SyncChannel) -> None:
        request = PublishRequest(topic="t")
        assert channel.call(LOG_PUBLISH, request, timeout_ms=AMPLE_MS).partition == 1
        with pytest.raises(NotLeaderOrFollower) as caught:
            channel.call(LOG_PUBLISH, PublishRequest(topic="typed"), timeout_ms=AMPLE_MS)
        assert (caught.value.topic, caught.value.partition) == ("typed", 4)
        with pytest.raises(TimedOut):
            channel.call(LOG_PUBLISH, PublishRequest(topic="slow"), timeout_ms=50)
        with pytest.raises(NotImplementedHere):
            channel.call(LOG_LIST_OFFSETS, ListOffsetsRequest(), timeout_ms=AMPLE_MS)
        large = PublishRequest(topic="x" * (MESSAGE_SIZE_MAX + 1))
        with pytest.raises(MessageTooLarge):
            channel.call(LOG_PUBLISH, large, timeout_ms=AMPLE_MS)

    with_sync_client(client)


def test_sync_channel_streams_both_ways() -> None:
    def requests(*numbers: int) -> Iterator[ProduceRequest]:
        for number in numbers:
            yield ProduceRequest(correlation_id=number)

    def client(channel: SyncChannel) -> None:
        stream = channel.stream(LOG_PRODUCE, requests(1, 2, 3))
        assert [response.correlation_id for response in stream] == [1, 2, 3]
        stream = channel.stream(LOG_PRODUCE, requests(7, -1))
        assert next(stream).correlation_id == 7
        with pytest.raises(InvalidRequest, match="negative"):
            next(stream)
        offsets = channel.stream(LOG_SUBSCRIBE, [SubscribeRequest(offset=1)])
        assert [response.next_offset for response in offsets] == [1, 2, 3]

    with_sync_client(client)


def test_sync_stream_may_be_abandoned() -> None:
    def client(channel: SyncChannel) -> None:
        stream = channel.stream(LOG_PRODUCE, [ProduceRequest(correlation_id=1)])
        assert next(stream).correlation_id == 1
        stream.close()
        with pytest.raises(StreamBroken):
            next(stream)

    with_sync_client(client)


def test_sync_call_to_an_unused_port_is_not_sent() -> None:
    with SyncChannel("127.0.0.1:1") as channel:
        with pytest.raises(ConnectionFailed):
            channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=AMPLE_MS)
        with pytest.raises((ConnectionFailed, StreamBroken)):
            next(channel.stream(LOG_PRODUCE, []))
