"""The blocking consumer with a node in another process: threads, Ctrl-C, positions."""

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S

import quorumlog
from quorumlog.clients.blocking import Log
from quorumlog.clients.blocking.consumer import Consumer
from quorumlog.errors import ClientClosed, InvalidRequest, UnknownTopicOrPartition
from quorumlog.ids import TopicPartition

WAIT_S = AMPLE_S


@pytest.fixture
def topic(request: pytest.FixtureRequest, log: Log) -> str:
    """A topic for one test, with two partitions of 50 records."""
    name = str(request.node.name).replace("[", ".").replace("]", "")[:200]
    log.admin.create_topic(name, partitions=2)
    produce(log, name, 50)
    return name


def produce(log: Log, topic: str, count: int, *, first: int = 0) -> None:
    """Append `count` records to both partitions."""
    with log.producer() as producer:
        for number in range(first, first + count):
            for partition in range(2):
                producer.send(topic, b"%d" % number, partition=partition)


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start a thread that adds its result or error to the list."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except quorumlog.QuorumlogError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def until_reading(log: Log, consumer: Consumer) -> None:
    """Wait until the poll of another thread waits."""

    async def wait(_: object) -> None:
        while not consumer._consumer._is_reading:  # noqa: ASYNC110 -- no event exists for it
            await asyncio.sleep(0.001)

    log.call(wait)


def test_blocking_consumer_has_all_methods_of_the_asyncio_one(log: Log, topic: str) -> None:
    with log.consumer({topic: [0]}) as consumer:
        assert [r.offset for r in consumer.records(max_records=3)] == [0, 1, 2]
        assert consumer.positions() == {(topic, 0): 3}
        consumer.assign_more({topic: [1]}, start="latest")
        assert consumer.assignment() == [(topic, 0), (topic, 1)]
        consumer.seek_to_beginning((topic, 1))
        consumer.seek_to_end((topic, 0))
        assert consumer.positions() == {(topic, 0): 50, (topic, 1): 0}
        assert {place: lag.lag for place, lag in consumer.lag().items()} == {
            (topic, 0): 0,
            (topic, 1): 50,
        }
        assert consumer.end_offsets() == {(topic, 0): 50, (topic, 1): 50}
        assert consumer.beginning_offsets() == {(topic, 0): 0, (topic, 1): 0}
        consumer.pause((topic, 1))
        assert consumer.paused() == [(topic, 1)]
        assert list(consumer.records(timeout_ms=50)) == []
        consumer.resume()
        assert [r.offset for r in consumer.records(max_records=50)] == list(range(50))
        assert list(consumer.records(idle_ms=50)) == []
        consumer.unassign({topic: [0]})
        consumer.assign({topic: [0]}, start=48)
        assert [r.offset for r in consumer.poll(timeout_ms=AMPLE_MS)] == [48, 49]
        assert consumer.statistics().records >= 55
        consumer.seek((topic, 0), 10)
        assert next(consumer).offset == 10
        known = consumer.statistics().partitions[TopicPartition(topic, 0)]
        assert (known.position, known.lag) == (11, 39)


def test_entering_resolves_latest(log: Log, topic: str) -> None:
    with log.consumer(topic, start="latest") as consumer:
        produce(log, topic, 1, first=50)
        found = [record.offset for record in consumer.records(max_records=2, timeout_ms=AMPLE_MS)]
        assert found == [50, 50]
    with pytest.raises(UnknownTopicOrPartition), log.consumer({topic: [7]}):
        pass


def test_positions_cover_delivered_records_only(log: Log, topic: str) -> None:
    with log.consumer({topic: [0]}) as consumer:
        assert next(consumer).offset == 0
        consumer.seek((topic, 0), 10)
        assert [next(consumer).offset for _ in range(2)] == [10, 11]
        assert consumer.position((topic, 0)) == 12
        assert consumer.lag()[TopicPartition(topic, 0)].position == 12
        table = consumer.poll_arrow(max_records=5, timeout_ms=AMPLE_MS)
        assert table["offset"].to_pylist() == [12, 13, 14, 15, 16]
        assert next(consumer).offset == 17
        consumer.pause()
        assert consumer.poll(timeout_ms=20) == []
        consumer.resume()
        assert next(consumer).offset == 18
        consumer.assign({topic: [1]})
        assert next(consumer).partition == 1


def test_a_second_thread_may_not_poll_concurrently_but_may_call_other_methods(
    log: Log, topic: str
) -> None:
    with log.consumer({topic: [0]}, start="latest") as consumer:
        thread, outcome = in_thread(lambda: consumer.poll(timeout_ms=AMPLE_MS))
        until_reading(log, consumer)
        with pytest.raises(InvalidRequest, match="another poll"):
            consumer.poll(timeout_ms=1_000)
        with pytest.raises(InvalidRequest, match="another poll"):
            next(consumer)
        assert consumer.position((topic, 0)) == 50
        assert consumer.statistics().records == 0
        consumer.seek((topic, 0), 49)
        thread.join(WAIT_S)
        assert [record.offset for record in outcome[0]] == [49]


