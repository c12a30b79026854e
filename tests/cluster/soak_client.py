"""The client process of a soak: `soak_client.py ADDRESS FACE FOLDER`, until its input ends.

FACE is "asyncio" or "blocking". It has one producer of single records, one of Arrow tables, and one
consumer. The outcome of each record goes to FOLDER/outcomes (see `OUTCOME`), so that memory does
not grow by it. It prints a line of JSON with its resources every second, and a last one after the
close.
"""

import asyncio
import itertools
import json
import logging
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import quorumlog
from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.log import make_log
from quorumlog.clients.producer.batches import DeliveredRange
from quorumlog.errors import QuorumlogError
from quorumlog.runtime import Runtime, real

TOPIC = "soak"
OUTCOME = struct.Struct("<qiqdd")  # code, partition, offset (-1: unknown), sent and known at (s)
ROWS = 250  # of each table
TABLE_S = 0.5
BURST = 5  # single records at a time
BURST_S = 0.02
SAMPLE_S = 1.0
PADDING = b"." * 80
CODE_SPAN = 10**12
CONNECT_MS = 120_000  # the node may be stopped, and slow to start
CODES = {  # the first codes of the two producers of a face
    "asyncio": (1 * CODE_SPAN, 2 * CODE_SPAN),
    "blocking": (3 * CODE_SPAN, 4 * CODE_SPAN),
}
WARM_UP_S = 4.0  # minimum time until each operation ran once
LOOK_S = 0.1


def encoded(code: int) -> bytes:
    """Return the value of a record: its producer and number, and padding."""
    return b"%d" % code + PADDING


def code_of(value: bytes | None) -> int:
    """Return the code in a value."""
    assert value is not None, "the value is null"
    assert value.endswith(PADDING), f"{value!r} was never sent"
    return int(value[: -len(PADDING)])


@dataclass
class Tally:
    """The counters of the client's tasks or threads, and the file of outcomes."""

    outcomes: Any  # a binary file
    lock: threading.Lock = field(default_factory=threading.Lock)
    delivered: int = 0
    failed: int = 0
    seen: int = 0
    tables: int = 0  # delivered
    expected: dict[int, int] = field(default_factory=dict)  # next offset by partition

    def note(self, code: int, partition: int, offset: int, given_s: float) -> None:
        """Record the outcome of a record."""
        with self.lock:
            self.outcomes.write(OUTCOME.pack(code, partition, offset, given_s, time.monotonic()))
            self.delivered += offset >= 0
            self.failed += offset < 0

    def note_table(self, code: int, given_s: float, ranges: list[DeliveredRange]) -> None:
        """Record the delivery of a table."""
        offsets = [(r.partition, offset) for r in ranges for offset in range(r.first, r.end)]
        assert len(offsets) == ROWS, f"{ROWS} rows have the offsets {ranges}"
        for index, (partition, offset) in enumerate(offsets):
            self.note(code + index, partition, offset, given_s)
        self.tables += 1

    def note_lost_table(self, code: int, given_s: float) -> None:
        """Record a table that failed or has no known outcome."""
        for index in range(ROWS):
            self.note(code + index, -1, -1, given_s)

    @property
    def is_warm(self) -> bool:
        """Return True if the threads of Arrow and of the lanes, created once per process, exist."""
        return bool(self.tables and self.delivered > self.tables * ROWS and self.seen > ROWS)

    def see(self, records: list[ConsumerRecord]) -> None:
        """Check that the consumer received each offset once, in order."""
        for record in records:
            expected = self.expected.get(record.partition, 0)
            assert record.offset == expected, f"got {record.offset} where {expected} was next"
            self.expected[record.partition] = expected + 1
            code_of(record.value)
        self.seen += len(records)


