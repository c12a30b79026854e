"""The runs of `quorumlog bench`: what is sent and read, and what is timed.

CPU is this process's own, all threads; the server's is not in it. Latencies of a produce are
sampled: a callback a record would be a part of what is measured.
"""

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from ..errors import QuorumlogError, TimedOut
from .topics import parse_configs

if TYPE_CHECKING:
    from ..clients.blocking import Log
    from ..clients.blocking.producer import Delivery, Producer

SAMPLES = 10_000  # latencies of one run, about
VALUES = 512  # different values that are sent in turn
TABLE_BYTES = 8 << 20  # of one Arrow table
FIRST_ROWS = 1_000  # of the first tables that are read, before their size is known
FIRST_WAIT_S = 10.0  # for the reader of a latency run to stand at the end
LAST_WAIT_S = 30.0  # for its last records


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePlan:
    """What `bench produce` does."""

    records: int
    size: int
    batch_size: int
    linger_ms: int
    acks: str
    compression: str
    producers: int
    rate: float | None  # records a second, all producers together; None: as many as go
    api: str
    warm_up: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """What `bench fetch` does."""

    records: int
    size: int
    compression: str
    api: str
    warm_up: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPlan:
    """What `bench latency` does."""

    records: int
    size: int
    acks: str
    rate: float
    warm_up: int


@dataclass(slots=True, kw_only=True)
class Measured:
    """What came out."""

    kind: str
    records: int
    bytes: int  # of keys and values
    seconds: float
    cpu_seconds: float
    latencies_ns: dict[str, list[int]]  # by what is timed


@contextmanager
def bench_topic(
    log: "Log",
    *,
    partitions: int,
    replication: int | None,
    configs: Sequence[str],
    keep: bool,
) -> Iterator[str]:
    """Make a topic for a run and delete it afterwards, whatever ended the run."""
    name = f"quorumlog-bench-{os.getpid()}-{random.randrange(2**32):08x}"
    log.admin.create_topic(
        name,
        partitions=partitions,
        replication=replication,
        configs=parse_configs(list(configs)),
    )
    is_whole = False
    try:
        yield name
        is_whole = True
    finally:
        if keep:
            typer.echo(f"The topic {name} is kept.", err=True)
        elif is_whole:
            log.admin.delete_topic(name)
        else:
            with suppress(QuorumlogError):  # the first failure is the one to tell
                log.admin.delete_topic(name)


