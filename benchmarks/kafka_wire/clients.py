"""Rates of common clients on the same brokers, and of two systems with their own clients.

librdkafka by its Python package and Kafka's Java client produce and consume records on every broker
of the Kafka protocol, without compression and with lz4; NATS JetStream and Redis streams have a row
each with their own client. A gigabyte counts values, of which half the bytes are random. Clients
have their defaults, except acks=1, and fetches wait 20 ms at the end of a topic. Each turn moves so
many records that the faster side of a pair takes the requested seconds; the order of turns, void
turns and goals are in `pairs`.

Run: python -m benchmarks.kafka_wire --only clients
"""

import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from benchmarks.kafka_wire import apache_kafka, dirty_pages, ours, pairs, streams
from benchmarks.kafka_wire.artifacts import kafka_jars, packaged, peers_python, program
from benchmarks.kafka_wire.pairs import Goal, Turns
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, remove_topic, running
from benchmarks.kafka_wire.throughput import FETCH, PAIRED, PARTITIONS, PRODUCE
from benchmarks.raft.processes import Refused, cpu_s

HERE = Path(__file__).parent
SIZES = (100, 1024)
CODECS = ("none", "lz4")
VOLUME_BYTES = 60_000_000  # of values that a client moves to probe its rate, and without a pair
RECORDS_MAX = {"nats-py": 100_000}  # a client with a low rate
RUN_S = 900.0  # limit of one run of a client
REDIS_TOGETHER = 1_000  # entries of one response
REDIS_UNDER_WAY = 64
RATE_GOAL, CPU_GOAL = ">= 1.2", "<= 1.0"

