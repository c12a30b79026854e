"""Every wait of a producer is bounded: for space, a connection, a response, and its close."""

import asyncio
import os
import socket
from typing import Any

import pytest
from tests.kit.waits import wait_until, with_time

from quorumlog.clients.producer.leader_link import INLINE_BYTES_MAX
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import (
    ClientClosed,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    Overloaded,
    QuorumlogError,
    TimedOut,
)
from quorumlog.runtime import Runtime, real
from quorumlog.simulation import SimWorld, run

from .scripted_broker import Script, scripted
from .storing_broker import Broker, cluster

# --- buffer space --------------------------------------------------------------------------------


def test_max_block_ms_elapses_while_other_senders_take_the_space() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        async with cluster(runtime, broker) as log, runtime.tasks.scope("senders") as scope:
            producer = log.producer(buffer_size=1_000, linger_ms=0, max_block_ms=1_000)
            await producer.ensure_topic("t")
            ended_ms: list[int] = []
            refused: list[QuorumlogError] = []

            async def send() -> None:
                try:
                    await producer.send("t", b"v" * 700)
                except Overloaded as error:
                    refused.append(error)
                ended_ms.append(runtime.clock.now_ms())

            began_ms = runtime.clock.now_ms()
            tasks = [scope.spawn(send(), name="send") for _ in range(20)]
            for _ in range(30):
                await asyncio.sleep(0.2)
                broker.hold.set()  # one response, and space for one record
                broker.hold.clear()
            await asyncio.gather(*tasks)
            assert max(ended_ms) - began_ms < 1_100
            assert 10 < len(refused) < 19
            await producer.close()

    run(main)


# --- connections and responses -------------------------------------------------------------------

SHORT = NotEnoughReplicas("one of two is down")


def test_record_encoded_too_late_fails_with_the_last_broker_error() -> None:
    """Large batches of other partitions are compressed in between on a slow machine, the second one
    for the request that would retry the record."""

    async def main(runtime: Runtime) -> None:
        script = Script(partitions=3)
        script.produce.append(SHORT)
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, compression="gzip", delivery_timeout_ms=300)
            late = await producer.send("t", b"1", partition=0)
            await wait_until(lambda: producer.statistics().retries == 1)
            others = []
            for partition in (1, 2):
                value = os.urandom(INLINE_BYTES_MAX)
                others.append(await producer.send("t", value, partition=partition))
                await asyncio.sleep(0.01)  # the first batch is taken alone
            with pytest.raises(TimedOut, match="the last attempt: one of two is down") as caught:
                await late
            assert isinstance(caught.value.__cause__, NotEnoughReplicas)
            await asyncio.gather(*others, return_exceptions=True)
            await producer.close()
        sent = [part.partition for request in script.requests for part in request.partitions]
        assert sent == [0, 1], "only the other two batches were encoded after that"

    with SimWorld(0) as world:
        node = world.node("node")
        task = node.spawn(main)
        node.machine.device_slow_ms = 100  # and as much again until the failure is detected
        world.run_until(task, virtual_ms=60_000, why="the end of main")
        task.result()


def test_attempt_cut_short_by_the_deadline_does_not_hide_the_error_before() -> None:
    """After the first refusal another broker leads, whose machine has lost its power."""

    async def serve(runtime: Runtime) -> None:
        await runtime.network.serve("dark:9094", {})
        await asyncio.Event().wait()

    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend([SHORT] * 100)
        async with scripted(runtime, script) as log:
            script.addresses[2] = "dark:9094"
            producer = log.producer(linger_ms=0, delivery_timeout_ms=3_000)
            late = await producer.send("t", b"1")
            await wait_until(lambda: bool(script.requests))
            script.leaders[0] = 2
            with pytest.raises(TimedOut, match=r"the last attempt: .*dark:9094 does not answer"):
                await late
            await producer.close()

    with SimWorld(0) as world:
        dark = world.node("dark")
        dark.spawn(serve)
        world.run_for(100)
        dark.power_cut()
        task = world.node("node").spawn(main)
        world.run_until(task, virtual_ms=60_000, why="the end of main")
        task.result()


def test_the_timeout_of_a_partition_without_leader_has_the_reason() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, delivery_timeout_ms=3_000)
            await producer.ensure_topic("t")
            script.leaders[0] = -1
            script.produce.append(NotLeaderOrFollower("it moves"))
            with pytest.raises(TimedOut, match="the last attempt: the partition has no leader now"):
                await (await producer.send("t", b"1"))
            await producer.close()

    run(main)


@pytest.mark.parametrize("delivery_ms", [3_000, 600])
def test_the_timeout_after_failed_leader_lookups_has_the_reason(delivery_ms: int) -> None:
    """Also if a lookup may take longer than the delivery timeout."""

    async def main(runtime: Runtime) -> None:
        script = Script()
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, delivery_timeout_ms=delivery_ms)
            await producer.ensure_topic("t")
            script.produce.append(NotLeaderOrFollower("it moves"))
            script.lookup_error = Overloaded("the broker is about to be ready")
            with pytest.raises(TimedOut, match="the last attempt: the broker is about to be ready"):
                await (await producer.send("t", b"1"))
            await producer.close()

    run(main)