def values_of(size: int, *, seed: int = 0) -> list[bytes]:
    """Return values of a size, half random and half repeated, so that codecs have work; the same
    ones for the same seed."""
    source = random.Random(seed)
    half = size // 2
    return [
        source.randbytes(size - half) + b"quorumlog " * (half // 10) + b"." * (half % 10)
        for _ in range(VALUES)
    ]


# --- produce -------------------------------------------------------------------------------------


def run_produce(log: "Log", topic: str, plan: ProducePlan) -> Measured:
    """Send the warm-up, then the measured records from every producer at once."""
    values = values_of(plan.size)
    if plan.api == "arrow":
        import pyarrow.compute  # noqa: F401 # a second or more, no part of what is measured
    with _producers(log, plan) as producers:
        if plan.warm_up:
            _send_arrow_or_records(producers[0], topic, plan, plan.warm_up, values, None)
        shares = [
            plan.records // plan.producers + (index < plan.records % plan.producers)
            for index in range(plan.producers)
        ]
        sampler = _Sampler(every=max(1, plan.records // SAMPLES))
        cpu_s, start_s = time.process_time(), time.perf_counter()
        _in_threads(
            [
                lambda producer=producer, share=share: _send_arrow_or_records(
                    producer, topic, plan, share, values, sampler
                )
                for producer, share in zip(producers, shares, strict=True)
            ]
        )
        seconds = time.perf_counter() - start_s
        cpu_s = time.process_time() - cpu_s
    return Measured(
        kind="produce",
        records=plan.records,
        bytes=plan.records * plan.size,
        seconds=seconds,
        cpu_seconds=cpu_s,
        latencies_ns={"acknowledged": sampler.latencies_ns},
    )


@contextmanager
def _producers(log: "Log", plan: ProducePlan) -> "Iterator[list[Producer]]":
    made = [
        log.producer(
            acks=plan.acks,
            compression=plan.compression,
            linger_ms=plan.linger_ms,
            batch_size=plan.batch_size,
        )
        for _ in range(plan.producers)
    ]
    is_whole = False
    try:
        yield made
        is_whole = True
    finally:
        for producer in made:
            producer.close(flush=is_whole)


@dataclass(slots=True)
class _Sampler:
    """Times every n-th record from when it was due to its acknowledgement."""

    every: int
    latencies_ns: list[int] = field(default_factory=list)  # appended to by the I/O thread

    def watch(self, delivery: "Delivery", due_ns: int) -> None:
        """Note the time when a record has its outcome."""
        delivery.add_done_callback(
            lambda _: self.latencies_ns.append(time.perf_counter_ns() - due_ns)
        )


def _send_arrow_or_records(
    producer: "Producer",
    topic: str,
    plan: ProducePlan,
    count: int,
    values: list[bytes],
    sampler: _Sampler | None,
) -> None:
    rate = None if plan.rate is None or sampler is None else plan.rate / plan.producers
    if plan.api == "arrow":
        _send_tables(producer, topic, count, values, sampler, rate)
        return
    send, every = producer.send, SAMPLES if sampler is None else sampler.every
    start_ns = time.perf_counter_ns()
    for number in range(count):
        due_ns = 0
        if rate is not None:
            due_ns = start_ns + int(number * 1e9 / rate)
            _sleep_until(due_ns)
        if sampler is not None and number % every == 0:
            due_ns = due_ns or time.perf_counter_ns()
            sampler.watch(send(topic, values[number % VALUES]), due_ns)
        else:
            send(topic, values[number % VALUES])
    producer.flush()


def _send_tables(
    producer: "Producer",
    topic: str,
    count: int,
    values: list[bytes],
    sampler: _Sampler | None,
    rate: float | None,
) -> None:
    import pyarrow as pa

    rows = max(1, min(count, TABLE_BYTES // max(1, len(values[0]))))
    table = pa.table({"value": pa.array([values[n % VALUES] for n in range(rows)], pa.binary())})
    start_ns = time.perf_counter_ns()
    sent = 0
    while sent < count:
        some = table.slice(0, min(rows, count - sent))
        due_ns = time.perf_counter_ns()
        if rate is not None:
            due_ns = start_ns + int(sent * 1e9 / rate)
            _sleep_until(due_ns)
        producer.send_arrow(topic, some, value="value")
        sent += some.num_rows
        if sampler is not None:
            sampler.latencies_ns.append(time.perf_counter_ns() - due_ns)


# --- fetch ---------------------------------------------------------------------------------------


def fill(log: "Log", topic: str, plan: FetchPlan) -> None:
    """Write what a fetch run reads."""
    with log.producer(compression=plan.compression) as producer:
        _send_tables(producer, topic, plan.records + plan.warm_up, values_of(plan.size), None, None)


def run_fetch(log: "Log", topic: str, plan: FetchPlan) -> Measured:
    """Read a topic from its beginning: the warm-up, then the measured records."""
    is_record = plan.api == "record"
    read = _polls(log, topic) if is_record else _tables(log, topic, first_rows=plan.warm_up)
    left = plan.warm_up
    while left > 0:
        some = next(read, None)
        if some is None:
            break
        left -= some[0]
    latencies: list[int] = []
    records = size = 0
    cpu_s, start_s = time.process_time(), time.perf_counter()
    before_ns = time.perf_counter_ns()
    for count, count_bytes in read:
        now_ns = time.perf_counter_ns()
        latencies.append(now_ns - before_ns)
        before_ns = now_ns
        records += count
        size += count_bytes
        if records >= plan.records:
            break
    measured = Measured(
        kind="fetch",
        records=records,
        bytes=size,
        seconds=time.perf_counter() - start_s,
        cpu_seconds=time.process_time() - cpu_s,
        latencies_ns={"poll" if is_record else "table": latencies},
    )
    read.close()
    return measured


def _polls(log: "Log", topic: str) -> Any:
    """Yield (records, bytes) of each poll until the end."""
    with log.consumer(topic, until_end=True) as consumer:
        while records := consumer.poll(timeout_ms=None):
            yield len(records), sum(len(r.key or b"") + len(r.value or b"") for r in records)


def _tables(log: "Log", topic: str, *, first_rows: int) -> Any:
    """Yield (records, bytes) of tables of about `TABLE_BYTES`, partition by partition; one of the
    tables ends after the first rows."""
    ends = log.list_offsets(topic, at="latest")
    rows = FIRST_ROWS
    for partition, start in log.list_offsets(topic, at="earliest").items():
        while start < ends[partition]:
            count = min(rows, first_rows or rows)
            first_rows = max(0, first_rows - count)
            table = log.read_arrow(
                topic,
                partition=partition,
                start=start,
                end=min(start + count, ends[partition]),
                columns=("key", "value", "offset", "timestamp"),
            )
            start += count
            if table.num_rows:
                size = sum(table.column(name).nbytes for name in ("key", "value"))
                yield table.num_rows, size
                rows = max(FIRST_ROWS, TABLE_BYTES * table.num_rows // max(1, size))


# --- latency -------------------------------------------------------------------------------------


def run_latency(log: "Log", topic: str, plan: LatencyPlan) -> Measured:
    """Send single records at a rate, read them in another thread, and time both."""
    value = values_of(plan.size)[0]
    total = plan.warm_up + plan.records
    reader = _Reader(log, topic, total)
    sampler = _Sampler(every=1)
    cpu_s = start_s = 0.0
    due: list[int] = []
    try:
        reader.wait_ready()
        with log.producer(acks=plan.acks, linger_ms=0) as producer:
            producer.send(topic, value).result()  # the way is found before anything is timed
            start_ns = time.perf_counter_ns()
            for number in range(total):
                if number == plan.warm_up:
                    cpu_s, start_s = time.process_time(), time.perf_counter()
                due_ns = start_ns + int(number * 1e9 / plan.rate)
                _sleep_until(due_ns)
                due.append(due_ns)
                delivery = producer.send(topic, value)
                if number >= plan.warm_up:
                    sampler.watch(delivery, due_ns)
            producer.flush()
        arrivals = reader.wait_end()
        seconds = time.perf_counter() - start_s
        cpu_s = time.process_time() - cpu_s
    finally:
        reader.stop()
    ends = list(zip(due, arrivals, strict=True))[plan.warm_up :]
    return Measured(
        kind="latency",
        records=plan.records,
        bytes=plan.records * plan.size,
        seconds=seconds,
        cpu_seconds=cpu_s,
        latencies_ns={
            "acknowledged": sampler.latencies_ns,
            "read": [arrived - begun for begun, arrived in ends],
        },
    )


class _Reader:
    """A consumer in a thread of its own, which notes when each record arrived."""

    def __init__(self, log: "Log", topic: str, count: int) -> None:
        self._log = log
        self._topic = topic
        self._count = count + 1  # one goes before
        self._arrivals: list[int] = []
        self._error: QuorumlogError | None = None
        self._is_ready = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._main, name="bench reader", daemon=True)
        self._thread.start()

    def wait_ready(self) -> None:
        """Return when the reader stands at the end of the topic."""
        if not self._is_ready.wait(FIRST_WAIT_S):
            raise TimedOut(f"no reader is ready after {FIRST_WAIT_S:.0f} s")
        self._raise()

    def wait_end(self) -> list[int]:
        """Return when all records have arrived, and when each did; raises TimedOut."""
        self._thread.join(LAST_WAIT_S)
        self._raise()
        if len(self._arrivals) < self._count:
            raise TimedOut(
                f"{self._count - len(self._arrivals)} records have not arrived after "
                f"{LAST_WAIT_S:.0f} s"
            )
        return self._arrivals[1 : self._count]

    def stop(self) -> None:
        """End the thread."""
        self._is_stopping = True
        self._thread.join(FIRST_WAIT_S)

    def _main(self) -> None:
        try:
            with self._log.consumer(self._topic, start="latest") as consumer:
                consumer.poll(timeout_ms=1)  # finds the end
                self._is_ready.set()
                while len(self._arrivals) < self._count and not self._is_stopping:
                    records = consumer.poll(timeout_ms=200)
                    now_ns = time.perf_counter_ns()
                    self._arrivals.extend([now_ns] * len(records))
        except QuorumlogError as error:
            self._error = error
        finally:
            self._is_ready.set()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


# --- threads and time ----------------------------------------------------------------------------


def _in_threads(works: "Sequence[Any]") -> None:
    """Run each in a thread of its own, one in this one; raise the first failure of any."""
    failures: list[Exception] = []

    def guarded(work: Any) -> None:
        try:
            work()
        except Exception as error:
            failures.append(error)

    threads = [
        threading.Thread(target=guarded, args=(work,), name="bench", daemon=True)
        for work in works[1:]
    ]
    for thread in threads:
        thread.start()
    works[0]()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _sleep_until(due_ns: int) -> None:
    left_ns = due_ns - time.perf_counter_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)
