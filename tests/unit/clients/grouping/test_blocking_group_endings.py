"""Blocking consumers of groups that end: by callbacks that raise, by another thread."""

import threading
import time
from collections.abc import Iterator

import pytest

import quorumlog
from quorumlog.clients.blocking import Log
from quorumlog.errors import Stopping
from quorumlog.testing import Broker

Place = tuple[str, int]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker(settings={"group.consumer.heartbeat.interval.ms": 200}) as broker:
        yield broker.grpc


@pytest.fixture
def log(address: str) -> Iterator[Log]:
    with quorumlog.connect(address) as log:
        yield log


@pytest.fixture
def topic(request: pytest.FixtureRequest, log: Log) -> str:
    name = str(request.node.name)[:200]
    log.admin.create_topic(name, partitions=2)
    with log.producer() as producer:
        for number in range(100):
            producer.send(name, b"%d" % number, partition=number % 2)
    return name


@pytest.mark.slow
def test_a_callback_that_raises_at_the_end_keeps_nothing_else_from_being_closed(
    address: str, topic: str
) -> None:
    def on_revoked(places: list[Place]) -> None:
        raise ZeroDivisionError

    told: list[list[Place]] = []
    mine = quorumlog.connect(address)
    first = mine.consumer(topic, group="g-raises", on_revoked=on_revoked)
    second = mine.consumer(topic, group="g-fine", on_revoked=told.append)
    assert first.poll(timeout_ms=5_000)
    assert second.poll(timeout_ms=5_000)
    with pytest.raises(ZeroDivisionError):
        mine.close()
    assert [sorted(places) for places in told] == [[(topic, 0), (topic, 1)]]
    with pytest.raises(Stopping):
        mine.partitions(topic)


@pytest.mark.slow
def test_a_callback_runs_once_though_two_threads_wait(log: Log, topic: str) -> None:
    calls: list[str] = []

    def on_revoked(places: list[Place]) -> None:
        calls.append(threading.current_thread().name)
        time.sleep(0.2)  # long enough for the other one to run it too

    consumer = log.consumer(topic, group="g-two-threads", on_revoked=on_revoked)
    is_read = threading.Event()

    def work() -> None:
        read = 0
        try:
            while True:
                read += len(consumer.poll(timeout_ms=10_000))
                if read == 100:
                    is_read.set()
        except Stopping:
            pass

    reader = threading.Thread(target=work)
    reader.start()
    assert is_read.wait(10)
    time.sleep(0.05)  # it waits for more by now; if not, there is one thread only
    consumer.close()
    reader.join(10)
    assert not reader.is_alive()
    assert len(calls) == 1
