"""A rolling restart of three nodes in order, one after the other, under load.

A default producer sends numbered values at a constant rate and a default consumer reads them; a
failure is one that these clients report. The results are the sends with an error, the longest wait
for an acknowledgement, and the missing and repeated records of the consumer.

Run: python -m benchmarks.cluster --only restart
Goal: no error, no missing record, no repeated record.
"""

import asyncio
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cluster.nodes import Nodes
from benchmarks.raft.load import percentile

import quorumlog.aio
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import QuorumlogError

TOPIC = "restart"
PARTITIONS = 6
RECORDS_PER_S = 500
IN_SYNC_S = 60.0
READ_S = 60.0  # for the last records


@dataclass(slots=True)
class Sent:
    """The outcomes of the sends."""

    acknowledged: set[int] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


async def send(log: AsyncLog, sent: Sent, stop: asyncio.Event) -> None:
    """Send numbers at a constant rate until the stop, then wait for all outcomes."""
    async with log.producer() as producer, asyncio.TaskGroup() as group:
        began_s, number = time.perf_counter(), 0
        while not stop.is_set():
            group.create_task(one(producer, number, sent))
            number += 1
            await asyncio.sleep(max(0.0, began_s + number / RECORDS_PER_S - time.perf_counter()))


async def one(producer: Any, number: int, sent: Sent) -> None:
    """Send a number and record its outcome."""
    began_s = time.perf_counter()
    try:
        await producer.send_and_wait(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    except QuorumlogError as error:
        sent.errors.append(f"{type(error).__name__}: {error}")
    else:
        sent.acknowledged.add(number)
        sent.waits_s.append(time.perf_counter() - began_s)


async def read(log: AsyncLog, seen: Counter[int]) -> None:
    """Count every value, until cancelled."""
    async with log.consumer([TOPIC]) as consumer:
        async for record in consumer:
            assert record.value is not None, f"a record without a value at {record.offset}"
            seen[int(record.value)] += 1


async def in_sync(log: AsyncLog) -> None:
    """Wait until every replica of every partition is in sync again."""
    async with asyncio.timeout(IN_SYNC_S):
        while True:
            partitions = (await log.admin.describe_topic(TOPIC)).partitions
            if all(set(each.isr) == set(each.replicas) for each in partitions):
                return
            await asyncio.sleep(0.1)


async def measure(folder: Path, *, settle_s: float) -> dict[str, Any]:
    """Restart every node once; return the clients' results."""
    sent, seen, stop = Sent(), Counter[int](), asyncio.Event()
    stops_s = []
    async with (
        Nodes(folder) as nodes,
        quorumlog.aio.connect(nodes.bootstrap) as log,
    ):
        await log.admin.create_topic(TOPIC, partitions=PARTITIONS, replication=3)
        began_s = time.perf_counter()
        reading = asyncio.create_task(read(log, seen))
        sending = asyncio.create_task(send(log, sent, stop))
        await asyncio.sleep(settle_s)
        for number in nodes.places:
            stops_s.append(await nodes.stop(number))
            nodes.start(number)
            await nodes.wait_ready(number)
            await in_sync(log)
            await asyncio.sleep(settle_s)
        stop.set()
        await sending
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_S):
                while not (reading.done() or sent.acknowledged <= seen.keys()):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        spent_s = time.perf_counter() - began_s
        reader_error = await ended(reading)
    row = summary(sent, seen, reader_error=reader_error)
    row |= {"seconds": round(spent_s, 1), "stops_s": [round(each, 2) for each in stops_s]}
    show(row)
    return row


async def ended(reading: "asyncio.Task[None]") -> str:
    """End the consumer; return the error with which it had ended before, "" for none."""
    reading.cancel()
    try:
        await reading
    except asyncio.CancelledError:
        return ""
    except QuorumlogError as error:
        return f"{type(error).__name__}: {error}"
    return "it ended by itself"


def summary(sent: Sent, seen: Counter[int], *, reader_error: str) -> dict[str, Any]:
    """Return the results of the clients."""
    waits = sorted(sent.waits_s)
    missing = sent.acknowledged - seen.keys()
    twice = [number for number, count in seen.items() if count > 1]
    errors = [*sent.errors, *([f"consumer: {reader_error}"] if reader_error else [])]
    return {
        "records": len(sent.acknowledged),
        "errors": len(errors),
        "first_errors": errors[:5],
        "missing": len(missing),
        "twice": len(twice),
        "p50_ms": round(percentile(waits, 0.5) * 1e3, 2) if waits else None,
        "p99_ms": round(percentile(waits, 0.99) * 1e3, 2) if waits else None,
        "longest_s": round(waits[-1], 3) if waits else None,
        "met": bool(waits) and not (errors or missing or twice),
    }


def show(row: dict[str, Any]) -> None:
    """Print the result."""
    print(
        f"restart of every node: {row['records']:,} records, {row['errors']} errors,"
        f" {row['missing']} missing, {row['twice']} twice, longest wait {row['longest_s']} s",
        flush=True,
    )
    for error in row["first_errors"]:
        print(f"  {error}", flush=True)
