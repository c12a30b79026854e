"""Calls and addresses, on both runtimes (the contract of `runtime.ports.Channel`)."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS

from quorumlog.errors import (
    AddressInUse,
    ConnectionFailed,
    InvalidTopic,
    MessageTooLarge,
    NotImplementedHere,
    OffsetOutOfRange,
    OutcomeUnknown,
    QuorumlogError,
    StreamBroken,
    TimedOut,
    TransportError,
    UnknownServerError,
)
from quorumlog.proto.log_pb2 import (
    PartitionRecords,
    ProduceRequest,
    ProduceResponse,
    PublishRequest,
    PublishResponse,
)
from quorumlog.runtime import CallContext, Channel, Handler, Listener, Runtime, Stream
from quorumlog.services import LOG_LIST_OFFSETS, LOG_PUBLISH, LOG_SUBSCRIBE

from .message_stream import open_stream

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
Incoming: TypeAlias = Stream[ProduceResponse, ProduceRequest]

Served: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[Listener, Channel]]]

WAIT_MS = AMPLE_MS  # far longer than any test


# --- unary calls ---------------------------------------------------------------------------------


def test_call_transmits_the_request_and_the_response(run: Run, served: Served) -> None:
    async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
        assert context.peer
        return PublishResponse(partition=len(request.topic))

    async def main(runtime: Runtime) -> None:
        async with served(runtime, unary=answer) as (_, channel):
            for topic in ("a", "bcd"):
                request = PublishRequest(topic=topic)
                response = await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
                assert response == PublishResponse(partition=len(topic))

    run(main)


def test_typed_error_of_the_handler_reaches_the_caller(run: Run, served: Served) -> None:
    async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
        raise OffsetOutOfRange("asked 7, have [1, 5]", topic="ü-topic", partition=0)

    async def main(runtime: Runtime) -> None:
        async with served(runtime, unary=answer) as (_, channel):
            with pytest.raises(OffsetOutOfRange) as caught:
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
            error = caught.value
            assert (error.message, error.topic, error.partition) == (
                "asked 7, have [1, 5]",
                "ü-topic",
                0,
            )

    run(main)


def test_error_without_a_partition_has_none(run: Run, served: Served) -> None:
    async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
        raise InvalidTopic("x" * 100_000)

    async def main(runtime: Runtime) -> None:
        async with served(runtime, unary=answer) as (_, channel):
            with pytest.raises(InvalidTopic, match="xxx") as caught:
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
            assert (caught.value.topic, caught.value.partition) == ("", None)

    run(main)


def test_error_about_an_absurdly_long_topic_still_arrives_typed(run: Run, served: Served) -> None:
    """An error travels in headers, which peers bound."""

    async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
        raise InvalidTopic("too long", topic=request.topic)

    async def main(runtime: Runtime) -> None:
        async with served(runtime, unary=answer) as (_, channel):
            request = PublishRequest(topic="x" * 100_000)
            with pytest.raises(InvalidTopic, match="too long"):
                await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)

    run(main)


def test_unforeseen_failure_of_the_handler_is_an_unknown_server_error(
    run: Run, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
        raise ZeroDivisionError("a secret detail")

    async def main(runtime: Runtime) -> None:
        async with served(runtime, unary=answer) as (_, channel):
            with pytest.raises(UnknownServerError) as caught:
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
            assert "secret" not in caught.value.message

    run(main)
    assert "a secret detail" in caplog.text


def test_unknown_method_is_not_implemented(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            request = LOG_LIST_OFFSETS.request()
            with pytest.raises(NotImplementedHere):
                await channel.call(LOG_LIST_OFFSETS, request, timeout_ms=WAIT_MS)
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            with pytest.raises(NotImplementedHere):
                await stream.receive()

    run(main)


def test_expired_deadline_times_out(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            for _ in range(2):  # before and after the connection is established
                with pytest.raises(TimedOut):
                    await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=0)
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)

    run(main)


def test_deadline_is_seen_by_the_handler_and_times_the_caller_out(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        left_ms: dict[str, int] = {}  # by topic: the timeout of the call
        cancelled = asyncio.Event()

        async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
            left_ms[request.topic] = context.deadline_ms - runtime.clock.now_ms()
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()
            return PublishResponse()

        async with served(runtime, unary=answer) as (_, channel):
            timeout_ms = 50
            while True:
                request = PublishRequest(topic=str(timeout_ms))
                with pytest.raises(TimedOut):
                    await channel.call(LOG_PUBLISH, request, timeout_ms=timeout_ms)
                if request.topic in left_ms:
                    break
                timeout_ms *= 10  # the machine did not run the handler in that time
            async with asyncio.timeout(WAIT_MS / 1000):
                await cancelled.wait()
        assert 0 <= left_ms[request.topic] <= timeout_ms + 1

    run(main)


def test_handler_is_cancelled_when_the_caller_leaves(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
            started.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return PublishResponse()

        async with served(runtime, unary=answer) as (_, channel):
            async with runtime.tasks.scope("callers") as scope:
                call = channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
                scope.spawn(call, name="call")
                await started.wait()
                scope.cancel()
            async with asyncio.timeout(WAIT_MS / 1000):
                await cancelled.wait()

    run(main)


def test_closing_the_channel_fails_the_calls_in_flight(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        started = asyncio.Event()

        async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
            started.set()
            await asyncio.sleep(3600)
            return PublishResponse()

        async with served(runtime, unary=answer) as (_, channel):

            async def call() -> None:
                with pytest.raises(OutcomeUnknown):
                    await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)

            async with runtime.tasks.scope("callers") as scope:
                scope.spawn(call(), name="call")
                await started.wait()
                await channel.close()
            with pytest.raises(ConnectionFailed):
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)

    run(main)


@pytest.mark.slow
def test_too_large_message_is_refused_before_it_is_sent(run: Run, served: Served) -> None:
    large = bytes((64 << 20) + (64 << 10))

    async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
        raise AssertionError("never called")

    async def main(runtime: Runtime) -> None:
        async with served(runtime, unary=answer) as (_, channel):
            request = PublishRequest(topic="x" * len(large))
            with pytest.raises(MessageTooLarge):
                await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
            stream = await open_stream(channel)
            records = [PartitionRecords(records=large)]
            with pytest.raises(MessageTooLarge):
                await stream.send(ProduceRequest(partitions=records))
            await stream.send(ProduceRequest(correlation_id=1))  # the stream still works
            response = await stream.receive()
            assert response is not None
            assert response.correlation_id == 1

    run(main)


# --- addresses -----------------------------------------------------------------------------------


def test_taken_address_is_in_use(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (listener, channel):
            with pytest.raises(AddressInUse):
                await runtime.network.serve(listener.address, {})
            await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
        again = await runtime.network.serve(listener.address, {})
        assert again.address == listener.address
        await again.close(0)

    run(main)


def test_refused_connection_is_not_sent(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (listener, _):
            assert not await runtime.network.refuses(listener.address, WAIT_MS)
        assert await runtime.network.refuses(listener.address, WAIT_MS)
        channel = runtime.network.channel(listener.address)
        for _ in range(3):
            with pytest.raises(ConnectionFailed):
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
            with pytest.raises(ConnectionFailed):
                await open_stream(channel)
        await channel.close()

    run(main)


def test_channel_reconnects_when_its_server_returns(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (listener, _):
            channel = runtime.network.channel(listener.address)
            await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
        with pytest.raises(TransportError):
            await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)

        async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
            return PublishResponse()

        handlers = {LOG_PUBLISH.path: Handler(LOG_PUBLISH, answer)}
        again = await runtime.network.serve(listener.address, handlers)
        async with asyncio.timeout(WAIT_MS / 1000):
            while True:
                try:
                    await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
                    break
                except TransportError:
                    await asyncio.sleep(0.01)
        await channel.close()
        await again.close(0)

    run(main)


# --- closing a listener --------------------------------------------------------------------------


def test_close_lets_calls_end_within_the_grace(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
            started.set()
            await go_on.wait()
            return PublishResponse(partition=5)

        async with served(runtime, unary=answer) as (listener, channel):
            async with runtime.tasks.scope("test") as scope:
                call = channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
                task = scope.spawn(call, name="call")
                await started.wait()
                scope.spawn(listener.close(WAIT_MS), name="close")
                await asyncio.sleep(0.01)
                go_on.set()
            assert task.result().partition == 5

    run(main)


@pytest.mark.parametrize("grace_ms", [0, 20])
def test_close_cancels_calls_beyond_the_grace_time_and_waits_for_them(
    run: Run, served: Served, grace_ms: int
) -> None:
    async def main(runtime: Runtime) -> None:
        ended: list[str] = []

        async def answer(stream: Incoming, context: CallContext) -> None:
            await stream.send(ProduceResponse())
            try:
                await stream.receive()
            finally:
                await asyncio.sleep(0)  # its cleanup takes a while
                ended.append("handler")

        async with served(runtime, streaming=answer) as (listener, channel):
            stream = await open_stream(channel)
            assert await stream.receive() is not None
            await listener.close(grace_ms)
            assert ended == ["handler"]
            with pytest.raises(QuorumlogError) as caught:
                await stream.receive()
            assert isinstance(caught.value, StreamBroken)

    run(main)


def test_handler_whose_future_was_cancelled_still_responds(run: Run, served: Served) -> None:
    async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
        lost = asyncio.get_running_loop().create_future()
        lost.cancel()
        await lost
        return PublishResponse()

    async def main(runtime: Runtime) -> None:
        async with served(runtime, unary=answer) as (_, channel):
            with pytest.raises(UnknownServerError):
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)

    run(main)
