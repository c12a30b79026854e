"""The checksums of `verify`: joined ranges compared with a record by record computation."""

import itertools
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.xxh64 import record_hash, xxh64

from quorumlog.spark.pipelines.record_digest import (
    DIGESTS,
    FACTOR,
    Digest,
    digest,
    digest_batches,
    digest_of_row,
    join_all,
    record_hash_sql,
)

MASK = 2**64 - 1


def plain(records: Sequence[tuple[int, int]]) -> Digest:
    """Compute a digest of (offset, hash) record by record."""
    unordered = ordered = disordered = gap = 0
    gap_start = -1
    for index, (offset, number) in enumerate(records):
        unordered = (unordered + number) & MASK
        ordered = (ordered * FACTOR + number) & MASK
        if index == 0:
            continue
        before = records[index - 1][0]
        disordered += offset <= before
        if offset - before - 1 > gap:
            gap, gap_start = offset - before - 1, before + 1
    return Digest(
        records=len(records),
        first=records[0][0],
        last=records[-1][0],
        gap=gap,
        gap_start=gap_start,
        disordered=disordered,
        unordered=unordered,
        ordered=ordered,
    )


def columns(records: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets, hashes = zip(*records, strict=True)
    return np.array(offsets, np.int64), np.array(hashes, np.uint64)


def test_the_reference_hash_has_the_published_vectors() -> None:
    """The test's own XXH64, from its specification."""
    assert xxh64(b"", 0) == 0xEF46DB3751D8E999
    assert xxh64(b"a", 0) == 0xD24EC4F1A98C6E5B
    assert xxh64(b"abc", 0) == 0x44BC2CF5AD770999
    assert xxh64(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


def test_a_record_s_hash_chains_its_parts() -> None:
    value = xxh64(b"v", xxh64(struct.pack("<i", 0), 42))
    assert record_hash(("value",), timestamp_ms=7, key=b"k", value=b"v", headers=None) == value
    null = xxh64(struct.pack("<i", 1), 42)
    assert record_hash(("key",), timestamp_ms=7, key=None, value=b"v", headers=None) == null


def test_a_null_header_is_not_the_name_of_the_next() -> None:
    one, other = (
        record_hash(("headers",), timestamp_ms=7, key=None, value=None, headers=headers)
        for headers in ([("a", None), ("b", b"c")], [("a", b"b"), ("c", None)])
    )
    assert one != other


def test_the_sql_hash_has_the_columns_in_their_order() -> None:
    assert record_hash_sql(["value", "timestamp"]) == (
        "xxhash64(unix_millis(timestamp), cast(value IS NULL AS INT), value)"
    )


RECORDS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, MASK)), min_size=1, max_size=40)


@given(RECORDS, st.randoms())
def test_joined_digests_of_ranges_equal_the_digest_of_all(
    records: list[tuple[int, int]], random_source: random.Random
) -> None:
    """Also for offsets out of order, which a correct log does not have."""
    cuts = sorted({0, len(records), *(random_source.randint(0, len(records)) for _ in range(3))})
    parts = [digest(*columns(records[start:end])) for start, end in itertools.pairwise(cuts)]
    assert join_all(parts) == plain(records)


def batches(records: Sequence[tuple[int, int, int, int]], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(records), size):
        part = records[start : start + size]
        arrays = [np.array([record[column] for record in part]) for column in range(4)]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(arrays[0].astype(np.int32)),
                pa.array(arrays[1].astype(np.int32)),
                pa.array(arrays[2].astype(np.int64)),
                pa.array(np.array([record[3] for record in part], np.uint64).view(np.int64)),
            ],
            names=["topic", "partition", "offset", "hash"],
        )


def digests(found: Iterator[pa.RecordBatch]) -> list[tuple[int, int, Digest]]:
    table = pa.Table.from_batches(found)
    assert table.column_names == [column.split()[0] for column in DIGESTS.split(",")]
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return [(row[0], row[1], digest_of_row(row[2:])) for row in rows]


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_a_task_yields_one_digest_for_each_partition_it_reads(size: int) -> None:
    numbers = random.Random(1)
    records = [
        (topic, partition, 3 * offset, numbers.getrandbits(64))
        for topic, partition in ((0, 0), (0, 1), (1, 1))
        for offset in range(100)
    ]
    assert digests(digest_batches(batches(records, size))) == [
        (topic, partition, plain([record[2:] for record in records if record[:2] == place]))
        for place in ((0, 0), (0, 1), (1, 1))
        for topic, partition in [place]
    ]


@pytest.mark.parametrize("size", [1, 7, 10, 1_000])
@pytest.mark.parametrize("block", [1, 10, 64, 101])
def test_blocks_have_their_number_of_records(size: int, block: int) -> None:
    numbers = random.Random(2)
    records = [(0, 5, offset, numbers.getrandbits(64)) for offset in range(101)]
    found = digests(digest_batches(batches(records, size), block=block))
    assert found == [
        (0, 5, plain([record[2:] for record in records[start : start + block]]))
        for start in range(0, 101, block)
    ]


def test_a_task_without_records_yields_no_digest() -> None:
    assert digests(digest_batches(iter(()))) == []
    assert join_all([]) is None


def test_the_ordered_checksum_depends_on_the_order_and_the_other_does_not() -> None:
    records = [(offset, offset + 1) for offset in range(10)]
    swapped = [
        (offset, number) for (offset, _), (_, number) in zip(records, records[::-1], strict=True)
    ]
    one, other = digest(*columns(records)), digest(*columns(swapped))
    assert one.unordered == other.unordered
    assert one.ordered != other.ordered
    assert replace(one, ordered=0) == replace(other, ordered=0)
