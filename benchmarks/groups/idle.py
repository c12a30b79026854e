"""The cost of idle members: 1,000 of one group, compared with the same broker without them.

One broker, a topic of 1,000 partitions, one connection per member. Members send heartbeats at the
default intervals: every three seconds in the classic protocol, every five in KIP-848.

Run: python -m benchmarks.groups --only idle
Goal: 1,000 members use under 10 % of a core more than none.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.groups.members import PROTOCOLS, Crowd, Group
from benchmarks.groups.rebalance import Size
from benchmarks.groups.systems import OURS, coordinator
from benchmarks.kafka_wire.systems import Kind, System, make_topic, resident_mb, running
from benchmarks.kafka_wire.throughput import middle
from benchmarks.raft.processes import cpu_s

TOPIC: Final = "idle"
GOAL_SHARE: Final = 0.10  # of a core, for the members
Key: TypeAlias = tuple[str, str]  # system, protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A broker with idle members."""

    alone_share: float  # of a core, before they joined
    share: float  # with them
    memory_mb: float  # added by them
    settled_s: float  # from the first request until all had their assignments


@dataclass(slots=True)
class Measured:
    """Measurements by row."""

    rests: dict[Key, list[Rest]] = field(default_factory=dict)


async def measure(
    kinds: Sequence[Kind], folder: Path, *, size: Size, seconds: float, rounds: int
) -> Measured:
    """Measure each system with a new broker in every round, so that its memory grows only by the
    members."""
    measured = Measured()
    for number in range(rounds):
        for place, kind in enumerate(kinds):
            for protocol in PROTOCOLS:
                here = folder / f"{number}-{place}-{protocol}"
                async with running([kind], here, brokers=1) as [subject]:
                    await asyncio.to_thread(
                        make_topic, subject, TOPIC, partitions=size.partitions, replication=1
                    )
                    rest = await taken(subject.system, protocol, size, seconds)
                measured.rests.setdefault((kind.name, protocol), []).append(rest)
                show(kind.name, protocol, rest)
    return measured


async def taken(system: System, protocol: str, size: Size, seconds: float) -> Rest:
    """Measure the broker before and with its members."""
    _, port = await asyncio.to_thread(coordinator, system.port, TOPIC)
    alone_share, memory_mb = await share_of(system, seconds), resident_mb(system)
    group = Group(name=TOPIC, topic=TOPIC, partitions=size.partitions)
    async with Crowd(group, PROTOCOLS[protocol], port) as crowd:
        began_s = time.perf_counter()
        await crowd.come(size.members)
        await crowd.settled(size.members)
        settled_s = time.perf_counter() - began_s
        await crowd.settled(size.members, is_even=True)
        share = await share_of(system, seconds)
        await crowd.settled(size.members)  # no member has left
        return Rest(
            alone_share=alone_share,
            share=share,
            memory_mb=resident_mb(system) - memory_mb,
            settled_s=settled_s,
        )


async def share_of(system: System, seconds: float) -> float:
    """Return the share of a core over so many seconds."""
    spent_s, began_s = cpu_s(system.pids), time.perf_counter()
    await asyncio.sleep(seconds)
    return (cpu_s(system.pids) - spent_s) / (time.perf_counter() - began_s)


def show(system: str, protocol: str, rest: Rest) -> None:
    """Print one result."""
    print(
        f"{system:<28} {protocol:<8} {rest.share:.1%} of a core, {rest.alone_share:.1%} before;"
        f" {rest.memory_mb:.1f} MB; settled in {rest.settled_s:.1f} s",
        flush=True,
    )


def summary(measured: Measured, *, size: Size, seconds: float) -> dict[str, Any]:
    """Return a row for each system and protocol; the goal applies to quorumlog."""
    rows = []
    for (system, protocol), rests in measured.rests.items():
        more = middle([each.share - each.alone_share for each in rests])
        rows.append(
            {
                "system": system,
                "protocol": protocol,
                "share": round(middle([each.share for each in rests]), 4),
                "more": round(more, 4),
                "memory_mb": round(middle([each.memory_mb for each in rests]), 1),
                "settled_s": round(middle([each.settled_s for each in rests]), 2),
                "goal": GOAL_SHARE if system == OURS.name else None,
                "met": system != OURS.name or more < GOAL_SHARE,
            }
        )
    return {
        "members": size.members,
        "partitions": size.partitions,
        "seconds": seconds,
        "rows": rows,
    }
