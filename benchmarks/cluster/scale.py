"""The cost of partitions: creation of many topics, an idle cluster, and memory.

Topics of ten partitions with three replicas each are created on three nodes, several concurrently.
Then there are no requests for some time, and the CPU time of each node is read. Memory is the
nodes' resident set before and after, per replica: of an unused partition, and of one with a record.

Run: python -m benchmarks.cluster --only scale
Goals: 1,000 topics in under 20 s; under 5 % of a core per idle node with 1,000 partitions.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cluster.nodes import Nodes

import quorumlog.aio
from quorumlog.clients.log import AsyncLog

PARTITIONS = 10  # of a topic
AT_ONCE = 16  # concurrent creations
IDLE_TOPICS = 100  # with 1,000 partitions in total
GOAL_CREATE_S = 20.0
GOAL_IDLE = 0.05  # of a core, per node
SETTLE_S = 5.0  # before the measurement of idle nodes


async def create(log: AsyncLog, names: Sequence[str]) -> float:
    """Create topics, AT_ONCE concurrently; return the total seconds."""
    left = iter(names)

    async def make() -> None:
        for name in left:
            await log.admin.create_topic(name, partitions=PARTITIONS, replication=3)

    began_s = time.perf_counter()
    await asyncio.gather(*(make() for _ in range(AT_ONCE)))
    return time.perf_counter() - began_s


async def idle(nodes: Nodes, seconds: float) -> list[float]:
    """Return the share of a core that each node uses without requests."""
    await asyncio.sleep(min(SETTLE_S, seconds))
    before = [nodes.cpu_s(number) for number in nodes.places]
    began_s = time.perf_counter()
    await asyncio.sleep(seconds)
    spent_s = time.perf_counter() - began_s
    after = [nodes.cpu_s(number) for number in nodes.places]
    return [(now - then) / spent_s for then, now in zip(before, after, strict=True)]


def memory(nodes: Nodes) -> int:
    """Return the resident bytes of all nodes."""
    return sum(nodes.memory_bytes(number) for number in nodes.places)


async def stall_s(nodes: Nodes) -> float:
    """Return the longest stall of any node's loop within the last minute."""
    looks = [await nodes.metrics(number) for number in nodes.places]
    return max(look["quorumlog_loop_stall_seconds"] for look in looks)


async def descriptors(nodes: Nodes) -> int:
    """Return the highest number of open descriptors of a node."""
    looks = [await nodes.metrics(number) for number in nodes.places]
    return int(max(look["process_open_fds"] for look in looks))


async def write_each(log: AsyncLog, names: Sequence[str]) -> None:
    """Write a record to every partition, so that every log is open."""
    async with log.producer() as producer:
        for name in names:
            for partition in range(PARTITIONS):
                await producer.send(name, b"x" * 100, partition=partition)
        await producer.flush()


async def measure(folder: Path, *, topics: int, idle_s: float) -> dict[str, Any]:
    """Create the topics in two steps: those of the idle goal, then the rest."""
    first = [f"idle-{number}" for number in range(min(IDLE_TOPICS, topics))]
    rest = [f"many-{number}" for number in range(topics)]
    async with (
        Nodes(folder) as nodes,
        quorumlog.aio.connect(nodes.bootstrap) as log,
    ):
        empty_bytes = memory(nodes)
        empty_descriptors = await descriptors(nodes)
        empty_share = await idle(nodes, idle_s)
        await create(log, first)
        shares = await idle(nodes, idle_s)
        before_bytes = memory(nodes)
        create_s = await create(log, rest)
        create_stall_s = await stall_s(nodes)
        many_shares = await idle(nodes, idle_s)
        unused_bytes = memory(nodes)
        await write_each(log, rest)
        await asyncio.sleep(min(SETTLE_S, idle_s))
        used_bytes = memory(nodes)
        used_descriptors = await descriptors(nodes)
    replicas = 3 * PARTITIONS * topics
    row = {
        "topics": topics,
        "partitions": topics * PARTITIONS,
        "create_s": round(create_s, 2),
        "create_stall_s": round(create_stall_s, 3),
        "goal_create_s": GOAL_CREATE_S,
        "met_create": create_s < GOAL_CREATE_S,
        "idle_partitions": len(first) * PARTITIONS,
        "idle_shares_empty": [round(each, 4) for each in empty_share],
        "idle_shares": [round(each, 4) for each in shares],
        "idle_shares_many": [round(each, 4) for each in many_shares],
        "goal_idle": GOAL_IDLE,
        "met_idle": max(shares) < GOAL_IDLE,
        "node_mb_empty": round(empty_bytes / len(nodes.places) / 1e6, 1),
        "descriptors_empty": empty_descriptors,
        "descriptors_used": used_descriptors,
        "bytes_unused_replica": round((unused_bytes - before_bytes) / replicas),
        "bytes_used_replica": round((used_bytes - before_bytes) / replicas),
    }
    show(row)
    return row


def show(row: dict[str, Any]) -> None:
    """Print the result."""
    shares = ", ".join(f"{each:.1%}" for each in row["idle_shares"])
    print(
        f"{row['topics']:,} topics of {PARTITIONS} partitions in {row['create_s']:.1f} s"
        f" (longest stall {row['create_stall_s']:.3f} s); at rest with"
        f" {row['idle_partitions']:,} partitions {shares} of a core; a replica takes"
        f" {row['bytes_unused_replica']:,} bytes unused, {row['bytes_used_replica']:,} used; a node"
        f" has {row['descriptors_empty']:,} open descriptors without partitions, and"
        f" {row['descriptors_used']:,} with them",
        flush=True,
    )
