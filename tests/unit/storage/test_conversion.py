"""Conversion of a client's batches before the append: validation, codec and timestamps."""

import pytest
from crc32c import crc32c

from quorumlog.errors import (
    CorruptionError,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompression,
)
from quorumlog.records import (
    Codec,
    Record,
    ValidationMode,
    decode_all,
    decode_batch,
    encode_batch,
    iterate_batches,
    parse_header,
)
from quorumlog.records.batch import CRC_START, HEADER, HEADER_SIZE, check_crc
from quorumlog.storage import LogConfig
from quorumlog.storage.config import KEPT_CODECS
from quorumlog.storage.conversion import TooMuchWork, admit, growth_max, is_plain, stamp

NOW = 1_700_000_000_000
HOUR = 3_600_000
RECORDS = [
    Record(0, NOW - 5, b"k", b"v" * 300, (("h", None),)),
    Record(1, NOW, None, None),
    Record(2, -1, b"", b"", (("h", b"x"), ("h", b""))),
]
CODECS = list(Codec)


def batch(codec: Codec = Codec.NONE, *, size: int = 0, timestamp: int = NOW) -> bytes:
    """Build a batch of a producer. Its value is `size` zero bytes, if given."""
    records = [Record(0, timestamp, b"k", bytes(size))] if size else RECORDS
    return encode_batch(records, codec=codec, producer_id=9, producer_epoch=2, base_sequence=40)


# --- the topic's codec ---------------------------------------------------------------------------


@pytest.mark.parametrize("before", CODECS)
@pytest.mark.parametrize("after", CODECS)
@pytest.mark.parametrize("mode", list(ValidationMode))
def test_batch_is_stored_in_the_topic_codec_with_all_its_fields(
    before: Codec, after: Codec, mode: ValidationMode
) -> None:
    config = LogConfig(compression_type=after, record_validation=mode)
    given = batch(before)
    kept = admit(given, config, wall_ms=NOW)
    header = parse_header(kept)
    check_crc(kept, 0, header)
    assert header.codec is after
    same = parse_header(given)
    assert header == same._replace(
        batch_length=header.batch_length, crc=header.crc, attributes=header.attributes
    )
    assert header.attributes & ~7 == same.attributes & ~7
    assert decode_batch(kept) == decode_batch(given)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kept", [None, "same"])
def test_a_batch_that_fits_is_kept_without_a_copy(codec: Codec, kept: str | None) -> None:
    given = batch(codec)
    config = LogConfig(compression_type=codec if kept else None)
    assert admit(given, config, wall_ms=NOW) is given


def test_of_several_batches_only_those_with_another_codec_are_changed() -> None:
    given = batch(Codec.LZ4) + batch() + batch(Codec.GZIP)
    kept = admit(given, LogConfig(compression_type=Codec.LZ4), wall_ms=NOW)
    assert [header.codec for _, header in iterate_batches(kept)] == [Codec.LZ4] * 3
    assert bytes(kept).startswith(batch(Codec.LZ4))
    values = [record.value for record in decode_all(kept)]
    assert values == [record.value for record in RECORDS] * 3


def test_decompressed_batch_is_validated_fully_in_header_mode() -> None:
    """Otherwise it would be stored uncompressed, and header mode validates uncompressed batches."""
    lying = bytearray(batch(Codec.ZSTD))
    lying[23:27] = (5).to_bytes(4, "big")  # last offset delta
    lying[57:61] = (6).to_bytes(4, "big")  # records
    lying[17:21] = crc32c(bytes(lying[21:])).to_bytes(4, "big")
    header = ValidationMode.HEADER
    assert admit(lying, LogConfig(record_validation=header), wall_ms=NOW) is lying
    with pytest.raises(InvalidRecord, match="malformed"):
        admit(
            lying,
            LogConfig(record_validation=header, compression_type=Codec.NONE),
            wall_ms=NOW,
        )


def test_batch_too_large_in_the_topic_codec_is_rejected_with_a_remedy() -> None:
    given = batch(Codec.ZSTD, size=2_000)
    config = LogConfig(compression_type=Codec.NONE, message_bytes_max=1_000)
    wanted = rf"of {len(given)} bytes takes 20\d\d uncompressed .* compression\.type=prod"
    with pytest.raises(MessageTooLarge, match=wanted):
        admit(given, config, wall_ms=NOW)
    assert admit(given, LogConfig(message_bytes_max=1_000), wall_ms=NOW) is given


def test_a_batch_above_the_topics_limit_is_refused_even_if_its_codec_would_make_it_fit() -> None:
    config = LogConfig(compression_type=Codec.ZSTD, message_bytes_max=1_000)
    with pytest.raises(MessageTooLarge, match=r"max.message.bytes is 1000"):
        admit(batch(size=2_000), config, wall_ms=NOW)


