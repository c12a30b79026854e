"""Encoding and decoding of records with both codecs, compared with bytes built by hand."""

import os
import subprocess
import sys
from types import ModuleType

import pytest
from crc32c import crc32c

from quorumlog.errors import CorruptionError, MessageTooLarge, UnsupportedCompression
from quorumlog.records import _plain
from quorumlog.records.batch import HEADER, HEADER_SIZE, parse_header
from quorumlog.records.codec import (
    PLAIN_VARIABLE,
    Envelope,
    decode_all,
    decode_as,
    decode_batch,
    decode_columns,
    encode_batch,
    encode_columns,
    encode_plain_batch,
    find_timestamp,
    record_size_max,
)
from quorumlog.records.columns import WANT_VALUE, BinaryColumn, RecordColumns
from quorumlog.records.compression import Codec
from quorumlog.records.record import Body, ColumnTooLarge, Fault, Malformed, Record
from quorumlog.records.validate import with_append_time

pytestmark = pytest.mark.usefixtures("kernel")

BODY = bytes.fromhex(
    "18" "00" "00" "00" "02" "6b" "0a" "68656c6c6f" "00"  # k: hello
    "12" "00" "02" "02" "01" "01" "02" "02" "68" "01"  # null: null, header h: null
)  # fmt: skip
RECORDS = [
    Record(0, 1000, b"k", b"hello", ()),
    Record(1, 1001, None, None, (("h", None),)),
]


def body_of(records: bytes, *, count: int = 1, last_delta: int = 100, base: int = 0) -> Body:
    return Body(records, 0, len(records), count, base, last_delta, 0, None)


def read(kernel: ModuleType, body: Body) -> list[Record]:
    records: list[Record] = []
    kernel.read_records(body, 0, 2**62, records)
    return records


# --- the format --------------------------------------------------------------------------------


def test_records_become_the_bytes_of_the_format() -> None:
    batch = encode_batch(RECORDS)
    assert batch[HEADER_SIZE:] == BODY
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 1, 2)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1001)
    assert (header.leader_epoch, header.producer_id, header.attributes) == (-1, -1, 0)


def test_a_plain_batch_is_one_of_records_alone() -> None:
    assert encode_plain_batch(RECORDS) == encode_batch(RECORDS)
    assert decode_batch(encode_plain_batch(RECORDS[:1])) == RECORDS[:1]
    with pytest.raises(ValueError, match="at least one"):
        encode_plain_batch([])


def test_bytes_of_the_format_become_records(kernel: ModuleType) -> None:
    body = Body(b".." + BODY + b".", 2, 2 + len(BODY), 2, 7, 1, 1000, None)
    first, second = read(kernel, body)
    assert first == Record(7, 1000, b"k", b"hello", ())
    assert second == Record(8, 1001, None, None, (("h", None),))


def test_records_are_passed_to_the_factory_of_the_caller() -> None:
    batches = encode_batch(RECORDS) + encode_batch(RECORDS, base_offset=2, codec=Codec.ZSTD)
    made = decode_as(lambda *fields: fields, batches, start_offset=1, end_offset=4)
    expected = decode_all(batches, start_offset=1, end_offset=4)
    assert made == [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in expected]
    with pytest.raises(CorruptionError):
        decode_as(lambda *fields: fields, batches[:-1] + b"?")


def test_long_varints_are_read_and_written() -> None:
    records = [
        Record(0, 0, b"", b"x" * 100, ()),
        Record(1, 2**62, None, b"y" * 20_000, (("é" * 70, b"z" * 300),)),
        Record(2, -(2**62), None, b"", ()),
    ]
    batch = encode_batch(records)
    assert decode_batch(batch) == records
    assert parse_header(batch).max_timestamp == 2**62


def test_an_empty_batch_is_a_batch() -> None:
    """Compaction leaves one if a producer's last batch lost its records."""
    batch = bytearray(encode_batch([Record(0, 5, None, b"x")], producer_id=3))
    empty = HEADER.pack(40, 49, 0, 2, 0, 0, 9, 5, 5, 3, 0, 0, 0)
    empty = empty[:17] + crc32c(empty[21:]).to_bytes(4, "big") + empty[21:]
    assert decode_batch(empty) == []
    assert decode_columns(empty, wanted=WANT_VALUE).length == 0
    assert len(decode_all(bytes(batch) + empty)) == 1


@pytest.mark.parametrize("packing", list(Codec))
def test_all_fields_of_an_envelope_are_in_the_header(packing: Codec) -> None:
    batch = encode_batch(
        RECORDS,
        base_offset=10,
        codec=packing,
        leader_epoch=4,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        is_transactional=True,
        is_control=True,
        log_append_time=True,
    )
    header = parse_header(batch)
    assert (header.base_offset, header.leader_epoch, header.codec) == (10, 4, packing)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert header.is_transactional
    assert header.is_control
    assert header.log_append_time
    assert [record.offset for record in decode_batch(batch)] == [10, 11]


