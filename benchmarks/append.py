"""The time that a log's Python code adds to its reads and writes, in microseconds.

Run it as `python benchmarks/append.py`. Append: one 16 KB batch of 100-byte records from a
producer: header, CRC, validation of its records, stamp, index and bookkeeping are counted, the
write is not (it is printed beside, as is a bare pwritev of the same bytes). Read: the lookup of a 1
MiB range and its lease, in a log in the page cache; the copy of the bytes is printed beside, as is
a bare preadv of as many. The results are medians without a goal.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any

from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records import codec
from quorumlog.records.batch import parse_header
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.records.validate import ValidationMode
from quorumlog.runtime import Runtime, real
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import AppendOrigin, Log, LogConfig
from quorumlog.storage.append import accept_append, accept_batch, write_fully
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.index import IndexCache
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.shell import DataDirectory

BATCH_BYTES = 16 * 1024
RANGE_BYTES = 1024 * 1024
BURST = 256
LOG_BYTES = 256 * 1024 * 1024
RESULTS = Path(__file__).parent / "results" / "append.json"
BUDGETS = {
    "append: bookkeeping": 12.0,
    "read: finding the range": 20.0,
    "directory: CPU of the loop, in bursts": 18.0,
}


def batch_of(size: int) -> bytes:
    """Return one batch of 100-byte values, at most `size` bytes."""
    records = [
        Record(
            offset=0,
            timestamp_ms=1_700_000_000_000 + i,
            key=None,
            value=os.urandom(100),
            headers=(),
        )
        for i in range((size - 61) // 109)
    ]
    return encode_batch(records)


def open_log(folder: str) -> Log:
    """Return an empty log."""
    config = LogConfig()
    recovery = Recovery(
        folder=folder,
        config=config,
        is_clean=True,
        recovery_point=0,
        log_start_offset=0,
        torn_bytes_max=0,
        wall_ms=0,
    )
    files = RealFiles()
    return Log(
        FilePool(files, open_files_max=10),
        IndexCache(1 << 20),
        name="bench-0",
        folder=folder,
        config=config,
        topic_id=None,
        state=recover(files, recovery),
    )


def timed(count: int, work: Callable[[], Any]) -> list[float]:
    """Return the microseconds of each of `count` calls."""
    times = []
    for _ in range(count):
        start = perf_counter_ns()
        work()
        times.append((perf_counter_ns() - start) / 1000)
    return times


def measure_append(log: Log, batch: bytes) -> dict[str, list[float]]:
    """Fill the log; return microseconds by step."""
    header = parse_header(batch)
    config = log.config
    steps: dict[str, list[float]] = {"append: bookkeeping": [], "append: write": []}
    for _ in range(LOG_BYTES // len(batch)):
        start = perf_counter_ns()
        write = log.appender.prepare(batch, leader_epoch=0, wall_ms=0, origin=AppendOrigin.CLIENT)
        prepared = perf_counter_ns()
        assert write is not None, "no append is pending"
        write_fully(write.file, write.position, write.buffers)
        written = perf_counter_ns()
        log.appender.complete(write)
        end = perf_counter_ns()
        steps["append: bookkeeping"].append((prepared - start + end - written) / 1000)
        steps["append: write"].append((written - prepared) / 1000)
    steps["append: of it the check"] = timed(
        2000, lambda: accept_append(batch, config, origin=AppendOrigin.CLIENT, wall_ms=0)
    )
    steps["append: the check, rule by rule"] = timed(
        200, lambda: accept_batch(batch, 0, header, config, wall_ms=0)
    )
    return steps


def measure_read(log: Log) -> dict[str, list[float]]:
    """Read the log from end to end; return microseconds by step."""
    steps: dict[str, list[float]] = {"read: finding the range": [], "read: copy of 1 MiB": []}
    for _ in range(4):
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            start = perf_counter_ns()
            found = log.read(offset, max_bytes=RANGE_BYTES)
            located = perf_counter_ns()
            assert found is not None, f"no batch at {offset}"
            content = found.read_cached()
            copied = perf_counter_ns()
            found.release()
            end = perf_counter_ns()
            assert content is not None, "the log was just written"
            steps["read: finding the range"].append((located - start + end - copied) / 1000)
            steps["read: copy of 1 MiB"].append((copied - located) / 1000)
            offset = found.next_offset
    return steps


async def measure_directory(runtime: Runtime, path: str, batch: bytes) -> dict[str, list[float]]:
    """Append through the directory's queue; return microseconds with the write, for calls awaited
    one at a time, and the loop's CPU time of an append of a burst, which the lane writes."""
    await DataDirectory.format(runtime, path, cluster_id=ClusterId("bench"), node_id=NodeId(1))
    times, bursts = [], []
    async with runtime.tasks.scope("bench") as scope:
        directory = await DataDirectory.open(runtime, scope, path)
        log = await directory.open_log("bench-0", LogConfig(), topic_id=TopicId(b"b" * 16))
        for number in range(4000):
            start = perf_counter_ns()
            await directory.append(
                log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
            )
            times.append((perf_counter_ns() - start) / 1000)
            if number % 64 == 0:
                await asyncio.sleep(0)
        for _ in range(40):
            start = thread_time_ns()
            burst = [
                directory.append_nowait(
                    log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
                )
                for _ in range(BURST)
            ]
            for answer in burst:
                await answer
            bursts.append((thread_time_ns() - start) / BURST / 1000)
        await directory.close()
    return {
        "directory: append with its write": times,
        "directory: CPU of the loop, in bursts": bursts,
    }


def measure_bare(path: str, batch: bytes) -> dict[str, list[float]]:
    """Write and read the same sizes with the bare system calls."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    buffers: list[bytes | memoryview] = [batch[:16], memoryview(batch)[16:]]
    position = 0
    writes = []
    for _ in range(4000):
        start = perf_counter_ns()
        position += os.pwritev(descriptor, buffers, position)
        writes.append((perf_counter_ns() - start) / 1000)
    at = iter(range(0, position - RANGE_BYTES, RANGE_BYTES))
    reads = timed(position // RANGE_BYTES - 1, lambda: os.pread(descriptor, RANGE_BYTES, next(at)))
    os.close(descriptor)
    return {"bare: pwritev of the batch": writes, "bare: pread of 1 MiB": reads}


def main() -> int:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=None, help="where to write; a temporary folder otherwise")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="quorumlog-append-", dir=options.dir)
    try:
        batch = batch_of(BATCH_BYTES)
        log = open_log(f"{folder}/bench-0")
        steps = measure_append(log, batch)
        steps |= measure_read(log)
        log.close("measured")
        steps |= real.run(lambda rt: measure_directory(rt, f"{folder}/data", batch))
        steps |= measure_bare(f"{folder}/bare", batch)
    finally:
        shutil.rmtree(folder)
    rows = {
        name: {
            "median_us": round(statistics.median(times), 2),
            "p99_us": round(statistics.quantiles(times, n=100)[98], 2),
            "calls": len(times),
            "budget_us": BUDGETS.get(name),
        }
        for name, times in steps.items()
    }
    report = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "codec": "compiled" if codec.COMPILED else "plain",
        "record_validation": ValidationMode.FULL,
        "batch_bytes": len(batch),
        "rows": rows,
    }
    print(f"{'microseconds':36}{'median':>10}{'p99':>10}{'budget':>10}")
    for name, row in rows.items():
        print(f"{name:36}{row['median_us']:>10}{row['p99_us']:>10}{row['budget_us'] or '':>10}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
