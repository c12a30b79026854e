"""The header of a batch, compared with bytes built by hand from the format description."""

import pytest

from quorumlog.errors import CorruptionError, UnsupportedCompression
from quorumlog.records.batch import (
    HEADER_SIZE,
    PREFIX_SIZE,
    check_crc,
    iterate_batches,
    parse_header,
    stamp,
    whole_batches_end,
)
from quorumlog.records.compression import Codec

HELLO = bytes.fromhex(
    "0000000000000007"  # base offset 7
    "00000048"  # batch length 72: 49 bytes of header, 23 of records
    "00000003"  # leader epoch 3
    "02"  # magic
    "d5395f10"  # CRC-32C from the attributes on
    "0000"  # attributes: no compression, create time
    "00000001"  # last offset delta
    "00000000000003e8"  # base timestamp 1000
    "00000000000003e9"  # max timestamp 1001
    "ffffffffffffffff"  # producer id -1
    "ffff"  # producer epoch -1
    "ffffffff"  # base sequence -1
    "00000002"  # two records
    "18"  # record 0: 12 bytes
    "00"
    "00"
    "00"  # attributes, timestamp delta 0, offset delta 0
    "02"
    "6b"  # key "k"
    "0a"
    "68656c6c6f"  # value "hello"
    "00"  # no headers
    "12"  # record 1: 9 bytes
    "00"
    "02"
    "02"  # attributes, timestamp delta 1, offset delta 1
    "01"
    "01"  # null key, null value
    "02"
    "02"
    "68"
    "01"  # one header: "h" -> null
)


def crc32c_bit_by_bit(data: bytes) -> int:
    """Compute the Castagnoli CRC by its definition: reflected polynomial 82f63b78."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_hand_made_batch_has_the_crc_of_the_definition() -> None:
    assert crc32c_bit_by_bit(b"123456789") == 0xE3069283  # check value of the CRC catalogue
    assert HELLO[17:21].hex() == f"{crc32c_bit_by_bit(HELLO[21:]):08x}"


def test_every_header_field_is_at_its_documented_position() -> None:
    header = parse_header(b"xx" + HELLO, 2)
    assert (header.base_offset, header.batch_length, header.leader_epoch) == (7, 72, 3)
    assert (header.magic, header.crc, header.attributes) == (2, 0xD5395F10, 0)
    assert (header.last_offset_delta, header.record_count) == (1, 2)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1001)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.size, header.last_offset, header.next_offset) == (len(HELLO), 8, 9)


@pytest.mark.parametrize(
    ("attributes", "claims"),
    [
        (0x00, set()),
        (0x08, {"log_append_time"}),
        (0x10, {"is_transactional"}),
        (0x20, {"is_control"}),
        (0x40, {"has_delete_horizon"}),
    ],
)
def test_attribute_bits(attributes: int, claims: set[str]) -> None:
    header = parse_header(HELLO[:21] + attributes.to_bytes(2, "big") + HELLO[23:])
    names = ("log_append_time", "is_transactional", "is_control", "has_delete_horizon")
    assert {name for name in names if getattr(header, name)} == claims


def test_the_low_three_bits_name_the_codec() -> None:
    codecs = [parse_header(HELLO[:22] + bytes([bits]) + HELLO[23:]).codec for bits in range(5)]
    assert codecs == [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
    for bits in (5, 6, 7):
        with pytest.raises(UnsupportedCompression, match=f"codec {bits}"):
            _ = parse_header(HELLO[:22] + bytes([bits]) + HELLO[23:]).codec


def test_a_stamp_replaces_offset_and_epoch_and_leaves_the_crc_right() -> None:
    prefix = stamp(parse_header(HELLO), base_offset=2**40, leader_epoch=9)
    assert len(prefix) == PREFIX_SIZE
    stamped = prefix + HELLO[PREFIX_SIZE:]
    header = parse_header(stamped)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    check_crc(stamped, 0, header)


@pytest.mark.parametrize("position", range(21, len(HELLO)))
def test_every_byte_behind_the_crc_is_covered_by_it(position: int) -> None:
    damaged = bytearray(HELLO)
    damaged[position] ^= 0x10
    with pytest.raises(CorruptionError, match="CRC-32C"):
        check_crc(damaged, 0, parse_header(damaged))


@pytest.mark.parametrize("size", range(HEADER_SIZE))
def test_a_header_cut_short_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptionError, match=f"^{size} bytes left"):
        parse_header(HELLO[:size])


@pytest.mark.parametrize(
    ("start", "content", "reason"),
    [
        (16, "00", "magic is 0"),
        (16, "01", "magic is 1"),
        (8, "00000030", "batch length 48"),
        (8, "ffffffff", "batch length -1"),
    ],
)
def test_impossible_header_is_corrupt(start: int, content: str, reason: str) -> None:
    damaged = bytearray(HELLO)
    damaged[start : start + len(content) // 2] = bytes.fromhex(content)
    with pytest.raises(CorruptionError, match=reason) as caught:
        parse_header(b"...." + damaged, 4)
    assert caught.value.position == 4


def test_iteration_yields_each_batch_and_raises_at_a_torn_one() -> None:
    batches = iterate_batches(HELLO * 2 + HELLO[:-1])
    assert [(next(batches)[0]), (next(batches)[0])] == [0, len(HELLO)]
    with pytest.raises(CorruptionError) as caught:
        next(batches)
    assert caught.value.position == 2 * len(HELLO)


@pytest.mark.parametrize("size", range(len(HELLO)))
def test_the_end_of_whole_batches_is_before_a_torn_one(size: int) -> None:
    assert whole_batches_end(HELLO + HELLO[:size]) == len(HELLO)


def test_the_end_of_whole_batches_is_before_an_invalid_one() -> None:
    assert whole_batches_end(HELLO + bytes(200)) == len(HELLO)
    assert whole_batches_end(b"") == 0