def test_log_append_time_is_every_records_timestamp() -> None:
    batch = encode_batch(RECORDS)
    batch = with_append_time(batch, 0, parse_header(batch), timestamp_ms=5555)
    assert [record.timestamp_ms for record in decode_batch(batch)] == [5555, 5555]


def test_gaps_of_compaction_survive() -> None:
    records = [Record(offset, 0, b"k", b"v") for offset in (100, 103, 110)]
    batch = encode_batch(records, base_offset=100, keep_offsets=True)
    assert parse_header(batch).last_offset == 110
    assert [record.offset for record in decode_batch(batch)] == [100, 103, 110]


@pytest.mark.parametrize("offsets", [(5, 5), (5, 4), (-1,), (0, 2**31)])
def test_offsets_that_cannot_follow_each_other_are_refused(offsets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cannot follow in a batch at 0"):
        encode_batch([Record(offset, 0, None, b"") for offset in offsets], keep_offsets=True)


@pytest.mark.parametrize("timestamps", [(2**63,), (-(2**63) - 1,), (-(2**63), 2**63 - 1)])
def test_timestamps_that_do_not_fit_are_refused(timestamps: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cannot be encoded"):
        encode_batch([Record(0, timestamp, None, b"") for timestamp in timestamps])


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])


def test_a_value_that_is_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError):
        encode_batch([Record(0, 0, None, "text")])  # type: ignore[arg-type]


def test_the_size_bound_is_never_below_the_size() -> None:
    headers = (("é" * 40, b"x" * 200), ("h", None))
    record = Record(0, -(2**63), b"k" * 70, b"v" * 9000, headers)
    assert len(encode_batch([record])) - HEADER_SIZE <= record_size_max(
        b"k" * 70, b"v" * 9000, headers
    )


# --- reading many ------------------------------------------------------------------------------


def three_batches() -> bytes:
    return b"".join(
        encode_batch(
            [Record(0, 0, None, b"%d" % (start + index)) for index in range(10)],
            base_offset=start,
            codec=packing,
        )
        for start, packing in ((0, Codec.NONE), (10, Codec.ZSTD), (20, Codec.LZ4))
    )


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, range(30)),
        (5, 25, range(5, 25)),
        (9, 10, range(9, 10)),
        (10, 20, range(10, 20)),
        (29, None, range(29, 30)),
        (None, 1, range(1)),
        (30, None, range(0)),
        (7, 7, range(0)),
        (-5, 2**70, range(30)),
    ],
)
def test_only_the_requested_offsets_are_returned(
    start: int | None, end: int | None, expected: range
) -> None:
    records = decode_all(three_batches(), start_offset=start, end_offset=end)
    assert [record.offset for record in records] == list(expected)
    assert [record.value for record in records] == [b"%d" % offset for offset in expected]


def test_batches_outside_the_interval_are_not_read() -> None:
    damaged = bytearray(three_batches())
    damaged[HEADER_SIZE + 3] ^= 0xFF  # in the first batch
    assert len(decode_all(damaged, start_offset=10)) == 20
    with pytest.raises(CorruptionError):
        decode_all(damaged, start_offset=9)


def test_control_batches_are_left_out_unless_requested() -> None:
    marker = encode_batch([Record(0, 0, b"\0\0\0\1", b"")], base_offset=10, is_control=True)
    buffer = encode_batch(RECORDS) + marker
    assert len(decode_all(buffer)) == 2
    assert len(decode_all(buffer, with_control=True)) == 3
    assert decode_columns(buffer, wanted=WANT_VALUE).length == 2


def test_a_torn_batch_at_the_end_is_corrupt_for_readers() -> None:
    buffer = three_batches()
    for size in (1, HEADER_SIZE - 1, HEADER_SIZE + 1):
        with pytest.raises(CorruptionError):
            decode_all(buffer + buffer[:size])


@pytest.mark.parametrize(
    ("position", "content"),
    [(0, "ffffffffffffffff"), (0, "7fffffffffffffff")],
    ids=["negative", "overflowing"],
)
def test_an_impossible_base_offset_is_corrupt_and_not_skipped(position: int, content: str) -> None:
    """The CRC does not cover the base offset."""
    damaged = bytearray(encode_batch(RECORDS))
    damaged[position : position + 8] = bytes.fromhex(content)
    with pytest.raises(CorruptionError, match="impossible"):
        decode_batch(damaged)
    with pytest.raises(CorruptionError, match="impossible"):
        decode_all(damaged)


def test_an_unknown_codec_is_named() -> None:
    batch = bytearray(encode_batch(RECORDS))
    batch[22] = 6
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    with pytest.raises(UnsupportedCompression, match="codec 6"):
        decode_all(batch)


