"""What bytes cost and how many there can be: produce, then fetch of what was produced.

One connection a partition, six partitions. A connection has five produce requests under way, with
one batch each, as clients have by default; or one fetch of up to 1 MiB. Each load has a new topic,
which is removed after it. All systems run at the same time and are loaded one after the other, in
another order every round. Before the rounds those that get faster by work are warmed up, and the
first round is not counted. A load ends after so many bytes, before the system must write them back.

Run: python -m benchmarks.kafka_wire --only throughput (or replicas, for three of each)
"""

import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.kafka_wire import apache_kafka, ceiling, generator, ours, profiling
from benchmarks.kafka_wire.batches import (
    FETCH_BYTES,
    Batches,
    Plan,
    Workload,
    batches_of,
    produce_all,
)
from benchmarks.kafka_wire.generator import Load, Phases
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, remove_topic, running
from benchmarks.kafka_wire.wire import EARLIEST, LATEST, Asker, Leader
from benchmarks.raft.processes import Refused
from benchmarks.raft.result import comparison

PARTITIONS = 6
WINDOW = 5  # max.in.flight.requests.per.connection
WORKLOADS = tuple(
    Workload(value_bytes=value, batch_bytes=batch)
    for batch in (16 << 10, 1 << 20)
    for value in (100, 1024)
)
PRODUCE_CAP_BYTES = 3 << 29
FETCH_PARTITION_BYTES = 64 << 20  # of a partition, read again and again
FILL_S = 10.0  # at most
WARM_SHARE = 0.25  # of the measured seconds, before they count

Key: TypeAlias = tuple[str, str, str]  # system, direction, workload
PRODUCE, FETCH = "produce", "fetch"
PEERS = {apache_kafka.NAME: "Kafka's", ceiling.NAME: "sendfile's"}


