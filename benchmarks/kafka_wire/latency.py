"""How long records take at fixed rates: until they are acknowledged, and until a consumer has them.

Three brokers that all hold each record before it is acknowledged (acks=all), six partitions, a
connection each that writes and one that waits for what comes. Requests leave by the clock, and each
counts from when it was due: a broker that stalls pays for all that it keeps waiting (no coordinated
omission). What is still due when the load ends is waited for. Who gets faster by work is warmed up
before, and the first round is not counted.

Run: python -m benchmarks.kafka_wire --only latency
"""

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.kafka_wire import apache_kafka, generator, ours
from benchmarks.kafka_wire.batches import Batches, Plan, batches_with
from benchmarks.kafka_wire.generator import Latency, Load, Phases
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, remove_topic, running
from benchmarks.kafka_wire.throughput import PARTITIONS, middle
from benchmarks.kafka_wire.wire import Leader
from benchmarks.raft.processes import Refused
from benchmarks.raft.result import comparison

BROKERS = 3
VALUE_BYTES = 100
DISTINCT = 16
WARM_S = 1.0
HELD_SHARE = 0.98  # of the rate, within the measured time: it is held
CLOCKS = ("acknowledged", "delivered")
GOAL = "<= 0.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many records a second, so many in a request."""

    records_per_s: int
    together: int

    @property
    def requests_per_s(self) -> float:
        """Of all partitions."""
        return self.records_per_s / self.together

    @property
    def name(self) -> str:
        """For rows."""
        return f"{self.records_per_s:,}/s, {self.together} a request"


RATES = (
    Rate(records_per_s=1_000, together=1),
    Rate(records_per_s=10_000, together=10),
    Rate(records_per_s=10_000, together=1),
)


@dataclass(slots=True)
class Measured:
    """Loads by system and rate; why those are missing that are."""

    loads: dict[tuple[str, Rate], list[Load]] = field(default_factory=dict)
    refusals: dict[tuple[str, Rate], str] = field(default_factory=dict)


async def measure(
    kinds: Sequence[Kind], folder: Path, *, seconds: float, rounds: int, warm_s: float
) -> Measured:
    """Warm up for so long a rate, then take the rounds, all systems in turn for each."""
    measured = Measured()
    made = {rate: batches_with(rate.together, VALUE_BYTES, distinct=DISTINCT) for rate in RATES}
    async with running(kinds, folder, brokers=BROKERS) as subjects:
        for subject in (each for each in subjects if each.kind.warms_up and warm_s):
            for place, rate in enumerate(RATES):
                with contextlib.suppress(Refused):
                    at_rate(subject, f"warm-{place}", rate, made[rate], seconds=warm_s)
        for number in range(bool(warm_s) + rounds):
            kept = measured if number >= bool(warm_s) else Measured()
            order = list(enumerate(subjects))[:: 1 if number % 2 else -1]
            for place, rate in enumerate(RATES):
                for index, subject in order:
                    topic = f"wait-{number:03}-{place}-{index}"
                    try:
                        load = at_rate(subject, topic, rate, made[rate], seconds=seconds)
                    except (Refused, OSError) as refused:
                        kept.refusals[subject.name, rate] = str(refused)
                        print(f"{subject.name}, {rate.name}: {refused}", file=sys.stderr)
                        continue
                    kept.loads.setdefault((subject.name, rate), []).append(load)
                    show(subject.name, rate, load)
    return measured


def at_rate(subject: Subject, topic: str, rate: Rate, batches: Batches, *, seconds: float) -> Load:
    """Write at a rate to a new topic, and read behind."""
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
    """A writer and a reader for each partition."""
    plan = Plan()
    for leader in leaders:
        writer = plan.produce(topic, leader, batches, acks="all", window=1)
        plan.tail(topic, leader, batches, producer=writer)
    return plan


def show(name: str, rate: Rate, load: Load) -> None:
    """Say how it goes."""
    parts = [
        f"{clock} p50 {milliseconds(wait.p50)} p99 {milliseconds(wait.p99)}"
        f" p99.9 {milliseconds(wait.p999)} ms"
        for clock, wait in waits(load)
    ]
    said = f"{name:<28} {rate.name:<24} {'; '.join(parts)}"
    print(f"{said}; cores {load.broker_cpu_s / load.seconds:.2f}", flush=True)


def waits(load: Load) -> tuple[tuple[str, Latency], ...]:
    """Both clocks."""
    return (("acknowledged", load.acknowledged), ("delivered", load.delivered))


def milliseconds(us: float | None) -> str:
    """As text."""
    return "-" if us is None else f"{us / 1000:.2f}"


# --- what is made of it --------------------------------------------------------------------------


def row(name: str, rate: Rate, loads: Sequence[Load]) -> dict[str, Any]:
    """The medians of the rounds' percentiles."""
    reached = middle([load.requests / load.seconds for load in loads]) / rate.requests_per_s
    found: dict[str, Any] = {
        "system": name,
        "rate": rate.name,
        "held": reached >= HELD_SHARE and not any(load.unanswered for load in loads),
        "reached": round(reached, 3),
        "cores": round(middle([load.broker_cpu_s / load.seconds for load in loads]), 2),
        "other_cores": round(middle([load.disturbance for load in loads]), 2),
    }
    for clock in CLOCKS:
        for share in ("p50", "p99", "p999"):
            seen = [getattr(getattr(load, clock), share) for load in loads]
            known = [value for value in seen if value is not None]
            key = f"{clock}_{share}_ms"
            found[key] = round(middle(known) / 1000, 3) if known else None
    return found


def summary(measured: Measured, *, seconds: float) -> dict[str, Any]:
    """Rows, and ours beside Kafka."""
    rows = {key: row(*key, loads) for key, loads in measured.loads.items()}
    lines = []
    for rate in RATES:
        mine, theirs = rows.get((ours.NAME, rate)), rows.get((apache_kafka.NAME, rate))
        for clock in CLOCKS:
            for share in ("p50", "p99", "p999"):
                figure = f"{clock}_{share}_ms"
                if any(each is None or not each[figure] for each in (mine, theirs)):
                    continue
                what = f"{rate.name}: {clock}, {share.replace('p999', 'p99.9')}"
                lines.append(comparison(what, mine, theirs, of=figure, goal=GOAL))
    return {
        "seconds": seconds,
        "value_bytes": VALUE_BYTES,
        "brokers": BROKERS,
        "partitions": PARTITIONS,
        "rows": list(rows.values()),
        "compared": [line for line in lines if line is not None],
        "refusals": [
            {"system": name, "rate": rate.name, "why": why}
            for (name, rate), why in measured.refusals.items()
        ],
    }
