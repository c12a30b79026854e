"""Validation of a producer's batches: accepted batches, and the error of each refusal."""

from collections.abc import Sequence

import pytest
from crc32c import crc32c

from quorumlog.errors import (
    CorruptionError,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    QuorumlogError,
    UnsupportedCompression,
)
from quorumlog.records.batch import HEADER_SIZE, parse_header
from quorumlog.records.codec import decode_batch, encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.record import Record
from quorumlog.records.validate import (
    ValidationMode,
    validate_batch,
    with_append_time,
    with_codec,
)

pytestmark = pytest.mark.usefixtures("kernel")

RECORDS = [Record(0, 1000 + index, b"k", b"v" * index) for index in range(3)]


def validate(
    batch: bytes | bytearray,
    *,
    mode: ValidationMode = ValidationMode.FULL,
    max_bytes: int = 1_000_000,
    inflate_limit: int = 1_000_000,
    keys_required: bool = False,
) -> None:
    validate_batch(
        batch,
        0,
        parse_header(batch),
        mode=mode,
        max_bytes=max_bytes,
        inflate_limit=inflate_limit,
        keys_required=keys_required,
    )


def resealed(batch: bytes, changes: dict[int, str]) -> bytes:
    """Return the batch with bytes at the given positions replaced and a valid CRC."""
    changed = bytearray(batch)
    for position, content in changes.items():
        raw = bytes.fromhex(content)
        changed[position : position + len(raw)] = raw
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("mode", list(ValidationMode))
def test_valid_batch_is_accepted(codec: Codec, mode: ValidationMode) -> None:
    validate(encode_batch(RECORDS, codec=codec), mode=mode)
    validate(
        encode_batch(
            RECORDS,
            codec=codec,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ),
        mode=mode,
    )


def test_base_offset_of_the_producer_is_ignored() -> None:
    batch = encode_batch(RECORDS)
    validate((-1).to_bytes(8, "big", signed=True) + batch[8:])
    validate((2**63 - 1).to_bytes(8, "big") + batch[8:])


def test_a_batch_above_the_topics_limit_is_too_large() -> None:
    batch = encode_batch(RECORDS)
    validate(batch, max_bytes=len(batch))
    with pytest.raises(MessageTooLarge, match=f"has {len(batch)} bytes"):
        validate(batch, max_bytes=len(batch) - 1)


def test_a_wrong_crc_or_a_torn_batch_is_corrupt() -> None:
    batch = bytearray(encode_batch(RECORDS))
    with pytest.raises(CorruptionError):
        validate(batch[:-1])
    batch[-1] ^= 1
    with pytest.raises(CorruptionError):
        validate(batch)


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({22: "07"}, UnsupportedCompression, "codec 7"),
        ({22: "20"}, InvalidRecord, "control"),
        ({22: "40"}, InvalidRecord, "delete horizon"),
        ({22: "10"}, InvalidRecord, "no producer id"),
        ({57: "00000000"}, InvalidRecord, "has 0 records"),
        ({57: "ffffffff"}, InvalidRecord, "has -1 records"),
        ({57: "00000002"}, InvalidRecord, "cannot end"),
        ({23: "00000003"}, InvalidRecord, "cannot end"),
        ({23: "00000003", 57: "00000004"}, InvalidRecord, "truncated|record count|length"),
        ({23: "00000001", 57: "00000002"}, InvalidRecord, "bytes follow"),
        ({43: "0000000000000001"}, InvalidRecord, "producer 1 sent epoch -1"),
        ({43: "fffffffffffffffe"}, InvalidRecord, "producer -2"),
        ({22: "08"}, InvalidTimestamp, "log append time"),
        ({27: "fffffffffffffffe"}, InvalidTimestamp, "below zero"),
        ({35: "fffffffffffffffe"}, InvalidTimestamp, "below zero"),
        ({35: "00000000000003e9"}, InvalidRecord, "record 2: its timestamp is above"),
        ({27: "7fffffffffffffff"}, InvalidRecord, "timestamp"),
        ({HEADER_SIZE + 3: "02"}, InvalidRecord, "record 0: its offset"),
        ({HEADER_SIZE + 4: "7f"}, InvalidRecord, "record 0: the key's length"),
    ],
)
def test_each_broken_rule_has_its_error(
    changes: dict[int, str], error: type[QuorumlogError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        validate(resealed(encode_batch(RECORDS), changes))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_header_mode_does_not_decompress(codec: Codec) -> None:
    """The full mode detects the errors that the header mode accepts."""
    batch = encode_batch(RECORDS, codec=codec)
    lying = resealed(batch, {23: "00000003", 57: "00000004"})
    validate(lying, mode=ValidationMode.HEADER)
    with pytest.raises(InvalidRecord):
        validate(lying)
    broken = resealed(batch, {HEADER_SIZE: "77" * 12})
    validate(broken, mode=ValidationMode.HEADER)
    with pytest.raises(InvalidRecord, match="does not inflate"):
        validate(broken)


def test_header_mode_validates_uncompressed_records() -> None:
    lying = resealed(encode_batch(RECORDS), {HEADER_SIZE + 3: "02"})
    with pytest.raises(InvalidRecord):
        validate(lying, mode=ValidationMode.HEADER)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_too_large(codec: Codec) -> None:
    bomb = encode_batch([Record(0, 0, None, bytes(900_000))], codec=codec)
    validate(bomb)
    with pytest.raises(MessageTooLarge, match="inflates to more than 100000 bytes"):
        validate(bomb, inflate_limit=100_000)


def test_compacted_topic_requires_keys() -> None:
    keyless: Sequence[Record] = [*RECORDS, Record(0, 1001, None, b"v")]
    validate(encode_batch(keyless))
    validate(encode_batch(RECORDS), keys_required=True)
    with pytest.raises(InvalidRecord, match="record 3: it has no key"):
        validate(encode_batch(keyless), keys_required=True)


def test_records_without_a_timestamp_are_accepted() -> None:
    validate(encode_batch([Record(0, -1, None, b"v")]))


def test_log_append_time_replaces_timestamps_and_keeps_the_records() -> None:
    batch = encode_batch(RECORDS, codec=Codec.LZ4)
    stamped = with_append_time(batch, 0, parse_header(batch), timestamp_ms=9)
    assert parse_header(stamped).log_append_time
    assert stamped[HEADER_SIZE:] == batch[HEADER_SIZE:]
    assert {record.timestamp_ms for record in decode_batch(stamped)} == {9}


@pytest.mark.parametrize("before", list(Codec))
@pytest.mark.parametrize("after", list(Codec))
def test_conversion_changes_only_the_codec(before: Codec, after: Codec) -> None:
    batch = encode_batch(RECORDS, codec=before, producer_id=4, producer_epoch=1, base_sequence=2)
    changed = with_codec(batch, 0, parse_header(batch), codec=after)
    validate(changed)
    header = parse_header(changed)
    assert (header.codec, header.producer_id, header.base_sequence) == (after, 4, 2)
    assert decode_batch(changed) == decode_batch(batch)
