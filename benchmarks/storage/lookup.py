"""The lookup of an offset in a log of many segments, in microseconds.

The log has one small batch per segment, so that only the number of segments grows. *Segment* is the
search among the segments; *range* is `Log.read`: in addition the index, the probe of a header and
the lease on the file. Open files and files that must be opened are separate rows, since no limit of
descriptors can avoid the latter.

Run: python -m benchmarks.storage.lookup [--segments 10000]
Goal: under 10 microseconds with 10,000 segments.
"""

import argparse
import random
import shutil
import statistics
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable
from time import perf_counter_ns

from benchmarks.storage.subject import batch_of, keep, open_log

from quorumlog.storage import AppendOrigin, Log, LogConfig
from quorumlog.storage.append import LogWrite, write_fully

GOAL_US = 10.0
LOOKUPS = 20_000
NEAR = 64
"""The segments of repeated lookups: their files are open."""


def filled(folder: str, segments: int) -> Log:
    """Return a log of so many segments."""
    batch = batch_of(1024)
    log = open_log(folder, LogConfig(segment_bytes=len(batch)))
    for _ in range(segments):
        write = log.appender.prepare(batch, leader_epoch=0, wall_ms=0, origin=AppendOrigin.CLIENT)
        assert isinstance(write, LogWrite), "no append is pending"
        write_fully(write.file, write.position, write.buffers)
        log.appender.complete(write)
    return log


def median_us(work: Callable[[int], object], offsets: list[int]) -> float:
    """Return the median microseconds of a call for each offset."""
    times = []
    for offset in offsets:
        start = perf_counter_ns()
        work(offset)
        times.append(perf_counter_ns() - start)
    return statistics.median(times) / 1000


def read(log: Log, offset: int) -> None:
    """Read the range of one batch, and release it."""
    found = log.read(offset, max_bytes=1)
    assert found is not None, f"no batch at {offset}"
    found.release()


def main() -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--dir", default=None, help="where to write; a temporary folder otherwise")
    options = parser.parse_args()
    draw = random.Random(1)
    rows = []
    for segments in (10, 100, 1_000, options.segments):
        folder = tempfile.mkdtemp(prefix="quorumlog-lookup-", dir=options.dir)
        try:
            log = filled(f"{folder}/bench-0", segments)
            bases = log.segment_bases
            end = log.log_end_offset
            near = bases[-NEAR] if segments > NEAR else 0
            anywhere = [draw.randrange(end) for _ in range(LOOKUPS)]
            close_by = [draw.randrange(near, end) for _ in range(LOOKUPS)]
            for offset in close_by[:1000]:
                read(log, offset)
            rows.append(
                {
                    "segments": segments,
                    "segment_us": round(median_us(lambda o: bisect_right(bases, o), anywhere), 2),  # noqa: B023
                    "range_us": round(median_us(lambda o: read(log, o), close_by), 2),  # noqa: B023
                    "range_anywhere_us": round(
                        median_us(lambda o: read(log, o), anywhere),  # noqa: B023
                        2,
                    ),
                }
            )
            log.close("measured")
        finally:
            shutil.rmtree(folder)
    keep("lookup", rows, goal_us=GOAL_US)
    return 0


if __name__ == "__main__":
    sys.exit(main())
