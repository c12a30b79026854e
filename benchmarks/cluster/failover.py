"""The unavailability of a cluster of three after 30 kills of each of three kinds.

A *leader* is a broker that leads a partition, without a controller: the time is measured until a
record for that partition is acknowledged by all in-sync replicas. A *controller* is the active one,
without a broker: until a change of the metadata is committed. *Both* in one node: until a record is
acknowledged. Two clocks run concurrently: *served* tries the remaining nodes every 10 ms on new
connections, which measures the cluster; *client* is one call of quorumlog's client with its
defaults, begun at the kill. The killed node is started again and in sync before the next kill.

Run: python -m benchmarks.cluster --only failover [--kills 30]
Goals for the medians: 1 s for a leader, 2 s for a controller, 3 s for both in one node.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.cluster.nodes import BOTH, BROKER, CONTROLLER, Nodes
from benchmarks.raft.load import percentile
from benchmarks.raft.processes import Refused
from benchmarks.raft.wire import ask

import quorumlog.aio
from quorumlog.clients.log import AsyncLog
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.services import ADMIN_ALTER_CONFIGS, LOG_PUBLISH

TOPIC = "failover"
CLOCKS = ("served", "client")
ASK_S = 0.01
ANSWER_S = 0.5  # a later response is ignored
FAILOVER_S = 60.0
SETTLE_S = (0.3, 0.6)  # between two kills, random: independent of heartbeats

Probe: TypeAlias = Callable[[str], Awaitable[bool]]  # takes an address; returns True if it serves


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The node that is killed, and the partition that is written."""

    node: int
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The killed node, and the awaited event."""

    name: str
    roles: tuple[tuple[str, ...], ...]
    target: Callable[[Nodes, AsyncLog], Awaitable[Target]]
    waits_for_record: bool  # otherwise for a change of the metadata
    goal_s: float  # for the median


async def leader(nodes: Nodes, log: AsyncLog) -> Target:
    """Return a broker that leads a partition."""
    partition = random.choice((await log.admin.describe_topic(TOPIC)).partitions)
    if partition.leader is None:
        raise Refused("no broker leads the partition before the kill")
    return Target(node=partition.leader, partition=partition.partition)


async def controller(nodes: Nodes, log: AsyncLog) -> Target:
    """Return the active controller."""
    return Target(node=await nodes.active_controller(), partition=0)


async def both(nodes: Nodes, log: AsyncLog) -> Target:
    """Return the node of the active controller, and a partition that it leads as preferred
    leader."""
    active = await nodes.active_controller()
    await log.admin.elect_leaders()
    for partition in (await log.admin.describe_topic(TOPIC)).partitions:
        if partition.leader == active:
            return Target(node=active, partition=partition.partition)
    raise Refused(f"node {active} leads no partition")


CASES = (
    Case(
        name="leader",
        roles=(CONTROLLER,) * 3 + (BROKER,) * 3,
        target=leader,
        waits_for_record=True,
        goal_s=1.0,
    ),
    Case(
        name="controller",
        roles=(CONTROLLER,) * 3 + (BROKER,) * 3,
        target=controller,
        waits_for_record=False,
        goal_s=2.0,
    ),
    Case(
        name="both in one node", roles=(BOTH,) * 3, target=both, waits_for_record=True, goal_s=3.0
    ),
)


async def in_sync(log: AsyncLog) -> None:
    """Wait until every replica is in sync."""
    deadline_s = time.monotonic() + FAILOVER_S
    while time.monotonic() < deadline_s:
        partitions = (await log.admin.describe_topic(TOPIC)).partitions
        if all(set(each.isr) == set(each.replicas) and each.leader for each in partitions):
            return
        await asyncio.sleep(0.05)
    raise Refused(f"not all replicas are in sync after {FAILOVER_S:.0f} s: {partitions}")


# --- the two clocks ------------------------------------------------------------------------------


async def takes_record(address: str, partition: int) -> bool:
    """Return True if a broker acknowledges a record."""
    request = log_pb2.PublishRequest(topic=TOPIC, acks=log_pb2.ACKS_ALL, timeout_ms=30_000)
    request.records.add(value=b"failover")
    request.partition = partition
    return await is_answered(address, LOG_PUBLISH.path, request.SerializeToString())


async def takes_change(address: str, partition: int) -> bool:
    """Return True if a change of the metadata is committed through this broker."""
    request = admin_pb2.AlterConfigsRequest(topic=TOPIC)
    request.changes.add(name="retention.ms", value=str(random.randrange(10**8, 10**9)))
    return await is_answered(address, ADMIN_ALTER_CONFIGS.path, request.SerializeToString())


async def is_answered(address: str, method: str, payload: bytes) -> bool:
    """Return True if a call succeeds in time."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await ask(address, method, payload)
    except (OSError, TimeoutError):
        return False
    return True