@pytest.mark.slow
def test_silent_port_does_not_keep_records_beyond_their_deadline() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        with socket.create_server(("127.0.0.1", 0)) as mute:
            async with cluster(runtime, broker) as log:
                broker.address = f"127.0.0.1:{mute.getsockname()[1]}"

                async def check(delivery_timeout_ms: int) -> None:
                    producer = log.producer(delivery_timeout_ms=delivery_timeout_ms)
                    began_ms = runtime.clock.now_ms()
                    with pytest.raises(
                        TimedOut, match=r"was not reached within|without a response"
                    ):
                        await producer.send_and_wait("t", b"v")
                    assert runtime.clock.now_ms() - began_ms < 10 * delivery_timeout_ms
                    await producer.close()

                await with_time(200, check)

    real.run(main)


def test_response_can_be_overdue_before_an_earlier_one() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=2, leaders={1: 9})  # partition 1 has no leader
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, delivery_timeout_ms=20_000)
            late = await producer.send("t", b"1", partition=1)
            await asyncio.sleep(15)
            script.hold = asyncio.Event()
            young = await producer.send("t", b"2", partition=0)
            await wait_until(lambda: len(script.requests) == 1)
            del script.leaders[1]
            await asyncio.sleep(10)  # less than the remaining time of the younger record
            assert isinstance(late.exception(), TimedOut)
            assert not young.done()
            script.hold.set()
            assert (await young).offset >= 0
            await producer.close()

    run(main)


def test_request_contains_no_batch_beyond_the_limit() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=6)
        async with (
            scripted(runtime, script) as log,
            log.producer(max_request_size=2_048, linger_ms=20) as producer,
        ):
            for partition in range(6):
                await producer.send("t", b"1" * 1_400, partition=partition)
        assert len(script.requests) == 6
        assert max(request.ByteSize() for request in script.requests) < 2_048

    run(main)


# --- close ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", ["all", "none"])
def test_close_interrupted_anywhere_leaves_no_record_without_an_outcome(acks: str) -> None:
    async def close(runtime: Runtime, first: int, second: int) -> None:
        broker = Broker(partitions=2)
        broker.hold = asyncio.Event()
        async with cluster(runtime, broker) as log, runtime.tasks.scope("closing") as scope:
            producer = log.producer(linger_ms=0, acks=acks)
            deliveries = [await producer.send("t", b"%d" % n, partition=n % 2) for n in range(4)]
            await wait_until(lambda: bool(deliveries[0].done() or _in_flight(producer)))
            deliveries.append(await producer.send("t", b"waits", partition=0))
            closing = scope.spawn(producer.close(flush=first % 2 == 0), name="close")
            for steps in (first, second):
                for _ in range(steps):
                    await asyncio.sleep(0)
                closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            assert all(delivery.done() for delivery in deliveries)
            statistics = producer.statistics()
            assert (statistics.buffered_records, statistics.buffered_bytes) == (0, 0)
            assert statistics.delivered_records + statistics.failed_records == 5
            with pytest.raises(ClientClosed):
                await producer.send("t", b"late")
            await producer.close(flush=False)
            broker.hold.set()

    async def main(runtime: Runtime) -> None:
        for first in range(1, 10):  # the close has started
            for second in range(6):
                await close(runtime, first, second)

    run(main)


def _in_flight(producer: AsyncProducer) -> int:
    return producer.statistics().in_flight_records


def test_closing_the_client_waits_for_a_producer_that_is_being_closed() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        hold = broker.hold
        async with cluster(runtime, broker) as log, runtime.tasks.scope("closing") as scope:
            producer = log.producer(linger_ms=0)
            delivery = await producer.send("t", b"v")
            first = scope.spawn(producer.close(), name="first")
            await wait_until(lambda: producer.is_closed)
            second = scope.spawn(log.close(), name="second")
            await asyncio.sleep(1)
            hold.set()
            await asyncio.gather(first, second)
            assert (await delivery).offset == 0

    run(main)


def test_flush_interrupted_anywhere_loses_nothing() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        async with cluster(runtime, broker) as log, runtime.tasks.scope("flushing") as scope:
            producer = log.producer(linger_ms=60_000)
            sent: list[Any] = []
            for steps in range(30):
                sent.append(await producer.send("t", b"%d" % steps))
                flushing = scope.spawn(producer.flush(), name="flush")
                for _ in range(steps):
                    await asyncio.sleep(0)
                flushing.cancel()
                await asyncio.gather(flushing, return_exceptions=True)
            await producer.close()
            assert [(await delivery).offset for delivery in sent] == list(range(30))

    run(main)
