"""Latency at fixed rates: until records are acknowledged, and until a consumer receives them.

Three brokers that all store each record before it is acknowledged (acks=all), six partitions, one
connection each for a producer and for a waiting consumer. Requests are sent by the clock, and each
counts from its due time: a stall counts for all requests that become due during it (no coordinated
omission). The drain at the end waits for all requests that were due. The order of turns and the
goals are in `pairs`.

Run: python -m benchmarks.kafka_wire --only latency
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.kafka_wire import apache_kafka, generator, ours, pairs
from benchmarks.kafka_wire.batches import Batches, Plan, batches_with
from benchmarks.kafka_wire.generator import Latency, Load, Phases
from benchmarks.kafka_wire.pairs import Goal, Turns
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, remove_topic, running
from benchmarks.kafka_wire.throughput import PARTITIONS, middle
from benchmarks.kafka_wire.wire import Leader
from benchmarks.raft.processes import Refused

BROKERS = 3
VALUE_BYTES = 100
DISTINCT = 16
WARM_S = 1.0
HELD_SHARE = 0.98  # of the rate, within the measured time: the system sustains it
SATURATED_SHARE = 0.95  # of the machine's cores in use
CLOCKS = ("acknowledged", "delivered")
GOAL, GOAL_SHARES = "<= 0.5", ("p50", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Records a second, and records in a request."""

    records_per_s: int
    together: int

    @property
    def requests_per_s(self) -> float:
        """Return the requests of all partitions per second."""
        return self.records_per_s / self.together

    @property
    def name(self) -> str:
        """Return the name in rows."""
        return f"{self.records_per_s:,}/s, {self.together} a request"


RATES = (
    Rate(records_per_s=1_000, together=1),
    Rate(records_per_s=10_000, together=10),
    Rate(records_per_s=10_000, together=1),
)


@dataclass(slots=True)
class Measured:
    """Loads by system and rate; reasons of rows without loads."""

    loads: dict[tuple[str, Rate], Turns[Load]] = field(default_factory=dict)
    refusals: dict[tuple[str, Rate], str] = field(default_factory=dict)


async def measure(
    kinds: Sequence[Kind], folder: Path, *, seconds: float, rounds: int, warm_s: float
) -> Measured:
    """Warm up each rate, then measure its turns."""
    measured, numbers = Measured(), count()
    async with running(kinds, folder, brokers=BROKERS) as subjects:
        for rate in RATES:
            made = batches_with(rate.together, VALUE_BYTES, distinct=DISTINCT)
            for subject in (each for each in subjects if warm_s):
                with contextlib.suppress(Refused, OSError):
                    spent_s = warm_s if subject.kind.warms_up else WARM_S
                    at_rate(subject, f"warm-{next(numbers)}", rate, made, seconds=spent_s)
            ordered = pairs.turns(subjects, rounds)
            for number, subject in ((n, each) for n, some in ordered for each in some):
                key = (subject.name, rate)
                try:
                    load = at_rate(subject, f"wait-{next(numbers)}", rate, made, seconds=seconds)
                except (Refused, OSError) as refused:
                    measured.refusals[key] = str(refused)
                    print(f"{subject.name}, {rate.name}: {refused}", file=sys.stderr)
                    continue
                measured.loads.setdefault(key, {})[number] = load
                show(subject.name, rate, load)
    return measured


def at_rate(subject: Subject, topic: str, rate: Rate, batches: Batches, *, seconds: float) -> Load:
    """Produce at a rate to a new topic, and consume it."""
    leaders = make_topic(subject, topic, partitions=PARTITIONS, replication=BROKERS)
    load = generator.run(
        plan_of(topic, leaders, batches),
        pids=subject.system.pids,
        phases=Phases(warm_s=WARM_S, measure_s=seconds),
        interval_s=1 / rate.requests_per_s,
    )
    remove_topic(subject, topic)
    return load


