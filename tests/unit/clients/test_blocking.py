"""The blocking client with a node in another process: threads, callbacks, forks."""

import asyncio
import concurrent.futures
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S, with_blocking_time

import quorumlog
from quorumlog.clients.blocking import Log
from quorumlog.clients.blocking.producer import Delivery
from quorumlog.errors import (
    ClientClosed,
    ConnectionFailed,
    InvalidRequest,
    MessageTooLarge,
    NotDelivered,
    OffsetOutOfRange,
    TimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

WAIT_S = AMPLE_S


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name for one test."""
    name: str = request.node.name
    return name.replace("[", ".").replace("]", "")[:200]


def io_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "quorumlog-io"]


def test_example_of_the_readme(log: Log, topic: str) -> None:
    log.admin.create_topic(topic, partitions=4)
    with log.producer() as producer:
        future = producer.send(topic, key=b"UA", value=b"one")
        producer.send_arrow(topic, pa.table({"carrier": ["UA"], "delay": [3]}), key="carrier")
    assert future.result().offset == 0
    records = list(log.consumer(topics=[topic], until_end=True))
    assert [record.value for record in records] == [b"one", b'{"delay":3}']
    table = log.read_arrow(topic, partitions=future.result().partition, start=0)
    assert table["value"].to_pylist() == [b"one", b'{"delay":3}']


def test_a_delivery_is_a_future_of_concurrent_futures(log: Log, topic: str) -> None:
    log.admin.create_topic(topic)
    with log.producer() as producer:
        deliveries = [producer.send(topic, b"%d" % number) for number in range(100)]
        done, waiting = concurrent.futures.wait(deliveries, timeout=WAIT_S)
        assert (len(done), len(waiting)) == (100, 0)
        later = [producer.send(topic, b"later") for _ in range(10)]
        finished = concurrent.futures.as_completed(later, timeout=WAIT_S)
        assert {delivery.result().offset for delivery in finished} == set(range(100, 110))
    assert [delivery.result().offset for delivery in deliveries] == list(range(100))
    assert all(delivery.exception() is None and not delivery.cancel() for delivery in deliveries)


def test_delivery_result_times_out(log: Log, topic: str) -> None:
    log.admin.create_topic(topic)
    with log.producer(linger_ms=60_000) as producer:
        delivery = producer.send(topic, b"v")
        for kind in (TimedOut, TimeoutError):
            with pytest.raises(kind, match="no outcome after 10 ms"):
                delivery.result(timeout_ms=10)
        with pytest.raises(TimedOut, match=r"no outcome after 0\.01 s"):
            delivery.exception(timeout=0.01)
        with pytest.raises(InvalidRequest, match="not both"):
            delivery.result(1, timeout_ms=10)
        sent = producer.send_many(topic, [b"w"])
        with pytest.raises(TimedOut, match="no outcome after 10 ms"):
            sent.result(timeout_ms=10)
        assert not delivery.done()
    assert delivery.result().offset == 0


def test_callbacks_run_and_may_not_block(log: Log, topic: str) -> None:
    log.admin.create_topic(topic)
    outcomes: list[object] = []
    called = threading.Event()

    def callback(delivery: "concurrent.futures.Future[quorumlog.Delivered]") -> None:
        outcomes.append(delivery.result().offset)
        try:
            log.admin.list_topics()
        except InvalidRequest as error:
            outcomes.append(type(error))
        called.set()

    with log.producer() as producer:
        producer.send(topic, b"v").add_done_callback(callback)
    assert called.wait(WAIT_S)
    assert outcomes == [0, InvalidRequest]


def test_closing_inside_a_callback_is_refused_and_closes_nothing(log: Log, topic: str) -> None:
    log.admin.create_topic(topic)
    producer, consumer = log.producer(linger_ms=0), log.consumer(topic)
    waiting = log.producer(linger_ms=60_000).send(topic, b"waits")
    outcomes: list[object] = []
    called = threading.Event()

    def callback(delivery: object) -> None:
        for close in (producer.close, consumer.close, log.close):
            try:
                close()
            except InvalidRequest as error:
                outcomes.append(type(error))
        called.set()

    producer.send(topic, b"v").add_done_callback(callback)
    assert called.wait(WAIT_S)
    assert outcomes == [InvalidRequest] * 3
    assert next(consumer).value == b"v"
    log.close()
    assert waiting.result(timeout_ms=0).offset == 1


def test_a_callback_may_send_while_another_thread_connects(log: Log, topic: str) -> None:
    """Connecting holds the lock of all clients of the process."""
    log.admin.create_topic(topic)
    connecting, chained = threading.Event(), threading.Event()

    def connect() -> None:
        connecting.set()
        with pytest.raises((ConnectionFailed, TimedOut)):
            quorumlog.connect("127.0.0.1:1", connect_timeout_ms=500)

    thread = threading.Thread(target=connect, daemon=True)
    producer = log.producer(linger_ms=0)

    def callback(delivery: object) -> None:
        thread.start()
        assert connecting.wait(WAIT_S)
        thread.join(0.1)  # until connect() has the lock
        producer.send(topic, b"chained").add_done_callback(lambda _: chained.set())

    producer.send(topic, b"v").add_done_callback(callback)
    assert chained.wait(WAIT_S)
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_result_that_arrives_with_the_timeout_is_not_lost(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait checks the I/O thread every second; the outcome may arrive during that check."""

    class Late(concurrent.futures.Future[str]):
        def result(self, timeout: float | None = None) -> str:
            if not self.done():
                self.set_result("records")
                raise TimeoutError
            return super().result(timeout)

    async def work() -> str:
        return "never run"

    def submit(work: "Coroutine[Any, Any, str]", loop: object) -> Late:
        work.close()
        return Late()

    io, _ = log.opened()
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "run_coroutine_threadsafe", submit)
        assert io.wait(work()) == "records"


