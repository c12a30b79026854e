"""The producer with faulty brokers and links."""

import asyncio
from collections import deque

import pytest
from tests.kit.waits import wait_until, with_time

from quorumlog import simulation
from quorumlog.clients.log import make_log
from quorumlog.clients.producer.batches import Delivery
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import (
    ClientClosed,
    InvalidRecord,
    NotDelivered,
    NotEnoughReplicas,
    Overloaded,
    QuorumlogError,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.records import parse_header
from quorumlog.runtime import Runtime

from .scripted_broker import (
    BREAK,
    SILENCE,
    STORE,
    STORE_AND_BREAK,
    Broker,
    Run,
    Script,
    scripted,
    send_numbers,
)

# --- requests ------------------------------------------------------------------------------------


def test_several_partitions_share_a_request(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=5)
        async with scripted(runtime, script) as log, log.producer(linger_ms=60_000) as producer:
            for partition in range(5):
                await producer.send("t", b"1", partition=partition)
        assert [len(request.partitions) for request in script.requests] == [5]
        assert script.streams == 1

    run(main)


@pytest.mark.parametrize(("is_idempotent", "under_way"), [(False, 1), (True, 5)])
def test_requests_in_flight_of_a_partition_are_bounded(
    run: Run, is_idempotent: bool, under_way: int
) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        script.hold.set()
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, batch_size=1, enable_idempotence=is_idempotent)
            await producer.send_and_wait("t", b"0")
            script.hold.clear()
            deliveries = [await producer.send("t", b"%d" % number) for number in range(1, 11)]
            await wait_until(lambda: producer.statistics().in_flight_records >= under_way)
            await asyncio.sleep(0.05)  # long enough for one more request
            assert len(producer.accumulator.queue("t", 0).parts) == under_way
            script.hold.set()
            await producer.close()
            assert [(await delivery).offset for delivery in deliveries] == list(range(1, 11))
        assert script.values() == list(range(11))

    run(main)


