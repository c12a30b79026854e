"""Records per second of building batches and of reading them into Arrow, compared with two public
codecs.

The peers are aiokafka's C extension and kafka-python's plain Python; all build and read the same
records on one core, uncompressed and with CRC-32C, in rounds that alternate, without the garbage
collector; built batches are dropped at once, as a producer drops sent ones. quorumlog builds from
Arrow columns and from record objects; the others take one record per call. *Into Arrow* ends in the
same four columns for each (key, value, offset, timestamp), *records* in objects. Medians, and their
ratio to aiokafka's.

Run: python -m benchmarks.storage.codec_beside_aiokafka [--seconds 6]
Goal: at least 5 times aiokafka, for building and for reading into Arrow.
"""

import argparse
import gc
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from aiokafka.record import MemoryRecords as AioRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from benchmarks.storage.subject import keep

from quorumlog.records.arrow import arrow_schema, decode_arrow, record_columns
from quorumlog.records.codec import decode_all, encode_batch, encode_batches
from quorumlog.records.columns import RecordColumns
from quorumlog.records.record import Record

with warnings.catch_warnings():  # its schemas use a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords as KafkaPythonRecords
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

GOAL = 5.0
TOTAL_BYTES = 4 * 1024 * 1024  # of values in a round: a fetch of several partitions
SLOW_SHARE = 8  # divisor of the records for kafka-python
VALUE_SIZES = (100, 1024)
BATCH_SIZES = (16 * 1024, 128 * 1024, 1024 * 1024)
COLUMNS = ("key", "value", "offset", "timestamp")
T0 = 1_750_000_000_000

Work = Callable[[], Any]


@dataclass(frozen=True)
class Input:
    """The same records in every form that a row needs."""

    records: list[Record]
    columns: RecordColumns
    batches: list[bytes]  # as stored in a log
    groups: list[list[Record]]  # the records of each batch


def make_input(value_size: int, batch_bytes: int, total_bytes: int) -> Input:
    """Return `total_bytes` of random values with keys of eight bytes."""
    count = total_bytes // value_size
    records = [
        Record(index, T0 + index, b"%08d" % index, os.urandom(value_size)) for index in range(count)
    ]
    columns = record_columns(
        pa.array([record.value for record in records], pa.binary()),
        keys=pa.array([record.key for record in records], pa.binary()),
        timestamps_ms=pa.array([record.timestamp_ms for record in records], pa.int64()),
    )
    batches = list(encode_batches(columns, batch_bytes=batch_bytes))
    return Input(records, columns, batches, [decode_all(batch) for batch in batches])


def build_by(builder: Any, groups: list[list[Record]], batch_bytes: int) -> None:
    """Build the batches record by record with a peer's builder."""
    for group in groups:
        batch = builder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=2 * batch_bytes,
        )
        for index, record in enumerate(group):
            batch.append(
                index,
                timestamp=record.timestamp_ms,
                key=record.key,
                value=record.value,
                headers=[],
            )
        batch.build()


def read_by(reader: Any, buffer: bytes) -> list[Any]:
    """Read all records as a peer's objects, with a check of each batch's CRC, as in quorumlog."""
    records: list[Any] = []
    batches = reader(buffer)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise SystemExit("a peer finds a wrong CRC")
        records.extend(batch)
    return records


def arrow_by(reader: Any, buffer: bytes) -> pa.RecordBatch:
    """Read into the same columns as `decode_arrow`."""
    records = read_by(reader, buffer)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp * 1000 for record in records], pa.int64()).cast(
                pa.timestamp("us", tz="UTC")
            ),
        ],
        schema=arrow_schema(COLUMNS),
    )


def peer_works(
    name: str, builder: Any, reader: Any, given: Input, batch_bytes: int
) -> dict[str, Work]:
    """Return the work of a peer, by row."""
    buffer = b"".join(given.batches)
    return {
        f"build, {name}": lambda: build_by(builder, given.groups, batch_bytes),
        f"read into Arrow, {name}": lambda: arrow_by(reader, buffer),
        f"read records, {name}": lambda: read_by(reader, buffer),
    }


def our_works(given: Input, batch_bytes: int) -> dict[str, Work]:
    """Return the work of quorumlog, by row."""
    buffer = b"".join(given.batches)

    def from_arrow() -> None:
        for _ in encode_batches(given.columns, batch_bytes=batch_bytes):
            pass

    def from_objects() -> None:
        for group in given.groups:
            encode_batch(group)

    return {
        "build, ours from Arrow": from_arrow,
        "build, ours from objects": from_objects,
        "read into Arrow, ours": lambda: decode_arrow(buffer, columns=COLUMNS),
        "read records, ours": lambda: decode_all(buffer),
    }


def check_alike(given: Input) -> None:
    """Check before the measurement that all of them read the same."""
    buffer = b"".join(given.batches)
    expected = decode_arrow(buffer, columns=COLUMNS)
    for reader in (AioRecords, KafkaPythonRecords):
        if not arrow_by(reader, buffer).equals(expected):
            raise SystemExit(f"{reader} reads other records than quorumlog")


def measure(value_size: int, batch_bytes: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return each row's median rate, and its ratio to aiokafka's; rounds alternate."""
    given = make_input(value_size, batch_bytes, TOTAL_BYTES)
    few = make_input(value_size, batch_bytes, TOTAL_BYTES // SLOW_SHARE)
    check_alike(few)
    works = {
        name: (work, len(given.records)) for name, work in our_works(given, batch_bytes).items()
    }
    for name, work in peer_works("aiokafka", AioBuilder, AioRecords, given, batch_bytes).items():
        works[name] = (work, len(given.records))
    plain = peer_works("kafka-python", KafkaPythonBuilder, KafkaPythonRecords, few, batch_bytes)
    for name, work in plain.items():
        works[name] = (work, len(few.records))
    rates: dict[str, list[float]] = {name: [] for name in works}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rates["read records, ours"]) < 3:
        for name, (work, count) in works.items():
            start = time.thread_time()
            work()
            rates[name].append(count / (time.thread_time() - start))
    medians = {name: statistics.median(passes) for name, passes in rates.items()}
    return {
        name: {
            "records_per_s": rate,
            "ratio": rate / medians[f"{name.partition(',')[0]}, aiokafka"],
        }
        for name, rate in medians.items()
    }


def main() -> int:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="time for each block of rows")
    seconds = parser.parse_args().seconds
    if "crecords" not in AioBuilder.__module__:
        print("aiokafka runs without its C extension: the ratios say nothing", file=sys.stderr)
        return 1
    gc.disable()
    rows = []
    for value_size in VALUE_SIZES:
        for batch_bytes in BATCH_SIZES:
            for name, row in sorted(measure(value_size, batch_bytes, seconds).items()):
                what, _, who = name.partition(", ")
                rows.append(
                    {
                        "value_bytes": value_size,
                        "batch_kib": batch_bytes // 1024,
                        "what": what,
                        "who": who,
                        "million_records_per_s": round(row["records_per_s"] / 1e6, 2),
                        "of_aiokafka": round(row["ratio"], 2),
                    }
                )
            gc.collect()
    keep("codec_beside_aiokafka", rows, goal_of_aiokafka=GOAL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
