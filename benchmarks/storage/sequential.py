"""Appends and reads of a whole log, compared with bare pwrite and pread of the same bytes.

Each way writes the same number of bytes to a new file, and the bare call directly after it, so that
both have the same page cache and the same writeback; both are read while they are in the page
cache. A ratio is of such a pair; the median and the best of the ratios are printed. *Validated*
batches come from a client: parsed, CRC, each record checked, stamped, indexed. *Replicated* ones
come from a leader: CRC, order, index. The log alone works on one thread; *through the directory* is
the path of a node: appends queue, the next group is checked while the lane writes the previous one.

Run: python -m benchmarks.storage.sequential [--rounds 9] [--megabytes 256] [--dir PLACE]
Goal: at least 0.85 of the bare call, for batches of 16 KB and of 1 MiB.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter

from benchmarks.storage.subject import batch_of, keep, open_log

from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.runtime import Runtime, real
from quorumlog.storage import AppendOrigin, Log, LogConfig
from quorumlog.storage.append import LogWrite, write_fully
from quorumlog.storage.shell import DataDirectory
from quorumlog.storage.shell.append_queue import PendingAppend

KIB = 1024
GOAL = 0.85
QUEUED_BYTES = 16 << 20
CONFIG = LogConfig(segment_bytes=2**31 - 1, message_bytes_max=64 << 20)
READ_BYTES = 1 << 20


def appended(log: Log, bodies: list[bytes], origin: AppendOrigin) -> None:
    """Append batches in sequence, with a write each."""
    for body in bodies:
        write = log.appender.prepare(body, leader_epoch=0, wall_ms=0, origin=origin)
        assert isinstance(write, LogWrite), "no append is pending"
        write_fully(write.file, write.position, write.buffers)
        log.appender.complete(write)


async def queued(runtime: Runtime, folder: str, bodies: list[bytes], origin: AppendOrigin) -> float:
    """Append through a data directory with a bounded queue; return the seconds."""
    await DataDirectory.format(runtime, folder, cluster_id=ClusterId("bench"), node_id=NodeId(1))
    async with runtime.tasks.scope("bench") as scope:
        directory = await DataDirectory.open(runtime, scope, folder)
        log = await directory.open_log("bench-0", CONFIG, topic_id=TopicId(b"b" * 16))
        window = max(4, QUEUED_BYTES // len(bodies[0]))
        waiting: deque[PendingAppend] = deque()
        began = perf_counter()
        for body in bodies:
            while len(waiting) >= window:
                await waiting.popleft()
            waiting.append(
                directory.append_nowait(log, body, leader_epoch=0, origin=origin, flush=False)
            )
        while waiting:
            await waiting.popleft()
        spent = perf_counter() - began
        await directory.close()
    return spent


def batches(batch: bytes, count: int, origin: AppendOrigin) -> list[bytes]:
    """Return the batches to append; a leader's batches have their offsets."""
    if origin is not AppendOrigin.REPLICATED:
        return [batch] * count
    step = int.from_bytes(batch[23:27], "big") + 1
    return [
        (number * step).to_bytes(8, "big") + batch[8:12] + bytes(4) + batch[16:]
        for number in range(count)
    ]


def bare_write(path: str, bodies: list[bytes]) -> None:
    """Write the same bytes with the system call only."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    position = 0
    for body in bodies:
        position += os.pwrite(descriptor, body, position)
    os.close(descriptor)


def log_read(log: Log) -> int:
    """Read a log from start to end in ranges of 1 MiB; return its bytes."""
    offset, total = log.log_start_offset, 0
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=READ_BYTES)
        assert found is not None, f"no batch at {offset}"
        content = found.read_cached()
        assert content is not None, "the range was just written"
        found.release()
        total, offset = total + len(content), found.next_offset
    return total


def bare_read(path: str) -> int:
    """Read a file from start to end, 1 MiB per call; return its bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    position = 0
    while content := os.pread(descriptor, READ_BYTES, position):
        position += len(content)
    os.close(descriptor)
    return position


def seconds(work: Callable[[], object]) -> float:
    """Return the duration of some work."""
    began = perf_counter()
    work()
    return perf_counter() - began


def round_of(folder: str, batch: bytes, count: int) -> Iterator[tuple[str, float, float]]:
    """Measure every way once: (name, its MB/s, those of the bare call directly after it)."""
    megabytes = count * len(batch) / 1e6
    path = f"{folder}/bare"
    for name, origin in (
        ("validated", AppendOrigin.CLIENT),
        ("replicated", AppendOrigin.REPLICATED),
    ):
        bodies = batches(batch, count, origin)
        log = open_log(f"{folder}/bench-0", CONFIG)
        alone = seconds(lambda: appended(log, bodies, origin))  # noqa: B023
        reading = min(seconds(lambda: log_read(log)) for _ in range(2))  # noqa: B023
        log.close("measured")
        shutil.rmtree(f"{folder}/bench-0")
        bare = seconds(lambda: bare_write(path, bodies))  # noqa: B023
        bare_reading = min(seconds(lambda: bare_read(path)) for _ in range(2))
        os.remove(path)
        yield f"append, {name}: the log alone", megabytes / alone, megabytes / bare
        yield "read", megabytes / reading, megabytes / bare_reading
        directory = real.run(
            lambda rt: queued(rt, f"{folder}/data", bodies, origin)  # noqa: B023
        )
        shutil.rmtree(f"{folder}/data")
        bare = seconds(lambda: bare_write(path, bodies))  # noqa: B023
        os.remove(path)
        yield f"append, {name}: through the directory", megabytes / directory, megabytes / bare


def main() -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=256, help="bytes of each way, in millions")
    parser.add_argument("--dir", default=None, help="where to write; a temporary folder otherwise")
    options = parser.parse_args()
    rows = []
    for label, size in (("16 KB", 16 * KIB), ("1 MiB", KIB * KIB)):
        batch = batch_of(size)
        count = max(1, options.megabytes * 1_000_000 // len(batch))
        folder = tempfile.mkdtemp(prefix="quorumlog-sequential-", dir=options.dir)
        measured: dict[str, list[tuple[float, float]]] = {}
        try:
            for turn in range(options.rounds + 1):
                for name, rate, bare in round_of(folder, batch, count):
                    if turn:  # the first one warms up
                        measured.setdefault(name, []).append((rate, bare))
        finally:
            shutil.rmtree(folder)
        for name, pairs in measured.items():
            rows.append(
                {
                    "batches": label,
                    "what": name,
                    "mb_per_s": round(statistics.median(rate for rate, _ in pairs)),
                    "bare_mb_per_s": round(statistics.median(bare for _, bare in pairs)),
                    "ratio": round(statistics.median(rate / bare for rate, bare in pairs), 2),
                    "best_ratio": round(max(rate / bare for rate, bare in pairs), 2),
                }
            )
    keep("sequential", rows, goal=GOAL, rounds=options.rounds, megabytes=options.megabytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