def test_one_stream_serves_all_requests(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        async with scripted(runtime, script) as log, log.producer(linger_ms=0) as producer:
            for number in range(20):
                assert (await producer.send_and_wait("t", b"%d" % number)).offset == number
        assert len(script.requests) == 20
        assert script.streams == 1

    run(main)


def test_a_request_is_bounded_in_bytes(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        async with (
            scripted(runtime, script) as log,
            log.producer(batch_size=400, max_request_size=2_048) as producer,
        ):
            for _ in range(200):
                await producer.send("t", b"1" * 100)
        assert max(request.ByteSize() for request in script.requests) < 2 * 2_048

    run(main)


# --- retries -------------------------------------------------------------------------------------


def test_order_is_kept_when_requests_fail_and_are_repeated(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend(
            [STORE, BREAK, NotEnoughReplicas("wait"), BREAK, STORE, Overloaded("full"), STORE]
        )
        async with (
            scripted(runtime, script) as log,
            log.producer(linger_ms=0, batch_size=1) as producer,
        ):
            delivered = await send_numbers(producer, 30)
        assert script.values() == list(range(30))
        assert [place.offset for place in delivered] == list(range(30))

    run(main)


@pytest.mark.parametrize(("is_idempotent", "stored"), [(True, [7]), (False, [7, 7])])
def test_batch_with_a_lost_response_is_retried_and_stored_once_with_a_sequence(
    run: Run, is_idempotent: bool, stored: list[int]
) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend([STORE_AND_BREAK, STORE])
        async with (
            scripted(runtime, script) as log,
            log.producer(enable_idempotence=is_idempotent) as producer,
        ):
            assert (await producer.send_and_wait("t", b"7")).offset == len(stored) - 1
        assert script.values() == stored

    run(main)


def test_broker_that_never_responds_fails_the_record() -> None:
    """Simulated only: the grace time for a response is five seconds."""

    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.append(SILENCE)
        settings = {"request_timeout_ms": 50}
        async with scripted(runtime, script, **settings) as log, log.producer() as producer:
            assert (await producer.send_and_wait("t", b"7")).offset == 0
        assert script.streams == 2

    simulation.run(main)


def test_delivery_deadline_applies_before_a_longer_request_timeout() -> None:
    """Simulated only: a response has at least five seconds."""

    async def main(runtime: Runtime) -> None:
        script = Script(produce=deque([SILENCE]))
        async with scripted(runtime, script) as log:
            producer = log.producer(delivery_timeout_ms=1_000)
            began_ms = runtime.clock.now_ms()
            with pytest.raises(TimedOut, match="within 1000 ms"):
                await producer.send_and_wait("t", b"7")
            assert runtime.clock.now_ms() - began_ms < 6_000
            await producer.close()

    simulation.run(main)


def test_a_moved_leader_is_followed(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=2)
        async with scripted(runtime, script, nodes=2) as log, log.producer() as producer:
            assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 0
            script.leaders[0] = 2
            assert (await producer.send_and_wait("t", b"2", partition=0)).offset == 1
            assert (await producer.send_and_wait("t", b"3", partition=1)).offset == 0
        assert script.values(0) == [1, 2]

    run(main)


def test_another_broker_is_queried_after_stale_metadata(run: Run) -> None:
    """A broker that is partitioned off assumes that it is still the leader."""

    async def main(runtime: Runtime) -> None:
        script = Script(leaders={0: 2}, beliefs={1: 1})
        async with scripted(runtime, script, nodes=2) as log, log.producer() as producer:
            assert len(await send_numbers(producer, 3)) == 3
        assert script.values() == [0, 1, 2]

    run(main)


def test_a_partition_without_a_leader_waits_for_one(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(leaders={0: -1})
        async with scripted(runtime, script) as log, log.producer() as producer:
            delivery = await producer.send("t", b"1")
            await wait_until(lambda: script.lookups >= 3)
            script.leaders[0] = 1
            assert (await delivery).offset == 0

    run(main)


def test_undelivered_record_times_out_with_the_last_reason(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend([NotEnoughReplicas("one of two is down")] * 10_000)
        async with scripted(runtime, script) as log:

            async def check(timeout_ms: int) -> None:
                producer = log.producer(delivery_timeout_ms=timeout_ms)
                with pytest.raises(TimedOut, match="one of two is down") as caught:
                    await producer.send_and_wait("t", b"1")
                assert isinstance(caught.value.__cause__, NotEnoughReplicas)
                assert (caught.value.topic, caught.value.partition) == ("t", 0)
                await producer.close()

            await with_time(300, check)

    run(main)


def test_one_bad_record_fails_alone(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, batch_size=1)
            first = await producer.send("t", b"0")
            await wait_until(lambda: bool(script.requests))
            numbers = [1, 2, -1, 3]  # they share the next request
            deliveries = [await producer.send("t", b"%d" % number) for number in numbers]
            script.hold.set()
            assert (await first).offset == 0
            with pytest.raises(InvalidRecord):
                await deliveries[2]
            assert [(await deliveries[i]).offset for i in (0, 1, 3)] == [1, 2, 3]
            await producer.close()
        assert script.values() == [0, 1, 2, 3]

    run(main)


def test_a_failing_partition_does_not_stop_the_others(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async def check(delivery_timeout_ms: int) -> None:
            script = Script(partitions=2, leaders={0: -1})
            async with scripted(runtime, script) as log:
                producer = log.producer(delivery_timeout_ms=delivery_timeout_ms)
                stuck = await producer.send("t", b"1", partition=0)
                for number in range(5):
                    assert (await producer.send_and_wait("t", b"1", partition=1)).offset == number
                with pytest.raises(TimedOut):
                    await stuck
                await producer.close()

        await with_time(200, check)

    run(main)


def test_a_full_buffer_raises_overloaded_after_max_block_ms(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        async with scripted(runtime, script) as log:
            await log.partition_count("t")  # max_block_ms does not include a metadata lookup
            producer = log.producer(buffer_size=150, max_block_ms=50)
            await producer.send("t", b"1" * 100)
            with pytest.raises(Overloaded, match="buffer_size is 150"):
                await producer.send("t", b"1" * 100)
            script.hold.set()
            await producer.close()
        assert len(script.logs[0]) == 1

    run(main)


def test_flush_reports_the_records_without_an_outcome_in_time(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        async with scripted(runtime, script) as log:
            producer = log.producer()
            for _ in range(3):
                await producer.send("t", b"1")
            with pytest.raises(TimedOut, match="3 records"):
                await producer.flush(timeout_ms=50)
            script.hold.set()
            await producer.close()

    run(main)


def test_deleted_topic_fails_its_waiting_records(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.append(UnknownTopicOrPartition("not here"))
        async with scripted(runtime, script) as log:
            producer = log.producer()
            delivery = await producer.send("t", b"1")
            script.exists = False
            with pytest.raises(UnknownTopicOrPartition):
                await delivery
            await producer.close()

    run(main)


def test_a_batch_is_encoded_once(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend([BREAK, BREAK])
        async with scripted(runtime, script) as log, log.producer() as producer:
            await producer.send_and_wait("t", b"1", timestamp_ms=5)
        first, *others = [request.partitions[0].records for request in script.requests]
        assert [bytes(other) for other in others] == [bytes(first)] * 2
        assert parse_header(first).base_timestamp == 5

    run(main)


# --- faulty applications -------------------------------------------------------------------------


@pytest.mark.parametrize("mistake", [ZeroDivisionError, SystemExit, asyncio.CancelledError])
def test_a_callback_that_raises_stops_nothing_else(
    run: Run, mistake: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def callback(*outcome: object) -> None:
        raise mistake("mine")

    async def main(runtime: Runtime) -> None:
        async with scripted(runtime, Script()) as log, log.producer() as producer:
            first = await producer.send("t", b"1")
            second = await producer.send("t", b"2", on_delivery=callback)
            third = await producer.send("t", b"3")
            first.add_done_callback(callback)
            assert (await third).offset == 2
            assert (await second).offset == 1
            assert (await producer.send_and_wait("t", b"4")).offset == 3

    run(main)
    failures = [record for record in caplog.records if "callback_failed" in record.message]
    assert [record.exc_info is not None for record in failures] == [True] * 2


def test_close_ends_the_wait_for_buffer_space(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        async with scripted(runtime, script) as log, runtime.tasks.scope("waiting") as scope:
            producer = log.producer(buffer_size=150, max_block_ms=1_000_000)
            await producer.send("t", b"1" * 100)
            waiting = scope.spawn(sending_is_refused(producer), name="second")
            await wait_until(lambda: bool(script.requests))
            await producer.close(flush=False)
            await waiting
            script.hold.set()

    run(main)


async def sending_is_refused(producer: AsyncProducer) -> None:
    with pytest.raises(ClientClosed):
        await producer.send("t", b"1" * 100)


def test_closing_the_client_delivers_records_although_another_producer_fails(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        listener = await Broker(Script(), 1).serve(runtime)
        log = await make_log(runtime, listener.address)
        good, bad = log.producer(linger_ms=60_000), log.producer(linger_ms=60_000)
        delivery = await good.send("t", b"1")
        await bad.send("t", b"-1")
        with pytest.raises(NotDelivered, match="t-0: a bad one"):
            await log.close()
        assert delivery.result().offset == 0
        await listener.close(0)

    run(main)


def test_an_interrupted_close_leaves_nothing_without_an_outcome(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        listener = await Broker(script, 1).serve(runtime)
        log = await make_log(runtime, listener.address)
        deliveries = [await log.producer().send("t", b"1") for _ in range(3)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await log.close()
        assert [type(delivery.exception()) for delivery in deliveries] == [ClientClosed] * 3
        script.hold.set()
        await listener.close(0)

    run(main)


def test_a_client_whose_tasks_fail_leaves_nothing_without_an_outcome(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async def fail() -> None:
            raise ZeroDivisionError

        deliveries: list[Delivery] = []

        async def use() -> None:
            async with scripted(runtime, Script()) as log:
                deliveries.append(await log.producer(linger_ms=60_000).send("t", b"1"))
                assert log._scope is not None
                log._scope.spawn(fail(), name="a mistake of ours")
                await asyncio.sleep(60)

        with pytest.raises(ZeroDivisionError):
            await use()
        assert [type(delivery.exception()) for delivery in deliveries] == [ClientClosed]

    run(main)


def test_max_block_ms_bounds_the_wait_for_a_shared_lookup(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(lookup=asyncio.Event())
        assert script.lookup is not None
        async with scripted(runtime, script) as log, runtime.tasks.scope("other") as scope:
            patient = scope.spawn(log.producer().send("t", b"1"), name="patient")
            await wait_until(lambda: script.lookups == 1)
            with pytest.raises(TimedOut, match="metadata lookup: no broker answered in time"):
                await log.producer(max_block_ms=50).send("u", b"1")
            script.lookup.set()
            await patient

    run(main)


def test_a_closed_client_refuses_and_ends_every_call(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(lookup=asyncio.Event())
        listener = await Broker(script, 1).serve(runtime)
        log = await make_log(runtime, listener.address)

        async def look_up() -> None:
            with pytest.raises(QuorumlogError):
                await log.partition_count("t")

        async with runtime.tasks.scope("under way") as scope:
            scope.spawn(look_up(), name="look-up")
            await wait_until(lambda: script.lookups == 1)
            await log.close()
        with pytest.raises(ClientClosed, match="the client is closed"):
            await log.admin.describe_cluster()
        with pytest.raises(ClientClosed, match="the client is closed"):
            await log.list_offsets("t")
        await listener.close(0)

    run(main)
