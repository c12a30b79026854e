"""Reports of undelivered records, and of a full buffer."""

import asyncio
from array import array

import pyarrow as pa
import pytest
from tests.kit.waits import wait_until

from quorumlog.clients.producer.batches import DeliveredRange
from quorumlog.errors import (
    ClientClosed,
    InvalidRecord,
    NotDelivered,
    Overloaded,
    RowsNotDelivered,
    TimedOut,
)
from quorumlog.proto import log_pb2
from quorumlog.runtime import Runtime
from quorumlog.simulation import run

from .storing_broker import Broker, cluster

# --- undelivered records --------------------------------------------------------------------------


def test_flush_reports_only_failures_that_were_not_retrieved() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.refuse[b"2"] = InvalidRecord("two")
        async with cluster(runtime, broker) as log:
            producer = log.producer()
            deliveries = [await producer.send("t", b"%d" % n) for n in range(4)]  # one batch
            with pytest.raises(InvalidRecord):
                await deliveries[1]
            with pytest.raises(NotDelivered, match="3 records were not delivered") as caught:
                await producer.flush()
            assert [record.value for record in caught.value.records] == [b"0", b"2", b"3"]
            assert not any(record.may_be_stored for record in caught.value.records)
            await producer.close()  # each is reported once

    run(main)


def test_kept_failures_are_bounded_and_the_rest_is_counted() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        async with cluster(runtime, broker) as log:
            producer = log.producer(delivery_timeout_ms=1, linger_ms=0)
            await producer.ensure_topic("t")
            for n in range(3_000):
                await producer.send("t", b"%d" % n)
            await asyncio.sleep(10)  # simulated: the response times out
            with pytest.raises(NotDelivered, match="2000 more were only counted") as caught:
                await producer.close()
            broker.hold.set()
        assert (caught.value.count, caught.value.left_out) == (3_000, 2_000)
        assert [r.value for r in caught.value.records] == [b"%d" % n for n in range(1_000)]

    run(main)


def test_close_with_a_timeout_reports_undelivered_records() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=0)
            await producer.send("t", b"sent")
            await wait_until(lambda: producer.statistics().in_flight_records == 1)
            await producer.send("t", b"waiting")
            began_ms = runtime.clock.now_ms()
            with pytest.raises(NotDelivered, match="2 records") as caught:
                await producer.close(timeout_ms=500)
            assert 500 <= runtime.clock.now_ms() - began_ms < 1_500
            found = [(r.value, r.may_be_stored, type(r.error)) for r in caught.value.records]
            assert found == [(b"sent", True, ClientClosed), (b"waiting", False, ClientClosed)]
            await producer.close()
            broker.hold.set()

    run(main)


def test_closing_without_a_flush_raises_nothing() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=60_000)
            delivery = await producer.send("t", b"1")
            await producer.close(flush=False)
            await producer.close()
            assert isinstance(delivery.exception(), ClientClosed)

    run(main)


# --- a full buffer -------------------------------------------------------------------------------


def test_full_buffer_raises_at_once_if_configured() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        async with cluster(runtime, broker) as log:
            producer = log.producer(buffer_size=1_000, on_full="raise", linger_ms=60_000)
            began_ms = runtime.clock.now_ms()
            await producer.send("t", b"1" * 700)
            with pytest.raises(Overloaded, match="buffer_size is 1000"):
                await producer.send("t", b"2" * 700)
            assert runtime.clock.now_ms() - began_ms < 1_000
            broker.hold.set()  # lingering batches were sent: their space is needed
            await wait_until(lambda: producer.statistics().buffered_bytes == 0)
            await producer.send("t", b"3" * 700)
            await producer.close()
        assert broker.logs[0] == [b"1" * 700, b"3" * 700]

    run(main)


def test_buffer_counts_records_and_then_their_encoded_batch() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=60_000, compression="zstd")
            await producer.send("t", b"v" * 5_000, key=b"k" * 2_000, headers={"h": b"h" * 1_000})
            assert 8_000 < producer.statistics().buffered_bytes < 8_200
            producer.accumulator.close_all()
            await wait_until(lambda: producer.statistics().in_flight_records == 1)
            assert 61 < producer.statistics().buffered_bytes < 400  # compressed
            broker.hold.set()
            await producer.close()
            assert producer.statistics().buffered_bytes == 0

    run(main)