def test_reader_bounds_the_decompressed_size_of_a_batch() -> None:
    bomb = encode_batch([Record(0, 0, None, bytes(5_000_000))], codec=Codec.ZSTD)
    assert len(bomb) < 10_000
    with pytest.raises(MessageTooLarge):
        decode_all(bomb, inflate_limit=1_000_000)


def test_the_first_record_at_or_after_a_time_is_found() -> None:
    times = [50, 10, 60, 20, 60]
    batch = encode_batch([Record(0, time, None, b"") for time in times], base_offset=100)
    assert find_timestamp(batch, 0, 0) == (100, 50)
    assert find_timestamp(batch, 0, 51) == (102, 60)
    assert find_timestamp(batch, 0, 60, start_offset=103) == (104, 60)
    assert find_timestamp(batch, 0, 61) is None


# --- malformed records -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ("", Fault.COUNT),
        ("0c" "0000000101", Fault.COUNT),  # six bytes cannot hold a record
        ("0a" "000000010100", Fault.LENGTH),  # five bytes cannot hold its fields
        ("0e" "000000010100", Fault.LENGTH),  # longer than the remaining bytes
        ("01" "000000010100", Fault.LENGTH),  # -1
        ("ffffffff1f" "0000000101", Fault.VARINT),  # 33 bits
        ("8080808080" "0000000101", Fault.VARINT),  # no end
        ("0c" "00" "8080808080", Fault.TRUNCATED),  # the timestamp runs past the record
        ("18" "00" "ffffffffffffffffff02" "00", Fault.VARINT),  # 65 bits
        ("0c" "000000" "03" "0100", Fault.KEY_LENGTH),  # -2
        ("0c" "000000" "06" "0100", Fault.KEY_LENGTH),  # three bytes where two are left
        ("0c" "00000001" "03" "00", Fault.VALUE_LENGTH),
        ("0c" "00000001" "04" "00", Fault.VALUE_LENGTH),
        ("0c" "0000000101" "01", Fault.HEADER_COUNT),  # -1
        ("0c" "0000000101" "02", Fault.HEADER_COUNT),  # one header, no bytes
        ("10" "0000000101" "02" "0101", Fault.HEADER_KEY),  # a null key
        ("12" "0000000101" "02" "02ff01", Fault.HEADER_KEY),  # not UTF-8
        ("12" "0000000101" "02" "024103", Fault.HEADER_VALUE),
        ("0e" "0000000101" "0000", Fault.TRAILING),
        ("0c" "000001" "0101" "00", Fault.OFFSET),  # delta -1
        ("0e" "0000ca01" "0101" "00", Fault.OFFSET),  # delta 101, the last is 100
        ("0c" "0000000101" "00" "ff", Fault.LEFTOVER),
    ],
)  # fmt: skip
def test_each_malformed_record_has_its_error(
    kernel: ModuleType, records: str, fault: Fault
) -> None:
    with pytest.raises(Malformed) as caught:
        read(kernel, body_of(bytes.fromhex(records)))
    assert caught.value.fault is fault


def test_offsets_must_rise_within_a_batch(kernel: ModuleType) -> None:
    record = bytes.fromhex("0c000000010100")
    with pytest.raises(Malformed) as caught:
        read(kernel, body_of(record * 2, count=2))
    assert (caught.value.fault, caught.value.index) == (Fault.OFFSET, 1)


def test_a_timestamp_beyond_64_bits_is_malformed(kernel: ModuleType) -> None:
    record = bytes.fromhex("0c000200010100")
    body = Body(record, 0, len(record), 1, 0, 0, 2**63 - 1, None)
    with pytest.raises(Malformed) as caught:
        read(kernel, body)
    assert caught.value.fault is Fault.TIMESTAMP


def test_malformed_batch_with_a_valid_crc_is_corrupt_with_its_position() -> None:
    batch = bytearray(encode_batch(RECORDS))
    batch[-1] = 0x03
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    expected = "batch at offset 0: record 1: the length of a header's value is impossible"
    with pytest.raises(CorruptionError, match=expected) as caught:
        decode_all(encode_batch(RECORDS) + batch)
    assert caught.value.position == len(batch)


# --- columns -----------------------------------------------------------------------------------


def values_of(items: list[bytes]) -> RecordColumns:
    size = len(items[0])
    offsets = b"".join((index * size).to_bytes(4, sys.byteorder) for index in range(len(items) + 1))
    return RecordColumns(
        values=BinaryColumn(length=len(items), offsets=offsets, data=b"".join(items))
    )


