"""The time of a broker from its command to the first acknowledged record, and its idle memory.

Every round starts each system on a new directory that is formatted before, creates a topic of one
partition as soon as it responds, and produces a record. Resident memory and idle CPU are measured
some seconds later, without requests. The order of turns and the goals are in `pairs`.

Run: python -m benchmarks.kafka_wire --only starts
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.kafka_wire import apache_kafka, ours, pairs
from benchmarks.kafka_wire.batches import batches_with, produce_fields
from benchmarks.kafka_wire.pairs import Goal, Turns
from benchmarks.kafka_wire.systems import (
    Kind,
    Opening,
    Subject,
    make_topic,
    resident_mb,
    running,
    started_s,
)
from benchmarks.kafka_wire.wire import PRODUCE, Asker, check
from benchmarks.raft.processes import cpu_s

TOPIC = "first"
REST_S = 5.0
"""After the start; then as long again for processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start."""

    answers_s: float  # from the command to the first response
    acknowledged_s: float  # from the command to the first acknowledged record
    memory_mb: float
    idle_share: float  # of a core


GOALS: Final[tuple[Goal[Start], ...]] = (
    Goal(what="start to the first record", figure=lambda each: each.acknowledged_s, bound="<= 0.1"),
    Goal(what="idle memory", figure=lambda each: each.memory_mb, bound="<= 0.2"),
)


@dataclass(slots=True)
class Measured:
    """Starts by system."""

    starts: dict[str, Turns[Start]] = field(default_factory=dict)


async def measure(kinds: Sequence[Kind], folder: Path, *, rounds: int, rest_s: float) -> Measured:
    """Start each in turn; a first start of each fills the file cache and does not count."""
    measured = Measured()
    opened: dict[Opening, Kind] = {}
    for kind in kinds:
        opened.setdefault(kind.open, kind)
    distinct = list(opened.values())
    warm = [(None, kind) for kind in distinct]
    taking = [(n, kind) for n, ordered in pairs.turns(distinct, rounds) for kind in ordered]
    for place, (number, kind) in enumerate([*warm, *taking]):
        async with running([kind], folder / str(place), brokers=1) as [one]:
            start = await taken(one, rest_s=rest_s)
        if number is not None:
            measured.starts.setdefault(kind.name, {})[number] = start
        print(
            f"{kind.name:<28} answers {start.answers_s:.2f} s,"
            f" acknowledges {start.acknowledged_s:.2f} s,"
            f" {start.memory_mb:.0f} MB, {start.idle_share:.1%} of a core at rest",
            flush=True,
        )
    return measured


async def taken(subject: Subject, *, rest_s: float) -> Start:
    """Produce the first record, then measure the idle broker."""
    began_s, answered_s = started_s(subject.system), time.perf_counter()
    (leader,) = make_topic(subject, TOPIC, partitions=1, replication=1)
    (batch,) = batches_with(1, 100, distinct=1).batches
    with Asker(leader.port) as asker:
        answer = asker.ask(PRODUCE, **produce_fields(TOPIC, 0, batch, acks="1"))
    check("the first record is refused", answer.responses[0].partition_responses[0].error_code)
    acknowledged_s = time.perf_counter()
    await asyncio.sleep(rest_s)
    memory_mb, spent_s = resident_mb(subject.system), cpu_s(subject.system.pids)
    await asyncio.sleep(rest_s)
    return Start(
        answers_s=answered_s - began_s,
        acknowledged_s=acknowledged_s - began_s,
        memory_mb=memory_mb,
        idle_share=(cpu_s(subject.system.pids) - spent_s) / rest_s if rest_s else 0.0,
    )


# --- results -------------------------------------------------------------------------------------


def row(name: str, starts: Mapping[int, Start]) -> dict[str, Any]:
    """Return the medians."""
    return {
        "system": name,
        "answers_s": round(pairs.median(starts, lambda each: each.answers_s), 3),
        "acknowledged_s": round(pairs.median(starts, lambda each: each.acknowledged_s), 3),
        "memory_mb": round(pairs.median(starts, lambda each: each.memory_mb), 1),
        "idle_share": round(pairs.median(starts, lambda each: each.idle_share), 4),
        "rounds_acknowledged_s": [
            round(each.acknowledged_s, 2) for each in pairs.rounds_of(starts)
        ],
    }


def summary(measured: Measured, *, rounds: int) -> dict[str, Any]:
    """Return rows, and the pairs with goals."""
    mine, theirs = (measured.starts.get(name, {}) for name in (ours.NAME, apache_kafka.NAME))
    lines = [pairs.compare(goal, mine, theirs, rounds=rounds) for goal in GOALS]
    return {
        "rows": [row(name, starts) for name, starts in measured.starts.items()],
        "compared": [each for each in lines if each is not None],
    }