def test_closing_in_another_thread_ends_a_poll(log: Log, topic: str) -> None:
    consumer = log.consumer(topic, start="latest")
    thread, outcome = in_thread(lambda: consumer.poll(timeout_ms=None))
    until_reading(log, consumer)
    consumer.close()
    thread.join(WAIT_S)
    assert isinstance(outcome[0], ClientClosed)


def test_control_calls_of_other_threads_lose_no_record(log: Log, topic: str) -> None:
    produce(log, topic, 2_000, first=50)
    consumer = log.consumer({topic: [0]}, until_end=True)
    done = threading.Event()

    def control() -> None:
        while not done.is_set():
            consumer.pause((topic, 0))
            consumer.position((topic, 0))
            consumer.resume((topic, 0))

    with consumer:
        thread, _ = in_thread(control)
        found = [record.offset for record in consumer]
        done.set()
        thread.join(WAIT_S)
    assert found == list(range(2_050))


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Disable garbage collection: an interrupt inside a GC callback is only reported."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("kind", ["poll", "iterate", "arrow"])
def test_ctrl_c_during_a_poll_leaves_the_consumer_as_it_was(
    log: Log, topic: str, kind: str
) -> None:
    def interrupt() -> None:
        until_reading(log, consumer)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def read() -> list[int]:
        if kind == "poll":
            return [record.offset for record in consumer.poll(timeout_ms=AMPLE_MS)]
        if kind == "iterate":
            return [next(consumer).offset]
        table: pa.Table = consumer.poll_arrow(timeout_ms=AMPLE_MS)
        return [int(offset) for offset in table["offset"].to_pylist()]

    with log.consumer({topic: [0]}, start="latest") as consumer:
        found: list[int] = []
        for number in range(3):
            thread, _ = in_thread(interrupt)
            with pytest.raises(KeyboardInterrupt):
                read()
            thread.join(WAIT_S)
            produce(log, topic, 1, first=number)
            found += read()
        assert found == [50, 51, 52]


def test_ctrl_c_while_a_poll_collects_records_keeps_them(log: Log, topic: str) -> None:
    """A tracer interrupts at every line of the poll in turn."""

    lines, at = 0, 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal lines
        code = frame.f_code
        if code.co_name not in ("poll", "_taken") or "blocking" not in code.co_filename:
            return None
        lines += event == "line"
        if lines == at:
            raise KeyboardInterrupt
        return trace

    with log.consumer({topic: [0]}) as consumer:
        found = [record.offset for record in consumer.poll(max_records=1, timeout_ms=AMPLE_MS)]
        while len(found) == 1:
            lines, at = 0, at + 1
            tracer = sys.gettrace()
            sys.settrace(trace)
            with suppress(KeyboardInterrupt):
                found += [
                    record.offset for record in consumer.poll(max_records=1, timeout_ms=AMPLE_MS)
                ]
            sys.settrace(tracer)
        assert at > 5
        while len(found) < 50:
            found += [record.offset for record in consumer.poll(max_records=7, timeout_ms=AMPLE_MS)]
        assert found == list(range(50))


def test_rows_of_an_interrupted_arrow_poll_are_delivered_again(log: Log, topic: str) -> None:
    """Ctrl-C arrives between the two threads: the I/O thread was done, the caller was not."""
    with log.consumer({topic: [0]}) as consumer:
        consumer.poll(max_records=5, timeout_ms=AMPLE_MS)
        wait, interrupts = consumer._wait, [True]

        def interrupted(work: Any) -> Any:
            found = wait(work)
            if interrupts:
                interrupts.pop()
                raise KeyboardInterrupt
            return found

        consumer._wait = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            consumer.poll_arrow(max_records=10, timeout_ms=AMPLE_MS)
        again = consumer.poll_arrow(max_records=3, timeout_ms=AMPLE_MS)
        assert again["offset"].to_pylist() == [5, 6, 7]
        interrupts.append(True)
        with pytest.raises(KeyboardInterrupt):
            next(consumer)
        assert next(consumer).offset == 8


def test_a_scan_is_a_reader_of_record_batches(log: Log, topic: str) -> None:
    reader = log.scan_arrow(topic, columns=["partition", "offset"])
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.names == ["partition", "offset"]
    assert reader.read_all().num_rows == 100
    assert log.read_arrow(topic, partitions=[1], start=40).num_rows == 10
    reader = log.scan_arrow(topic)
    reader.read_next_batch()
    del reader  # its stream is dropped without a wait
    with pytest.raises(UnknownTopicOrPartition):
        log.scan_arrow("nope").read_all()


def test_a_consumer_of_another_loop_is_refused(address: str, log: Log, topic: str) -> None:
    async def make() -> Any:
        client = quorumlog.aio.connect(address)
        await client
        consumer = client.consumer(topic)
        await consumer.poll()
        await client.close()
        return consumer

    consumer = asyncio.run(make())
    with pytest.raises(InvalidRequest, match="another event loop"):
        asyncio.run(consumer.poll())