Key: TypeAlias = tuple[
    str, str, str, int, str
]  # system, client, direction, bytes of a value, codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The measured part of a client."""

    seconds: float
    cpu_s: float
    records: int
    value_bytes: int
    broker_cpu_s: float
    thread_cpu_s: float  # of the busiest thread
    written_bytes: int = 0  # written back by the kernel

    @property
    def records_per_s(self) -> float:
        """Return the records per second."""
        return self.records / self.seconds

    @property
    def bytes(self) -> int:
        """Return the bytes of values."""
        return self.records * self.value_bytes

    @property
    def cpu_s_per_gb(self) -> float:
        """Return the CPU seconds of the brokers for 10^9 bytes of values."""
        return self.broker_cpu_s / self.bytes * 1e9

    @property
    def client_cpu_s_per_gb(self) -> float:
        """Return the CPU seconds of the client."""
        return self.cpu_s / self.bytes * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One run of a client. A consumer reads the `held` records of the topic repeatedly."""

    direction: str
    port: int
    topic: str
    value_bytes: int
    codec: str
    records: int
    held: int


class Client(Protocol):
    """A client program."""

    @property
    def name(self) -> str:
        """Return the client of a row."""

    def command(self, work: Work) -> list[str]:
        """Return the command that does the work."""

    @property
    def says(self) -> bool:
        """Return True if it prints its seconds and CPU as JSON; else its whole process counts."""


# --- clients -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KafkaClient:
    """A program with the arguments of rdkafka_client.py."""

    name: str
    program: tuple[str, ...]
    says: bool = True

    def command(self, work: Work) -> list[str]:
        """Return the command that does the work."""
        numbers = (PARTITIONS, work.value_bytes, work.records, work.held)
        words = [*self.program, WAYS[work.direction], str(work.port), work.topic]
        return [*words, *map(str, numbers), work.codec]


@dataclass(frozen=True, slots=True)
class NatsPy:
    """The Python client of NATS."""

    python: str
    name: str = "nats-py"
    says: bool = True

    def command(self, work: Work) -> list[str]:
        """Return the command that does the work."""
        way = WAYS[work.direction]
        words = [self.python, str(HERE / "nats_client.py"), way, str(work.port), work.topic]
        return [*words, str(work.value_bytes), str(work.records)]


@dataclass(frozen=True, slots=True)
class RedisBenchmark:
    """The load generator that comes with Redis."""

    program: str
    name: str = "redis-benchmark"
    says: bool = False

    def command(self, work: Work) -> list[str]:
        """Return the command that does the work."""
        words = [self.program, "-h", "127.0.0.1", "-p", str(work.port), "-q", "-c", str(PARTITIONS)]
        if work.direction == PRODUCE:
            value = "v" * work.value_bytes
            words += ["-n", str(work.records), "-P", str(REDIS_UNDER_WAY)]
            return [*words, "XADD", work.topic, "*", "v", value]
        count = str(REDIS_TOGETHER)
        words += ["-n", str(work.records // REDIS_TOGETHER)]
        return [*words, "XRANGE", work.topic, "-", "+", "COUNT", count]


WAYS = {PRODUCE: "produce", FETCH: "consume"}


def kafka_clients() -> tuple[list[Client], list[str]]:
    """Return the clients that can run here, and a line for each missing one."""
    found: list[Client] = []
    missing = []
    script = str(HERE / "rdkafka_client.py")
    if importlib.util.find_spec("confluent_kafka") is not None:
        found.append(KafkaClient("librdkafka, Python", (sys.executable, script)))
    elif packaged("confluent_kafka") is not None:
        found.append(KafkaClient("librdkafka, Python", (str(peers_python()), script)))
    else:
        missing.append("confluent-kafka is not here: `pip install confluent-kafka`")
    if apache_kafka.is_here():
        java = ("java", "-cp", f"{kafka_jars()}/*", str(HERE / "JavaClient.java"))
        found.append(KafkaClient("Java", java))
    else:
        missing.append(apache_kafka.MISSING)
    return found, missing


def others() -> tuple[list[tuple[Kind, Client]], list[str]]:
    """Return the systems with their own clients, and a line for each missing one."""
    found: list[tuple[Kind, Client]] = []
    missing = []
    if program("nats-server") and packaged("nats"):
        found.append((Kind(name=streams.NATS, open=streams.nats), NatsPy(str(peers_python()))))
    else:
        missing.append(streams.MISSING[streams.NATS])
    if program("redis-server") and (redis := program("redis-benchmark")):
        found.append((Kind(name=streams.REDIS, open=streams.redis), RedisBenchmark(redis)))
    else:
        missing.append(streams.MISSING[streams.REDIS])
    return found, missing


# --- measuring -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Measured:
    """Runs by row; reasons of void rows, and of rows without runs."""

    ran: dict[Key, Turns[Ran]] = field(default_factory=dict)
    voids: dict[Key, str] = field(default_factory=dict)
    refusals: dict[Key, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Runs of one client on one system."""

    subject: Subject
    client: Client
    makes_topic: bool
    numbers: Iterator[int]  # of the topics

    @property
    def is_paired(self) -> bool:
        """Return True for both sides of a pair."""
        return self.subject.name in PAIRED

    def take(self, size: int, codec: str, records: Mapping[str, int]) -> dict[str, Ran]:
        """Produce to a new topic and consume it. Raise Refused."""
        dirty_pages.settle()
        topic = f"clients-{next(self.numbers):06}"
        if self.makes_topic:
            make_topic(self.subject, topic, partitions=PARTITIONS, replication=1)
        work = Work(
            direction=PRODUCE,
            port=self.subject.system.port,
            topic=topic,
            value_bytes=size,
            codec=codec,
            records=records[PRODUCE],
            held=records[PRODUCE],
        )
        consume = replace(work, direction=FETCH, records=records[FETCH])
        pids = self.subject.system.pids
        ran = {each.direction: run(self.client, each, pids) for each in (work, consume)}
        if self.makes_topic:
            remove_topic(self.subject, topic)
        return ran


