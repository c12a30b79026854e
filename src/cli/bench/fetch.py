"""The run of `bench fetch`: reads a topic from its beginning, by polls or as tables."""

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