def test_limit_of_decompressed_bytes_applies_to_the_whole_append() -> None:
    config = LogConfig(
        compression_type=Codec.NONE, message_bytes_max=10_000, inflate_bytes_max=20_000
    )
    bomb = batch(Codec.ZSTD, size=9_000)
    assert len(admit(bomb * 2, config, wall_ms=NOW)) > 18_000
    assert growth_max(bomb * 9, config) == 20_000 - 9 * len(bomb)
    assert growth_max(bomb, config) == 10_000 - len(bomb)
    assert growth_max(bomb, LogConfig()) == 0
    with pytest.raises(MessageTooLarge, match="exceeds 20000 bytes uncompressed"):
        admit(bomb * 3, config, wall_ms=NOW)


def test_the_configs_name_every_codec() -> None:
    for name, codec in KEPT_CODECS.items():
        config = LogConfig.from_topic_configs({"compression.type": name})
        assert config.compression_type is codec
    assert LogConfig.from_topic_configs({"compression.type": "producer"}).compression_type is None
    assert set(KEPT_CODECS.values()) == set(Codec)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("config", [LogConfig(), LogConfig(compression_type=Codec.GZIP)])
def test_every_batch_of_an_append_is_checked(config: LogConfig) -> None:
    bad = bytearray(batch())
    bad[-1] ^= 1
    with pytest.raises(CorruptionError, match="CRC"):
        admit(batch() + bad, config, wall_ms=NOW)
    with pytest.raises(CorruptionError, match="remain"):
        admit(batch() + batch()[:-1], config, wall_ms=NOW)
    with pytest.raises(InvalidRecord, match="no batch"):
        admit(b"", config, wall_ms=NOW)
    unknown = bytearray(batch())
    unknown[22] = 6
    unknown[17:21] = crc32c(bytes(unknown[21:])).to_bytes(4, "big")
    with pytest.raises(UnsupportedCompression):
        admit(unknown, config, wall_ms=NOW)


# --- the producers' clocks -----------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("mode", list(ValidationMode))
def test_timestamp_too_far_ahead_is_rejected_with_a_remedy(
    codec: Codec, mode: ValidationMode
) -> None:
    config = LogConfig(timestamp_after_max_ms=HOUR, record_validation=mode)
    admit(batch(codec, size=1, timestamp=NOW + HOUR), config, wall_ms=NOW)
    with pytest.raises(InvalidTimestamp, match=r"3600001 ms ahead.*message\.timestamp\.after"):
        admit(batch(codec, size=1, timestamp=NOW + HOUR + 1), config, wall_ms=NOW)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("mode", list(ValidationMode))
def test_timestamp_too_far_behind_is_rejected_with_a_remedy(
    codec: Codec, mode: ValidationMode
) -> None:
    config = LogConfig(timestamp_before_max_ms=HOUR, record_validation=mode)
    admit(batch(codec, size=1, timestamp=NOW - HOUR), config, wall_ms=NOW)
    with pytest.raises(InvalidTimestamp, match=r"3600000 ms older.*message\.timestamp\.before"):
        admit(batch(codec, size=1, timestamp=NOW - HOUR - 1), config, wall_ms=NOW)


def test_every_record_is_checked_against_the_limit_behind() -> None:
    config = LogConfig(timestamp_before_max_ms=HOUR)
    given = encode_batch([Record(0, NOW, None, b""), Record(1, NOW - HOUR - 1, None, b"")])
    with pytest.raises(InvalidTimestamp, match="record 1 is more than"):
        admit(given, config, wall_ms=NOW)


def test_missing_timestamp_passes_both_limits() -> None:
    for codec in CODECS:
        for mode in ValidationMode:
            config = LogConfig(
                timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR, record_validation=mode
            )
            admit(batch(codec, size=1, timestamp=-1), config, wall_ms=NOW)
    admit(batch(size=1, timestamp=-1), LogConfig(timestamp_after_max_ms=0), wall_ms=-10)


def test_log_append_time_ignores_timestamps_of_producers() -> None:
    config = LogConfig(
        log_append_time=True, timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR
    )
    for timestamp in (0, NOW + 2 * HOUR):
        admit(batch(size=1, timestamp=timestamp), config, wall_ms=NOW)


def test_topic_configs_set_the_timestamp_limits() -> None:
    config = LogConfig.from_topic_configs(
        {
            "message.timestamp.before.max.ms": "7",
            "message.timestamp.after.max.ms": "8",
            "message.timestamp.type": "LogAppendTime",
        }
    )
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (7, 8)
    assert config.log_append_time
    assert not LogConfig.from_topic_configs({}).log_append_time