def test_closing_ends_a_reader_that_waits_in_another_thread(
    log: Log, address: str, topic: str
) -> None:
    log.admin.create_topic(topic)
    outcomes: list[object] = []
    began = threading.Event()
    with quorumlog.connect(address) as other:  # so that the I/O thread keeps running
        consumer = other.consumer(topic)

        def read() -> None:
            consumer.assignment()
            began.set()
            try:
                next(consumer)
            except ClientClosed as error:
                outcomes.append(str(error))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        assert began.wait(WAIT_S)
        consumer.close()
        thread.join(WAIT_S)
    assert outcomes == ["the consumer is closed"]


@pytest.mark.parametrize("is_last", [True, False])
def test_methods_raise_after_close(address: str, topic: str, is_last: bool) -> None:
    keeper = None if is_last else quorumlog.connect(address)
    log = quorumlog.connect(address)
    log.admin.create_topic(topic, if_not_exists=True)
    producer, consumer = log.producer(), log.consumer(topic)
    producer.close()
    consumer.close()
    log.close()
    uses: list[tuple[str, Callable[[], object]]] = [
        ("producer", lambda: producer.send(topic, b"v")),
        ("producer", lambda: producer.send_arrow(topic, pa.table({"v": [1]}))),
        ("consumer", lambda: consumer.poll()),
        ("consumer", lambda: next(consumer)),
        ("client", lambda: log.admin.list_topics()),
        ("client", lambda: log.producer()),
        ("client", lambda: log.consumer(topic)),
    ]
    for what, use in uses:
        with pytest.raises(ClientClosed, match=f"the {what} is closed"):
            use()
    for again in (producer.flush, producer.close, consumer.close, log.close):
        again()
    if keeper is not None:
        keeper.close()


def test_several_threads_share_a_producer(log: Log, topic: str) -> None:
    log.admin.create_topic(topic, partitions=3)
    sent: dict[int, list[Delivery]] = {}
    with log.producer(linger_ms=1, batch_size=2_000, buffer_size=20_000) as producer:

        def work(thread: int) -> None:
            sent[thread] = [
                producer.send(topic, b"%d:%d" % (thread, number), key=b"%d" % thread)
                for number in range(2_000)
            ]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    read = {
        (record.partition, record.offset): record.value
        for record in log.consumer(topic, until_end=True)
    }
    assert len(read) == 8_000
    for number, deliveries in sent.items():
        places = [delivery.result() for delivery in deliveries]
        assert [read[place[1:3]] for place in places] == [
            b"%d:%d" % (number, n) for n in range(2_000)
        ]
        assert places == sorted(places)  # the order of each thread is kept


