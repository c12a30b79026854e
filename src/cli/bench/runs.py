"""Parts that all bench runs share: plans, the topic, the values, latency sampling.

CPU time is that of this process, all threads, without the brokers. Produce latencies are sampled,
because a callback per record would distort the throughput.
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from ...errors import QuorumlogError
from ..topics import parse_configs

if TYPE_CHECKING:
    from ...clients.blocking import Log
    from ...clients.blocking.producer import Delivery, Producer

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
    """Create a topic for a run, and delete it afterwards unless `keep`."""
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
            typer.echo(f"Kept topic {name}.", err=True)
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
