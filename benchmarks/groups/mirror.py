"""The rate of a mirror, compared with loops that consume and produce.

Two clusters of one node each on this machine. A topic of six partitions is written once; each way
then copies it into the other cluster, where the copy is deleted: the mirror, which copies batches
unchanged, a loop with the Python client record by record, and the same loop on librdkafka. Copies
have one replica, and are acknowledged after the sync to disk: the default there.

Run: python -m benchmarks.groups --only mirror
Goal: the mirror is at least twice as fast as the fastest loop.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.cluster.nodes import BOTH, Nodes
from benchmarks.groups.copying import WAYS
from benchmarks.kafka_wire.throughput import middle
from benchmarks.raft.processes import Refused, cpu_s
from benchmarks.raft.result import comparison

import quorumlog.aio

PARTITIONS: Final = 6
SIZES: Final = (100, 1024)
VOLUME_BYTES: Final = 100_000_000  # of values of one size
TOGETHER: Final = 10_000
DISTINCT: Final = 1_000  # values
RUN_S: Final = 600.0
GOAL: Final = ">= 2.0"
CONFIGS: Final = {"flush.policy": "replicated"}
Key: TypeAlias = tuple[str, int]  # way, bytes of a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The cost of one copy."""

    records: int
    seconds: float
    cpu_s: float  # of the copying process
    nodes_cpu_s: float  # of both nodes


@dataclass(slots=True)
class Measured:
    """Copies by row."""

    copies: dict[Key, list[Copy]] = field(default_factory=dict)


async def measure(folder: Path, *, volume_bytes: int, rounds: int) -> Measured:
    """Write each size once, and copy it in every way in every round."""
    measured = Measured()
    async with AsyncExitStack() as stack:
        source, target = [
            await stack.enter_async_context(Nodes(folder / name, (BOTH,)))
            for name in ("source", "target")
        ]
        for size in SIZES:
            topic, count = f"copied-{size}", max(PARTITIONS, volume_bytes // size)
            await written(source, topic, size=size, count=count)
            for _ in range(rounds):
                for way in WAYS:
                    copy = await copied(source, target, way, topic, count)
                    measured.copies.setdefault((way, size), []).append(copy)
                    show(way, size, copy)
    return measured


async def written(nodes: Nodes, topic: str, *, size: int, count: int) -> None:
    """Fill a topic evenly."""
    values = [os.urandom(size) for _ in range(DISTINCT)]
    async with quorumlog.aio.connect(nodes.bootstrap) as log, log.producer() as producer:
        await log.admin.create_topic(topic, partitions=PARTITIONS, replication=1, configs=CONFIGS)
        left, partition = count, 0
        while left:
            some = [values[number % DISTINCT] for number in range(min(left, TOGETHER))]
            await producer.send_many(topic, some, partition=partition)
            left, partition = left - len(some), (partition + 1) % PARTITIONS
        await producer.flush()


async def copied(source: Nodes, target: Nodes, way: str, topic: str, count: int) -> Copy:
    """Make one copy in a separate process, check it and delete it."""
    addresses = [
        place.kafka if way == "librdkafka" else place.grpc
        for place in (source.places[1], target.places[1])
    ]
    command = [
        sys.executable,
        "-m",
        "benchmarks.groups.copying",
        way,
        *addresses,
        topic,
        str(count),
    ]
    pids = [*source.pids, *target.pids]
    before_s = cpu_s(pids)
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    if done.returncode:
        raise Refused(f"{way} does not copy: {done.stdout[-500:]}{done.stderr[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    nodes_cpu_s = cpu_s(pids) - before_s
    async with quorumlog.aio.connect(target.bootstrap) as log:
        found = sum((await log.list_offsets(topic)).values())
        await log.admin.delete_topic(topic)
    if found != count:
        raise Refused(f"{way} copied {found} of {count} records")
    return Copy(
        records=count, seconds=result["seconds"], cpu_s=result["cpu_s"], nodes_cpu_s=nodes_cpu_s
    )


def show(way: str, size: int, copy: Copy) -> None:
    """Print one result."""
    rate = copy.records / copy.seconds
    print(
        f"{way:<12} {size:>6,} B  {rate:,.0f} records/s, {rate * size / 1e6:,.1f} MB/s;"
        f" {copy.cpu_s:.1f} s of its processor, {copy.nodes_cpu_s:.1f} s of the nodes'",
        flush=True,
    )


def summary(measured: Measured) -> dict[str, Any]:
    """Return rows, and the mirror compared with each loop."""
    rows = {key: row(*key, copies) for key, copies in measured.copies.items()}
    compared = [
        comparison(
            f"mirror, records of {size:,} B, of the loop with {way}",
            rows.get(("mirror", size)),
            rows.get((way, size)),
            of="records_per_s",
            goal=GOAL,
        )
        for size in SIZES
        for way in WAYS
        if way != "mirror"
    ]
    return {
        "partitions": PARTITIONS,
        "rows": list(rows.values()),
        "compared": [each for each in compared if each is not None],
    }


def row(way: str, size: int, copies: Sequence[Copy]) -> dict[str, Any]:
    """Return the medians."""
    rate = middle([each.records / each.seconds for each in copies])
    gigabytes = copies[0].records * size / 1e9
    return {
        "way": way,
        "value_bytes": size,
        "records": copies[0].records,
        "records_per_s": round(rate, 1),
        "mb_per_s": round(rate * size / 1e6, 2),
        "cpu_s_per_gb": round(middle([each.cpu_s for each in copies]) / gigabytes, 2),
        "nodes_cpu_s_per_gb": round(middle([each.nodes_cpu_s for each in copies]) / gigabytes, 2),
    }
