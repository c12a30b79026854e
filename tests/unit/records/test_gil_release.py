"""Parsing, compression, decompression and compaction release the interpreter lock."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quorumlog.records import codec
from quorumlog.records.batch import HEADER_SIZE, parse_header
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec, compress, decompress
from quorumlog.records.record import Body, Record
from quorumlog.records.validate import ValidationMode, validate_batch

_codec: Any = pytest.importorskip("quorumlog.records._codec")

pytestmark = pytest.mark.slow

COUNT = 200_000
REPEATS = 300
SEED = bytes(16)


@pytest.fixture(scope="module")
def batch() -> bytes:
    """Build a batch of 200,000 records: some milliseconds of every kind of work."""
    one = encode_batch([Record(0, 5, b"key-%d" % n, b"v" * 30) for n in range(1_000)])
    records = [record for _ in range(COUNT // 1_000) for record in codec.decode_batch(one)]
    return encode_batch(records)


def body_of(batch: bytes) -> Body:
    header = parse_header(batch)
    return Body(batch, HEADER_SIZE, len(batch), COUNT, 0, COUNT - 1, header.base_timestamp, None)


def sieve() -> Any:
    return _codec.Sieve(_codec.KeyMap(4_096, SEED), 0, COUNT, 0)


@contextmanager
def counting(*, seconds: float = 1_000) -> Iterator[Callable[[], int]]:
    """Run a thread that counts whenever it has the lock.

    The switch interval is so long that the thread runs only when the lock is released.
    """
    count = 0
    is_over = False

    def work() -> None:
        nonlocal count
        while not is_over:
            count += 1
            time.sleep(0)

    thread = threading.Thread(target=work)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        thread.start()
        yield lambda: count
    finally:
        is_over = True
        sys.setswitchinterval(interval)
        thread.join()


def turns_of_another_thread(work: Callable[[], object]) -> int:
    with counting() as count:
        before = count()
        for _ in range(REPEATS):  # on a busy machine a ready thread needs a moment
            work()
            if count() > before:
                break
        return count() - before


def validated(batch: bytes) -> None:
    header = parse_header(batch)
    validate_batch(batch, 0, header, mode=ValidationMode.FULL, max_bytes=len(batch))


def decoded(batch: bytes) -> None:
    _codec.ColumnBuilder(3).append(body_of(batch), 0, COUNT)


WORK: dict[str, Callable[[bytes], object]] = {
    "validate": validated,
    "walk": lambda batch: _codec.walk_records(body_of(batch), 5, True),
    "find a time": lambda batch: _codec.find_timestamp(body_of(batch), 6, 0),
    "decode to columns": decoded,
    "map the keys of batches": lambda batch: sieve().map_batches(batch, 0),
    "map the keys of a body": lambda batch: sieve().map_body(body_of(batch)),
    "filter batches": lambda batch: sieve().filter_batches(batch, 0),
    "filter a body": lambda batch: sieve().filter_body(body_of(batch), False),
    "rebase": lambda batch: _codec.rebase_records(body_of(batch), 7),
}


@pytest.mark.parametrize("work", WORK)
def test_other_threads_run_while_records_are_processed(batch: bytes, work: str) -> None:
    assert turns_of_another_thread(lambda: WORK[work](batch)) > 0


@pytest.mark.parametrize("packing", [packing for packing in Codec if packing])
def test_other_threads_run_while_a_batch_is_decompressed_and_compressed(
    batch: bytes, packing: Codec
) -> None:
    records = batch[HEADER_SIZE:]
    packed = compress(packing, records)
    assert turns_of_another_thread(lambda: decompress(packing, packed, len(records))) > 0
    if packing is not Codec.LZ4:
        assert turns_of_another_thread(lambda: compress(packing, records)) > 0


def test_other_threads_run_while_lz4_compresses(batch: bytes) -> None:
    """Its compressor keeps the interpreter lock, so it is called on small chunks."""
    with counting(seconds=1e-5) as count:
        turns = 0
        for _ in range(REPEATS):  # on a busy machine the other thread runs late, or not at all
            before = count()
            compress(Codec.LZ4, batch, 4)
            turns = max(turns, count() - before)
            if turns > len(batch) >> 18:
                break
    assert turns > len(batch) >> 18, "one call for everything gives two or three turns"


def test_code_that_keeps_the_lock_is_detected() -> None:
    assert turns_of_another_thread(lambda: sum(range(10**5))) == 0
