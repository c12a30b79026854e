"""Calls and streams, on both runtimes (the contract of `runtime.ports.Channel` and `Stream`)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from quorumlog.errors import (
    AddressInUse,
    InvalidTopic,
    Lost,
    MessageTooLarge,
    NotImplementedHere,
    NotSent,
    OffsetOutOfRange,
    QuorumlogError,
    StreamBroken,
    TimedOut,
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
from quorumlog.services import LOG_LIST_OFFSETS, LOG_PRODUCE, LOG_PUBLISH, LOG_SUBSCRIBE

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
Incoming: TypeAlias = Stream[ProduceResponse, ProduceRequest]
Outgoing: TypeAlias = Stream[ProduceRequest, ProduceResponse]
Unary: TypeAlias = Callable[[PublishRequest, CallContext], Awaitable[PublishResponse]]
Streaming: TypeAlias = Callable[[Incoming, CallContext], Awaitable[None]]

WAIT_MS = 20_000  # no test comes near it


async def nothing(request: PublishRequest, context: CallContext) -> PublishResponse:
    """Answer with nothing."""
    return PublishResponse()


async def echo(stream: Incoming, context: CallContext) -> None:
    """Answer every request until the caller finishes."""
    while (request := await stream.receive()) is not None:
        await stream.send(ProduceResponse(correlation_id=request.correlation_id))


@asynccontextmanager
async def served(
    runtime: Runtime, *, unary: Unary = nothing, streaming: Streaming = echo
) -> AsyncIterator[tuple[Listener, Channel]]:
    """A server of both kinds of method, and a channel to it."""
    handlers = {
        LOG_PUBLISH.path: Handler(LOG_PUBLISH, unary),
        LOG_PRODUCE.path: Handler(LOG_PRODUCE, streaming),
    }
    listener = await runtime.network.serve("127.0.0.1:0", handlers)
    channel = runtime.network.channel(listener.address)
    try:
        yield listener, channel
    finally:
        await channel.close()
        await listener.close(0)


async def open_stream(channel: Channel, *, timeout_ms: int = 0) -> Outgoing:
    """Open the stream that every test uses."""
    return await channel.stream(LOG_PRODUCE, timeout_ms=timeout_ms)


# --- unary calls ---------------------------------------------------------------------------------


def test_call_brings_the_request_there_and_the_response_back(run: Run) -> None:
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


def test_typed_error_of_the_handler_reaches_the_caller(run: Run) -> None:
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


def test_error_without_a_partition_has_none(run: Run) -> None:
    async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
        raise InvalidTopic("x" * 100_000)

    async def main(runtime: Runtime) -> None:
        async with served(runtime, unary=answer) as (_, channel):
            with pytest.raises(InvalidTopic, match="xxx") as caught:
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
            assert (caught.value.topic, caught.value.partition) == ("", None)

    run(main)


def test_unforeseen_failure_of_the_handler_is_an_unknown_server_error(
    run: Run, caplog: pytest.LogCaptureFixture
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


def test_unknown_method_is_not_implemented(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            request = LOG_LIST_OFFSETS.request()
            with pytest.raises(NotImplementedHere):
                await channel.call(LOG_LIST_OFFSETS, request, timeout_ms=WAIT_MS)
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            with pytest.raises(NotImplementedHere):
                await stream.receive()

    run(main)


def test_time_that_has_passed_times_out(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            for _ in range(2):  # before and after the connection is made
                with pytest.raises(TimedOut):
                    await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=0)
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)

    run(main)


def test_deadline_is_seen_by_the_handler_and_times_the_caller_out(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[int] = []
        cancelled = asyncio.Event()

        async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
            seen.append(context.deadline_ms - runtime.clock.now_ms())
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()
            return PublishResponse()

        async with served(runtime, unary=answer) as (_, channel):
            with pytest.raises(TimedOut):
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=50)
            async with asyncio.timeout(WAIT_MS / 1000):
                await cancelled.wait()
        assert 0 <= seen[0] <= 51

    run(main)


def test_handler_is_cancelled_when_the_caller_goes(run: Run) -> None:
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


def test_closing_the_channel_loses_the_calls_under_way(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        started = asyncio.Event()

        async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
            started.set()
            await asyncio.sleep(3600)
            return PublishResponse()

        async with served(runtime, unary=answer) as (_, channel):

            async def call() -> None:
                with pytest.raises(Lost):
                    await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)

            async with runtime.tasks.scope("callers") as scope:
                scope.spawn(call(), name="call")
                await started.wait()
                await channel.close()
            with pytest.raises(NotSent):
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)

    run(main)


@pytest.mark.slow
def test_large_messages_pass_both_ways(run: Run) -> None:
    data = bytes(range(256)) * (32 << 12)  # 32 MiB: eight times grpc's own limit

    async def answer(stream: Incoming, context: CallContext) -> None:
        request = await stream.receive()
        assert request is not None
        assert request.partitions[0].records == data
        response = ProduceResponse()
        response.results.add(topic="x" * len(data))
        await stream.send(response)

    async def main(runtime: Runtime) -> None:
        async with served(runtime, streaming=answer) as (_, channel):
            stream = await open_stream(channel)
            await stream.send(ProduceRequest(partitions=[PartitionRecords(records=data)]))
            response = await stream.receive()
            assert response is not None
            assert len(response.results[0].topic) == len(data)
            assert await stream.receive() is None

    run(main)


@pytest.mark.slow
def test_too_large_message_is_refused_before_it_is_sent(run: Run) -> None:
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
            await stream.send(ProduceRequest(correlation_id=1))  # the stream is as good as before
            response = await stream.receive()
            assert response is not None
            assert response.correlation_id == 1

    run(main)


# --- addresses -----------------------------------------------------------------------------------


def test_taken_address_is_in_use(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (listener, channel):
            with pytest.raises(AddressInUse):
                await runtime.network.serve(listener.address, {})
            await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
        again = await runtime.network.serve(listener.address, {})
        assert again.address == listener.address
        await again.close(0)

    run(main)


def test_refused_connection_is_not_sent(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (listener, _):
            assert not await runtime.network.refuses(listener.address, WAIT_MS)
        assert await runtime.network.refuses(listener.address, WAIT_MS)
        channel = runtime.network.channel(listener.address)
        for _ in range(3):
            with pytest.raises(NotSent):
                await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
            with pytest.raises(NotSent):
                await open_stream(channel)
        await channel.close()

    run(main)


def test_channel_comes_back_when_its_server_does(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (listener, _):
            channel = runtime.network.channel(listener.address)
            await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
        with pytest.raises(Lost):
            await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
        handlers = {LOG_PUBLISH.path: Handler(LOG_PUBLISH, nothing)}
        again = await runtime.network.serve(listener.address, handlers)
        async with asyncio.timeout(WAIT_MS / 1000):
            while True:
                try:
                    await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
                    break
                except Lost:
                    await asyncio.sleep(0.01)
        await channel.close()
        await again.close(0)

    run(main)


# --- streams -------------------------------------------------------------------------------------


def test_stream_keeps_the_order_and_ends_cleanly(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            stream = await open_stream(channel)
            async with runtime.tasks.scope("sender") as scope:

                async def send() -> None:
                    for number in range(500):
                        await stream.send(ProduceRequest(correlation_id=number))
                    await stream.finish()
                    await stream.finish()

                scope.spawn(send(), name="send")
                for number in range(500):
                    response = await stream.receive()
                    assert response is not None
                    assert response.correlation_id == number
            assert await stream.receive() is None
            assert await stream.receive() is None

    run(main)


def test_handlers_finish_still_lets_it_receive(run: Run) -> None:
    received: list[int] = []

    async def answer(stream: Incoming, context: CallContext) -> None:
        await stream.send(ProduceResponse(correlation_id=1))
        await stream.finish()
        while (request := await stream.receive()) is not None:
            received.append(request.correlation_id)

    async def main(runtime: Runtime) -> None:
        async with served(runtime, streaming=answer) as (_, channel):
            stream = await open_stream(channel)
            response = await stream.receive()
            assert response is not None
            await stream.send(ProduceRequest(correlation_id=7))
            await stream.finish()
            assert await stream.receive() is None

    run(main)
    assert received == [7]


def test_handlers_error_comes_after_its_messages(run: Run) -> None:
    async def answer(stream: Incoming, context: CallContext) -> None:
        for number in range(10):
            await stream.send(ProduceResponse(correlation_id=number))
        raise OffsetOutOfRange("no more", topic="t", partition=3)

    async def main(runtime: Runtime) -> None:
        async with served(runtime, streaming=answer) as (_, channel):
            stream = await open_stream(channel)
            for number in range(10):
                response = await stream.receive()
                assert response is not None
                assert response.correlation_id == number
            for _ in range(2):
                with pytest.raises(OffsetOutOfRange) as caught:
                    await stream.receive()
                assert (caught.value.topic, caught.value.partition) == ("t", 3)

    run(main)


def test_send_to_an_ended_handler_is_broken(run: Run) -> None:
    async def answer(stream: Incoming, context: CallContext) -> None:
        return

    async def main(runtime: Runtime) -> None:
        async with served(runtime, streaming=answer) as (_, channel):
            stream = await open_stream(channel)
            assert await stream.receive() is None
            with pytest.raises(StreamBroken):
                await stream.send(ProduceRequest())

    run(main)


@pytest.mark.slow
def test_slow_receiver_holds_the_sender_back(run: Run) -> None:
    payload = bytes(100_000)
    sent: list[int] = []

    async def main(runtime: Runtime) -> None:
        go_on = asyncio.Event()
        received: list[int] = []

        async def answer(stream: Incoming, context: CallContext) -> None:
            await go_on.wait()
            while (request := await stream.receive()) is not None:
                received.append(request.correlation_id)

        async with served(runtime, streaming=answer) as (_, channel):
            stream = await open_stream(channel)

            async def send() -> None:
                records = [PartitionRecords(records=payload)]
                for number in range(1000):  # 100 MB: more than any window
                    await stream.send(ProduceRequest(correlation_id=number, partitions=records))
                    sent.append(number)
                await stream.finish()

            async with runtime.tasks.scope("sender") as scope:
                task = scope.spawn(send(), name="send")
                before = -1
                while before != len(sent):  # until the sender makes no progress any more
                    before = len(sent)
                    await asyncio.sleep(0.2)
                assert not task.done()
                assert len(sent) < 500
                go_on.set()
            assert await stream.receive() is None
        assert received == list(range(1000))

    run(main)


def test_abort_by_the_caller_breaks_its_side_and_cancels_the_handler(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()
        ends: list[object] = []

        async def answer(stream: Incoming, context: CallContext) -> None:
            started.set()
            try:
                while True:
                    ends.append(await stream.receive())
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with served(runtime, streaming=answer) as (_, channel):
            for _ in range(20):
                started.clear()
                cancelled.clear()
                ends.clear()
                stream = await open_stream(channel)
                await stream.send(ProduceRequest(correlation_id=1))
                await started.wait()  # a caller may be gone before its handler ever runs
                stream.abort("had enough")
                stream.abort("twice")
                with pytest.raises(StreamBroken, match="had enough"):
                    await stream.receive()
                with pytest.raises(StreamBroken):
                    await stream.send(ProduceRequest())
                async with asyncio.timeout(WAIT_MS / 1000):
                    await cancelled.wait()
                assert None not in ends  # a break never looks like a clean end

    run(main)


def test_abort_wakes_a_waiting_receiver(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            stream = await open_stream(channel)

            async def receive() -> None:
                with pytest.raises(StreamBroken):
                    await stream.receive()

            async with runtime.tasks.scope("receiver") as scope:
                scope.spawn(receive(), name="receive")
                await asyncio.sleep(0.01)
                stream.abort("now")

    run(main)


def test_abort_by_the_handler_breaks_the_callers_side(run: Run) -> None:
    async def answer(stream: Incoming, context: CallContext) -> None:
        await stream.receive()
        stream.abort("a full disk")
        with pytest.raises(StreamBroken):
            await stream.receive()
        with pytest.raises(StreamBroken):
            await stream.send(ProduceResponse())

    async def main(runtime: Runtime) -> None:
        async with served(runtime, streaming=answer) as (_, channel):
            stream = await open_stream(channel)
            await stream.send(ProduceRequest())
            with pytest.raises(StreamBroken):
                await stream.receive()

    run(main)


def test_closing_the_channel_breaks_its_streams(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            stream = await open_stream(channel)
            await stream.send(ProduceRequest())
            assert await stream.receive() is not None
            await channel.close()
            with pytest.raises(StreamBroken):
                await stream.receive()

    run(main)


def test_stream_times_out_at_its_deadline(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        cancelled = asyncio.Event()

        async def answer(stream: Incoming, context: CallContext) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()

        async with served(runtime, streaming=answer) as (_, channel):
            stream = await open_stream(channel, timeout_ms=100)
            with pytest.raises(TimedOut):
                await stream.receive()
            async with asyncio.timeout(WAIT_MS / 1000):
                await cancelled.wait()

    run(main)


def test_cancelled_receive_loses_no_message(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            stream = await open_stream(channel)
            received: list[int] = []
            for number in range(30):
                await stream.send(ProduceRequest(correlation_id=number))
                while len(received) <= number:
                    try:
                        async with asyncio.timeout(0.0005):
                            response = await stream.receive()
                    except TimeoutError:
                        continue
                    assert response is not None
                    received.append(response.correlation_id)
            assert received == list(range(30))

    run(main)


def test_several_tasks_may_send_on_one_stream(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            stream = await open_stream(channel)

            async def send(first: int) -> None:
                for number in range(20):
                    await stream.send(ProduceRequest(correlation_id=first + number))

            async with runtime.tasks.scope("senders") as scope:
                for sender in range(5):
                    scope.spawn(send(sender * 20), name=str(sender))
            await stream.finish()
            received = []
            while (response := await stream.receive()) is not None:
                received.append(response.correlation_id)
            assert sorted(received) == list(range(100))
            for sender in range(5):
                own = [number for number in received if number // 20 == sender]
                assert own == sorted(own)

    run(main)


# --- closing a listener --------------------------------------------------------------------------


def test_close_lets_calls_end_within_the_grace(run: Run) -> None:
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
def test_close_cancels_what_outlasts_the_grace_and_waits_for_it(run: Run, grace_ms: int) -> None:
    async def main(runtime: Runtime) -> None:
        ended: list[str] = []

        async def answer(stream: Incoming, context: CallContext) -> None:
            await stream.send(ProduceResponse())
            try:
                await stream.receive()
            finally:
                await asyncio.sleep(0)  # an orderly end takes a while
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


def test_handler_whose_future_was_cancelled_answers_all_the_same(run: Run) -> None:
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
