"""How long a broker takes from its command to the first acknowledged record, and its idle memory.

Every round starts each system on a new directory that is formatted before, makes a topic of one
partition as soon as it answers and writes a record, again and again until that is acknowledged.
Memory is what is resident some seconds later, when nothing is asked; so is processor time at rest.

Run: python -m benchmarks.kafka_wire --only starts
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.kafka_wire import apache_kafka, ours
from benchmarks.kafka_wire.batches import batches_with, produce_fields
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, resident_mb, running, started_s
from benchmarks.kafka_wire.throughput import middle
from benchmarks.kafka_wire.wire import PRODUCE, Asker, check
from benchmarks.raft.processes import cpu_s
from benchmarks.raft.result import comparison

TOPIC = "first"
REST_S = 5.0
"""Behind the start; then as long again for processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start."""

    answers_s: float  # from the command to the first answer
    acknowledged_s: float  # from the command to the first acknowledged record
    memory_mb: float
    idle_share: float  # of a core


@dataclass(slots=True)
class Measured:
    """Starts by system."""

    starts: dict[str, list[Start]] = field(default_factory=dict)


async def measure(kinds: Sequence[Kind], folder: Path, *, rounds: int, rest_s: float) -> Measured:
    """Start each in turn, round by round; the first round fills the file cache and is not kept."""
    measured = Measured()
    for number in range(rounds + 1):
        for place, kind in enumerate({kind.open: kind for kind in reversed(kinds)}.values()):
            async with running([kind], folder / f"{number}-{place}", brokers=1) as [one]:
                start = await taken(one, rest_s=rest_s)
            if number:
                measured.starts.setdefault(kind.name, []).append(start)
            print(
                f"{kind.name:<28} answers {start.answers_s:.2f} s,"
                f" acknowledges {start.acknowledged_s:.2f} s,"
                f" {start.memory_mb:.0f} MB, {start.idle_share:.1%} of a core at rest",
                flush=True,
            )
    return measured


async def taken(subject: Subject, *, rest_s: float) -> Start:
    """Write the first record, then look at what is left alone."""
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


# --- what is made of it --------------------------------------------------------------------------


def row(name: str, starts: Sequence[Start]) -> dict[str, Any]:
    """The medians."""
    return {
        "system": name,
        "answers_s": round(middle([each.answers_s for each in starts]), 3),
        "acknowledged_s": round(middle([each.acknowledged_s for each in starts]), 3),
        "memory_mb": round(middle([each.memory_mb for each in starts]), 1),
        "idle_share": round(middle([each.idle_share for each in starts]), 4),
        "rounds_acknowledged_s": [round(each.acknowledged_s, 2) for each in starts],
    }


def summary(measured: Measured) -> dict[str, Any]:
    """Rows, and ours beside Kafka."""
    rows = {name: row(name, starts) for name, starts in measured.starts.items()}
    mine, theirs = rows.get(ours.NAME), rows.get(apache_kafka.NAME)
    compared = [
        comparison(f"{what}, of Kafka's", mine, theirs, of=of, goal=goal)
        for what, of, goal in (
            ("start to the first record", "acknowledged_s", "<= 0.1"),
            ("idle memory", "memory_mb", "<= 0.25"),
        )
    ]
    return {
        "rows": list(rows.values()),
        "compared": [each for each in compared if each is not None],
    }