def plan_of(topic: str, leaders: Sequence[Leader], batches: Batches) -> Plan:
    """Return a plan with a writer and a reader for each partition."""
    plan = Plan()
    for leader in leaders:
        writer = plan.produce(topic, leader, batches, acks="all", window=1)
        plan.tail(topic, leader, batches, producer=writer)
    return plan


def show(name: str, rate: Rate, load: Load) -> None:
    """Print a load."""
    parts = [
        f"{clock} p50 {milliseconds(wait.p50)} p99 {milliseconds(wait.p99)}"
        f" p99.9 {milliseconds(wait.p999)} ms"
        for clock, wait in waits(load)
    ]
    said = f"{name:<28} {rate.name:<24} {'; '.join(parts)}"
    print(f"{said}; cores {load.cores:.2f}", flush=True)


def waits(load: Load) -> tuple[tuple[str, Latency], ...]:
    """Return the text of both clocks."""
    return (("acknowledged", load.acknowledged), ("delivered", load.delivered))


def milliseconds(us: float | None) -> str:
    """Return a text in milliseconds."""
    return "-" if us is None else f"{us / 1000:.2f}"


# --- results -------------------------------------------------------------------------------------


def row(name: str, rate: Rate, taken: Mapping[int, Load]) -> dict[str, Any]:
    """Return the medians of the rounds' percentiles."""
    loads = pairs.rounds_of(taken)
    reached = middle([load.requests / load.seconds for load in loads]) / rate.requests_per_s
    used = middle([load.machine_cpu_s / load.seconds for load in loads])
    found: dict[str, Any] = {
        "system": name,
        "rate": rate.name,
        "held": reached >= HELD_SHARE and not any(load.unanswered for load in loads),
        "reached": round(reached, 3),
        "saturated": used >= SATURATED_SHARE * (os.cpu_count() or 1),
        "cores": round(middle([load.cores for load in loads]), 2),
        "other_cores": round(middle([load.disturbance for load in loads]), 2),
    }
    for clock in CLOCKS:
        for share in ("p50", "p99", "p999"):
            seen = [getattr(getattr(load, clock), share) for load in loads]
            known = [value for value in seen if value is not None]
            key = f"{clock}_{share}_ms"
            found[key] = round(middle(known) / 1000, 3) if known else None
    return found


def summary(measured: Measured, *, seconds: float, rounds: int) -> dict[str, Any]:
    """Return rows, and the pairs with goals."""
    found = {key: loads for key, loads in measured.loads.items() if pairs.rounds_of(loads)}
    return {
        "seconds": seconds,
        "value_bytes": VALUE_BYTES,
        "brokers": BROKERS,
        "partitions": PARTITIONS,
        "rows": [row(*key, loads) for key, loads in found.items()],
        "compared": list(compared(found, rounds=rounds)),
        "refusals": [
            {"system": name, "rate": rate.name, "why": why}
            for (name, rate), why in measured.refusals.items()
        ],
    }


def compared(
    loads: Mapping[tuple[str, Rate], Turns[Load]], *, rounds: int
) -> Iterator[dict[str, Any]]:
    """Yield a line for each rate that both systems sustain, each clock and share: the latency of a
    system that falls behind grows with the duration of the run."""
    for rate in RATES:
        names = (ours.NAME, apache_kafka.NAME)
        sides = [loads.get((name, rate), {}) for name in names]
        rows = [row(name, rate, side) for name, side in zip(names, sides, strict=True) if side]
        if len(rows) < len(names) or not all(each["held"] for each in rows):
            continue
        for clock in CLOCKS:
            for share in GOAL_SHARES:

                def figure(load: Load, clock: str = clock, share: str = share) -> float:
                    return float(getattr(getattr(load, clock), share) or 0)

                mine, theirs = (
                    {number: load for number, load in side.items() if figure(load)}
                    for side in sides
                )
                goal = Goal(what=f"{rate.name}: {clock}, {share}", figure=figure, bound=GOAL)
                line = pairs.compare(goal, mine, theirs, rounds=rounds)
                if line is not None:
                    yield line
