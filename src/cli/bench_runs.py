"""The runs of `quorumlog bench`: produce, fetch and latency.

CPU time is that of this process, all threads, without the brokers. Produce latencies are sampled,
because a callback per record would distort the throughput.
"""

import os
import random
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import InvalidRequest, QuorumlogError, TimedOut
from .output import count_text, echo
from .topics import parse_configs

if TYPE_CHECKING:
    from ..clients.blocking import Log
    from ..clients.blocking.producer import Delivery, Producer


SAMPLES = 10_000  # latencies per run, approximately
VALUES = 512  # distinct values, sent in turn
TABLE_BYTES = 8 << 20  # per Arrow table


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePlan:
    """The options of `bench produce`."""

    records: int
    size: int
    batch_size: int
    linger_ms: int
    acks: str
    compression: str
    producers: int
    rate: float | None  # records per second, all producers together; None: unlimited
    api: str
    warm_up: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """The options of `bench fetch`."""

    records: int
    size: int
    compression: str
    api: str
    warm_up: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPlan:
    """The options of `bench latency`."""

    records: int
    size: int
    acks: str
    rate: float
    warm_up: int


@dataclass(slots=True, kw_only=True)
class Measured:
    """The results of a run."""

    kind: str
    records: int
    bytes: int  # of keys and values
    seconds: float
    cpu_seconds: float
    latencies_ns: dict[str, list[int]]  # by event: acknowledged, read, poll, table


@contextmanager
def bench_topic(
    log: "Log",
    *,
    partitions: int,
    replication: int | None,
    configs: Sequence[str],
    keep: bool,
) -> Iterator[str]:
    """Create a topic for a run, and delete it afterwards, also after an error, unless `keep`."""
    name = f"quorumlog-bench-{os.getpid()}-{random.randrange(2**32):08x}"
    try:
        log.admin.create_topic(
            name,
            partitions=partitions,
            replication=replication,
            configs=parse_configs(list(configs)),
        )
    except KeyboardInterrupt:  # the broker may have created it before the interrupt
        with suppress(QuorumlogError):
            log.admin.delete_topic(name)
        raise
    succeeded = False
    try:
        yield name
        succeeded = True
    finally:
        if keep:
            echo(f"Kept topic {name}.", err=True)
        elif succeeded:
            log.admin.delete_topic(name)
        else:
            with suppress(QuorumlogError):  # report the first failure, not this one
                log.admin.delete_topic(name)