def test_columns_are_cut_into_batches_below_the_limit() -> None:
    items = [b"%07d" % index for index in range(1000)]
    batches = encode_columns(values_of(items), batch_bytes=600)
    assert all(len(batch) <= 600 for batch in batches)
    assert all(len(batch) > 580 for batch in batches[:-1])
    headers = [parse_header(batch) for batch in batches]
    assert [header.base_offset for header in headers[1:]] == [
        header.next_offset for header in headers[:-1]
    ]
    assert [record.value for record in decode_all(b"".join(batches))] == items


def test_a_record_above_the_limit_makes_a_batch_of_its_own() -> None:
    batches = encode_columns(values_of([b"x" * 500, b"y" * 500]), batch_bytes=100)
    assert [parse_header(batch).record_count for batch in batches] == [1, 1]


def test_base_sequences_continue_over_batches_and_wrap() -> None:
    envelope = Envelope(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    batches = encode_columns(values_of([b"aa"] * 4), envelope=envelope, batch_bytes=1)
    sequences = [parse_header(batch).base_sequence for batch in batches]
    assert sequences == [2**31 - 2, 2**31 - 1, 0, 1]


def test_offsets_that_leave_the_data_are_refused(kernel: ModuleType) -> None:
    for ends in ((0, 4), (-1, 2), (3, 2)):
        offsets = b"".join(end.to_bytes(4, sys.byteorder, signed=True) for end in ends)
        column = BinaryColumn(length=1, offsets=offsets, data=b"abc")
        with pytest.raises(ValueError, match="row 0"):
            kernel.ColumnWriter(RecordColumns(values=column), None).write(0, 1, 1000, None)


def test_rows_outside_the_table_are_refused(kernel: ModuleType) -> None:
    for row in (-1, 2):
        rows = row.to_bytes(8, sys.byteorder, signed=True)
        with pytest.raises(ValueError, match="not in"):
            kernel.ColumnWriter(values_of([b"a", b"b"]), rows).write(0, 1, 1000, None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BinaryColumn(length=2, offsets=bytes(8), data=b""),
        lambda: BinaryColumn(length=2, offsets=bytes(12), data=b"", is_wide=True),
        lambda: BinaryColumn(length=9, offsets=bytes(40), data=b"", validity=b"\xff"),
        lambda: BinaryColumn(length=-1, offsets=bytes(40), data=b""),
        lambda: RecordColumns(values=values_of([b"a"]).values, timestamp_ms=2**63),
        lambda: RecordColumns(values=values_of([b"a"]).values, keys=values_of([b"a"] * 2).values),
    ],
)
def test_a_column_whose_buffers_are_too_short_cannot_be_made(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=r"\w"):
        make()


def test_a_column_above_its_limit_is_refused_and_not_wrapped() -> None:
    buffer = encode_batch([Record(0, 0, None, b"x" * 60)] * 2)
    assert decode_columns(buffer, wanted=WANT_VALUE, data_limit=120).length == 2
    with pytest.raises(ColumnTooLarge):
        decode_columns(buffer, wanted=WANT_VALUE, data_limit=119)


# --- the choice of the codec -------------------------------------------------------------------


def test_the_two_codecs_agree_on_numbers() -> None:
    compiled = pytest.importorskip("quorumlog.records._codec")
    from quorumlog.records import columns

    assert {fault.name: fault.value for fault in Fault} == compiled.FAULT_NUMBERS
    assert {
        name: getattr(columns, name) for name in vars(columns) if name.startswith("WANT_")
    } == compiled.WANT_NUMBERS


def test_the_two_codecs_have_the_same_functions() -> None:
    compiled = pytest.importorskip("quorumlog.records._codec")
    for name in ("ColumnBuilder", "ColumnWriter", "read_records", "write_records", "walk_records",
                 "find_timestamp", "murmur2", "partitions_for_keys", "partition_rows"):  # fmt: skip
        assert callable(getattr(compiled, name)), name
        assert callable(getattr(_plain, name)), name


WITHOUT_COMPILER = """
import sys
sys.modules["quorumlog.records._codec"] = None  # as where it was never built
from quorumlog.records import COMPILED, Record, decode_batch, encode_batch
import quorumlog.records.arrow, quorumlog.storage
assert not COMPILED
(record,) = decode_batch(encode_batch([Record(0, 1, b"k", b"v", ())]))
print(record.key, record.value)
"""


@pytest.mark.slow
def test_without_the_compiled_codec_the_plain_one_works_and_warns_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER],
        env=os.environ | {PLAIN_VARIABLE: ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "b'k' b'v'\n"), done.stderr
    assert done.stderr.count("RuntimeWarning: The record codec runs in plain Python") == 1


@pytest.mark.slow
def test_plain_codec_chosen_by_the_environment_does_not_warn() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import quorumlog.records as r; print(r.COMPILED, r.describe())"],
        env=os.environ | {PLAIN_VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith(
        "False The record codec runs in plain Python because QUORUMLOG_PLAIN"
    )
    assert done.stderr == ""