async def measure(
    kinds: Sequence[Kind], folder: Path, *, rounds: int, seconds: float, volume_bytes: int
) -> Measured:
    """Measure all rows: each client, size and codec with all systems in turn."""
    clients, missing = kafka_clients()
    owners, lacking = others()
    for line in (*missing, *lacking):
        print(f"skipped: {line}", file=sys.stderr)
    measured, numbers = Measured(), count()
    async with (
        running(kinds, folder / "kafka", brokers=1) as subjects,
        running([kind for kind, _ in owners], folder / "other", brokers=1) as rest,
    ):
        rows = [
            (
                codec,
                [
                    Side(subject=s, client=client, makes_topic=True, numbers=numbers)
                    for s in subjects
                ],
            )
            for client in clients
            for codec in CODECS
        ]
        own = [
            Side(subject=subject, client=client, makes_topic=False, numbers=numbers)
            for subject, (_, client) in zip(rest, owners, strict=True)
        ]
        for size in SIZES:
            for codec, sides in [*rows, ("none", own)]:
                row = Row(measured=measured, size=size, codec=codec, seconds=seconds)
                row.measure(sides, rounds=rounds, volume_bytes=volume_bytes)
    return measured


@dataclass(slots=True, kw_only=True)
class Row:
    """The runs of one client with one size and codec, in both directions."""

    measured: Measured
    size: int
    codec: str
    seconds: float
    rates: dict[str, float] = field(default_factory=dict)  # the highest of a direction

    def measure(self, sides: Sequence[Side], *, rounds: int, volume_bytes: int) -> None:
        """Probe the rates of the pair, then measure its rounds, and those of the other systems."""
        probe = dict.fromkeys((PRODUCE, FETCH), volume_bytes // self.size)
        paired = [side for side in sides if side.is_paired]
        self._round(paired, probe)
        for number, ordered in pairs.turns(paired, rounds):
            take = partial(self._round, ordered, None)
            ran, voids = pairs.counted(take, partial(self._reasons, paired))
            self.measured.voids |= voids
            self._keep(number, ran)
        for side in (each for each in sides if not each.is_paired):
            most = RECORDS_MAX.get(side.client.name, volume_bytes)
            for number in range(rounds):
                few = {direction: min(each, most) for direction, each in probe.items()}
                self._keep(number, self._round([side], few))

    def _reasons(self, sides: Sequence[Side], ran: Mapping[Key, Ran]) -> dict[Key, str]:
        syncs = {side.subject.name for side in sides if side.subject.kind.syncs}
        return {
            key: pairs.void(
                seconds=each.seconds,
                least_s=self.seconds,
                moved=each.bytes,
                most=0,
                written=0 if key[0] in syncs else each.written_bytes,
            )
            for key, each in ran.items()
        }

    def _keep(self, number: int, ran: Mapping[Key, Ran]) -> None:
        for key, each in ran.items():
            self.measured.ran.setdefault(key, {})[number] = each
            show(key, each)

    def _round(self, sides: Sequence[Side], records: Mapping[str, int] | None) -> dict[Key, Ran]:
        """Run the client on each system with as many records, by default sized by the rates."""
        if records is None:
            most = {PRODUCE: dirty_pages.room_bytes() // self.size, FETCH: sys.maxsize}
            records = {
                way: min(most[way], pairs.size_of(rate, self.seconds))
                for way, rate in self.rates.items()
            }
        ran: dict[Key, Ran] = {}
        for side in sides:
            key = (side.subject.name, side.client.name, "", self.size, self.codec)
            if key in self.measured.refusals:
                continue
            try:
                taken = side.take(self.size, self.codec, records)
            except (Refused, OSError) as refused:
                self.measured.refusals[key] = str(refused)
                print(f"{', '.join(map(str, key))}: {refused}", file=sys.stderr)
                continue
            for way, each in taken.items():
                ran[side.subject.name, side.client.name, way, self.size, self.codec] = each
                if side.is_paired:
                    self.rates[way] = max(self.rates.get(way, 0.0), each.records_per_s)
        return ran


def run(client: Client, work: Work, pids: Sequence[int]) -> Ran:
    """Run a client to its end. Raise Refused."""
    written, broker_s, began_s = dirty_pages.written_bytes(), cpu_s(pids), time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            client.command(work),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if client.says else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=RUN_S,
        )
    except subprocess.TimeoutExpired as late:
        raise Refused(f"{work.records} records took more than {RUN_S:.0f} s") from late
    spent_s, broker_s = time.perf_counter() - began_s, cpu_s(pids) - broker_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Refused(done.stderr.strip()[-500:] or f"ended with {done.returncode}")
    own_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said: dict[str, Any] = {"seconds": spent_s, "cpu_s": own_s, "records": work.records}
    if client.says:
        said |= json.loads(done.stdout)
    said.setdefault("thread_cpu_s", said["cpu_s"])
    broker_s *= said["records"] / said.pop("moved", said["records"])  # without the warm-up
    written = dirty_pages.written_bytes() - written
    return Ran(**said, value_bytes=work.value_bytes, broker_cpu_s=broker_s, written_bytes=written)


def show(key: Key, ran: Ran) -> None:
    """Print a run."""
    system, client, direction, size, codec = key
    print(
        f"{system:<20} {client:<20} {direction:<8} {size:>5} B {codec:<4} {ran.seconds:5.1f} s"
        f" {ran.records_per_s:>11,.0f}/s"
        f"  CPU s/GB: broker {ran.cpu_s_per_gb:6.2f}, client {ran.client_cpu_s_per_gb:6.2f},"
        f" its thread {ran.thread_cpu_s / ran.seconds:.0%}",
        flush=True,
    )


# --- results -------------------------------------------------------------------------------------


def row_of(key: Key, ran: Mapping[int, Ran]) -> dict[str, Any]:
    """Return the medians."""
    system, client, direction, size, codec = key
    rate = pairs.median(ran, lambda each: each.records_per_s)
    return {
        "system": system,
        "client": client,
        "direction": direction,
        "value_bytes": size,
        "codec": codec,
        "records_per_s": round(rate),
        "mb_per_s": round(rate * size / 1e6, 1),
        "cpu_s_per_gb": round(pairs.median(ran, lambda each: each.cpu_s_per_gb), 3),
        "client_cpu_s_per_gb": round(pairs.median(ran, lambda each: each.client_cpu_s_per_gb), 3),
        "thread_cores": round(pairs.median(ran, lambda each: each.thread_cpu_s / each.seconds), 2),
        "client_bound": client_bound(ran),
    }


def client_bound(ran: Mapping[int, Ran]) -> bool:
    """Return True if the client's busiest thread limits the rate of a row."""
    return pairs.is_client_bound(
        thread_cores=pairs.median(ran, lambda each: each.thread_cpu_s / each.seconds),
        broker_cores=pairs.median(ran, lambda each: each.broker_cpu_s / each.seconds),
    )


def summary(measured: Measured, *, rounds: int) -> dict[str, Any]:
    """Return rows, and the pairs with goals."""
    return {
        "partitions": PARTITIONS,
        "rows": [
            row_of(key, ran) | {"void": key in measured.voids} for key, ran in measured.ran.items()
        ],
        "compared": list(compared(measured, rounds=rounds)),
        "refusals": [
            {"system": key[0], "client": key[1], "value_bytes": key[3], "codec": key[4], "why": why}
            for key, why in measured.refusals.items()
        ],
    }


def compared(measured: Measured, *, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield rate and CPU for each client, direction, size and codec."""
    for key, mine in measured.ran.items():
        system, client, direction, size, codec = key
        if system != ours.NAME:
            continue
        peer = (apache_kafka.NAME, client, direction, size, codec)
        what = f"{client}, {direction}, {size:,} B, {codec}"
        yield from pairs.compare_costs(
            Goal(what=f"{what}: rate", figure=lambda each: each.records_per_s, bound=RATE_GOAL),
            Goal(what=f"{what}: CPU a GB", figure=lambda each: each.cpu_s_per_gb, bound=CPU_GOAL),
            mine,
            measured.ran.get(peer, {}),
            rounds=rounds,
            client_bound=client_bound(mine),
            void=measured.voids.get(key) or measured.voids.get(peer, ""),
        )