def test_errors_are_typed(log: Log, topic: str) -> None:
    log.admin.create_topic(topic, configs={"max.message.bytes": "2000"})
    with pytest.raises(TopicAlreadyExists):
        log.admin.create_topic(topic)
    with log.producer() as producer:
        with pytest.raises(UnknownTopicOrPartition):
            producer.send("no-such-topic", b"v")
        with pytest.raises(MessageTooLarge):
            producer.send(topic, b"x" * 5_000).result(WAIT_S)
        with pytest.raises(TypeError, match="bytes or str, not int"):
            producer.send(topic, 5)  # type: ignore[arg-type]
        producer.send(topic, b"x" * 5_000)
        with pytest.raises(NotDelivered) as caught:
            producer.flush()
        assert isinstance(caught.value.first, MessageTooLarge)
        assert [record.value for record in caught.value.records] == [b"x" * 5_000]
    with pytest.raises(OffsetOutOfRange):
        next(log.consumer(topic, start=5))


def test_no_server_at_the_address_is_raised_at_once() -> None:
    def check(connect_timeout_ms: int) -> None:
        with pytest.raises(ConnectionFailed, match="quorumlog dev"):
            quorumlog.connect("127.0.0.1:1", connect_timeout_ms=connect_timeout_ms)

    with_blocking_time(100, check)
    assert io_threads() == []


def test_a_consumer_counts_delivered_records(log: Log, topic: str) -> None:
    log.admin.create_topic(topic)
    with log.producer() as producer:
        for number in range(50):
            producer.send(topic, b"%d" % number)
    with log.consumer(topic) as consumer:
        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
        assert consumer.position((topic, 0)) == 3
        consumer.pause((topic, 0))
        assert consumer.poll(timeout_ms=50) == []
        consumer.resume((topic, 0))
        assert next(consumer).offset == 3
        consumer.seek((topic, 0), 40)
        assert [r.offset for r in consumer.poll(max_records=2, timeout_ms=AMPLE_MS)] == [40, 41]
        assert consumer.assignment() == [(topic, 0)]
        assert consumer.high_watermark((topic, 0)) == 50


def test_one_thread_serves_all_clients_and_ends_with_the_last(address: str) -> None:
    first, second = quorumlog.connect(address), quorumlog.connect(address)
    assert len(io_threads()) == 1
    first.close()
    first.close()
    assert second.admin.list_topics() is not None
    with pytest.raises(ClientClosed):
        first.admin.list_topics()
    second.close()
    assert io_threads() == []
    with quorumlog.connect(address) as third:
        third.admin.describe_cluster()
    assert io_threads() == []


knows_threads = pytest.mark.skipif(sys.platform != "linux", reason="reads the threads from /proc")


@pytest.mark.long
@pytest.mark.parametrize(
    "program",
    [
        "both_sides",
        "consumer_keeps_its_place",
        "staged_attempt_ends",
        "threads_go_on_sending",
        pytest.param("grpc_rests", marks=knows_threads),
        pytest.param("grpc_never_ends", marks=knows_threads),
        pytest.param("others_cost_one_wait", marks=knows_threads),
    ],
)
def test_clients_survive_a_fork(log: Log, address: str, topic: str, program: str) -> None:
    """The programs run in their own interpreters, which have no other user of gRPC."""
    log.admin.create_topic(topic)
    path = Path(__file__).with_name("fork_program.py")
    done = subprocess.run(
        [sys.executable, str(path), program, address, topic],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


OPEN_AT_EXIT = """
import sys, quorumlog
log = quorumlog.connect(sys.argv[1])
log.admin.create_topic(sys.argv[2])
log.producer(linger_ms=60_000).send(sys.argv[2], b"left open")
"""


@pytest.mark.slow
def test_open_clients_are_flushed_at_exit(log: Log, address: str, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPEN_AT_EXIT, address, topic],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [record.value for record in log.consumer(topic, until_end=True)] == [b"left open"]


def test_asyncio_programs_connect_on_their_own_loop(address: str, topic: str) -> None:
    async def main() -> None:
        async with quorumlog.aio.connect(address) as log:
            await log.admin.create_topic(topic)
            async with log.producer() as producer:
                assert (await producer.send_and_wait(topic, b"v")).offset == 0
            consumer = log.consumer(topic, until_end=True)
            assert [record.value async for record in consumer] == [b"v"]
        log = await quorumlog.aio.connect(address)
        assert topic in [each.name for each in await log.admin.list_topics()]
        await log.close()

    asyncio.run(main())


def test_records_before_an_offset_are_deleted(log: Log, topic: str) -> None:
    log.admin.create_topic(topic, partitions=2)
    with log.producer() as producer:
        for _ in range(3):
            producer.send(topic, b"v", partition=1)
    assert log.admin.delete_records(topic, {1: 2}) == {1: 2}
    assert log.list_offsets(topic, at="earliest") == {0: 0, 1: 2}