async def until_served(addresses: Sequence[str], probe: Probe) -> float:
    """Try all addresses, again every ASK_S, until one succeeds; return the time."""
    asked: set[asyncio.Task[bool]] = set()
    deadline_s = time.perf_counter() + FAILOVER_S
    try:
        while time.perf_counter() < deadline_s:
            asked |= {asyncio.ensure_future(probe(each)) for each in addresses}
            due_s = time.perf_counter() + ASK_S
            while asked and (left_s := due_s - time.perf_counter()) > 0:
                done, asked = await asyncio.wait(
                    asked, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if any(task.result() for task in done):
                    return time.perf_counter()
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    raise Refused(f"nothing was served within {FAILOVER_S:.0f} s of the kill")


async def until_client(log: AsyncLog, producer: Any, case: Case, partition: int) -> float:
    """Make one call of the client, with its own retries; return the time of its success."""
    if case.waits_for_record:
        await producer.send_and_wait(TOPIC, b"failover", partition=partition)
    else:
        await log.admin.alter_configs(TOPIC, {"retention.ms": random.randrange(10**8, 10**9)})
    return time.perf_counter()


# --- kills ---------------------------------------------------------------------------------------


async def measure(case: Case, folder: Path, *, kills: int) -> list[dict[str, Any]]:
    """Return one row for each clock."""
    spent: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    async with (
        Nodes(folder, case.roles) as nodes,
        quorumlog.aio.connect(nodes.bootstrap) as log,
        log.producer() as producer,
    ):
        ids = [place.id for place in nodes.places.values() if place.is_broker]
        turns = [ids[first:] + ids[:first] for first in range(3)]
        await log.admin.create_topic(TOPIC, assignments=turns)
        for _ in range(kills):
            await in_sync(log)
            target = await case.target(nodes, log)
            await until_client(log, producer, case, target.partition)
            await asyncio.sleep(random.uniform(*SETTLE_S))
            both_s = await kill(nodes, log, producer, case, target)
            for clock, seconds in zip(CLOCKS, both_s, strict=True):
                spent[clock].append(seconds)
            nodes.kill(target.node)  # the process has ended; this waits for it
            nodes.start(target.node)
            await nodes.wait_ready(target.node)
    return [distribution(case, clock, seconds) for clock, seconds in spent.items()]


async def kill(
    nodes: Nodes, log: AsyncLog, producer: Any, case: Case, target: Target
) -> tuple[float, float]:
    """Kill the node; return the seconds of both clocks."""
    served = takes_record if case.waits_for_record else takes_change
    left = [
        place.grpc for place in nodes.places.values() if place.is_broker and place.id != target.node
    ]
    began_s = time.perf_counter()
    nodes.signal_kill(target.node)
    served_s, client_s = await asyncio.gather(
        until_served(left, lambda address: served(address, target.partition)),
        until_client(log, producer, case, target.partition),
    )
    return served_s - began_s, client_s - began_s


def distribution(case: Case, clock: str, spent_s: list[float]) -> dict[str, Any]:
    """Return the row of a distribution."""
    ascending = sorted(spent_s)
    median_s = statistics.median(ascending)
    return {
        "case": f"{case.name}, {clock}",
        "count": len(ascending),
        "min_s": round(ascending[0], 3),
        "median_s": round(median_s, 3),
        "p90_s": round(percentile(ascending, 0.9), 3),
        "max_s": round(ascending[-1], 3),
        "goal_median_s": case.goal_s,
        "met": median_s < case.goal_s,
        "all_s": [round(each, 3) for each in spent_s],
    }


def show(row: dict[str, Any]) -> None:
    """Print one result."""
    print(
        f"{row['case']:<28} min {row['min_s']:.3f}  median {row['median_s']:.3f}"
        f"  p90 {row['p90_s']:.3f}  max {row['max_s']:.3f} s  (goal {row['goal_median_s']})",
        flush=True,
    )
