"""Fetches with read_committed and with read_uncommitted from the same log.

One broker, one partition in the page cache: transactions of ten batches of 64 KiB, every tenth one
aborted. One connection fetches 1 MiB at a time. Both levels get the same batches; read_committed
adds the list of aborted transactions.

Run: python -m benchmarks.transactions --only fetch
Goal: at most 5 % more CPU of the broker a gigabyte.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.kafka_wire.batches import fetch_error_at
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, running
from benchmarks.kafka_wire.throughput import middle
from benchmarks.kafka_wire.wire import FETCH, LATEST, Asker, fetch_fields, frame_of
from benchmarks.raft.processes import Refused, cpu_s
from benchmarks.raft.result import comparison
from benchmarks.transactions.wire import (
    add_partitions,
    calling,
    coordinator_of,
    end,
    init_producer,
    produce,
)

from quorumlog.records.batch import iterate_batches, whole_batches_end

TOPIC: Final = "levels"
VALUE_BYTES: Final = 100
BATCH_RECORDS: Final = 600  # about 64 KiB
BATCHES: Final = 10  # of a transaction
ABORTED_EACH: Final = 10  # one of so many transactions is aborted
VOLUME_BYTES: Final = 128 << 20
ANSWER_BYTES: Final = 1 << 20
LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}
READY_S: Final = 30.0
GOAL: Final = "<= 1.05"

Key: TypeAlias = tuple[str, str]  # system, isolation level


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The responses of one measurement."""

    bytes: int
    seconds: float
    broker_cpu_s: float


@dataclass(slots=True)
class Measured:
    """Measurements by row, and the reasons of missing systems."""

    fetched: dict[Key, list[Fetched]] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)


async def measure(
    kinds: Sequence[Kind],
    folder: Path,
    *,
    volume_bytes: int,
    seconds: float,
    warm_s: float,
    rounds: int,
) -> Measured:
    """Write the log of each system once; measure both levels in turn in each round."""
    measured = Measured()
    async with running(kinds, folder, brokers=1) as subjects:
        plans: list[tuple[Subject, dict[str, list[bytes]]]] = []
        for subject in subjects:
            try:
                await write(subject, volume_bytes)
                plans.append((subject, await asyncio.to_thread(frames, subject)))
            except (Refused, OSError) as refused:
                measured.refusals[subject.name] = str(refused)
                print(f"{subject.name}: {refused}", file=sys.stderr)
        for subject, levels in plans:
            for requests in levels.values():
                if warm_s:
                    await asyncio.to_thread(replay, subject, requests, seconds=warm_s)
        for number in range(rounds):
            for subject, levels in plans:
                for level in list(levels)[:: 1 if number % 2 else -1]:
                    taken = await asyncio.to_thread(replay, subject, levels[level], seconds=seconds)
                    measured.fetched.setdefault((subject.name, level), []).append(taken)
                    show(subject.name, level, taken)
    return measured


