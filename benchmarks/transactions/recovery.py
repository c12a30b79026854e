"""Failover of a coordinator with 100,000 transactional ids.

Three brokers that are also controllers, one partition of __transaction_state. After kill -9 of the
coordinator, one of the ids requests its producer id from each remaining broker every 10 ms, until
one responds. That coordinator has then loaded the whole partition.

Run: python -m benchmarks.transactions --only recovery [--ids 100000] [--kills 3]
Goal: under 5 s.
"""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from benchmarks.cluster.failover import until_served
from benchmarks.groups.failover import brokers
from benchmarks.groups.systems import Restartable
from benchmarks.kafka_wire.systems import Kind, Subject, running
from benchmarks.kafka_wire.throughput import middle
from benchmarks.kafka_wire.wire import Asker, answers
from benchmarks.raft.processes import Refused
from benchmarks.transactions.systems import OURS, STATE_TOPIC, TIMEOUT_MS
from benchmarks.transactions.wire import INIT_PRODUCER_ID, calling, coordinator_of, init_producer

BROKERS: Final = 3
CONNECTIONS: Final = 64
ANSWER_S: Final = 1.0  # a later response is ignored
START_S: Final = 300.0
PAUSE_S: Final = 0.2
GOAL_S: Final = 5.0


@dataclass(slots=True)
class Measured:
    """Seconds of all kills by system, the time to create the ids, reasons of missing systems."""

    spent_s: dict[str, list[float]] = field(default_factory=dict)
    created_s: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)


async def measure(kinds: Sequence[Kind], folder: Path, *, ids: int, kills: int) -> Measured:
    """Create the ids in each system, and kill its coordinator repeatedly."""
    measured = Measured()
    for place, kind in enumerate(kinds):
        async with running([kind], folder / str(place), brokers=BROKERS) as [subject]:
            try:
                began_s = time.perf_counter()
                await create(subject, ids)
                measured.created_s[kind.name] = time.perf_counter() - began_s
                measured.spent_s[kind.name] = await killed(subject, ids=ids, kills=kills)
            except (Refused, OSError) as refused:
                measured.refusals[kind.name] = str(refused)
                print(f"{kind.name}: {refused}", file=sys.stderr)
    return measured


async def create(subject: Subject, ids: int) -> None:
    """Give a producer id to each of so many transactional ids."""
    _, port = await coordinator_of(subject, name_of(0))
    numbers = iter(range(ids))
    await asyncio.gather(*(_create(port, numbers) for _ in range(min(CONNECTIONS, ids))))


async def _create(port: int, numbers: Iterator[int]) -> None:
    async with calling(port) as caller:
        for number in numbers:
            await init_producer(caller, name_of(number))


def name_of(number: int) -> str:
    """Return the transactional id of a number."""
    return f"application-{number}"


async def killed(subject: Subject, *, ids: int, kills: int) -> list[float]:
    """Kill the coordinator, measure, and start the broker again."""
    system = cast(Restartable, subject.system)
    ports = await asyncio.to_thread(brokers, system.port)
    spent_s = []
    for kill in range(kills):
        await asyncio.to_thread(wait_in_sync, list(ports.values()))
        number, _ = await coordinator_of(subject, name_of(0))
        left = [f"127.0.0.1:{ports[each]}" for each in ports if each != number]
        name = name_of((kill + 1) * ids // (kills + 1))
        began_s = time.perf_counter()
        system.kill(number)
        served_s = await until_served(left, partial(is_served, name=name))
        spent_s.append(served_s - began_s)
        print(f"{subject.name:<20} kill of broker {number}: {spent_s[-1]:.2f} s", flush=True)
        await asyncio.to_thread(system.start, number)
        await asyncio.to_thread(answers, ports[number], within_s=START_S)
    return spent_s


async def is_served(address: str, name: str) -> bool:
    """Return True if a broker returns the producer id of a transactional id."""
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            calling(int(address.rpartition(":")[2])) as caller,
        ):
            answer = await caller.ask(
                INIT_PRODUCER_ID,
                transactional_id=name,
                transaction_timeout=TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
            return not int(answer.error_code)
    except (OSError, TimeoutError):
        return False


def wait_in_sync(ports: Sequence[int]) -> None:
    """Wait until all replicas of the state topic are in sync. Raise Refused, OSError."""
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            with Asker(ports[0]) as asker:
                asker.leaders(STATE_TOPIC, partitions=1, replication=BROKERS)
                return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(PAUSE_S)


def summary(measured: Measured, *, ids: int) -> dict[str, Any]:
    """Return a row for each system; the goal applies to quorumlog."""
    rows = []
    for system, spent_s in measured.spent_s.items():
        median_s = middle(spent_s)
        rows.append(
            {
                "system": system,
                "kills": len(spent_s),
                "created_s": round(measured.created_s[system], 1),
                "min_s": round(min(spent_s), 3),
                "median_s": round(median_s, 3),
                "max_s": round(max(spent_s), 3),
                "goal_median_s": GOAL_S if system == OURS.name else None,
                "met": system != OURS.name or median_s < GOAL_S,
            }
        )
    return {
        "ids": ids,
        "rows": rows,
        "refusals": [{"system": system, "why": why} for system, why in measured.refusals.items()],
    }
