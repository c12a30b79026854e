"""Producers with idle open transactions: 1,000 of them, compared with the same broker without them.

One broker. Each producer adds one partition and writes one batch; then nothing is sent.

Run: python -m benchmarks.transactions --only idle
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.groups.idle import share_of
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, resident_mb, running
from benchmarks.kafka_wire.throughput import middle
from benchmarks.raft.processes import Refused
from benchmarks.transactions.wire import (
    add_partitions,
    calling,
    coordinator_of,
    init_producer,
    produce,
)

TOPIC: Final = "open"
PARTITIONS: Final = 10
CONNECTIONS: Final = 16
VALUE: Final = bytes(100)
SETTLE_S: Final = 5.0  # for the checkpoints and flushes of the writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A broker with idle open transactions."""

    alone_share: float  # of a core, before they were opened
    share: float  # with them
    memory_mb: float  # added by them


@dataclass(slots=True)
class Measured:
    """Rests by system, and the reasons of missing ones."""

    rests: dict[str, list[Rest]] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)


async def measure(
    kinds: Sequence[Kind], folder: Path, *, producers: int, seconds: float, rounds: int
) -> Measured:
    """Measure each system with a new broker in every round."""
    measured = Measured()
    for number in range(rounds):
        for place, kind in enumerate(kinds):
            async with running([kind], folder / f"{number}-{place}", brokers=1) as [subject]:
                try:
                    rest = await taken(subject, producers=producers, seconds=seconds)
                except (Refused, OSError) as refused:
                    measured.refusals[kind.name] = str(refused)
                    print(f"{kind.name}: {refused}", file=sys.stderr)
                    continue
            measured.rests.setdefault(kind.name, []).append(rest)
            show(kind.name, rest)
    return measured


async def taken(subject: Subject, *, producers: int, seconds: float) -> Rest:
    """Measure a broker before and with open transactions."""
    await asyncio.to_thread(make_topic, subject, TOPIC, partitions=PARTITIONS, replication=1)
    await coordinator_of(subject, TOPIC)
    settle_s = min(SETTLE_S, seconds)
    await asyncio.sleep(settle_s)
    alone_share, memory_mb = await share_of(subject.system, seconds), resident_mb(subject.system)
    count = min(CONNECTIONS, producers)
    await asyncio.gather(
        *(open_transactions(subject, range(first, producers, count)) for first in range(count))
    )
    await asyncio.sleep(settle_s)
    return Rest(
        alone_share=alone_share,
        share=await share_of(subject.system, seconds),
        memory_mb=resident_mb(subject.system) - memory_mb,
    )


async def open_transactions(subject: Subject, numbers: Sequence[int]) -> None:
    """Open one transaction for each number, over one connection."""
    async with calling(subject.system.port) as caller:
        for number in numbers:
            identity = await init_producer(caller, f"open-{number}")
            partition = number % PARTITIONS
            await add_partitions(caller, identity, TOPIC, [partition])
            await produce(caller, identity, TOPIC, partition, [VALUE])


def show(system: str, rest: Rest) -> None:
    """Print one measurement."""
    print(
        f"{system:<20} {rest.share:.1%} of a core, {rest.alone_share:.1%} before;"
        f" {rest.memory_mb:.1f} MB",
        flush=True,
    )


def summary(measured: Measured, *, producers: int, seconds: float) -> dict[str, Any]:
    """Return a row for each system."""
    return {
        "producers": producers,
        "seconds": seconds,
        "rows": [
            {
                "system": system,
                "alone_share": round(middle([each.alone_share for each in rests]), 4),
                "share": round(middle([each.share for each in rests]), 4),
                "memory_mb": round(middle([each.memory_mb for each in rests]), 1),
            }
            for system, rests in measured.rests.items()
        ],
        "refusals": [{"system": system, "why": why} for system, why in measured.refusals.items()],
    }