def values_of(size: int, *, seed: int = 0) -> list[bytes]:
    """Return values of a size, half random and half repetitive, so that they compress; equal for
    equal seeds."""
    source = random.Random(seed)
    half = size // 2
    return [
        source.randbytes(size - half) + b"quorumlog " * (half // 10) + b"." * (half % 10)
        for _ in range(VALUES)
    ]


@dataclass(slots=True)
class Sampler:
    """Latencies of every n-th record, from its due time to its acknowledgement."""

    every: int
    latencies_ns: list[int] = field(default_factory=list)  # appended to by the I/O thread

    def watch(self, delivery: "Delivery", due_ns: int) -> None:
        """Record the latency of a record when its delivery completes."""
        delivery.add_done_callback(
            lambda _: self.latencies_ns.append(time.perf_counter_ns() - due_ns)
        )


def send_tables(
    producer: "Producer",
    topic: str,
    count: int,
    values: list[bytes],
    sampler: Sampler | None,
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
            sleep_until(due_ns)
        producer.send_arrow(topic, some, value="value")
        sent += some.num_rows
        if sampler is not None:
            sampler.latencies_ns.append(time.perf_counter_ns() - due_ns)


def sleep_until(due_ns: int) -> None:
    left_ns = due_ns - time.perf_counter_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


POLL_RECORDS_MAX = 500  # the consumer's own default
FIRST_ROWS = 1_000  # rows of a table before the size of a row is known


def fill(log: "Log", topic: str, plan: FetchPlan) -> None:
    """Produce the records of a fetch run."""
    with log.producer(compression=plan.compression) as producer:
        send_tables(producer, topic, plan.records + plan.warm_up, values_of(plan.size), None, None)


def run_fetch(log: "Log", topic: str, plan: FetchPlan) -> Measured:
    """Read a topic from its beginning: the warm-up, then the measured records.

    Raises InvalidRequest if the warm-up reads all records.
    """
    reader = _polls(log, topic) if plan.api == "record" else _tables(log, topic)
    with closing(reader):
        next(reader)
        warm = _read(reader, plan.warm_up)
        cpu_s, start_s = time.process_time(), time.perf_counter()
        found = _read(reader, plan.records)
        seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    if not found.records:
        raise InvalidRequest(
            f"{topic}: the warm-up read all of its {count_text(warm.records, 'record')}; give "
            "--warm-up 0"
        )
    return Measured(
        kind="fetch",
        records=found.records,
        bytes=found.bytes,
        seconds=seconds,
        cpu_seconds=cpu_s,
        latencies_ns={"poll" if plan.api == "record" else "table": found.latencies_ns},
    )


@dataclass(slots=True)
class _Read:
    """The records read, and the time of each poll or table."""

    records: int = 0
    bytes: int = 0
    latencies_ns: list[int] = field(default_factory=list)


Reader: TypeAlias = "Generator[tuple[int, int], int, None]"
"""A generator that receives the maximum number of records and yields (records, bytes). The first
yield is (0, 0)."""


def _read(reader: Reader, records: int) -> _Read:
    """Read `records` records, or fewer at the end of the topic."""
    found = _Read()
    with suppress(StopIteration):
        while found.records < records:
            before_ns = time.perf_counter_ns()
            count, size = reader.send(records - found.records)
            found.latencies_ns.append(time.perf_counter_ns() - before_ns)
            found.records += count
            found.bytes += size
    return found


def _polls(log: "Log", topic: str) -> Reader:
    """Read by polls to the end."""
    wanted = yield 0, 0
    with log.consumer(topic, until_end=True) as consumer:
        while records := consumer.poll(max_records=min(wanted, POLL_RECORDS_MAX), timeout_ms=None):
            size = sum(len(r.key or b"") + len(r.value or b"") for r in records)
            wanted = yield len(records), size


def _tables(log: "Log", topic: str) -> Reader:
    """Read tables of about `TABLE_BYTES`, partition by partition."""
    wanted = yield 0, 0
    ends = log.list_offsets(topic, at="latest")
    rows = FIRST_ROWS
    for partition, start in log.list_offsets(topic, at="earliest").items():
        while start < ends[partition]:
            end = min(start + min(rows, wanted), ends[partition])
            table = log.read_arrow(
                topic,
                partitions=partition,
                start=start,
                end=end,
                columns=("key", "value", "offset", "timestamp"),
            )
            start = end
            if table.num_rows:
                size = sum(table.column(name).nbytes for name in ("key", "value"))
                rows = max(FIRST_ROWS, TABLE_BYTES * table.num_rows // max(1, size))
                wanted = yield table.num_rows, size


FIRST_WAIT_S = 10.0  # for the consumer to reach the end of the topic
LAST_WAIT_S = 30.0  # for the last records


def run_latency(log: "Log", topic: str, plan: LatencyPlan) -> Measured:
    """Send single records at a rate, consume them in another thread, and measure both latencies."""
    value = values_of(plan.size)[0]
    total = plan.warm_up + plan.records
    reader = _Reader(log, topic, total)
    sampler = Sampler(every=1)
    cpu_s = start_s = 0.0
    due: list[int] = []
    try:
        reader.wait_ready()
        with log.producer(acks=plan.acks, linger_ms=0) as producer:
            producer.send(
                topic, value
            ).result()  # looks up the leader and connects before the measurement
            start_ns = time.perf_counter_ns()
            for number in range(total):
                if number == plan.warm_up:
                    cpu_s, start_s = time.process_time(), time.perf_counter()
                due_ns = start_ns + int(number * 1e9 / plan.rate)
                sleep_until(due_ns)
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
    """A consumer in its own thread, which records the arrival time of each record."""

    def __init__(self, log: "Log", topic: str, count: int) -> None:
        self._log = log
        self._topic = topic
        self._count = count + 1  # one record precedes the measurement
        self._arrivals: list[int] = []
        self._error: QuorumlogError | None = None
        self._is_ready = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._main, name="bench reader", daemon=True)
        self._thread.start()

    def wait_ready(self) -> None:
        """Wait until the consumer is at the end of the topic; raise TimedOut."""
        if not self._is_ready.wait(FIRST_WAIT_S):
            raise TimedOut(f"the consumer is not ready after {FIRST_WAIT_S:.0f} s")
        self._raise()

    def wait_end(self) -> list[int]:
        """Wait for all records, and return their arrival times; raise TimedOut."""
        self._thread.join(LAST_WAIT_S)
        self._raise()
        if len(self._arrivals) < self._count:
            raise TimedOut(
                f"{self._count - len(self._arrivals)} of {self._count} records did not arrive "
                f"within {LAST_WAIT_S:.0f} s"
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


def run_produce(log: "Log", topic: str, plan: ProducePlan) -> Measured:
    """Send the warm-up, then the measured records from all producers concurrently."""
    values = values_of(plan.size)
    if plan.api == "arrow":
        import pyarrow.compute  # noqa: F401 # takes a second or more, outside the measurement
    with _producers(log, plan) as producers:
        if plan.warm_up:
            _send_arrow_or_records(producers[0], topic, plan, plan.warm_up, values, None)
        shares = [
            plan.records // plan.producers + (index < plan.records % plan.producers)
            for index in range(plan.producers)
        ]
        sampler = Sampler(every=max(1, plan.records // SAMPLES))
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
    producers = [
        log.producer(
            acks=plan.acks,
            compression=plan.compression,
            linger_ms=plan.linger_ms,
            batch_size=plan.batch_size,
        )
        for _ in range(plan.producers)
    ]
    succeeded = False
    try:
        yield producers
        succeeded = True
    finally:
        for producer in producers:
            producer.close(flush=succeeded)


def _send_arrow_or_records(
    producer: "Producer",
    topic: str,
    plan: ProducePlan,
    count: int,
    values: list[bytes],
    sampler: Sampler | None,
) -> None:
    rate = None if plan.rate is None or sampler is None else plan.rate / plan.producers
    if plan.api == "arrow":
        send_tables(producer, topic, count, values, sampler, rate)
        return
    send, every = producer.send, SAMPLES if sampler is None else sampler.every
    start_ns = time.perf_counter_ns()
    for number in range(count):
        due_ns = 0
        if rate is not None:
            due_ns = start_ns + int(number * 1e9 / rate)
            sleep_until(due_ns)
        if sampler is not None and number % every == 0:
            due_ns = due_ns or time.perf_counter_ns()
            sampler.watch(send(topic, values[number % VALUES]), due_ns)
        else:
            send(topic, values[number % VALUES])
    producer.flush()


def _in_threads(works: "Sequence[Any]") -> None:
    """Run the functions concurrently, the first one in this thread; raise the first failure."""
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
