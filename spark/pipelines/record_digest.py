"""Checksums and offset statistics of the records of a partition. Pure.

The hash of a record is XXH64, chained: the hash of a part is the seed of the next part's, and the
first seed is 42. It is Spark's function `xxhash64` of these expressions, those of the chosen
columns:

    timestamp   unix_millis(timestamp)                  8 bytes, little endian
    key         cast(key IS NULL AS INT), key           4 bytes, little endian; the bytes
    value       cast(value IS NULL AS INT), value       4 bytes, little endian; the bytes
    headers     coalesce(array_size(headers), 0),       4 bytes, little endian
                transform(headers, h -> struct(         of each header: the name;
                  h.key,
                  cast(h.value IS NULL AS INT),         4 bytes, little endian;
                  h.value))                             the bytes

Null is no part. Names of headers are UTF-8. Two checksums follow from the hashes, modulo 2**64:

    unordered   their sum
    ordered     h * FACTOR + hash for each record in offset order, beginning with h = 0

Both can be joined from those of consecutive ranges, so ranges are read in parallel.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FACTOR: Final = 0x9E3779B185EBCA87
"""The first prime of XXH64."""

COLUMNS: Final = ("timestamp", "key", "value", "headers")
"""The columns that a record's hash may cover, in the order of its parts."""

_MASK: Final = 2**64 - 1
_PARTS: Final = {
    "timestamp": "unix_millis(timestamp)",
    "key": "cast(key IS NULL AS INT), key",
    "value": "cast(value IS NULL AS INT), value",
    "headers": (
        "coalesce(array_size(headers), 0),"
        " transform(headers, h -> struct(h.key, cast(h.value IS NULL AS INT), h.value))"
    ),
}

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]


def record_hash_sql(columns: Sequence[str]) -> str:
    """Return the SQL expression of a record's hash over some of COLUMNS."""
    return f"xxhash64({', '.join(_PARTS[name] for name in COLUMNS if name in columns)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The checksums and offsets of one or more records of one partition."""

    records: int
    first: int  # offset
    last: int
    gap: int = 0
    """The largest number of consecutive offsets without a record, between `first` and `last`."""
    gap_start: int = -1  # the first offset of that gap
    disordered: int = 0  # records without an offset above the previous record's
    unordered: int
    ordered: int

    def join(self, later: "Digest") -> "Digest":
        """Return the digest of these records followed by later ones."""
        between = later.first - self.last - 1
        gaps = ((self.gap, self.gap_start), (between, self.last + 1), (later.gap, later.gap_start))
        gap, gap_start = max(gaps, key=lambda each: each[0])
        factor = pow(FACTOR, later.records, 2**64)
        return Digest(
            records=self.records + later.records,
            first=self.first,
            last=later.last,
            gap=gap,
            gap_start=gap_start if gap else -1,
            disordered=self.disordered + later.disordered + (between < 0),
            unordered=(self.unordered + later.unordered) & _MASK,
            ordered=(self.ordered * factor + later.ordered) & _MASK,
        )


def digest(offsets: Int64s, hashes: UInt64s) -> Digest:
    """Return the digest of one or more records in reading order."""
    steps = np.diff(offsets)
    widest = int(steps.argmax()) if len(steps) else -1
    gap = max(int(steps[widest]) - 1, 0) if widest >= 0 else 0
    return Digest(
        records=len(offsets),
        first=int(offsets[0]),
        last=int(offsets[-1]),
        gap=gap,
        gap_start=int(offsets[widest]) + 1 if gap else -1,
        disordered=int(np.count_nonzero(steps <= 0)),
        unordered=int(hashes.sum(dtype=np.uint64)),
        ordered=int((hashes * _powers(len(hashes))).sum(dtype=np.uint64)),
    )


def _powers(count: int) -> UInt64s:
    """Return FACTOR ** (count - 1) to FACTOR ** 0, modulo 2**64."""
    powers = np.full(count, FACTOR, np.uint64)
    powers[-1] = 1
    return np.multiply.accumulate(powers[::-1], dtype=np.uint64)[::-1]


# --- in the tasks of Spark -----------------------------------------------------------------------

SCANNED: Final = "topic int, partition int, offset long, hash long"
"""The columns that `digest_batches` takes; `topic` is the number of a topic."""

DIGESTS: Final = (
    "topic int, partition int, records long, first long, last long, gap long, gap_start long,"
    " disordered long, unordered long, ordered long"
)
"""The columns that `digest_batches` yields."""

_NUMBERS: Final = (
    "records", "first", "last", "gap", "gap_start", "disordered", "unordered", "ordered",
)  # fmt: skip

_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.int32()),
        pa.field("partition", pa.int32()),
        *(pa.field(name, pa.int64()) for name in _NUMBERS),
    ]
)


def digest_batches(
    batches: Iterator[pa.RecordBatch], *, block: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the digests of a task's records: of each run of records of one partition, and with
    `block` of each such number of them."""
    rows: list[tuple[int, int, Digest]] = []
    for batch in batches:
        for topic, partition, found in _digests(batch, rows, block):
            if rows and rows[-1][:2] == (topic, partition) and rows[-1][2].records != block:
                rows[-1] = (topic, partition, rows[-1][2].join(found))
            else:
                rows.append((topic, partition, found))
    yield pa.RecordBatch.from_pylist(
        [
            {"topic": topic, "partition": partition}
            | {name: _signed(getattr(found, name)) for name in _NUMBERS}
            for topic, partition, found in rows
        ],
        schema=_SCHEMA,
    )


def _digests(
    batch: pa.RecordBatch, rows: Sequence[tuple[int, int, Digest]], block: int | None
) -> Iterator[tuple[int, int, Digest]]:
    """Yield the digests of a batch. A digest ends with its partition, and where it fills a block
    that began in an earlier batch."""
    topics = batch.column("topic").to_numpy()
    partitions = batch.column("partition").to_numpy()
    offsets = batch.column("offset").to_numpy()
    hashes = batch.column("hash").to_numpy().view(np.uint64)
    changes = np.flatnonzero((np.diff(topics) != 0) | (np.diff(partitions) != 0)) + 1
    bounds = [0, *changes.tolist(), batch.num_rows] if batch.num_rows else []
    for run_start, run_end in itertools.pairwise(bounds):
        place = (int(topics[run_start]), int(partitions[run_start]))
        start = run_start
        while start < run_end:
            size = run_end - start
            if block is not None:
                begun = rows[-1][2].records % block if rows and rows[-1][:2] == place else 0
                size = min(size, block - begun)
            end = start + size
            yield *place, digest(offsets[start:end], hashes[start:end])
            start = end


def _signed(number: int) -> int:
    """Return a number of 64 bits as Spark's LongType has it."""
    return number - 2**64 if number >= 2**63 else number


def digest_of_row(row: Sequence[int]) -> Digest:
    """Return the digest of a row of DIGESTS without its first two columns."""
    values = dict(zip(_NUMBERS, row, strict=True))
    values["unordered"] &= _MASK
    values["ordered"] &= _MASK
    return Digest(**values)


def join_all(digests: Sequence[Digest]) -> Digest | None:
    """Return the digest of consecutive ranges, None without a record."""
    joined: Digest | None = None
    for each in digests:
        joined = each if joined is None else joined.join(each)
    return joined
