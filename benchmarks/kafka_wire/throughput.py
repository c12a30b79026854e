"""Rates and CPU of bytes: produce, then fetch of the produced records.

One connection per partition, six partitions. A connection has five produce requests in flight, with
one batch each, as clients have by default; or one fetch, answered by one batch of 16 KB or 1 MiB.
Both sides of a pair move the same bytes: so many that the faster one takes the requested seconds. A
turn that needs more than the kernel keeps dirty uses several topics, deleted in between. The order
of turns, void turns and goals are in `pairs`; other systems take as many seconds, without pairs.

Run: python -m benchmarks.kafka_wire --only throughput (or replicas, for three of each)
"""

import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.kafka_wire import apache_kafka, dirty_pages, generator, ours, pairs, profiling
from benchmarks.kafka_wire.batches import Batches, Plan, Workload, batches_of, produce_all
from benchmarks.kafka_wire.generator import Load, Phases
from benchmarks.kafka_wire.pairs import Goal, Turns
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, remove_topic, running
from benchmarks.kafka_wire.wire import EARLIEST, LATEST, Asker, Leader
from benchmarks.raft.processes import Refused

PARTITIONS = 6
WINDOW = 5  # max.in.flight.requests.per.connection
KIB_16, MIB = 16 << 10, 1 << 20
WORKLOADS = tuple(
    Workload(value_bytes=value, batch_bytes=batch)
    for batch in (KIB_16, MIB)
    for value in (100, 1024)
)
FETCH_VALUE_BYTES: Final = 100  # a fetch does not depend on the records of its batches
FETCH_PARTITION_BYTES = 32 << 20  # of a partition, read repeatedly
LIMIT_S = 60.0  # of a turn that ends by bytes
WARM_SHARE = 0.25  # of the seconds, before they count
FASTER = 1.05  # a load is faster if it exceeds the fastest rate before it this many times
STEADY_LOADS = 4  # a rate is steady after so many loads in sequence that are not faster
WARM_TIMES_MAX = 8  # limit of a warm-up without a steady rate, in its seconds

Key: TypeAlias = tuple[str, str, str]  # system, direction, workload
PRODUCE, FETCH = "produce", "fetch"
PAIRED = (ours.NAME, apache_kafka.NAME)
GOALS: Final = {
    (1, PRODUCE, KIB_16): (">= 2.0", "<= 0.3"),
    (1, PRODUCE, MIB): (">= 1.2", "<= 0.5"),
    (3, PRODUCE, KIB_16): (">= 2.5", "<= 0.4"),
    (3, PRODUCE, MIB): (">= 1.5", "<= 0.5"),
}
FETCH_GOALS: Final = (">= 1.2", "<= 0.7")
TLS_GOALS: Final = (">= 1.0", "<= 0.7")


