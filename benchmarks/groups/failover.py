"""The time without commits of a group after a kill (kill -9) of its coordinator, repeatedly.

Three brokers that are also controllers, and a group of one classic member. The group's coordinator
is killed; from then on the member's commit goes to each remaining broker every 10 ms, on new
connections, until one has stored it, with the same member and generation: the failure must be
detected, another broker must lead the group's partition and load the group. Then the killed broker
is started again, and is in sync before the next kill.

Run: python -m benchmarks.groups --only failover [--kills 20]
"""

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from benchmarks.cluster.failover import until_served
from benchmarks.groups.members import ClassicMember, Group
from benchmarks.groups.rates import commit_code
from benchmarks.groups.systems import (
    KAFKA,
    OFFSETS,
    OFFSETS_PARTITIONS,
    OURS,
    Restartable,
    coordinator,
)
from benchmarks.groups.wire import COMMIT, METADATA, Caller, commit_fields
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, running
from benchmarks.kafka_wire.wire import Asker, answers
from benchmarks.raft.load import percentile
from benchmarks.raft.processes import Refused
from benchmarks.raft.result import comparison

BROKERS: Final = 3
NAME, TOPIC = "failover", "commits"
ANSWER_S: Final = 0.5  # a later response is ignored
START_S: Final = 120.0
PAUSE_S: Final = 0.1
SETTLE_S: Final = (0.3, 1.3)  # between two kills, random: independent of heartbeats
GOAL_S: Final = 3.0  # for the median: the failover of a broker that is also a controller
GOAL: Final = "<= 1.0"


async def measure(kinds: Sequence[Kind], folder: Path, *, kills: int) -> dict[str, list[float]]:
    """Return the seconds of every kill, by system."""
    spent: dict[str, list[float]] = {}
    for place, kind in enumerate(kinds):
        async with running([kind], folder / str(place), brokers=BROKERS) as [subject]:
            spent[kind.name] = await killed(subject, kills=kills)
        show(row(kind.name, spent[kind.name]))
    return spent


async def killed(subject: Subject, *, kills: int) -> list[float]:
    """Kill the coordinator, measure, and start the broker again."""
    system = cast(Restartable, subject.system)
    await asyncio.to_thread(make_topic, subject, TOPIC, partitions=1, replication=BROKERS)
    ports = await asyncio.to_thread(brokers, system.port)
    _, port = await asyncio.to_thread(coordinator, system.port, NAME)
    caller = await Caller.open(port)
    member = ClassicMember(Group(name=NAME, topic=TOPIC, partitions=1), caller)
    await member.join()
    caller.close()
    spent = []
    for _ in range(kills):
        await asyncio.to_thread(in_sync, system.port)
        await asyncio.sleep(random.uniform(*SETTLE_S))
        number = await settled(system.port, member)
        left = [f"127.0.0.1:{ports[each]}" for each in ports if each != number]
        began_s = time.perf_counter()
        system.kill(number)
        served_s = await until_served(left, lambda address: commits(address, member))
        spent.append(served_s - began_s)
        print(f"{subject.name:<28} kill of broker {number}: {spent[-1]:.2f} s", flush=True)
        await asyncio.to_thread(system.start, number)
        await asyncio.to_thread(answers, ports[number], within_s=START_S)
    return spent


async def settled(port: int, member: ClassicMember) -> int:
    """Return the group's coordinator once it has stored a commit. Raise Refused."""
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        number, place = await asyncio.to_thread(coordinator, port, NAME)
        if await commits(f"127.0.0.1:{place}", member):
            return number
        await asyncio.sleep(PAUSE_S)
    raise Refused(f"no coordinator takes the group's commit within {START_S:.0f} s of its start")


async def commits(address: str, member: ClassicMember) -> bool:
    """Return True if a broker stores the member's commit."""
    fields = commit_fields(NAME, member.generation, member.member_id, TOPIC, [0])
    try:
        async with asyncio.timeout(ANSWER_S):
            caller = await Caller.open(int(address.rpartition(":")[2]))
            try:
                return commit_code(await caller.ask(COMMIT, **fields)) == 0
            finally:
                caller.close()
    except (OSError, TimeoutError):
        return False


def brokers(port: int) -> dict[int, int]:
    """Return the ports of all brokers, by id."""
    deadline_s = time.monotonic() + START_S
    found: dict[int, int] = {}
    while len(found) < BROKERS and time.monotonic() < deadline_s:
        with Asker(port) as asker:
            answer = asker.ask(METADATA, topics=(), allow_auto_topic_creation=False)
        found = {int(each.node_id): int(each.port) for each in answer.brokers}
    if len(found) < BROKERS:
        raise Refused(f"{len(found)} of {BROKERS} brokers are there after {START_S:.0f} s")
    return found


def in_sync(port: int) -> None:
    """Wait until all replicas of the groups' offsets are in sync, by a broker's metadata."""
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            with Asker(port) as asker:
                asker.leaders(OFFSETS, partitions=OFFSETS_PARTITIONS, replication=BROKERS)
                return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(PAUSE_S)


def row(system: str, spent_s: Sequence[float]) -> dict[str, Any]:
    """Return the distribution; the goal applies to quorumlog."""
    ascending = sorted(spent_s)
    median_s = statistics.median(ascending)
    return {
        "case": system,
        "count": len(ascending),
        "min_s": round(ascending[0], 3),
        "median_s": round(median_s, 3),
        "p90_s": round(percentile(ascending, 0.9), 3),
        "max_s": round(ascending[-1], 3),
        "goal_median_s": GOAL_S if system == OURS.name else None,
        "met": system != OURS.name or median_s < GOAL_S,
        "all_s": [round(each, 3) for each in spent_s],
    }


def show(one: dict[str, Any]) -> None:
    """Print one result."""
    print(
        f"{one['case']:<28} min {one['min_s']:.2f}  median {one['median_s']:.2f}"
        f"  p90 {one['p90_s']:.2f}  max {one['max_s']:.2f} s",
        flush=True,
    )


def summary(spent: dict[str, list[float]]) -> dict[str, Any]:
    """Return rows, and quorumlog compared with Kafka."""
    rows = {system: row(system, seconds) for system, seconds in spent.items()}
    compared = comparison(
        "coordinator's failover, median, of Kafka's",
        rows.get(OURS.name),
        rows.get(KAFKA.name),
        of="median_s",
        goal=GOAL,
    )
    return {"rows": list(rows.values()), "compared": [] if compared is None else [compared]}
