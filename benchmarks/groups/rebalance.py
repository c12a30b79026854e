"""The time until a group of many members has shared its partitions, in both protocols.

100 members on a topic of 1,000 partitions, one connection each: all of them join a new group
concurrently, then one more joins, then it leaves. The time is measured from the first request until
every member has its share, each partition has one owner, and all members have the current
generation. Members have the defaults of clients: those of the classic protocol send heartbeats
every three seconds, those of KIP-848 at the interval that the broker sets (five seconds), and
immediately to confirm an assignment. The first of these pauses is random for each member, since
members are not synchronous.

Run: python -m benchmarks.groups --only rebalance
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.groups.members import PROTOCOLS, Crowd, Group
from benchmarks.groups.systems import KAFKA, OURS, coordinator
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, running
from benchmarks.kafka_wire.throughput import middle
from benchmarks.raft.processes import cpu_s
from benchmarks.raft.result import comparison

TOPIC: Final = "shared"
EVENTS: Final = ("all join a new group", "one more joins", "it leaves")
GOAL: Final = "<= 1.2"
"""Most of the time passes until heartbeats are sent, at random times for both."""
Key: TypeAlias = tuple[str, str, str]  # system, protocol, event


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of the group and its topic."""

    members: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """The duration and cost of one event."""

    seconds: float
    cpu_s: float  # of the brokers


@dataclass(slots=True)
class Measured:
    """Events by row, in the order of the first round."""

    took: dict[Key, list[Took]] = field(default_factory=dict)


async def measure(kinds: Sequence[Kind], folder: Path, *, size: Size, rounds: int) -> Measured:
    """Measure every event in every round; systems that warm up have a first round that does not
    count."""
    measured = Measured()
    async with running(kinds, folder, brokers=1) as subjects:
        for subject in subjects:
            await asyncio.to_thread(
                make_topic, subject, TOPIC, partitions=size.partitions, replication=1
            )
        for number in range(rounds + 1):
            for subject in subjects:
                for protocol in PROTOCOLS:
                    found = await events(subject, protocol, size, f"{protocol}-{number}")
                    for event, took in zip(EVENTS, found, strict=True):
                        if number:
                            key = (subject.name, protocol, event)
                            measured.took.setdefault(key, []).append(took)
                            show(*key, took)
    return measured


async def events(subject: Subject, protocol: str, size: Size, name: str) -> list[Took]:
    """Measure a new group, a join, and a leave."""
    _, port = await asyncio.to_thread(coordinator, subject.system.port, name)
    group = Group(name=name, topic=TOPIC, partitions=size.partitions)
    async with Crowd(group, PROTOCOLS[protocol], port) as crowd:

        async def all_join() -> None:
            await crowd.come(size.members)
            await crowd.settled(size.members)

        async def one_joins() -> None:
            await crowd.come(1)
            await crowd.settled(size.members + 1)

        async def one_leaves() -> None:
            (*_, last) = group.members.values()
            await crowd.go(last)
            await crowd.settled(size.members)

        return [await timed(subject, each) for each in (all_join, one_joins, one_leaves)]


async def timed(subject: Subject, event: Callable[[], Awaitable[None]]) -> Took:
    """Measure an event."""
    spent_s, began_s = cpu_s(subject.system.pids), time.perf_counter()
    await event()
    seconds = time.perf_counter() - began_s
    return Took(seconds=seconds, cpu_s=cpu_s(subject.system.pids) - spent_s)


def show(system: str, protocol: str, event: str, took: Took) -> None:
    """Print one result."""
    print(
        f"{system:<28} {protocol:<8} {event:<22} {took.seconds:.2f} s,"
        f" {took.cpu_s:.2f} s of processor",
        flush=True,
    )


def summary(measured: Measured, *, size: Size) -> dict[str, Any]:
    """Return rows, and quorumlog compared with Kafka."""
    rows = {
        key: {
            "system": key[0],
            "protocol": key[1],
            "event": key[2],
            "seconds": round(middle([each.seconds for each in took]), 3),
            "cpu_s": round(middle([each.cpu_s for each in took]), 3),
            "rounds_s": [round(each.seconds, 3) for each in took],
        }
        for key, took in measured.took.items()
    }
    compared = [
        comparison(
            f"{protocol}: {event}, of Kafka's",
            rows.get((OURS.name, protocol, event)),
            rows.get((KAFKA.name, protocol, event)),
            of="seconds",
            goal=GOAL,
        )
        for protocol in PROTOCOLS
        for event in EVENTS
    ]
    return {
        "members": size.members,
        "partitions": size.partitions,
        "rows": list(rows.values()),
        "compared": [each for each in compared if each is not None],
    }