@dataclass(slots=True)
class Measured:
    """Loads by row; reasons of void rows, and of rows without loads."""

    loads: dict[Key, Turns[Load]] = field(default_factory=dict)
    voids: dict[Key, str] = field(default_factory=dict)
    refusals: dict[Key, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The settings of all rows."""

    brokers: int
    acks: str
    seconds: float
    rounds: int
    warm_s: float
    workloads: Sequence[Workload] = WORKLOADS
    profile: bool = False  # of quorumlog
    tls: bool = False  # loads use TLS 1.3

    def phases(self, *, size: int, seconds: float) -> Phases:
        """Return the phases of a load that ends by bytes or seconds."""
        return Phases(warm_s=self.seconds * WARM_SHARE, measure_s=seconds, cap_bytes=size)


@dataclass(slots=True, kw_only=True)
class Side:
    """Loads of one workload on one system."""

    subject: Subject
    batches: Batches
    run: Run
    numbers: Iterator[int]  # of topics
    fetched: tuple[str, Plan] | None = None  # the topic that fetches read

    @property
    def name(self) -> str:
        """Return the system of the row."""
        return self.subject.name

    @property
    def is_paired(self) -> bool:
        """Return True for both sides of a pair."""
        return self.name in PAIRED

    def load(self, direction: str, *, size: int, seconds: float) -> Load:
        """Move so many bytes, or for so long if that is less. Raise Refused."""
        if direction == FETCH:
            if self.fetched is None:
                self.fetched = self._filled()
            return self._run(FETCH, self.fetched[1], size=size, seconds=seconds)
        pieces = -(-size // (dirty_pages.room_bytes() // self.run.brokers))
        return generator.total(
            [self._produce(size=size // pieces, seconds=seconds / pieces) for _ in range(pieces)]
        )

    def close(self) -> None:
        """Delete the topic that fetches read."""
        if self.fetched is not None:
            remove_topic(self.subject, self.fetched[0])

    def _topic(self) -> tuple[str, list[Leader]]:
        name = f"load-{next(self.numbers):06}"
        return name, make_topic(
            self.subject, name, partitions=PARTITIONS, replication=self.run.brokers
        )

    def _run(self, direction: str, plan: Plan, *, size: int, seconds: float) -> Load:
        with profiled(self.subject, direction, self.run):
            phases = self.run.phases(size=size, seconds=seconds)
            system = self.subject.system
            ports = {system.port: system.tls_port} if self.run.tls else None
            return generator.run(plan, pids=system.pids, phases=phases, tls_ports=ports)

    def _produce(self, *, size: int, seconds: float) -> Load:
        dirty_pages.settle()
        topic, leaders = self._topic()
        plan = produce_all(topic, leaders, self.batches, acks=self.run.acks, window=WINDOW)
        load = self._run(PRODUCE, plan, size=size, seconds=seconds)
        remove_topic(self.subject, topic)
        return load

    def _filled(self) -> tuple[str, Plan]:
        """Write the topic that fetches read, and check its first batch."""
        topic, leaders = self._topic()
        held = self.subject.kind.holds_bytes or PARTITIONS * FETCH_PARTITION_BYTES
        if self.subject.kind.has_topics:
            plan = produce_all(topic, leaders, self.batches, acks="1", window=1)
            phases = Phases(warm_s=0.0, measure_s=LIMIT_S, cap_bytes=held)
            generator.run(plan, pids=self.subject.system.pids, phases=phases)
        plan = Plan()
        for leader in leaders:
            first, end = offsets(self.subject.kind, topic, leader, self.batches)
            size = self.batches.size
            plan.fetch(topic, leader, self.batches, first=first, end=end, most=size)
        dirty_pages.settle()
        return topic, plan


async def measure(kinds: Sequence[Kind], folder: Path, run: Run) -> Measured:
    """Measure all rows, one after the other."""
    measured, numbers = Measured(), count()
    async with running(kinds, folder, brokers=run.brokers) as subjects:
        for workload in run.workloads:
            batches = batches_of(workload)
            sides = [
                Side(subject=each, batches=batches, run=run, numbers=numbers) for each in subjects
            ]
            both = workload.value_bytes == FETCH_VALUE_BYTES
            for direction in (PRODUCE, FETCH) if both else (PRODUCE,):
                row = Row(measured=measured, direction=direction, workload=workload, run=run)
                row.measure(sides, warm_s=run.warm_s / (1 + both))
            for side in sides:
                side.close()
    return measured


@dataclass(slots=True, kw_only=True)
class Row:
    """The loads of all systems for one direction and workload."""

    measured: Measured
    direction: str
    workload: Workload
    run: Run
    rates: dict[str, float] = field(default_factory=dict)  # the highest of each system

    def measure(self, sides: Sequence[Side], *, warm_s: float) -> None:
        """Warm up, then measure the rounds of the pair and of each other system."""
        for side in sides:
            if side.subject.kind.ends_by_bytes:
                self._warm_up(side, seconds=warm_s * side.subject.kind.warms_up)
        if paired := [side for side in sides if side.is_paired]:
            self._rounds(paired)
        for side in sides:
            if not side.is_paired:
                self._rounds([side])

    def _warm_up(self, side: Side, *, seconds: float) -> None:
        """Load a system for `seconds`, then until its rate is steady, at most `WARM_TIMES_MAX`
        times as long: three JVMs on two cores take minutes to compile their code."""
        began_s, fastest, steady = time.monotonic(), 0.0, 0
        room = dirty_pages.room_bytes() // self.run.brokers
        while loads := self._load(side, size=room, seconds=self.run.seconds):
            (load,) = loads.values()
            took_s = time.monotonic() - began_s
            steady = 0 if load.bytes_per_s > fastest * FASTER else steady + 1
            is_steady = steady >= STEADY_LOADS
            if took_s >= (seconds if is_steady else seconds * WARM_TIMES_MAX):
                return
            fastest = max(fastest, load.bytes_per_s)

    def _rounds(self, sides: Sequence[Side]) -> None:
        names = {side.name: side for side in sides}

        def reasons(loads: Mapping[Key, Load]) -> dict[Key, str]:
            most = max((load.bytes for load in loads.values()), default=0)
            return {
                key: pairs.void(
                    seconds=load.seconds,
                    least_s=self.run.seconds,
                    moved=load.bytes,
                    most=most,
                    written=0 if names[key[0]].subject.kind.syncs else load.written_bytes,
                )
                for key, load in loads.items()
                if names[key[0]].subject.kind.ends_by_bytes
            }

        for number, ordered in pairs.turns(sides, self.run.rounds):
            if number == pairs.AGAIN and not ordered[0].is_paired:
                continue
            loads, voids = pairs.counted(partial(self._round, ordered), reasons)
            self.measured.voids |= voids
            for key, load in loads.items():
                self.measured.loads.setdefault(key, {})[number] = load
                show(key, load)

    def _round(self, sides: Sequence[Side]) -> dict[Key, Load]:
        """Load each system with the same bytes."""
        rate = max(self.rates.get(side.name, 0.0) for side in sides)
        size = pairs.size_of(rate, self.run.seconds) or dirty_pages.room_bytes()
        loads: dict[Key, Load] = {}
        for side in sides:
            seconds = LIMIT_S if side.subject.kind.ends_by_bytes else self.run.seconds
            loads |= self._load(side, size=size, seconds=seconds)
        return loads

    def _load(self, side: Side, *, size: int, seconds: float) -> dict[Key, Load]:
        """Return one load, or none after a rejection, which is recorded."""
        key = (side.name, self.direction, self.workload.name)
        if key in self.measured.refusals:
            return {}
        try:
            load = side.load(self.direction, size=size, seconds=seconds)
        except (Refused, OSError) as refused:
            self.measured.refusals[key] = str(refused)
            print(f"{', '.join(key)}: {refused}", file=sys.stderr)
            return {}
        self.rates[side.name] = max(self.rates.get(side.name, 0.0), load.bytes_per_s)
        return {key: load}


def profiled(subject: Subject, direction: str, run: Run) -> AbstractContextManager[None]:
    """Profile quorumlog over a block, if requested."""
    return profiling.profiled(
        f"{subject.name}, {direction}",
        subject.system.pids,
        wanted=run.profile and subject.name == ours.NAME,
    )


def offsets(kind: Kind, topic: str, leader: Leader, batches: Batches) -> tuple[int, int]:
    """Return the first and the end offset for fetches. Raise Refused for another first batch."""
    most = FETCH_PARTITION_BYTES // batches.size * batches.records
    if not kind.has_topics:
        return 0, most
    with Asker(leader.port) as asker:
        first = asker.offset(topic, leader.partition, EARLIEST)
        end = asker.offset(topic, leader.partition, LATEST)
        came = asker.records(topic, leader.partition, offset=first, max_bytes=batches.size)
    stamped = 21  # base offset, length, leader epoch, magic, CRC
    sent = {batch[stamped:] for batch in batches.batches}
    if came[:8] != first.to_bytes(8, "big") or came[stamped : batches.size] not in sent:
        raise Refused(f"the batch fetched at {first} is not the one that was produced")
    return first, min(end, first + most)


def show(key: Key, load: Load) -> None:
    """Print a load."""
    name, direction, workload = key
    print(
        f"{name:<28} {direction:<8} {workload:<14} {load.mb_per_s:>7,.0f} MB/s"
        f" {load.seconds:5.1f} s"
        f"  CPU s/GB: brokers {load.cpu_s_per_gb:6.2f}, client {load.client_cpu_s_per_gb:5.2f}"
        f"  others used {load.disturbance:.2f} cores",
        flush=True,
    )


# --- results -------------------------------------------------------------------------------------


def row_of(key: Key, loads: Mapping[int, Load]) -> dict[str, Any]:
    """Return the medians of a row's rounds."""
    system, direction, workload = key
    return {
        "system": system,
        "direction": direction,
        "workload": workload,
        "gigabytes": round(pairs.median(loads, lambda load: load.bytes / 1e9), 3),
        "seconds": round(pairs.median(loads, lambda load: load.seconds), 2),
        "mb_per_s": round(pairs.median(loads, lambda load: load.mb_per_s), 1),
        "cpu_s_per_gb": round(pairs.median(loads, lambda load: load.cpu_s_per_gb), 3),
        "client_cpu_s_per_gb": round(pairs.median(loads, lambda load: load.client_cpu_s_per_gb), 3),
        "cores": round(pairs.median(loads, lambda load: load.cores), 2),
        "client_cores": round(pairs.median(loads, lambda load: load.client_cores), 2),
        "other_cores": round(pairs.median(loads, lambda load: load.disturbance), 2),
        "written_share": round(
            pairs.median(loads, lambda load: load.written_bytes / load.bytes), 3
        ),
        "client_bound": client_bound(loads),
        "rounds_mb_per_s": [round(load.mb_per_s) for load in pairs.rounds_of(loads)],
        "rounds_cpu_s_per_gb": [round(load.cpu_s_per_gb, 2) for load in pairs.rounds_of(loads)],
    }


def client_bound(loads: Mapping[int, Load]) -> bool:
    """Return True if the generator limits the rate of a row; it has one thread."""
    return pairs.is_client_bound(
        thread_cores=pairs.median(loads, lambda load: load.client_cores),
        broker_cores=pairs.median(loads, lambda load: load.cores),
    )


def summary(measured: Measured, run: Run) -> dict[str, Any]:
    """Return rows of medians, the pairs with goals, and refusals."""
    found = {key: loads for key, loads in measured.loads.items() if pairs.rounds_of(loads)}
    return {
        "seconds": run.seconds,
        "brokers": run.brokers,
        "acks": run.acks,
        "partitions": PARTITIONS,
        "window": WINDOW,
        "rows": [
            row_of(key, loads) | {"void": key in measured.voids} for key, loads in found.items()
        ],
        "compared": list(compared(found, measured.voids, run)),
        "refusals": [
            {"system": key[0], "direction": key[1], "workload": key[2], "why": why}
            for key, why in measured.refusals.items()
        ],
    }


def compared(
    loads: Mapping[Key, Turns[Load]], voids: Mapping[Key, str], run: Run
) -> Iterator[dict[str, Any]]:
    """Yield rate and CPU for each direction and workload."""
    for direction in (PRODUCE, FETCH):
        for workload in run.workloads:
            keys = [(name, direction, workload.name) for name in PAIRED]
            mine, theirs = (loads.get(key, {}) for key in keys)
            if not mine or not theirs:
                continue
            bounds = GOALS.get((run.brokers, direction, workload.batch_bytes), FETCH_GOALS)
            if run.tls:
                bounds = TLS_GOALS
            what = f"{direction}, {workload.name}"
            yield from pairs.compare_costs(
                Goal(what=f"{what}: rate", figure=lambda each: each.mb_per_s, bound=bounds[0]),
                Goal(
                    what=f"{what}: CPU a GB",
                    figure=lambda each: each.cpu_s_per_gb,
                    bound=bounds[1],
                ),
                mine,
                theirs,
                rounds=run.rounds,
                client_bound=client_bound(mine),
                void=next((voids[key] for key in keys if key in voids), ""),
            )


def middle(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
