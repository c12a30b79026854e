"""Transactions of one producer, and transactional against idempotent sends.

Three brokers, a topic of one partition with three replicas, acks=all, values of 100 bytes.
*Transactions*: 100 records each, one after the other; the commit is timed apart, after all records
are acknowledged. *Sends*: as many records as the producer can write, without transactions and with
a commit every 100 ms, which is the interval of Kafka Streams.

Run: python -m benchmarks.transactions --only rate
     python -m benchmarks.transactions --only throughput
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, running
from benchmarks.kafka_wire.throughput import middle
from benchmarks.raft.load import percentile
from benchmarks.raft.processes import Refused
from benchmarks.raft.result import comparison
from benchmarks.transactions.producers import Client, Producer, Written, clients, share_of
from benchmarks.transactions.systems import KAFKA, OURS

BROKERS: Final = 3
VALUE_BYTES: Final = 100
TOGETHER: Final = 100  # records of a transaction
INTERVAL_MS: Final = 100.0  # between two commits
SENDS, TRANSACTIONAL = "idempotent", "transactions"
GOAL_SENDS: Final = ">= 0.8"

Key: TypeAlias = tuple[str, str, str]  # system, client, kind of work


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a producer."""

    name: str
    is_transactional: bool
    records: int = 0  # of a transaction; 0: any number
    interval_ms: float = 0.0  # of commits; 0: none


SMALL: Final = (Work(name="transactions of 100", is_transactional=True, records=TOGETHER),)
LARGE: Final = (
    Work(name=SENDS, is_transactional=False),
    Work(name=TRANSACTIONAL, is_transactional=True, interval_ms=INTERVAL_MS),
)


@dataclass(slots=True)
class Measured:
    """Measurements by row, and the reasons of missing rows."""

    written: dict[Key, list[Written]] = field(default_factory=dict)
    refusals: dict[Key, str] = field(default_factory=dict)


async def measure(
    kinds: Sequence[Kind],
    folder: Path,
    works: Sequence[Work],
    *,
    seconds: float,
    warm_s: float,
    rounds: int,
) -> Measured:
    """Measure the rounds, all systems in turn for each client and work."""
    measured = Measured()
    found, missing = clients()
    for line in missing:
        print(f"skipped: {line}", file=sys.stderr)
    async with running(kinds, folder, brokers=BROKERS) as subjects:
        for number in range(rounds):
            order = subjects[:: 1 if number % 2 else -1]
            for place, client in enumerate(found):
                for work in works:
                    for subject in order:
                        name = f"{number}-{place}-{work.is_transactional:d}"
                        key = (subject.name, client.name, work.name)
                        try:
                            written = taken(
                                subject, client, work, folder, name, seconds=seconds, warm_s=warm_s
                            )
                        except (Refused, OSError) as refused:
                            measured.refusals[key] = str(refused)
                            print(f"{', '.join(key)}: {refused}", file=sys.stderr)
                            continue
                        measured.written.setdefault(key, []).append(written)
                        show(key, written)
    return measured


def taken(
    subject: Subject,
    client: Client,
    work: Work,
    folder: Path,
    name: str,
    *,
    seconds: float,
    warm_s: float,
) -> Written:
    """Write to a new topic, first for `warm_s` without measuring."""
    topic = f"topic-{name}"
    make_topic(subject, topic, partitions=1, replication=BROKERS)
    with Producer(
        client,
        subject,
        folder / f"{subject.name.split()[0]}-{name}",
        topic=topic,
        value_bytes=VALUE_BYTES,
        transactional_id=f"producer-{name}" if work.is_transactional else "",
    ) as producer:
        for each in (warm_s, seconds):
            written = producer.write(each, records=work.records, interval_ms=work.interval_ms)
    if not written.records:
        raise Refused(f"no record was written in {written.seconds:.1f} s")
    return written


def show(key: Key, written: Written) -> None:
    """Print one measurement."""
    system, client, work = key
    line = f"{system:<20} {client:<20} {work:<20} {written.records / written.seconds:>9,.0f}/s"
    if written.commits_us:
        p50, p99 = commit_ms([written])
        line += f", {len(written.commits_us)} commits, p50 {p50:.2f}, p99 {p99:.2f} ms"
    per_record = written.broker_cpu_s / written.records * 1e6
    print(f"{line}; brokers {per_record:.1f} µs a record", flush=True)


def commit_ms(written: Sequence[Written]) -> tuple[float, float]:
    """Return p50 and p99 of all commits in ms."""
    ascending = sorted(us / 1e3 for each in written for us in each.commits_us)
    return percentile(ascending, 0.5), percentile(ascending, 0.99)


# --- results -------------------------------------------------------------------------------------


def row(key: Key, written: Sequence[Written]) -> dict[str, Any]:
    """Return the medians of the rounds; the percentiles of commits are of all rounds."""
    system, client, work = key
    p50_ms, p99_ms = commit_ms(written) if written[0].commits_us else (None, None)

    def median(figure: Callable[[Written], float]) -> float:
        return middle([figure(each) for each in written])

    return {
        "system": system,
        "client": client,
        "work": work,
        "records_per_s": round(median(lambda each: each.records / each.seconds)),
        "commits_per_s": round(median(lambda each: len(each.commits_us) / each.seconds), 1),
        "cpu_us": round(median(lambda each: each.broker_cpu_s / each.records * 1e6), 2),
        "p50_ms": None if p50_ms is None else round(p50_ms, 3),
        "p99_ms": None if p99_ms is None else round(p99_ms, 3),
        "client_cores": round(share_of(written), 2),
    }


def rate_summary(measured: Measured, *, seconds: float) -> dict[str, Any]:
    """Return rows, and quorumlog compared with Kafka."""
    rows = {key: row(key, written) for key, written in measured.written.items()}
    compared = []
    for system, client, work in rows:
        if system != OURS.name:
            continue
        mine, theirs = rows[system, client, work], rows.get((KAFKA.name, client, work))
        for what, figure, goal in (
            ("transactions a second", "commits_per_s", ">= 1.0"),
            ("broker CPU a record", "cpu_us", "<= 1.0"),
            ("commit, p50", "p50_ms", "<= 1.0"),
            ("commit, p99", "p99_ms", "<= 1.0"),
        ):
            said = f"{client}: {what}, of Kafka's"
            compared.append(comparison(said, mine, theirs, of=figure, goal=goal))
    return _result(measured, rows, compared, seconds=seconds)


def throughput_summary(measured: Measured, *, seconds: float) -> dict[str, Any]:
    """Return rows, and transactional compared with idempotent sends of the same system."""
    rows = {key: row(key, written) for key, written in measured.written.items()}
    compared = [
        comparison(
            f"{system}, {client}: transactional, of idempotent sends",
            rows.get((system, client, TRANSACTIONAL)),
            rows[system, client, SENDS],
            of="records_per_s",
            goal=GOAL_SENDS,
        )
        for system, client, work in rows
        if work == SENDS
    ]
    return _result(measured, rows, compared, seconds=seconds)


def _result(
    measured: Measured,
    rows: Mapping[Key, dict[str, Any]],
    compared: Sequence[dict[str, Any] | None],
    *,
    seconds: float,
) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "value_bytes": VALUE_BYTES,
        "brokers": BROKERS,
        "rows": list(rows.values()),
        "compared": [each for each in compared if each is not None],
        "refusals": [
            {"system": system, "client": client, "work": work, "why": why}
            for (system, client, work), why in measured.refusals.items()
        ],
    }
