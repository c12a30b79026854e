"""Durable appends compared with bare fdatasync: the effect of group commit.

So many callers append small batches to one log with `flush.policy=fsync`, each awaits its response
before the next. The bare loop is the minimum cost of one caller: a write of the same bytes and an
fdatasync. Group commit shares one sync between all waiting callers, so the rate should grow with
the callers while the syncs per second stay those of the disk.

Run: python -m benchmarks.storage.group_commit [--seconds 3]
"""

import argparse
import os
import shutil
import sys
import tempfile
from functools import partial
from time import perf_counter

from benchmarks.storage.subject import batch_of, keep

from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.runtime import Runtime, real
from quorumlog.storage import AppendOrigin, FlushPolicy, LogConfig
from quorumlog.storage.shell import DataDirectory

CALLERS = (1, 4, 16, 64, 256)
BATCH_BYTES = 4096


def bare(path: str, batch: bytes, seconds: float) -> float:
    """Write and sync repeatedly; return the rate per second."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    count = position = 0
    began = perf_counter()
    while perf_counter() - began < seconds:
        position += os.pwrite(descriptor, batch, position)
        os.fdatasync(descriptor)
        count += 1
    spent = perf_counter() - began
    os.close(descriptor)
    return count / spent


async def grouped(
    runtime: Runtime, path: str, batch: bytes, *, callers: int, seconds: float
) -> float:
    """Append from so many callers; return the acknowledged appends per second."""
    await DataDirectory.format(runtime, path, cluster_id=ClusterId("bench"), node_id=NodeId(1))
    done = 0
    config = LogConfig(flush_policy=FlushPolicy.FSYNC)
    async with runtime.tasks.scope("bench") as scope:
        directory = await DataDirectory.open(runtime, scope, path)
        log = await directory.open_log("bench-0", config, topic_id=TopicId(b"b" * 16))
        began = perf_counter()

        async def caller() -> None:
            nonlocal done
            while perf_counter() - began < seconds:
                await directory.append(
                    log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
                )
                done += 1

        async with runtime.tasks.scope("callers") as calling:
            for number in range(callers):
                calling.spawn(caller(), name=f"caller {number}")
        spent = perf_counter() - began
        await directory.close()
    return done / spent


def main() -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each row")
    parser.add_argument("--dir", default=None, help="where to write; a temporary folder otherwise")
    options = parser.parse_args()
    batch = batch_of(BATCH_BYTES)
    rows: list[dict[str, object]] = []
    for callers in CALLERS:
        folder = tempfile.mkdtemp(prefix="quorumlog-commit-", dir=options.dir)
        try:
            syncs = bare(f"{folder}/bare", batch, options.seconds / 2)
            work = partial(
                grouped,
                path=f"{folder}/data",
                batch=batch,
                callers=callers,
                seconds=options.seconds,
            )
            rate = real.run(work)
            syncs = (syncs + bare(f"{folder}/bare", batch, options.seconds / 2)) / 2
        finally:
            shutil.rmtree(folder)
        rows.append(
            {
                "callers": callers,
                "appends_per_s": round(rate),
                "bare_syncs_per_s": round(syncs),
                "ratio": round(rate / syncs, 2),
            }
        )
    keep("group_commit", rows, batch_bytes=len(batch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
