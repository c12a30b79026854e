"""The control record of a transaction marker: its bytes, and records that are no marker."""

import pytest
from crc32c import crc32c

from quorumlog.errors import CorruptionError
from quorumlog.records import (
    Codec,
    Marker,
    MarkerType,
    Record,
    decode_all,
    decode_batch,
    encode_batch,
    encode_marker,
    parse_header,
    parse_marker,
)
from quorumlog.records.control import INFLATE_MAX


def marker_batch(kind: MarkerType = MarkerType.COMMIT) -> bytes:
    return encode_marker(
        producer_id=7,
        producer_epoch=3,
        kind=kind,
        coordinator_epoch=5,
        timestamp_ms=1_000,
        leader_epoch=2,
        base_offset=40,
    )


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    return encode_batch([Record(0, 0, key, value)], producer_id=7, is_control=True)


@pytest.mark.parametrize("kind", MarkerType)
def test_marker_round_trip(kind: MarkerType) -> None:
    batch = marker_batch(kind)
    assert parse_marker(batch, 0, parse_header(batch)) == Marker(kind, 5)


def test_a_marker_is_a_transactional_control_batch_of_one_record() -> None:
    header = parse_header(marker_batch())
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert (header.base_offset, header.leader_epoch, header.max_timestamp) == (40, 2, 1_000)


def test_marker_has_the_bytes_of_kafka() -> None:
    record = decode_batch(marker_batch())[0]
    assert record.key == bytes.fromhex("0000 0001")  # version 0, commit
    assert record.value == bytes.fromhex("0000 00000005")  # version 0, coordinator epoch


def test_a_marker_is_found_behind_other_bytes() -> None:
    batch = marker_batch()
    header = parse_header(b"front" + batch, 5)
    assert parse_marker(b"front" + batch + b"back", 5, header) == Marker(MarkerType.COMMIT, 5)


def test_bytes_after_the_known_fields_are_ignored() -> None:
    batch = control_batch(bytes.fromhex("0001 0000 ff"), bytes.fromhex("0001 00000009 ff"))
    assert parse_marker(batch, 0, parse_header(batch)) == Marker(MarkerType.ABORT, 9)


def test_another_control_record_is_no_marker() -> None:
    batch = control_batch(bytes.fromhex("0000 0003"), b"")
    assert parse_marker(batch, 0, parse_header(batch)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"\0" * 6), (b"\0\0\0", b"\0" * 6), (b"\0\0\0\1", None), (b"\0\0\0\1", b"\0" * 5)],
)
def test_a_marker_that_is_too_short_is_corruption(key: bytes | None, value: bytes | None) -> None:
    batch = control_batch(key, value)
    with pytest.raises(CorruptionError, match=r"bytes; . are needed"):
        parse_marker(batch, 0, parse_header(batch))


def test_a_marker_with_a_wrong_crc_is_corruption() -> None:
    batch = bytearray(marker_batch())
    batch[-1] ^= 1
    with pytest.raises(CorruptionError, match="CRC"):
        parse_marker(batch, 0, parse_header(batch))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_marker_with_an_unknown_codec_is_corruption(codec: int) -> None:
    batch = bytearray(marker_batch())
    batch[22] |= codec
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    with pytest.raises(CorruptionError, match=f"codec {codec} is unknown"):
        parse_marker(batch, 0, parse_header(batch))


def test_a_marker_that_inflates_to_too_much_is_corruption() -> None:
    large = encode_batch([Record(0, 0, b"\0\0\0\1", bytes(INFLATE_MAX))], codec=Codec.LZ4)
    with pytest.raises(CorruptionError, match="cannot be read"):
        parse_marker(large, 0, parse_header(large))


def test_readers_skip_markers() -> None:
    assert decode_all(marker_batch()) == []