async def write(subject: Subject, volume_bytes: int) -> None:
    """Write so many bytes of values in transactions. Raise Refused."""
    await asyncio.to_thread(make_topic, subject, TOPIC, partitions=1, replication=1)
    await coordinator_of(subject, TOPIC)
    values = [os.urandom(VALUE_BYTES) for _ in range(BATCH_RECORDS)]
    size = VALUE_BYTES * BATCH_RECORDS * BATCHES
    async with calling(subject.system.port) as caller:
        identity = await init_producer(caller, TOPIC)
        for number in range(max(1, volume_bytes // size)):
            await add_partitions(caller, identity, TOPIC, [0])
            for _ in range(BATCHES):
                await produce(caller, identity, TOPIC, 0, values)
            await end(caller, identity, commit=number % ABORTED_EACH != ABORTED_EACH - 1)
        await init_producer(caller, TOPIC)  # succeeds once the last transaction is complete


def frames(subject: Subject) -> dict[str, list[bytes]]:
    """Return the requests that read the whole log, by isolation level. Raise Refused."""
    found: dict[str, list[bytes]] = {}
    with Asker(subject.system.port) as asker:
        last = asker.offset(TOPIC, 0, LATEST)
        for level, number in LEVELS.items():
            requests = found[level] = []
            offset, deadline_s = 0, time.monotonic() + READY_S
            while offset < last:
                fields = fetch_fields(TOPIC, 0, offset, max_bytes=ANSWER_BYTES)
                fields["isolation_level"] = number
                records = _records(asker.ask(FETCH, **fields))
                if not records:
                    if time.monotonic() > deadline_s:
                        raise Refused(f"{level}: nothing at offset {offset} of {last}")
                    continue
                requests.append(frame_of(FETCH, fields, correlation_id=0))
                whole = records[: whole_batches_end(records)]
                offset = max(header.next_offset for _, header in iterate_batches(whole))
    return found


def _records(answer: Any) -> bytes:
    (found,) = answer.responses[0].partitions
    if int(found.error_code):
        raise Refused(f"{TOPIC}-0 cannot be fetched ({found.error_code!r})")
    return bytes(found.records or b"")


def replay(subject: Subject, requests: Sequence[bytes], *, seconds: float) -> Fetched:
    """Send the requests repeatedly for so long, one after the other. Raise Refused, OSError."""
    buffer = memoryview(bytearray(ANSWER_BYTES * 4))
    error_at = fetch_error_at(TOPIC)
    began_s, broker_s, total = time.perf_counter(), cpu_s(subject.system.pids), 0
    with socket.create_connection(("127.0.0.1", subject.system.port)) as connection:
        while time.perf_counter() < began_s + seconds:
            for request in requests:
                connection.sendall(request)
                size = int.from_bytes(_read(connection, buffer, 4), "big")
                answer = _read(connection, buffer, size)
                if code := int.from_bytes(answer[error_at : error_at + 2], "big"):
                    raise Refused(f"{TOPIC}-0 cannot be fetched: error {code}")
                total += size
                if time.perf_counter() >= began_s + seconds:
                    break
    return Fetched(
        bytes=total,
        seconds=time.perf_counter() - began_s,
        broker_cpu_s=cpu_s(subject.system.pids) - broker_s,
    )


def _read(connection: socket.socket, buffer: memoryview, size: int) -> memoryview:
    read = 0
    while read < size:
        count = connection.recv_into(buffer[read:size])
        if not count:
            raise ConnectionResetError("the broker closed the connection")
        read += count
    return buffer[:size]


def show(system: str, level: str, taken: Fetched) -> None:
    """Print one measurement."""
    print(
        f"{system:<20} {level:<18} {taken.bytes / taken.seconds / 1e6:>7,.0f} MB/s,"
        f" {taken.broker_cpu_s / taken.bytes * 1e9:.3f} s of the broker's CPU a GB",
        flush=True,
    )


def row(key: Key, fetched: Sequence[Fetched]) -> dict[str, Any]:
    """Return the medians."""
    system, level = key
    return {
        "system": system,
        "level": level,
        "mb_per_s": round(middle([each.bytes / each.seconds / 1e6 for each in fetched]), 1),
        "cpu_s_per_gb": round(
            middle([each.broker_cpu_s / each.bytes * 1e9 for each in fetched]), 4
        ),
    }


def summary(measured: Measured, *, seconds: float) -> dict[str, Any]:
    """Return rows, and read_committed compared with read_uncommitted of each system."""
    rows = {key: row(key, fetched) for key, fetched in measured.fetched.items()}
    uncommitted, committed = LEVELS
    compared = [
        comparison(
            f"{system}: CPU a GB with {committed}, of {uncommitted}",
            rows.get((system, committed)),
            rows[system, level],
            of="cpu_s_per_gb",
            goal=GOAL,
        )
        for system, level in rows
        if level == uncommitted
    ]
    return {
        "seconds": seconds,
        "rows": list(rows.values()),
        "compared": [each for each in compared if each is not None],
        "refusals": [{"system": system, "why": why} for system, why in measured.refusals.items()],
    }
