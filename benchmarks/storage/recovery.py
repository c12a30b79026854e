"""Recovery after an unclean stop reads only the bytes above the recovery point.

A log is filled, its recovery point is set to a share of it, and it is opened as after a crash. The
bytes read are those of the kernel (`rchar` of /proc/self/io), independent of the product's code.
The comparison is a bare sequential read of the bytes above the point.

Run: python -m benchmarks.storage.recovery [--megabytes 2000]
Goal: of 2 GB only the bytes above the recovery point are read.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.storage.subject import FIRST_MS, batch_of, keep

from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.runtime import Runtime, real
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import AppendOrigin, LogConfig
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.shell import DataDirectory

SEGMENT_BYTES = 256 << 20
SHARES = (1.0, 0.99, 0.9, 0.0)
"""Recovery points as shares of the log, from all synced to none."""


def bytes_read() -> int:
    """Return the bytes that this process has read so far, by the kernel's count."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


async def fill(runtime: Runtime, path: str, megabytes: int) -> tuple[int, int]:
    """Fill a log through its directory, which stores all its files; return its end offset and its
    bytes."""
    batch = batch_of(1_000_000)
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    await DataDirectory.format(runtime, path, cluster_id=ClusterId("bench"), node_id=NodeId(1))
    async with runtime.tasks.scope("fill") as scope:
        directory = await DataDirectory.open(runtime, scope, path)
        log = await directory.open_log("bench-0", config, topic_id=TopicId(b"b" * 16))
        for _ in range(megabytes):
            await directory.append(
                log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
            )
        end, size = log.log_end_offset, log.size_bytes
        await directory.close()
    return end, size


def measure(folder: str, point: int) -> tuple[float, int]:
    """Recover once; return the seconds and the bytes read."""
    recovery = Recovery(
        folder=folder,
        config=LogConfig(segment_bytes=SEGMENT_BYTES),
        is_clean=False,
        recovery_point=point,
        log_start_offset=0,
        torn_bytes_max=None,
        wall_ms=FIRST_MS,
    )
    before, began = bytes_read(), perf_counter()
    recover(RealFiles(), recovery)
    return perf_counter() - began, bytes_read() - before


def bare(folder: str, size: int) -> float:
    """Read so many bytes of the newest segments; return the seconds."""
    began = perf_counter()
    for path in sorted(Path(folder).glob("*.log"), reverse=True):
        descriptor = os.open(path, os.O_RDONLY)
        position = 0
        while size > 0 and (content := os.pread(descriptor, 1 << 20, position)):
            position += len(content)
            size -= len(content)
        os.close(descriptor)
    return perf_counter() - began


def main() -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the log, in millions")
    parser.add_argument("--dir", default=None, help="where to write; a temporary folder otherwise")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="quorumlog-recovery-", dir=options.dir)
    rows = []
    try:
        data = f"{folder}/data"
        end, size = real.run(lambda runtime: fill(runtime, data, options.megabytes))
        path = f"{data}/bench-0"
        for share in SHARES:
            spent, read = measure(path, int(end * share))
            above = int(size * (1 - share))
            rows.append(
                {
                    "recovery_point": share,
                    "above_mb": round(above / 1e6),
                    "read_mb": round(read / 1e6),
                    "seconds": round(spent, 2),
                    "bare_read_s": round(bare(path, above), 2) if above else None,
                }
            )
    finally:
        shutil.rmtree(folder)
    keep("recovery", rows, log_mb=round(size / 1e6), segment_mb=round(SEGMENT_BYTES / 1e6))
    return 0


if __name__ == "__main__":
    sys.exit(main())