# --- log append time -----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_applies_to_every_record_without_rewriting(codec: Codec) -> None:
    given = batch(codec) + batch(codec, size=10)
    stamped = stamp(given, timestamp_ms=NOW)
    for (position, header), (_, before) in zip(
        iterate_batches(stamped), iterate_batches(given), strict=True
    ):
        check_crc(stamped, position, header)
        assert header == before._replace(
            crc=header.crc, attributes=before.attributes | 8, max_timestamp=NOW
        )
        begin, end = position + HEADER_SIZE, position + header.size
        assert stamped[begin:end] == given[begin:end], "compressed or not"
    assert {record.timestamp_ms for record in decode_all(stamped)} == {NOW}


# --- work on the loop ----------------------------------------------------------------------------


def test_a_small_batch_that_inflates_much_is_no_work_for_the_loop() -> None:
    bomb = batch(Codec.ZSTD, size=50_000)
    assert len(bomb) < 200
    with pytest.raises(TooMuchWork):
        admit(bomb, LogConfig(), wall_ms=NOW, bytes_min=10_000)
    assert admit(bomb, LogConfig(), wall_ms=NOW, bytes_min=13_000) is bomb
    unseen = LogConfig(record_validation=ValidationMode.HEADER)
    assert admit(bomb, unseen, wall_ms=NOW, bytes_min=100) is bomb


def test_the_work_of_all_batches_of_an_append_counts() -> None:
    one = batch(Codec.GZIP, size=20_000)
    admit(one, LogConfig(), wall_ms=NOW, bytes_min=10_000)
    with pytest.raises(TooMuchWork):
        admit(one * 3, LogConfig(), wall_ms=NOW, bytes_min=10_000)


def test_compression_counts_as_more_work_than_decompression() -> None:
    config = LogConfig(compression_type=Codec.GZIP)
    admit(batch(size=2_400), config, wall_ms=NOW, bytes_min=10_000)
    for codec in (Codec.NONE, Codec.ZSTD):
        with pytest.raises(TooMuchWork):
            admit(batch(codec, size=2_600), config, wall_ms=NOW, bytes_min=10_000)
    admit(batch(size=500_000), LogConfig(), wall_ms=NOW, bytes_min=10_000)  # validated only


def test_errors_on_the_loop_and_in_a_lane_are_equal() -> None:
    large = batch(Codec.ZSTD, size=9_000)
    config = LogConfig(inflate_bytes_max=5_000)
    for bytes_min in (None, 10_000):
        with pytest.raises(MessageTooLarge, match="more than 5000"):
            admit(large, config, wall_ms=NOW, bytes_min=bytes_min)


def test_only_one_uncompressed_batch_that_stays_as_it_is_needs_no_ingest() -> None:
    plain, packed = batch(), batch(Codec.LZ4)
    assert is_plain(plain, LogConfig())
    assert is_plain(plain, LogConfig(compression_type=Codec.NONE))
    assert not is_plain(plain, LogConfig(compression_type=Codec.LZ4))
    assert not is_plain(plain, LogConfig(log_append_time=True))
    assert not is_plain(packed, LogConfig())
    assert not is_plain(plain + packed, LogConfig())
    assert not is_plain(plain[:-1], LogConfig())
    assert not is_plain(b"", LogConfig())


# --- a header that understates its newest timestamp ----------------------------------------------


def understated(codec: Codec = Codec.NONE, *, newest: int = NOW - 1000) -> bytes:
    """Build a batch whose header states an older largest timestamp than its newest record has."""
    right = encode_batch(RECORDS, codec=codec, producer_id=9, producer_epoch=2, base_sequence=40)
    header = parse_header(right)._replace(max_timestamp=newest, crc=0)
    fields = HEADER.pack(*header)
    crc = crc32c(right[HEADER_SIZE:], crc32c(fields[CRC_START:]))
    sealed = HEADER.pack(*header._replace(crc=crc)) + right[HEADER_SIZE:]
    check_crc(sealed, 0, parse_header(sealed))
    return sealed


@pytest.mark.parametrize("newest", [NOW - 1000, -1])
@pytest.mark.parametrize("codec", CODECS)
def test_understated_largest_timestamp_is_corrected(codec: Codec, newest: int) -> None:
    given = understated(codec, newest=newest)
    kept = admit(batch() + given, LogConfig(), wall_ms=NOW)
    (_, first), (position, header) = iterate_batches(kept)
    check_crc(kept, position, header)
    assert first == parse_header(batch())
    assert header == parse_header(given)._replace(max_timestamp=NOW, crc=header.crc)
    assert decode_batch(kept, position) == RECORDS


def test_corrected_timestamp_is_checked_against_the_topic_limits() -> None:
    config = LogConfig(timestamp_after_max_ms=HOUR)
    with pytest.raises(InvalidTimestamp):
        admit(understated(), config, wall_ms=NOW - HOUR - 1)
    with pytest.raises(InvalidRecord, match="no key"):
        admit(understated(), LogConfig(compacted=True), wall_ms=NOW)
