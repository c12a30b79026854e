"""The same brokers through real clients, and two systems that have clients of their own only.

librdkafka by its Python package and kcat write and read records of every broker that speaks the
Kafka protocol; NATS JetStream and Redis streams have a row each with their own. A gigabyte is one
of values here. Where a client takes nearly a core, the row says what the client can, and not what
the broker can: it is marked. Clients have their defaults, but acks=1.

Run: python -m benchmarks.kafka_wire --only clients
"""

import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from benchmarks.kafka_wire import apache_kafka, ours, streams
from benchmarks.kafka_wire.artifacts import packaged, peers_python, program
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, remove_topic, running
from benchmarks.kafka_wire.throughput import FETCH, PARTITIONS, PRODUCE, middle
from benchmarks.raft.processes import Refused, cpu_s
from benchmarks.raft.result import comparison

HERE = Path(__file__).parent
SIZES = (100, 1024)
VOLUME_BYTES = 120_000_000  # of values that a client writes, at most
RECORDS_MAX = {"nats-py": 100_000}  # a client that needs long for one
BOUND_CORES = 0.9  # a client that takes so much is what is measured
RUN_S = 300.0
REDIS_TOGETHER = 1_000  # entries of one answer
REDIS_UNDER_WAY = 64

Key: TypeAlias = tuple[str, str, str, int]  # system, client, direction, bytes of a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a client took."""

    seconds: float
    cpu_s: float
    records: int
    broker_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a client is to do."""

    direction: str
    port: int
    topic: str
    value_bytes: int
    records: int
    file: Path  # so many lines of such values


class Client(Protocol):
    """How a client is run."""

    @property
    def name(self) -> str:
        """For rows."""

    def command(self, work: Work) -> list[str]:
        """A program that does the work."""

    @property
    def says(self) -> bool:
        """Whether it prints what it took, as JSON; else all of its process counts."""


# --- clients -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Librdkafka:
    """librdkafka by its Python package."""

    python: str
    name: str = "librdkafka, Python"
    says: bool = True

    def command(self, work: Work) -> list[str]:
        """A program that does the work."""
        numbers = (PARTITIONS, work.value_bytes, work.records)
        script, way = HERE / "rdkafka_client.py", WAYS[work.direction]
        words = [self.python, str(script), way, str(work.port), work.topic]
        return [*words, *map(str, numbers), "1"]


@dataclass(frozen=True, slots=True)
class Kcat:
    """kcat, which is librdkafka and a little C."""

    program: str
    name: str = "kcat"
    says: bool = False

    def command(self, work: Work) -> list[str]:
        """A program that does the work."""
        words = [self.program, "-q", "-b", f"127.0.0.1:{work.port}", "-t", work.topic]
        if work.direction == PRODUCE:
            return [*words, "-P", "-X", "acks=1", "-l", str(work.file)]
        return [*words, "-C", "-o", "beginning", "-c", str(work.records)]


@dataclass(frozen=True, slots=True)
class NatsPy:
    """The Python client of NATS."""

    python: str
    name: str = "nats-py"
    says: bool = True

    def command(self, work: Work) -> list[str]:
        """A program that does the work."""
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
        """A program that does the work."""
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
    """Those that can be run here, and what is missing for the others."""
    found: list[Client] = []
    missing = []
    if importlib.util.find_spec("confluent_kafka") is not None:
        found.append(Librdkafka(sys.executable))
    elif packaged("confluent_kafka") is not None:
        found.append(Librdkafka(str(peers_python())))
    else:
        missing.append("confluent-kafka is not here: `pip install confluent-kafka`")
    if (kcat := program("kcat")) is not None:
        found.append(Kcat(kcat))
    else:
        missing.append("kcat is not here: `apt install kcat`")
    return found, missing


def others() -> tuple[list[tuple[Kind, Client]], list[str]]:
    """Systems with their own clients, and what is missing for them."""
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
    """What clients took, by row; why those are missing that are."""

    ran: dict[Key, list[Ran]] = field(default_factory=dict)
    refusals: dict[Key, str] = field(default_factory=dict)


async def measure(
    kinds: Sequence[Kind], folder: Path, *, rounds: int, warm_rounds: int, volume_bytes: int
) -> Measured:
    """Take the rounds, all systems in turn for each client and size."""
    clients, missing = kafka_clients()
    owners, lacking = others()
    for line in (*missing, *lacking):
        print(f"skipped: {line}", file=sys.stderr)
    measured = Measured()
    files = {size: lines_of(folder, size, volume_bytes // size) for size in SIZES}
    async with (
        running(kinds, folder / "kafka", brokers=1) as subjects,
        running([kind for kind, _ in owners], folder / "other", brokers=1) as rest,
    ):
        pairs = [(subject, client) for client in clients for subject in subjects]
        own = [(subject, client) for subject, (_, client) in zip(rest, owners, strict=True)]
        for number in range(warm_rounds + rounds):
            kept = measured if number >= warm_rounds else Measured()
            for size in SIZES:
                for place, (subject, client) in enumerate(pairs + own):
                    work = Work(
                        direction=PRODUCE,
                        port=subject.system.port,
                        topic=f"clients-{number:03}-{size}-{place}",
                        value_bytes=size,
                        records=records_of(client, size, volume_bytes),
                        file=files[size],
                    )
                    take(kept, subject, client, work, makes_topic=place < len(pairs))
    return measured


def records_of(client: Client, size: int, volume_bytes: int) -> int:
    """As many as come to the volume."""
    return min(volume_bytes // size, RECORDS_MAX.get(client.name, volume_bytes))


def lines_of(folder: Path, size: int, count: int) -> Path:
    """A file of so many values, a line each."""
    path = folder / f"lines-{size}"
    some = [os.urandom(size // 2).hex().ljust(size, "x") for _ in range(1_000)]
    with path.open("w") as file:
        file.writelines(f"{some[number % 1_000]}\n" for number in range(count))
    return path


def take(
    kept: Measured, subject: Subject, client: Client, work: Work, *, makes_topic: bool
) -> None:
    """Both directions; a row that is refused says why."""
    try:
        if makes_topic:
            make_topic(subject, work.topic, partitions=PARTITIONS, replication=1)
        for direction in (PRODUCE, FETCH):
            each = replace(work, direction=direction)
            key = (subject.name, client.name, direction, work.value_bytes)
            ran = run(client, each, subject.system.pids)
            kept.ran.setdefault(key, []).append(ran)
            show(key, ran)
        if makes_topic:
            remove_topic(subject, work.topic)
    except (Refused, OSError) as refused:
        key = (subject.name, client.name, "", work.value_bytes)
        kept.refusals[key] = str(refused)
        print(f"{subject.name}, {client.name}: {refused}", file=sys.stderr)


def run(client: Client, work: Work, pids: Sequence[int]) -> Ran:
    """Run a client to its end; raises Refused."""
    began_s, broker_s = time.perf_counter(), cpu_s(pids)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        client.command(work),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if client.says else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    spent_s, broker_s = time.perf_counter() - began_s, cpu_s(pids) - broker_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Refused(done.stderr.strip()[-500:] or f"ended with {done.returncode}")
    if client.says:
        said = json.loads(done.stdout)
        return Ran(**said, broker_cpu_s=broker_s)
    own_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(seconds=spent_s, cpu_s=own_s, records=work.records, broker_cpu_s=broker_s)


def show(key: Key, ran: Ran) -> None:
    """Say how it goes."""
    system, client, direction, size = key
    rate = ran.records / ran.seconds
    print(
        f"{system:<20} {client:<20} {direction:<8} {size:>5} B  {rate:>11,.0f}/s"
        f"  CPU s/GB: broker {per_gb(ran.broker_cpu_s, ran, size):6.2f},"
        f" client {per_gb(ran.cpu_s, ran, size):6.2f}",
        flush=True,
    )


def per_gb(seconds: float, ran: Ran, size: int) -> float:
    """For a gigabyte of values."""
    return seconds / (ran.records * size) * 1e9


# --- what is made of it --------------------------------------------------------------------------


def row(key: Key, ran: Sequence[Ran]) -> dict[str, Any]:
    """The medians."""
    system, client, direction, size = key
    rate = middle([each.records / each.seconds for each in ran])
    cores = middle([each.cpu_s / each.seconds for each in ran])
    return {
        "system": system,
        "client": client,
        "direction": direction,
        "value_bytes": size,
        "records_per_s": round(rate),
        "mb_per_s": round(rate * size / 1e6, 1),
        "cpu_s_per_gb": round(middle([per_gb(each.broker_cpu_s, each, size) for each in ran]), 3),
        "client_cpu_s_per_gb": round(middle([per_gb(each.cpu_s, each, size) for each in ran]), 3),
        "client_cores": round(cores, 2),
        "client_bound": cores >= BOUND_CORES,
    }


def summary(measured: Measured) -> dict[str, Any]:
    """Rows, and ours beside Kafka by the same client."""
    rows = {key: row(key, ran) for key, ran in measured.ran.items()}
    return {
        "partitions": PARTITIONS,
        "rows": list(rows.values()),
        "compared": list(compared(rows)),
        "refusals": [
            {"system": key[0], "client": key[1], "value_bytes": key[3], "why": why}
            for key, why in measured.refusals.items()
        ],
    }


def compared(rows: Mapping[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A line for each client, direction and size."""
    for system, client, direction, size in rows:
        if system != ours.NAME:
            continue
        mine = rows[system, client, direction, size]
        theirs = rows.get((apache_kafka.NAME, client, direction, size))
        for what, figure, goal in (
            ("rate", "mb_per_s", ">= 1.0"),
            ("CPU a GB", "cpu_s_per_gb", "<= 1.0"),
        ):
            said = f"{client}, {direction}, {size:,} B: {what}, of Kafka's"
            line = comparison(said, mine, theirs, of=figure, goal=goal)
            if line is not None:
                yield line
