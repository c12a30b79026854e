"""Blocking group consumers that close after callback errors, from other threads or with work
left."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S

import quorumlog
from quorumlog.clients.blocking import Log
from quorumlog.errors import ClientClosed
from quorumlog.ids import TopicPartition
from quorumlog.testing import Broker

Place = TopicPartition

BUSY = """
import asyncio, sys, time
import quorumlog

async def main():
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with (
        quorumlog.aio.connect(sys.argv[1]) as log,
        log.group_consumer("g-busy", sys.argv[2]) as consumer,
    ):
        turning = asyncio.create_task(turn())
        seen = []
        async for _ in consumer:
            time.sleep(0.02)  # work that waits for nothing
            seen.append(turns)
            if len(seen) == 30:
                break
        turning.cancel()
    print(len(set(seen)))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker(settings={"group.consumer.heartbeat.interval.ms": 200}) as broker:
        yield broker.grpc


@pytest.fixture
def topic(request: pytest.FixtureRequest, log: Log) -> str:
    name = str(request.node.name).strip("]").replace("[", "-")[:200]
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

    revoked: list[list[Place]] = []
    mine = quorumlog.connect(address)
    first = mine.group_consumer("g-raises", topic, on_revoked=on_revoked)
    second = mine.group_consumer("g-fine", topic, on_revoked=revoked.append)
    assert first.poll(timeout_ms=AMPLE_MS)
    assert second.poll(timeout_ms=AMPLE_MS)
    with pytest.raises(ZeroDivisionError):
        mine.close()
    assert [sorted(places) for places in revoked] == [[(topic, 0), (topic, 1)]]
    with pytest.raises(ClientClosed):
        mine.partition_count(topic)


@pytest.mark.slow
def test_a_callback_may_close_its_consumer(log: Log, topic: str) -> None:
    took_s: list[float] = []

    def on_assigned(places: list[Place]) -> None:
        began = time.monotonic()
        consumer.close()
        took_s.append(time.monotonic() - began)

    consumer = log.group_consumer("g-closes", topic, on_assigned=on_assigned)
    with pytest.raises(ClientClosed):
        consumer.poll(timeout_ms=AMPLE_MS)
    assert len(took_s) == 1
    assert took_s[0] < 5
    assert log.admin.describe_group("g-closes").members == ()


@pytest.mark.slow
def test_a_poll_whose_records_a_callback_discards_by_closing_raises(log: Log, topic: str) -> None:
    def on_assigned(places: list[Place]) -> None:
        assert consumer._running is not None
        consumer._io.wait(consumer._ran(consumer._running[1]))  # while close() starts
        while not consumer._ahead:
            time.sleep(0.001)
        consumer.close()

    consumer = log.group_consumer("g-discards", topic, on_assigned=on_assigned)
    with pytest.raises(ClientClosed):
        consumer.poll(timeout_ms=AMPLE_MS)
    with log.group_consumer("g-discards", topic) as after:
        read = list(after.records(max_records=100, timeout_ms=AMPLE_MS))
    assert len(read) == 100


@pytest.mark.slow
def test_callback_during_close_may_close_and_the_group_is_left(log: Log, topic: str) -> None:
    calls: list[list[Place]] = []

    def on_revoked(places: list[Place]) -> None:
        calls.append(places)
        consumer.close()

    with log.group_consumer("g-closes-too", topic, on_revoked=on_revoked) as consumer:
        assert consumer.poll(timeout_ms=AMPLE_MS)
    assert len(calls) == 1
    group = log.admin.describe_group("g-closes-too")
    assert group.members == ()
    assert any(each.committed for each in group.offsets)


@pytest.mark.slow
def test_a_callback_runs_once_though_two_threads_wait(log: Log, topic: str) -> None:
    calls: list[str] = []

    def on_revoked(places: list[Place]) -> None:
        calls.append(threading.current_thread().name)
        time.sleep(0.2)  # long enough for another thread to run it as well

    consumer = log.group_consumer("g-two-threads", topic, on_revoked=on_revoked)
    is_read = threading.Event()

    def work() -> None:
        read = 0
        try:
            while True:
                read += len(consumer.poll(timeout_ms=AMPLE_MS))
                if read == 100:
                    is_read.set()
        except ClientClosed:
            pass

    reader = threading.Thread(target=work)
    reader.start()
    assert is_read.wait(AMPLE_S)
    while not consumer._consumer._is_reading:
        time.sleep(0.001)
    consumer.close()
    reader.join(AMPLE_S)
    assert not reader.is_alive()
    assert len(calls) == 1


@pytest.mark.slow
def test_a_table_that_was_being_worked_on_is_read_again(log: Log, topic: str) -> None:
    last: list[tuple[int, int]] = []

    def fail_at_the_last() -> None:
        rows = 0
        with log.group_consumer("g-tables", topic) as consumer:
            while rows < 100:
                table = consumer.poll_arrow(max_records=30, timeout_ms=AMPLE_MS)
                rows += table.num_rows
            last.extend(
                zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
            )
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at_the_last()
    with log.group_consumer("g-tables", topic) as consumer:
        found = consumer.records(idle_ms=AMPLE_MS, max_records=len(last))
        again = [(record.partition, record.offset) for record in found]
        assert consumer.poll(timeout_ms=500) == []
    assert last
    assert sorted(again) == sorted(last)


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["asyncio", "uvloop"])
def test_the_loop_runs_other_tasks_between_buffered_records(
    address: str, topic: str, runner: str
) -> None:
    """Both loops: uvloop caches its clock while a callback runs, asyncio does not."""
    if runner == "uvloop":
        pytest.importorskip("uvloop")
    program = BUSY.replace("import asyncio,", f"import {runner}, asyncio,")
    program = program.replace("asyncio.run(main())", f"{runner}.run(main())")
    command = [sys.executable, "-c", program, address, topic]
    revoked = subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S, check=True)
    assert int(revoked.stdout) >= 6
