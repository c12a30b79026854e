"""Records per second on one core: encoding and decoding of 100-byte values, compiled and plain.

Run it as `python benchmarks/codec.py`. Everything includes the CRC-32C of every batch. The working
set is 8 MB, a large fetch; encoded batches are dropped immediately, as a producer drops sent ones.
A copy of the same values is the ceiling, printed beside. The results are the best and the median of
repeated passes, by the thread's CPU time, which on an idle machine is the wall time; there is no
goal.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from quorumlog.records import _plain, codec
from quorumlog.records.arrow import decode_arrow, record_columns
from quorumlog.records.batch import parse_header
from quorumlog.records.codec import decode_all, encode_batch, encode_batches
from quorumlog.records.columns import RecordColumns
from quorumlog.records.validate import ValidationMode, validate_batch

VALUE_SIZE = 100
RECORDS = 80_000
RECORDS_PLAIN = 4_000
BATCH_SIZES = (16 * 1024, 128 * 1024, 1024 * 1024)
RESULTS = Path(__file__).parent / "results" / "codec.json"


def table(count: int) -> RecordColumns:
    """Return `count` values of 100 random bytes, without keys."""
    ends = array("i", range(0, VALUE_SIZE * count + 1, VALUE_SIZE))
    data = os.urandom(VALUE_SIZE * count)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return record_columns(pa.Array.from_buffers(pa.binary(), count, buffers))


def rates(count: int, work: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Return the best and the median rate of `work` in records per second, repeated for about
    `seconds`."""
    work()
    passes: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(passes) < 3:
        start = time.thread_time()
        work()
        passes.append(count / (time.thread_time() - start))
    return {"best": max(passes), "median": statistics.median(passes), "passes": len(passes)}


def measure(count: int, batch_bytes: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return the rates of the selected codec, by operation."""
    columns = table(count)
    buffer = b"".join(encode_batches(columns, batch_bytes=batch_bytes))
    records = decode_all(buffer)[:RECORDS_PLAIN]
    few = encode_batch(records)

    def validate() -> None:
        position = 0
        while position < len(buffer):
            header = parse_header(buffer, position)
            validate_batch(
                buffer, position, header, mode=ValidationMode.FULL, max_bytes=2 * batch_bytes
            )
            position += header.size

    def encode() -> None:
        for _ in encode_batches(columns, batch_bytes=batch_bytes):
            pass

    return {
        "encode from Arrow": rates(count, encode, seconds),
        "decode to Arrow, value": rates(
            count, lambda: decode_arrow(buffer, columns=("value",)), seconds
        ),
        "decode to Arrow, five columns": rates(count, lambda: decode_arrow(buffer), seconds),
        "validate every record": rates(count, validate, seconds),
        "encode from objects": rates(len(records), lambda: encode_batch(records), seconds),
        "decode to objects": rates(len(records), lambda: decode_all(few), seconds),
    }


def ceilings(seconds: float) -> dict[str, dict[str, float]]:
    """Return the rates of a bare copy of the values, and of their CRC."""
    source = memoryview(os.urandom(VALUE_SIZE * RECORDS))
    return {
        "memcpy of the values": rates(RECORDS, lambda: bytes(source), seconds),
        "CRC-32C of the values": rates(RECORDS, lambda: crc32c(source), seconds),
    }


def machine() -> dict[str, Any]:
    """Return the conditions of the measurement."""
    model = platform.processor() or "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "load": os.getloadavg()[0],
        "codec": codec.describe(),
    }


def print_rows(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Print one block of the table, in millions of records per second."""
    print(f"\n{title:<44}{'best':>8}{'median':>8}   M records/s")
    for name, row in rows.items():
        print(f"  {name:<42}{row['best'] / 1e6:8.2f}{row['median'] / 1e6:8.2f}")


def main() -> int:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.8, help="time for each row")
    seconds = parser.parse_args().seconds
    results: dict[str, Any] = {"machine": machine(), "rows": {}}
    for key, value in results["machine"].items():
        print(f"{key:<8} {value}")
    kernels: list[tuple[str, ModuleType, int, float]] = [
        ("plain", _plain, RECORDS_PLAIN, seconds / 10)
    ]
    if codec.COMPILED:
        kernels.insert(0, ("compiled", getattr(codec, "_kernel"), RECORDS, seconds))  # noqa: B009
    for name, kernel, count, time_each in kernels:
        setattr(codec, "_kernel", kernel)  # noqa: B010 -- private: the switch is for this script only
        for batch_bytes in BATCH_SIZES:
            title = f"{name}, batches of {batch_bytes // 1024} KiB"
            results["rows"][title] = measure(count, batch_bytes, time_each)
            print_rows(title, results["rows"][title])
    results["rows"]["ceilings"] = ceilings(seconds)
    print_rows("ceilings", results["rows"]["ceilings"])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\nstored in {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
