"""Measure the Spark source and sink. All of it takes about 25 minutes.

Run: python -m benchmarks.spark [--only PART] [--records 10000000] [--rounds 3] [--dir FOLDER]
     [--quick]
Before it: python -m benchmarks.kafka_wire.artifacts and python -m benchmarks.spark.artifacts, for
the parts beside Apache Kafka and Spark's Kafka connector. Each part is stored when it is measured;
with --quick, a smoke test, nothing is stored.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from benchmarks import parts
from benchmarks.kafka_wire import apache_kafka, ours
from benchmarks.kafka_wire.wire import Asker
from benchmarks.raft.processes import Refused
from benchmarks.raft.result import comparison, keep, machine
from benchmarks.spark import artifacts
from benchmarks.spark.peers import PARTITIONS, VALUE_BYTES
from confluent_kafka import Producer

import quorumlog

Part: TypeAlias = Callable[[argparse.Namespace, Path], Awaitable[dict[str, Any]]]
TOPIC: Final = "bench"
SLICE_ROWS: Final = 250_000
FIRST_RECORDS: Final = 10_000
FIRST_CASES: Final = ("spark.range", "prepared Arrow batches", "quorumlog")
CONFIGS: Final = {"flush.policy": "replicated", "retention.ms": "-1"}
"""Of topics of quorumlog: an acknowledgement waits for replicas, as in Apache Kafka."""
COMMIT_TASKS: Final = 8
COMMIT_RECORDS: Final = 1_000  # of each task
COMMITS: Final = 30
WRITTEN: Final = ("written", "written-once-or-more", "written-by-connector")


# --- systems and records ------------------------------------------------------------------------


@asynccontextmanager
async def one_broker(folder: Path) -> AsyncIterator[ours.Ours]:
    """Run one node of quorumlog in a block."""
    async with ours.nodes(folder / "quorumlog", 1) as system:
        yield system


def fill(bootstrap: str, topic: str, records: int) -> None:
    """Store records in quorumlog: values of 100 bytes, keys of 10 bytes."""
    values = pa.array([b"x" * VALUE_BYTES] * min(records, SLICE_ROWS), pa.binary())
    with quorumlog.connect(bootstrap) as log:
        log.admin.create_topic(topic, partitions=PARTITIONS, configs=CONFIGS)
        with log.producer() as producer:
            for start in range(0, records, SLICE_ROWS):
                count = min(SLICE_ROWS, records - start)
                keys = pa.array([b"key-%06d" % (row % 100_000) for row in range(count)])
                table = pa.table({"key": keys, "value": values.slice(0, count)})
                producer.send_arrow(topic, table, key="key", value="value")


def fill_kafka(port: int, topic: str, records: int) -> None:
    """Store the same records in Apache Kafka."""
    with Asker(port) as asker:
        asker.create_topic(topic, partitions=PARTITIONS, replication=1, configs={})
        asker.leaders(topic, partitions=PARTITIONS, replication=1)
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "linger.ms": 50,
            "batch.size": 128 << 10,
            "queue.buffering.max.messages": 0,
        }
    )
    value = b"x" * VALUE_BYTES
    for row in range(records):
        while True:
            try:
                producer.produce(topic, value, key=b"key-%06d" % (row % 100_000))
                break
            except BufferError:
                producer.poll(0.1)
        if row % 10_000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise Refused("Apache Kafka did not take all records")


def create(bootstrap: str, *topics: str) -> None:
    """Create the target topics."""
    with quorumlog.connect(bootstrap) as log:
        for topic in topics:
            log.admin.create_topic(topic, partitions=PARTITIONS, configs=CONFIGS)


async def played(
    part: str, folder: Path, settings: Mapping[str, Any], *, connector: bool = False
) -> dict[str, Any]:
    """Run a part in a separate process, on the Spark of the connector if requested."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.spark.jobs", part, json.dumps(settings)]
    process = await asyncio.create_subprocess_exec(
        *command,
        str(result),
        env=artifacts.connector_environment() if connector else dict(os.environ),
    )
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
    if code:
        raise SystemExit(f"part {part} ended with {code}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found


# --- parts --------------------------------------------------------------------------------------


async def read(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure batch reads."""
    async with one_broker(folder) as system:
        address = system.nodes.bootstrap
        await asyncio.to_thread(fill, address, TOPIC, options.records)
        settings = {"records": options.records, "grpc": address, "folder": str(folder)}
        found = await played("read", folder, settings | _measuring(options, broker=system.pids))
    pairs = (
        ("batch read, of prepared Arrow batches", "quorumlog", "prepared Arrow batches", ">= 0.55"),
        ("batch read, of Parquet", "quorumlog", "Parquet", ">= 0.5"),
        (
            "values alone, of prepared Arrow batches",
            "quorumlog, value",
            "prepared Arrow batches, value",
            ">= 0.55",
        ),
        ("values alone, of Parquet", "quorumlog, value", "Parquet, value", ">= 0.5"),
    )
    return {"records": options.records, **found, "compared": _compared(found["cases"], pairs)}


async def connector(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure batch reads compared with the Kafka connector."""
    async with AsyncExitStack() as stack:
        settings, pids = await _both(stack, options, folder, records=options.records)
        found = await played(
            "connector", folder, settings | _measuring(options, **pids), connector=True
        )
    pairs = (
        ("of the connector on the same broker", "quorumlog", "Kafka connector, quorumlog", ">= 5"),
        ("of the connector on Apache Kafka", "quorumlog", "Kafka connector, Apache Kafka", ">= 5"),
    )
    return {"records": options.records, **found, "compared": _compared(found["cases"], pairs)}


async def sink(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure batch writes on the installed Spark."""
    async with one_broker(folder) as system:
        address = system.nodes.bootstrap
        await asyncio.to_thread(create, address, *WRITTEN)
        settings = {"sink_records": options.sink_records, "grpc": address}
        found = await played("sink", folder, settings | _measuring(options, broker=system.pids))
    pairs = (
        ("exactly once, of counting", "quorumlog, exactly once", "counts the rows", ">= 0.6"),
        ("at least once, of counting", "quorumlog, at least once", "counts the rows", ">= 0.6"),
    )
    return {"records": options.sink_records, **found, "compared": _compared(found["cases"], pairs)}


async def sink_connector(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure batch writes compared with the Kafka connector."""
    async with AsyncExitStack() as stack:
        settings, pids = await _both(stack, options, folder, records=0)
        await asyncio.to_thread(create, settings["grpc"], *WRITTEN)
        with Asker(int(settings["peer"].rpartition(":")[2])) as asker:
            asker.create_topic(WRITTEN[2], partitions=PARTITIONS, replication=1, configs={})
        found = await played("sink", folder, settings | _measuring(options, **pids), connector=True)
    own = "quorumlog, exactly once"
    pairs = (
        (
            "exactly once, the connector on the same broker",
            own,
            "Kafka connector, quorumlog",
            ">= 2",
        ),
        (
            "exactly once, the connector on Apache Kafka",
            own,
            "Kafka connector, Apache Kafka",
            ">= 2",
        ),
    )
    return {"records": options.sink_records, **found, "compared": _compared(found["cases"], pairs)}


async def stream(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure micro-batches."""
    async with one_broker(folder) as system:
        address = system.nodes.bootstrap
        records = options.records // 2
        await asyncio.to_thread(fill, address, TOPIC, records)
        await asyncio.to_thread(fill, address, f"{TOPIC}-small", 20_000)
        settings = {"records": records, "grpc": address}
        found = await played("stream", folder, settings | _measuring(options, broker=system.pids))
    ours_, peer = (found["cases"][name] for name in ("quorumlog", "prepared Arrow batches"))
    extra_ms = ours_["batch_ms"]["triggerExecution"] - peer["batch_ms"]["triggerExecution"]
    compared = [
        comparison("rows a second, of the ceiling", ours_, peer, of="rows_per_s", goal=">= 0.8"),
        {
            "what": "ms more for a small micro-batch",
            "ratio": round(extra_ms, 1),
            "goal": "<= 30",
            "met": extra_ms <= 30,
        },
    ]
    return {"records": records, **found, "compared": compared}


async def first(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the first query of a new session; each case has separate processes."""
    cases: dict[str, list[dict[str, float]]] = {name: [] for name in FIRST_CASES}
    async with one_broker(folder) as system:
        address = system.nodes.bootstrap
        await asyncio.to_thread(fill, address, TOPIC, FIRST_RECORDS)
        for number in range(options.rounds + 1):
            for name, taken in cases.items():
                settings = {"case": name, "grpc": address, "first_records": FIRST_RECORDS}
                found = await played("first", folder, settings)
                if number:
                    taken.append(found)
    rows = {
        name: {
            part: round(statistics.median(each[part] for each in taken), 2)
            for part in ("session_s", "answer_s")
        }
        for name, taken in cases.items()
    }
    beyond = rows["quorumlog"]["answer_s"] - rows["prepared Arrow batches"]["answer_s"]
    compared = {"what": "s beyond a Python source", "ratio": round(beyond, 2), "goal": "<= 1"}
    return {"cases": rows, "compared": [{**compared, "met": beyond <= 1}]}


async def commit(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the commit of a batch of eight tasks on three replicas."""
    async with ours.nodes(folder / "quorumlog", 3) as system:
        times = await asyncio.to_thread(_commits, system.nodes.bootstrap, options)
    taken = sorted(times)
    p50, p99 = statistics.median(taken), taken[min(len(taken) - 1, int(len(taken) * 0.99))]
    return {
        "tasks": COMMIT_TASKS,
        "records": COMMIT_RECORDS,
        "commits": len(taken),
        "p50_ms": round(p50, 1),
        "p99_ms": round(p99, 1),
        "compared": [
            {"what": "commit, p50, ms", "ratio": round(p50, 1), "goal": "<= 50", "met": p50 <= 50}
        ],
    }


def _commits(bootstrap: str, options: argparse.Namespace) -> list[float]:
    values = pa.table({"value": pa.array([b"x" * VALUE_BYTES] * COMMIT_RECORDS, pa.binary())})
    times = []
    with quorumlog.connect(bootstrap) as log:
        log.admin.create_topic(TOPIC, partitions=COMMIT_TASKS, replication=3, configs=CONFIGS)
        for number in range(3 if options.quick else COMMITS):
            write = log.open_write("benchmark", number)
            results = []
            for task in range(COMMIT_TASKS):
                with log.staged_producer(write, task) as producer:
                    producer.send_arrow(TOPIC, values, value="value")
                    results.append(producer.seal())
            started = time.perf_counter()
            log.commit_write(write, results)
            times.append((time.perf_counter() - started) * 1000)
    return times[len(times) // 10 :]  # without the first ones, the warm-up


async def _both(
    stack: AsyncExitStack, options: argparse.Namespace, folder: Path, *, records: int
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Start a broker of each system; return the settings of a part and the processes."""
    if not artifacts.is_here():
        raise Refused(f"Spark's Kafka connector is not here; {artifacts.GET}")
    if not apache_kafka.is_here():
        raise Refused(apache_kafka.MISSING)
    system = await stack.enter_async_context(one_broker(folder))
    peer = await stack.enter_async_context(apache_kafka.kafka(folder / "kafka", 1))
    if records:
        await asyncio.to_thread(fill, system.nodes.bootstrap, TOPIC, records)
        await asyncio.to_thread(fill_kafka, peer.port, TOPIC, records)
    settings = {
        "records": records,
        "sink_records": options.sink_records,
        "grpc": system.nodes.bootstrap,
        "kafka": f"127.0.0.1:{system.port}",
        "peer": f"127.0.0.1:{peer.port}",
        "jars": [str(path) for path in artifacts.connector_jars()],
    }
    return settings, {"broker": system.pids, "Apache Kafka": peer.pids}


def _measuring(options: argparse.Namespace, **pids: tuple[int, ...]) -> dict[str, Any]:
    return {"rounds": options.rounds, "pids": {name: list(each) for name, each in pids.items()}}


def _compared(
    cases: Mapping[str, Mapping[str, Any]], pairs: tuple[tuple[str, str, str, str], ...]
) -> list[dict[str, Any]]:
    made = (
        comparison(what, cases[own], cases[peer], of="rows_per_s", goal=goal)
        for what, own, peer, goal in pairs
    )
    return [each for each in made if each is not None]


PARTS: Final[dict[str, Part]] = {
    "read": read,
    "connector": connector,
    "stream": stream,
    "sink": sink,
    "sink_connector": sink_connector,
    "commit": commit,
    "first": first,
}


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = parts.parser(__doc__, PARTS, rounds=3, seconds=0.0)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--sink-records", type=int, default=4_000_000)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.records, options.sink_records = 1, 40_000, 20_000
    return options


def main() -> int:
    """Measure, print, and store each part."""
    options = parsed()
    plays = {name: partial(part, options) for name, part in PARTS.items()}
    for name, result in parts.play(plays, options, prefix="quorumlog-spark-"):
        parts.say(result["compared"])
        if not options.quick:
            stored = {**machine(), "build": ours.build(), "rounds": options.rounds, **result}
            keep(f"spark_{name}", stored)
    return 0


if __name__ == "__main__":
    sys.exit(main())