@dataclass(slots=True)
class Measured:
    """Loads by row, in the order of the first round; why those are missing that are."""

    loads: dict[Key, list[Load]] = field(default_factory=dict)
    refusals: dict[Key, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How it is measured."""

    brokers: int
    acks: str
    seconds: float
    workloads: Sequence[Workload] = WORKLOADS
    profile: bool = False  # ours

    @property
    def produce_phases(self) -> Phases:
        """Of writing."""
        return Phases(
            warm_s=self.seconds * WARM_SHARE, measure_s=self.seconds, cap_bytes=PRODUCE_CAP_BYTES
        )

    @property
    def fetch_phases(self) -> Phases:
        """Of reading, which fills nothing."""
        return Phases(warm_s=self.seconds * WARM_SHARE, measure_s=self.seconds)


async def measure(
    kinds: Sequence[Kind], folder: Path, run: Run, *, rounds: int, warm_s: float
) -> Measured:
    """Warm up for so long a workload, then take the rounds, all systems in turn for each."""
    measured = Measured()
    made = {workload: batches_of(workload) for workload in run.workloads}
    async with running(kinds, folder, brokers=run.brokers) as subjects:
        for subject in subjects:
            if subject.kind.warms_up:
                warm_up(subject, made, run, seconds=warm_s)
        for number in range(bool(warm_s) + rounds):
            kept = measured if number >= bool(warm_s) else Measured()
            order = list(enumerate(subjects))[:: 1 if number % 2 else -1]
            for place, workload in enumerate(run.workloads):
                topic = f"load-{number:03}-{place}"
                if run.brokers == 1:
                    await limit(kept, folder, topic, workload, made[workload], run)
                for index, subject in order:
                    name = f"{topic}-{index}"
                    try_one(kept, subject, name, workload, made[workload], run)
    return measured


def warm_up(
    subject: Subject, made: Mapping[Workload, Batches], run: Run, *, seconds: float
) -> None:
    """Both directions of each workload for so long; none of it counts."""
    for place, workload in enumerate(run.workloads):
        turn, end_s = 0, time.monotonic() + seconds
        while time.monotonic() < end_s:
            try_one(Measured(), subject, f"warm-{place}-{turn}", workload, made[workload], run)
            turn += 1


def try_one(
    kept: Measured,
    subject: Subject,
    topic: str,
    workload: Workload,
    batches: Batches,
    run: Run,
) -> None:
    """Both directions for one system; one that refuses has no row, and says why."""
    direction = PRODUCE
    try:
        leaders = make_topic(subject, topic, partitions=PARTITIONS, replication=run.brokers)
        load = produce(subject, topic, leaders, batches, run)
        keep(kept, (subject.name, PRODUCE, workload.name), load)
        direction = FETCH
        if subject.kind.holds_bytes is not None:
            remove_topic(subject, topic)
            leaders = make_topic(subject, topic, partitions=PARTITIONS, replication=run.brokers)
            fill(subject, topic, leaders, batches, most=subject.kind.holds_bytes)
        load = fetch(subject, topic, leaders, batches, run)
        keep(kept, (subject.name, FETCH, workload.name), load)
        remove_topic(subject, topic)
    except (Refused, OSError) as refused:
        kept.refusals[subject.name, direction, workload.name] = str(refused)
        print(f"{subject.name}, {direction}, {workload.name}: {refused}", file=sys.stderr)


def produce(
    subject: Subject, topic: str, leaders: Sequence[Leader], batches: Batches, run: Run
) -> Load:
    """Write every partition."""
    plan = produce_all(topic, leaders, batches, acks=run.acks, window=WINDOW)
    with profiled(subject, PRODUCE, run):
        return generator.run(plan, pids=subject.system.pids, phases=run.produce_phases)


def fill(
    subject: Subject, topic: str, leaders: Sequence[Leader], batches: Batches, *, most: int
) -> None:
    """Write about so many bytes."""
    plan = produce_all(topic, leaders, batches, acks="1", window=1)
    phases = Phases(warm_s=0.0, measure_s=FILL_S, cap_bytes=most)
    generator.run(plan, pids=subject.system.pids, phases=phases)


def fetch(
    subject: Subject, topic: str, leaders: Sequence[Leader], batches: Batches, run: Run
) -> Load:
    """Read what was written, once it is seen that it came as it was sent."""
    plan = Plan()
    for leader in leaders:
        with Asker(leader.port) as asker:
            first = asker.offset(topic, leader.partition, EARLIEST)
            end = asker.offset(topic, leader.partition, LATEST)
            came = asker.records(topic, leader.partition, offset=first, max_bytes=batches.size)
        check(came, batches, first)
        most = FETCH_PARTITION_BYTES // batches.size * batches.records
        plan.fetch(
            topic, leader, batches, first=first, end=min(end, first + most), most=FETCH_BYTES
        )
    with profiled(subject, FETCH, run):
        return generator.run(plan, pids=subject.system.pids, phases=run.fetch_phases)


def profiled(subject: Subject, direction: str, run: Run) -> AbstractContextManager[None]:
    """A profile of ours over a block, where that is wanted."""
    return profiling.profiled(
        f"{subject.name}, {direction}",
        subject.system.pids,
        wanted=run.profile and subject.name == ours.NAME,
    )


def check(came: bytes, batches: Batches, first: int) -> None:
    """See that the first batch came back as it was sent, but for what a log stamps."""
    stamped = 21  # base offset, length, leader epoch, magic, CRC
    sent = {batch[stamped:] for batch in batches.batches}
    if came[:8] != first.to_bytes(8, "big") or came[stamped : batches.size] not in sent:
        raise Refused(f"what was fetched at {first} is not what was produced")


async def limit(
    kept: Measured, folder: Path, topic: str, workload: Workload, batches: Batches, run: Run
) -> None:
    """The same loads on a program that does nothing but receive, write and send."""
    async with ceiling.ceiling(folder / "ceiling", topic) as system:
        leaders = [Leader(partition=n, port=system.port) for n in range(PARTITIONS)]
        plan = produce_all(topic, leaders, batches, acks=run.acks, window=WINDOW)
        load = generator.run(plan, pids=system.pids, phases=run.produce_phases)
        keep(kept, (ceiling.NAME, PRODUCE, workload.name), load)
        plan = Plan()
        for leader in leaders:
            plan.fetch(topic, leader, batches, first=0, end=1 << 40, most=FETCH_BYTES)
        load = generator.run(plan, pids=system.pids, phases=run.fetch_phases)
        keep(kept, (ceiling.NAME, FETCH, workload.name), load)


def keep(kept: Measured, key: Key, load: Load) -> None:
    """Note a load and say how it went."""
    kept.loads.setdefault(key, []).append(load)
    name, direction, workload = key
    print(
        f"{name:<28} {direction:<8} {workload:<14} {load.mb_per_s:>7,.0f} MB/s"
        f"  CPU s/GB: brokers {load.cpu_s_per_gb:6.2f}, client {load.client_cpu_s_per_gb:5.2f}"
        f"  others took {load.disturbance:.2f} cores",
        flush=True,
    )


# --- what is made of it --------------------------------------------------------------------------


def row(key: Key, loads: Sequence[Load]) -> dict[str, Any]:
    """The medians of a row's rounds."""
    system, direction, workload = key
    client_cores = middle([load.client_cpu_s / load.seconds for load in loads])
    return {
        "system": system,
        "direction": direction,
        "workload": workload,
        "mb_per_s": round(middle([load.mb_per_s for load in loads]), 1),
        "cpu_s_per_gb": round(middle([load.cpu_s_per_gb for load in loads]), 3),
        "client_cpu_s_per_gb": round(middle([load.client_cpu_s_per_gb for load in loads]), 3),
        "cores": round(middle([load.broker_cpu_s / load.seconds for load in loads]), 2),
        "client_cores": round(client_cores, 2),
        "other_cores": round(middle([load.disturbance for load in loads]), 2),
        "rounds_mb_per_s": [round(load.mb_per_s) for load in loads],
        "rounds_cpu_s_per_gb": [round(load.cpu_s_per_gb, 2) for load in loads],
    }


def summary(measured: Measured, run: Run) -> dict[str, Any]:
    """Rows of medians, ours beside the others, and what refused."""
    rows = {key: row(key, loads) for key, loads in measured.loads.items()}
    return {
        "seconds": run.seconds,
        "brokers": run.brokers,
        "acks": run.acks,
        "partitions": PARTITIONS,
        "window": WINDOW,
        "rows": list(rows.values()),
        "compared": list(compared(rows, run)),
        "refusals": [
            {"system": key[0], "direction": key[1], "workload": key[2], "why": why}
            for key, why in measured.refusals.items()
        ],
    }


def compared(rows: Mapping[Key, dict[str, Any]], run: Run) -> Iterator[dict[str, Any]]:
    """Ours beside Kafka and beside the ceiling, a line for each goal and workload."""
    goals = [
        (
            "rate",
            PRODUCE,
            "mb_per_s",
            apache_kafka.NAME,
            ">= 1.5" if run.brokers == 1 else ">= 1.0",
        ),
        ("CPU a GB", PRODUCE, "cpu_s_per_gb", apache_kafka.NAME, "<= 1.0"),
        ("rate", FETCH, "mb_per_s", apache_kafka.NAME, ">= 1.2"),
        ("CPU a GB", FETCH, "cpu_s_per_gb", apache_kafka.NAME, "<= 1.0"),
        ("rate", FETCH, "mb_per_s", ceiling.NAME, ">= 0.8"),
    ]
    for what, direction, figure, peer, goal in goals:
        for workload in run.workloads:
            mine = rows.get((ours.NAME, direction, workload.name))
            theirs = rows.get((peer, direction, workload.name))
            said = f"{direction}, {workload.name}: {what}, of {PEERS[peer]}"
            line = comparison(said, mine, theirs, of=figure, goal=goal)
            if line is not None:
                yield line


def middle(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)
