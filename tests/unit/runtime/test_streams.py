"""Streams, on both runtimes (the contract of `runtime.ports.Stream`)."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS

from quorumlog.errors import OffsetOutOfRange, StreamBroken, TimedOut
from quorumlog.proto.log_pb2 import PartitionRecords, ProduceRequest, ProduceResponse, ProduceResult
from quorumlog.runtime import CallContext, Channel, Listener, Runtime, Stream

from .message_stream import open_stream

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
Incoming: TypeAlias = Stream[ProduceResponse, ProduceRequest]
Outgoing: TypeAlias = Stream[ProduceRequest, ProduceResponse]

Served: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[Listener, Channel]]]

WAIT_MS = AMPLE_MS  # far longer than any test


@pytest.mark.slow
def test_large_messages_in_both_directions(run: Run, served: Served) -> None:
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


def test_stream_keeps_the_order_and_ends_cleanly(run: Run, served: Served) -> None:
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


def test_handlers_finish_still_lets_it_receive(run: Run, served: Served) -> None:
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


def test_handlers_error_comes_after_its_messages(run: Run, served: Served) -> None:
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


def test_send_to_an_ended_handler_is_broken(run: Run, served: Served) -> None:
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
def test_slow_receiver_holds_the_sender_back(run: Run, served: Served) -> None:
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
                while before != len(sent):  # until the sender makes no progress
                    before = len(sent)
                    await asyncio.sleep(0.2)
                assert not task.done()
                assert len(sent) < 500
                go_on.set()
            assert await stream.receive() is None
        assert received == list(range(1000))

    run(main)


def test_abort_by_the_caller_breaks_its_side_and_cancels_the_handler(
    run: Run, served: Served
) -> None:
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
                await started.wait()  # a caller may be gone before its handler runs
                stream.abort("had enough")
                stream.abort("twice")
                with pytest.raises(StreamBroken, match="had enough"):
                    await stream.receive()
                with pytest.raises(StreamBroken):
                    await stream.send(ProduceRequest())
                async with asyncio.timeout(WAIT_MS / 1000):
                    await cancelled.wait()
                assert None not in ends  # a break is never reported as a clean end

    run(main)


def test_abort_leaves_nothing_running_behind_unread_messages(run: Run, served: Served) -> None:
    """A caller can abandon a stream without reading the rest."""

    async def answer(stream: Incoming, context: CallContext) -> None:
        await stream.receive()
        while True:
            await stream.send(ProduceResponse(results=[ProduceResult(topic="x" * 10_000)]))

    async def main(runtime: Runtime) -> None:
        async with served(runtime, streaming=answer) as (_, channel):
            before = asyncio.all_tasks()
            stream = await open_stream(channel)
            await stream.send(ProduceRequest())
            await stream.receive()
            await asyncio.sleep(0.2)  # time to read ahead to its limit
            mine = [task for task in asyncio.all_tasks() - before if "reading" in task.get_name()]
            stream.abort("had enough")
            async with asyncio.timeout(WAIT_MS / 1000):
                await asyncio.gather(*mine, return_exceptions=True)

    run(main)


def test_abort_wakes_a_waiting_receiver(run: Run, served: Served) -> None:
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


def test_abort_by_the_handler_breaks_the_callers_side(run: Run, served: Served) -> None:
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


def test_closing_the_channel_breaks_its_streams(run: Run, served: Served) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, channel):
            stream = await open_stream(channel)
            await stream.send(ProduceRequest())
            assert await stream.receive() is not None
            await channel.close()
            with pytest.raises(StreamBroken):
                await stream.receive()

    run(main)


def test_stream_times_out_at_its_deadline(run: Run, served: Served) -> None:
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


def test_cancelled_receive_loses_no_message(run: Run, served: Served) -> None:
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


def test_several_tasks_may_send_on_one_stream(run: Run, served: Served) -> None:
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
