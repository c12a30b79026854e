"""The run of `bench fetch`: a topic is read from its beginning, by polls or by tables."""

import time
from typing import TYPE_CHECKING, Any

from .runs import TABLE_BYTES, FetchPlan, Measured, send_tables, values_of

if TYPE_CHECKING:
    from ...clients.blocking import Log

FIRST_ROWS = 1_000  # of the first tables that are read, before their size is known


def fill(log: "Log", topic: str, plan: FetchPlan) -> None:
    """Write what a fetch run reads."""
    with log.producer(compression=plan.compression) as producer:
        send_tables(producer, topic, plan.records + plan.warm_up, values_of(plan.size), None, None)


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