def sample(tally: Tally | None, tasks: int) -> dict[str, Any]:
    """Return the resources of the process."""
    status = Path("/proc/self/status").read_text()
    row: dict[str, Any] = {
        "at": time.monotonic(),
        "rss_kib": int(status.partition("VmRSS:")[2].split()[0]),
        "fds": len(os.listdir("/proc/self/fd")),
        "threads": int(status.partition("Threads:")[2].split()[0]),
        "python_threads": threading.active_count(),
        "tasks": tasks,
    }
    if tally is not None:
        row |= {"delivered": tally.delivered, "failed": tally.failed, "seen": tally.seen}
    return row


def say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def table_of(code: int) -> pa.Table:
    return pa.table({"value": pa.array([encoded(code + n) for n in range(ROWS)], pa.binary())})


def settle(tally: Tally, code: int, given_s: float) -> Callable[[Any], None]:
    """Return the function that records the outcome of a single record."""

    def done(delivery: Any) -> None:
        if delivery.exception() is not None:
            tally.note(code, -1, -1, given_s)
        else:
            where = delivery.result()
            tally.note(code, where.partition, where.offset, given_s)

    return done


# --- asyncio -------------------------------------------------------------------------------------


@dataclass
class AsyncWork:
    """The asyncio clients."""

    runtime: Runtime
    address: str
    tally: Tally
    singles: Iterator[int] = field(default_factory=lambda: itertools.count(CODES["asyncio"][0]))
    tables: Iterator[int] = field(
        default_factory=lambda: itertools.count(CODES["asyncio"][1], ROWS)
    )

    async def run(self, is_over: threading.Event) -> None:
        """Produce and consume until the end, then close everything."""
        self.tally.expected.clear()
        async with (
            make_log(self.runtime, self.address, connect_timeout_ms=CONNECT_MS) as log,
            self.runtime.tasks.scope("soak") as scope,
        ):
            for work in (self._send_singles, self._send_tables, self._follow, self._watch):
                scope.spawn(work(log, is_over), name=work.__name__)

    async def _send_singles(self, log: quorumlog.aio.AsyncLog, is_over: threading.Event) -> None:
        async with log.producer() as producer:
            while not is_over.is_set():
                for _ in range(BURST):
                    code, given_s = next(self.singles), time.monotonic()
                    delivery = await producer.send(TOPIC, encoded(code))
                    delivery.add_done_callback(settle(self.tally, code, given_s))
                await asyncio.sleep(BURST_S)

    async def _send_tables(self, log: quorumlog.aio.AsyncLog, is_over: threading.Event) -> None:
        async with log.producer(compression="lz4") as producer:
            while not is_over.is_set():
                code, given_s = next(self.tables), time.monotonic()
                partition = code // ROWS % 2
                try:
                    ranges = await producer.send_arrow(
                        TOPIC, table_of(code), value="value", partition=partition
                    )
                except QuorumlogError:
                    self.tally.note_lost_table(code, given_s)
                else:
                    self.tally.note_table(code, given_s, ranges)
                await asyncio.sleep(TABLE_S)

    async def _follow(self, log: quorumlog.aio.AsyncLog, is_over: threading.Event) -> None:
        async with log.consumer(TOPIC) as consumer:
            while not is_over.is_set():
                self.tally.see(await consumer.poll(timeout_ms=500))

    async def _watch(self, log: quorumlog.aio.AsyncLog, is_over: threading.Event) -> None:
        while not is_over.is_set():
            say(sample(self.tally, count_tasks()))
            await asyncio.sleep(SAMPLE_S)


def count_tasks() -> int:
    """Return the number of tasks of this loop, without one in which gRPC waits for the status of a
    call: on a loaded machine a single one was left after the close twice, with an unknown cause.
    Any further one counts, so that a leak by each lost connection is found."""
    tasks = asyncio.all_tasks()
    return len(tasks) - any("_handle_status_once_received" in repr(task) for task in tasks)


async def soak_asyncio(
    runtime: Runtime, address: str, tally: Tally, is_over: threading.Event
) -> None:
    work = AsyncWork(runtime, address, tally)
    await work.run(warmed(tally))
    await asyncio.sleep(SAMPLE_S)
    before = sample(tally, count_tasks())
    await work.run(is_over)
    await asyncio.sleep(SAMPLE_S)
    say({"before": before, "after": sample(tally, count_tasks())})


