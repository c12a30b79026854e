"""The run of `bench fetch`: a topic is read from its beginning, by polls or by tables."""

import time
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ...errors import InvalidRequest
from ..output import count_text
from .runs import TABLE_BYTES, FetchPlan, Measured, send_tables, values_of

if TYPE_CHECKING:
    from ...clients.blocking import Log

POLL_RECORDS_MAX = 500  # the consumer's own default
FIRST_ROWS = 1_000  # of the first tables that are read, before their size is known


def fill(log: "Log", topic: str, plan: FetchPlan) -> None:
    """Write what a fetch run reads."""
    with log.producer(compression=plan.compression) as producer:
        send_tables(producer, topic, plan.records + plan.warm_up, values_of(plan.size), None, None)


def run_fetch(log: "Log", topic: str, plan: FetchPlan) -> Measured:
    """Read a topic from its beginning: the warm-up, then the measured records.

    Raises InvalidRequest where the warm-up leaves nothing to measure.
    """
    reading = _polls(log, topic) if plan.api == "record" else _tables(log, topic)
    with closing(reading):
        next(reading)
        warm = _read(reading, plan.warm_up)
        cpu_s, start_s = time.process_time(), time.perf_counter()
        found = _read(reading, plan.records)
        seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    if not found.records:
        raise InvalidRequest(
            f"{topic} has {count_text(warm.records, 'record')}, which the warm-up has read: "
            "--warm-up 0 leaves them to be measured"
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
    """What was read, and how long each poll or table took."""

    records: int = 0
    bytes: int = 0
    latencies_ns: list[int] = field(default_factory=list)


Reading: TypeAlias = "Generator[tuple[int, int], int, None]"
"""Is sent how many records may come next, gives how many came and their bytes. The first value is
of nothing."""


def _read(reading: Reading, records: int) -> _Read:
    """Read so many records, or what is left."""
    found = _Read()
    with suppress(StopIteration):
        while found.records < records:
            before_ns = time.perf_counter_ns()
            count, size = reading.send(records - found.records)
            found.latencies_ns.append(time.perf_counter_ns() - before_ns)
            found.records += count
            found.bytes += size
    return found


def _polls(log: "Log", topic: str) -> Reading:
    """Read by polls until the end."""
    wanted = yield 0, 0
    with log.consumer(topic, until_end=True) as consumer:
        while records := consumer.poll(max_records=min(wanted, POLL_RECORDS_MAX), timeout_ms=None):
            size = sum(len(r.key or b"") + len(r.value or b"") for r in records)
            wanted = yield len(records), size


def _tables(log: "Log", topic: str) -> Reading:
    """Read by tables of about `TABLE_BYTES`, partition by partition."""
    wanted = yield 0, 0
    ends = log.list_offsets(topic, at="latest")
    rows = FIRST_ROWS
    for partition, start in log.list_offsets(topic, at="earliest").items():
        while start < ends[partition]:
            end = min(start + min(rows, wanted), ends[partition])
            table = log.read_arrow(
                topic,
                partition=partition,
                start=start,
                end=end,
                columns=("key", "value", "offset", "timestamp"),
            )
            start = end
            if table.num_rows:
                size = sum(table.column(name).nbytes for name in ("key", "value"))
                rows = max(FIRST_ROWS, TABLE_BYTES * table.num_rows // max(1, size))
                wanted = yield table.num_rows, size