def test_the_append_time_is_returned_if_the_topic_uses_it() -> None:
    async def main(runtime: Runtime) -> None:
        def stamp(response: log_pb2.ProduceResponse) -> None:
            response.results[0].log_append_time_ms = 77

        broker = Broker()
        broker.spoil = [stamp]
        async with cluster(runtime, broker) as log, log.producer() as producer:
            assert (await producer.send_and_wait("t", b"1", timestamp_ms=5)).timestamp_ms == 77
            assert (await producer.send_and_wait("t", b"1", timestamp_ms=5)).timestamp_ms == 5

    run(main)


# --- times and numbers ---------------------------------------------------------------------------


def test_statistics_are_a_snapshot_of_the_buffer_and_the_counters() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        broker.refuse[b"bad"] = InvalidRecord("bad")
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=0)
            await producer.send("t", b"1")
            await wait_until(lambda: producer.statistics().in_flight_records == 1)
            second = await producer.send("t", b"bad", partition=0)
            before = producer.statistics()
            assert (before.buffered_records, before.delivered_records) == (2, 0)
            broker.hold.set()
            with pytest.raises(InvalidRecord):
                await second
            await producer.flush()
            after = producer.statistics()
            assert (after.buffered_records, after.in_flight_records) == (0, 0)
            assert (after.delivered_records, after.failed_records, after.requests) == (1, 1, 1)
            assert before.buffered_records == 2
            await producer.close()

    run(main)


# --- Arrow rows and bulks -------------------------------------------------------------------------


def test_rows_of_unknown_outcome_are_distinguished_from_rows_not_stored() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(partitions=3)
        broker.refuse[b"bad"] = InvalidRecord("a bad one")
        table = pa.table({"p": [0, 1, 0, 2, 1], "v": [b"a", b"b", b"c", b"bad", b"d"]})

        def garble(response: log_pb2.ProduceResponse) -> None:
            for result in response.results:
                if result.partition == 1:  # stored, but the response is invalid
                    result.partition = 7

        async with cluster(runtime, broker) as log:
            producer = log.producer(delivery_timeout_ms=1_000, linger_ms=0)
            await producer.send_and_wait("t", b"first", partition=0)
            broker.spoil = [garble] * 1_000
            with pytest.raises(RowsNotDelivered) as caught:
                await producer.send_arrow("t", table, value="v", partition="p")
            error = caught.value
            assert set(error.unknown) >= {1, 4}
            assert error.unsent_from is None
            assert error.stored_count + len(error.failed) + len(error.unknown) == 5
            assert isinstance(error.first, TimedOut)
            await producer.close()

    run(main)


def test_a_batch_of_rows_is_halved_and_its_rows_stay_known() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.record_bytes_max = 500
        values = [b"x" * (600 if number == 6 else 40) for number in range(20)]
        async with cluster(runtime, broker) as log, log.producer() as producer:
            with pytest.raises(RowsNotDelivered) as caught:
                await producer.send_arrow("t", pa.table({"v": values}), value="v")
        assert caught.value.failed == array("q", [6])
        assert caught.value.ranges == [DeliveredRange("t", 0, 0, 19)]
        assert broker.logs[0] == values[:6] + values[7:]

    run(main)


def test_a_bulk_that_is_halved_keeps_a_handle_for_each_record() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.record_bytes_max = 500
        values = [b"%02d" % n * (300 if n == 6 else 20) for n in range(20)]
        async with cluster(runtime, broker) as log, log.producer() as producer:
            sent = await producer.send_many("t", values)
            with pytest.raises(NotDelivered) as caught:
                await sent
            assert [record.value for record in caught.value.records] == [values[6]]
            offsets = [sent[n].result().offset for n in range(20) if n != 6]
            assert offsets == list(range(19))

    run(main)
