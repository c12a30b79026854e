"""The cost of replicas: three with acks=all compared with one with acks=1, in the same cluster and
run.

Both topics have one partition per node and `flush.policy=replicated`, so that neither waits for a
disk; one client sends the same records to both in turn, round by round. Throughput uses Arrow
slices, which cost the client least; latency is measured with one record at a time, sent
immediately.

Run: python -m benchmarks.cluster --only replication
"""

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from benchmarks.cluster.nodes import Nodes
from benchmarks.raft.load import percentile

import quorumlog.aio
from quorumlog.clients.log import AsyncLog

SIZES = (100, 1024)  # bytes of a value
SLICE_BYTES = 4 << 20
PARTITIONS = 3
WARM_SHARE = 0.25  # of the measured seconds, before the measurement
CONFIGS = {"flush.policy": "replicated"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A topic and its acks."""

    name: str
    replication: int
    acks: str


ONE = Way(name="1 replica, acks=1", replication=1, acks="leader")
THREE = Way(name="3 replicas, acks=all", replication=3, acks="all")
WAYS = (ONE, THREE)


@dataclass(slots=True)
class Taken:
    """The measurements of one way, one value for each round."""

    records_per_s: list[float] = field(default_factory=list)
    server_cpu_us: list[float] = field(default_factory=list)  # of all nodes, per record
    client_cpu_us: list[float] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)  # of each record of all rounds


def slice_of(size: int) -> pa.RecordBatch:
    """Return rows of random values with SLICE_BYTES in total."""
    values = [os.urandom(size) for _ in range(1_000)]
    rows = SLICE_BYTES // size
    return pa.record_batch({"value": pa.array([values[n % 1_000] for n in range(rows)])})


async def throughput(
    nodes: Nodes, log: AsyncLog, topic: str, way: Way, *, size: int, seconds: float, taken: Taken
) -> None:
    """Send slices for so long, and wait until all are acknowledged."""
    rows = slice_of(size)
    async with log.producer(acks=way.acks, partitioner="round_robin") as producer:
        await send_for(producer, topic, rows, seconds * WARM_SHARE)
        began_s, began_cpu_s = time.perf_counter(), server_cpu_s(nodes)
        client_cpu_s = time.process_time()
        records = await send_for(producer, topic, rows, seconds)
        spent_s = time.perf_counter() - began_s
    taken.records_per_s.append(records / spent_s)
    taken.server_cpu_us.append((server_cpu_s(nodes) - began_cpu_s) / records * 1e6)
    taken.client_cpu_us.append((time.process_time() - client_cpu_s) / records * 1e6)


async def send_for(producer: Any, topic: str, rows: pa.RecordBatch, seconds: float) -> int:
    """Send the rows repeatedly, then flush; return the number of records."""
    sent, end_s = 0, time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        await producer.send_arrow(topic, rows)
        sent += rows.num_rows
    await producer.flush()
    return sent


async def latency(log: AsyncLog, topic: str, way: Way, *, seconds: float, taken: Taken) -> None:
    """Send one record at a time to one partition; return the latencies."""
    value = os.urandom(SIZES[0])
    async with log.producer(acks=way.acks, linger_ms=0) as producer:
        await producer.send_and_wait(topic, value, partition=0)
        end_s = time.perf_counter() + seconds
        while (began_s := time.perf_counter()) < end_s:
            await producer.send_and_wait(topic, value, partition=0)
            taken.latency_ms.append((time.perf_counter() - began_s) * 1e3)


def server_cpu_s(nodes: Nodes) -> float:
    """Return the CPU seconds of all nodes."""
    return sum(nodes.cpu_s(number) for number in nodes.places)


async def measure(folder: Path, *, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure the rounds, both ways in turn within each."""
    taken = {(way, size): Taken() for way in WAYS for size in SIZES}
    async with (
        Nodes(folder) as nodes,
        quorumlog.aio.connect(nodes.bootstrap) as log,
    ):
        for way in WAYS:
            await log.admin.create_topic(
                topic_of(way), partitions=PARTITIONS, replication=way.replication, configs=CONFIGS
            )
        for number in range(rounds):
            for size in SIZES:
                for way in WAYS if number % 2 else reversed(WAYS):
                    found = taken[way, size]
                    await throughput(
                        nodes, log, topic_of(way), way, size=size, seconds=seconds, taken=found
                    )
                    show(way, size, found)
            for way in WAYS:
                found = taken[way, SIZES[0]]
                await latency(log, topic_of(way), way, seconds=seconds, taken=found)
            await asyncio.sleep(0)
    return summary(taken, rounds=rounds, seconds=seconds)


def topic_of(way: Way) -> str:
    """Return the topic of a way."""
    return f"replicas-{way.replication}"


def show(way: Way, size: int, taken: Taken) -> None:
    """Print one result."""
    print(
        f"{way.name:<24} {size:>5} B  {taken.records_per_s[-1]:>12,.0f} records/s"
        f"  servers {taken.server_cpu_us[-1]:.2f} us each",
        flush=True,
    )


def summary(taken: dict[tuple[Way, int], Taken], *, rounds: int, seconds: float) -> dict[str, Any]:
    """Return rows of medians and the ratios of the two ways."""
    rows = [row(way, size, found) for (way, size), found in taken.items()]
    ratios = []
    for size in SIZES:
        one, three = taken[ONE, size], taken[THREE, size]
        for what, of in (("rate", "records_per_s"), ("servers' CPU a record", "server_cpu_us")):
            ratios.append(
                {
                    "what": f"{what}, {size} bytes",
                    "ratio": round(middle(getattr(three, of)) / middle(getattr(one, of)), 3),
                }
            )
    one, three = taken[ONE, SIZES[0]], taken[THREE, SIZES[0]]
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        beside = percentile(sorted(three.latency_ms), share)
        ratios.append(
            {
                "what": f"{name} of one at a time",
                "ratio": round(beside / percentile(sorted(one.latency_ms), share), 3),
            }
        )
    return {"rounds": rounds, "seconds": seconds, "rows": rows, "ratios": ratios}


def row(way: Way, size: int, taken: Taken) -> dict[str, Any]:
    """Return the medians of one way and size; with latency if it was measured."""
    ascending = sorted(taken.latency_ms)
    rate = middle(taken.records_per_s)
    return {
        "way": way.name,
        "value_bytes": size,
        "records_per_s": round(rate),
        "mb_per_s": round(rate * size / 1e6, 1),
        "server_cpu_us": round(middle(taken.server_cpu_us), 3),
        "client_cpu_us": round(middle(taken.client_cpu_us), 3),
        "p50_ms": round(percentile(ascending, 0.5), 3) if ascending else None,
        "p99_ms": round(percentile(ascending, 0.99), 3) if ascending else None,
        "rounds_records_per_s": [round(each) for each in taken.records_per_s],
    }


def middle(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
