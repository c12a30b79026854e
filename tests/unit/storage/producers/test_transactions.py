"""The index of aborted transactions: its encoding, and the entries that a reader needs."""

import pytest

from quorumlog.errors import CorruptionError
from quorumlog.storage.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    append_aborted,
    committed_batches,
    decode_aborted,
    encode_aborted,
    path_of,
    read_aborted,
)

from ..conftest import Place
from .producer_batches import data

FIRST = AbortedTransaction(1, first_offset=2, last_offset=9, last_stable_offset=5)
SECOND = AbortedTransaction(2, first_offset=5, last_offset=14, last_stable_offset=15)
THIRD = AbortedTransaction(1, first_offset=20, last_offset=24, last_stable_offset=25)


def index() -> TransactionIndex:
    """Return the index of two segments: [0, 12) and from 12 on."""
    index = TransactionIndex()
    index.add(0, FIRST)
    index.add(12, SECOND)
    index.add(12, THIRD)
    return index


def test_transaction_index_entry_has_kafkas_bytes() -> None:
    assert encode_aborted([FIRST]) == bytes.fromhex(
        "0000 0000000000000001 0000000000000002 0000000000000009 0000000000000005"
    )
    assert decode_aborted(encode_aborted([FIRST, THIRD])) == [FIRST, THIRD]


@pytest.mark.parametrize(
    "content",
    [
        encode_aborted([FIRST])[:-1],
        b"\0\1" + encode_aborted([FIRST])[2:],
        encode_aborted([THIRD, FIRST]),
        encode_aborted([FIRST, FIRST]),
        encode_aborted([FIRST._replace(first_offset=10)]),
        bytes(len(encode_aborted([FIRST]))),
        encode_aborted([FIRST._replace(producer_id=-1)]),
        encode_aborted([FIRST._replace(last_stable_offset=-1)]),
        encode_aborted([FIRST._replace(last_stable_offset=FIRST.last_offset + 2)]),
    ],
    ids=[
        "torn",
        "version",
        "descends",
        "twice",
        "ends first",
        "zeros",
        "no producer",
        "nothing stable",
        "stable beyond its marker",
    ],
)
def test_invalid_transaction_index_is_corruption(content: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_aborted(content, "x.txnindex")


def test_an_entry_outside_its_segment_is_corruption() -> None:
    with pytest.raises(CorruptionError):
        decode_aborted(encode_aborted([FIRST]), base_offset=10)
    with pytest.raises(CorruptionError):
        decode_aborted(encode_aborted([FIRST]), end_offset=9)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0, 2, []),
        (0, 3, [FIRST]),
        (0, 100, [FIRST, SECOND, THIRD]),
        (9, 12, [FIRST, SECOND]),
        (10, 12, [SECOND]),
        (15, 20, []),
        (24, 30, [THIRD]),
        (25, 30, []),
    ],
)
def test_aborted_transactions_of_a_range_are_those_that_overlap_it(
    start: int, end: int, found: list[AbortedTransaction]
) -> None:
    assert index().aborted_in(start, end) == found


def test_truncation_removes_index_entries_above_it() -> None:
    cut = index()
    cut.truncate(14)
    assert cut.aborted_in(0, 100) == [FIRST]
    assert cut.of_segment(12) == ()


def test_deleted_segments_remove_their_index_entries() -> None:
    left = index()
    left.remove_below(12)
    assert left.aborted_in(0, 100) == [SECOND, THIRD]


def test_cleaned_segment_adds_the_entries_that_it_kept() -> None:
    cleaned = index()
    cleaned.add(30, THIRD._replace(last_offset=33, last_stable_offset=34))
    cleaned.replace([0, 12], 0, [SECOND])
    assert [entry.last_offset for entry in cleaned.aborted_in(0, 100)] == [14, 33]
    assert [unstored.base_offset for unstored in cleaned.unstored()] == [30]


def test_unstored_entries_are_appended_to_the_files(place: Place) -> None:
    own = index()
    for _ in range(2):
        unstored = own.unstored()
        for one in unstored:
            append_aborted(place.files, place.folder, one)
        own.stored(unstored)
        found = read_aborted(place.files, place.folder, [0, 12])
        assert found == {0: list(own.of_segment(0)), 12: list(own.of_segment(12))}
        own.add(12, THIRD._replace(first_offset=26, last_offset=28, last_stable_offset=29))
    assert place.files.size(path_of(place.folder, 0)) == 34
    assert [one.position for one in own.unstored()] == [3 * 34]


def test_shorter_index_replaces_the_longer_one(place: Place) -> None:
    own = index()
    for one in own.unstored():
        append_aborted(place.files, place.folder, one)
    own.stored(own.unstored())
    own.truncate(20)
    own.add(12, THIRD._replace(producer_id=8))
    for one in own.unstored():
        append_aborted(place.files, place.folder, one)
    assert read_aborted(place.files, place.folder, [12]) == {12: list(own.of_segment(12))}


def test_committed_batches_leave_out_those_of_aborted_transactions_only() -> None:
    stored = [
        data(0, producer=1, txn=True, base_offset=10),  # of an earlier transaction, committed
        data(1, producer=1, txn=True, base_offset=12),
        data(0, producer=2, txn=True, base_offset=13),
        data(9, producer=1, base_offset=14),  # outside of any transaction
        data(2, producer=1, txn=True, base_offset=16),  # of a later transaction
    ]
    aborted = [AbortedTransaction(1, 12, 15, 12), AbortedTransaction(3, 10, 17, 10)]
    assert committed_batches(b"".join(stored), aborted) == b"".join(
        [stored[0], stored[2], stored[3], stored[4]]
    )
    assert committed_batches(b"".join(stored), []) == b"".join(stored)
    assert committed_batches(stored[1], aborted) == b""
    assert committed_batches(b"".join(stored[1:3]), aborted) == stored[2]
