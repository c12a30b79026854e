"""One round of compaction over a log with many records per key.

The log has random 100-byte values under random keys in segments of 256 MiB, in batches of 64 KB as
from a busy producer. The round runs without interruption and without the throttle of a node. The
rate is that of the bytes that the rewrite reads, which is the size of the log; the round reads it
twice (once for the keys). The comparison is a bare copy: the files read, written once and synced.
Memory is the growth of the process's memory at its peak.

Run: python -m benchmarks.storage.compaction [--records 10000000] [--keys 1000000]
Goal: at least 50 MB/s with 10 million records over 1 million keys, within the limit of the key map
and a few buffers.
"""

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter

import pyarrow as pa
from benchmarks.storage.subject import FIRST_MS, keep, open_log

from quorumlog.records.arrow import encode_arrow
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import AppendOrigin, LogConfig
from quorumlog.storage.append import LogWrite, write_fully
from quorumlog.storage.cleaner import CleaningPlan, CleaningRun
from quorumlog.storage.flush import perform_flush
from quorumlog.storage.layout import LOG_SUFFIX, join, segment_file
from quorumlog.storage.segment_files import SourceSegment

GOAL_MB_PER_S = 50
MIB = 1 << 20
SEGMENT_BYTES = 256 * MIB
BATCH_BYTES = 64 * 1024
MAP_BYTES = 64 * MIB
SLICE_BYTES = 4 * MIB
CHUNK = 100_000
VALUE_BYTES = 100


def fill(folder: str, records: int, keys: int) -> list[SourceSegment]:
    """Write the log; return its segments, none of which is active."""
    draw = random.Random(1)
    log = open_log(folder, LogConfig(segment_bytes=SEGMENT_BYTES, compacted=True))
    value_type = pa.binary(VALUE_BYTES)
    for first in range(0, records, CHUNK):
        count = min(CHUNK, records - first)
        values = pa.Array.from_buffers(
            value_type, count, [None, pa.py_buffer(draw.randbytes(count * VALUE_BYTES))]
        )
        named = pa.array([b"key-%08d" % draw.randrange(keys) for _ in range(count)], pa.binary())
        for batch in encode_arrow(
            values, keys=named, timestamp_ms=FIRST_MS, batch_bytes=BATCH_BYTES
        ):
            write = log.appender.prepare(
                batch, leader_epoch=0, wall_ms=FIRST_MS, origin=AppendOrigin.CLIENT
            )
            assert isinstance(write, LogWrite), "no append is pending"
            write_fully(write.file, write.position, write.buffers)
            log.appender.complete(write)
    flush = log.flusher.begin(is_last=True)
    perform_flush(RealFiles(), flush)
    log.flusher.complete(flush)
    bases = log.segment_bases
    ends = [*bases[1:], log.log_end_offset]
    log.close("filled")
    segments = []
    for base, end in zip(bases, ends, strict=True):
        path = join(folder, segment_file(base, LOG_SUFFIX))
        size = os.path.getsize(path)
        segments.append(SourceSegment(path=path, base_offset=base, end_offset=end, size=size))
    return segments


class Peak:
    """The highest memory of this process during the measurement, in bytes above that before it."""

    def __init__(self) -> None:
        self.bytes = 0
        self._before = _resident()
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def end(self) -> int:
        """Stop the measurement; return the peak."""
        self._is_over.set()
        self._watcher.join()
        return self.bytes

    def _watch(self) -> None:
        while not self._is_over.wait(0.02):
            self.bytes = max(self.bytes, _resident() - self._before)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def bare_copy(segments: list[SourceSegment], folder: str) -> float:
    """Copy the same files and sync the copies; return the seconds."""
    began = perf_counter()
    for number, segment in enumerate(segments):
        with open(segment.path, "rb") as source, open(f"{folder}/copy-{number}", "wb") as copy:
            while content := source.read(4 * MIB):
                copy.write(content)
            copy.flush()
            os.fdatasync(copy.fileno())
    return perf_counter() - began


def main() -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--dir", default=None, help="where to write; a temporary folder otherwise")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="quorumlog-compaction-", dir=options.dir)
    try:
        segments = fill(f"{folder}/bench-0", options.records, options.keys)
        size = sum(segment.size for segment in segments)
        copied = bare_copy(segments, folder)
        cleaning = CleaningRun(
            CleaningPlan(
                segments=tuple(segments),
                first_dirty_offset=0,
                end_offset=segments[-1].end_offset,
                wall_ms=FIRST_MS,
                seed=os.urandom(16),
                map_bytes=MAP_BYTES,
                segment_bytes=SEGMENT_BYTES,
                index_bytes_max=10 * MIB,
                index_interval_bytes=4096,
                delete_retention_ms=24 * 3600 * 1000,
                inflate_bytes_max=64 * MIB,
            )
        )
        files, peak, longest = RealFiles(), Peak(), 0.0
        began = cpu = perf_counter()
        spent_before = resource.getrusage(resource.RUSAGE_SELF)
        while not cleaning.finished:
            cpu = perf_counter()
            cleaning.step(files, budget_bytes=SLICE_BYTES)
            longest = max(longest, perf_counter() - cpu)
        spent = perf_counter() - began
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = usage.ru_utime - spent_before.ru_utime + usage.ru_stime - spent_before.ru_stime
        memory = peak.end()
        left = sum(group.size for group in cleaning.groups)
    finally:
        shutil.rmtree(folder)
    row = {
        "records": options.records,
        "keys": options.keys,
        "log_mb": round(size / 1e6),
        "left_mb": round(left / 1e6),
        "seconds": round(spent, 1),
        "cpu_s": round(cpu_s, 1),
        "mb_per_s": round(size / 1e6 / spent),
        "of_bare_copy": round(copied / spent, 2),
        "longest_slice_ms": round(longest * 1000),
        "map_mb": round(MAP_BYTES / 1e6),
        "memory_mb": round(memory / 1e6),
    }
    keep("compaction", [row], goal_mb_per_s=GOAL_MB_PER_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