# --- blocking ------------------------------------------------------------------------------------


@dataclass
class BlockingWork:
    """The blocking clients, in threads."""

    address: str
    tally: Tally
    singles: Iterator[int] = field(default_factory=lambda: itertools.count(CODES["blocking"][0]))
    tables: Iterator[int] = field(
        default_factory=lambda: itertools.count(CODES["blocking"][1], ROWS)
    )
    problems: list[Exception] = field(default_factory=list)

    def run(self, is_over: threading.Event) -> None:
        """Produce and consume until the end, then close everything."""
        self.tally.expected.clear()
        with quorumlog.connect(self.address, connect_timeout_ms=CONNECT_MS) as log:
            threads = [
                threading.Thread(target=self._guarded, args=(work, log, is_over))
                for work in (self._send_singles, self._send_tables, self._follow)
            ]
            for thread in threads:
                thread.start()
            while not is_over.wait(SAMPLE_S):
                say(sample(self.tally, 0))
            for thread in threads:
                thread.join()
        if self.problems:
            raise self.problems[0]

    def _guarded(
        self,
        work: Callable[[quorumlog.Log, threading.Event], None],
        log: quorumlog.Log,
        is_over: threading.Event,
    ) -> None:
        try:
            work(log, is_over)
        except Exception as error:
            self.problems.append(error)
            is_over.set()

    def _send_singles(self, log: quorumlog.Log, is_over: threading.Event) -> None:
        with log.producer() as producer:
            while not is_over.is_set():
                for _ in range(BURST):
                    code, given_s = next(self.singles), time.monotonic()
                    delivery = producer.send(TOPIC, encoded(code))
                    delivery.add_done_callback(settle(self.tally, code, given_s))
                time.sleep(BURST_S)

    def _send_tables(self, log: quorumlog.Log, is_over: threading.Event) -> None:
        with log.producer(compression="zstd") as producer:
            while not is_over.is_set():
                code, given_s = next(self.tables), time.monotonic()
                partition = code // ROWS % 2
                try:
                    ranges = producer.send_arrow(
                        TOPIC, table_of(code), value="value", partition=partition
                    )
                except QuorumlogError:
                    self.tally.note_lost_table(code, given_s)
                else:
                    self.tally.note_table(code, given_s, ranges)
                time.sleep(TABLE_S)

    def _follow(self, log: quorumlog.Log, is_over: threading.Event) -> None:
        with log.consumer(TOPIC) as consumer:
            while not is_over.is_set():
                self.tally.see(consumer.poll(timeout_ms=500))


def soak_blocking(address: str, tally: Tally, is_over: threading.Event) -> None:
    work = BlockingWork(address, tally)
    work.run(warmed(tally))
    time.sleep(SAMPLE_S)
    before = sample(tally, 0)
    work.run(is_over)
    time.sleep(SAMPLE_S)
    say({"before": before, "after": sample(tally, 0)})


def warmed(tally: Tally) -> threading.Event:
    """Return an event that is set once every operation ran, after the warm-up time."""
    event, end_s = threading.Event(), time.monotonic() + WARM_UP_S

    def wait() -> None:
        while time.monotonic() < end_s or not tally.is_warm:
            time.sleep(LOOK_S)
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event


def main(address: str, face: str, folder: str) -> None:
    """Run one kind of client until the input ends."""
    logging.basicConfig(level=logging.WARNING)
    is_over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    with (Path(folder) / f"outcomes-{face}").open("wb") as outcomes:
        tally = Tally(outcomes)
        if face == "asyncio":
            real.run(lambda runtime: soak_asyncio(runtime, address, tally, is_over))
        else:
            soak_blocking(address, tally, is_over)


if __name__ == "__main__":
    main(*sys.argv[1:])
