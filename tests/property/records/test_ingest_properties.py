"""Any batch of a producer is rejected, or stored so that readers get the sent records."""

from contextlib import suppress
from typing import Any

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.errors import InvalidTimestamp, QuorumlogError
from quorumlog.records import (
    Codec,
    Record,
    ValidationMode,
    compress,
    decode_all,
    encode_batch,
    iterate_batches,
)
from quorumlog.records.batch import HEADER_SIZE, check_crc
from quorumlog.storage import LogConfig
from quorumlog.storage.conversion import TooMuchWork, admit, growth_max, stamp

NOW = 1_000
codecs = st.sampled_from(list(Codec))
kept_codecs = st.sampled_from([None, *Codec])
modes = st.sampled_from(list(ValidationMode))
blobs = st.one_of(st.none(), st.binary(max_size=30), st.integers(0, 400).map(bytes))
names = st.text(st.characters(codec="utf-8"), max_size=5)
records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.one_of(st.just(-1), st.integers(0, 2 * NOW)),
        key=blobs,
        value=blobs,
        headers=st.lists(st.tuples(names, blobs), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
appends = st.lists(st.tuples(records, codecs, st.integers(-1, 5)), min_size=1, max_size=4)
Appends = list[tuple[list[Record], Codec, int]]


def encoded(parts: Appends) -> bytes:
    """Return the batches of one append; the number is their producer's, -1 for none."""
    return b"".join(
        encode_batch(
            items,
            codec=codec,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=producer,
            is_transactional=producer > 3,
        )
        for items, codec, producer in parts
    )


def outcome(*arguments: Any, **options: Any) -> Any:
    try:
        return bytes(admit(*arguments, **options))
    except QuorumlogError as error:
        return type(error), error.message


@given(appends, kept_codecs, modes)
def test_accepted_batches_have_the_sent_records_in_the_topics_codec(
    parts: Appends, kept: Codec | None, mode: ValidationMode
) -> None:
    given_batches = encoded(parts)
    config = LogConfig(compression_type=kept, record_validation=mode)
    admitted = admit(given_batches, config, wall_ms=NOW)
    assert len(admitted) <= len(given_batches) + growth_max(given_batches, config)
    pairs = zip(iterate_batches(given_batches), iterate_batches(admitted), strict=True)
    for (_, before), (position, after) in pairs:
        check_crc(admitted, position, after)
        assert after.codec is (before.codec if kept is None else kept)
        assert after == before._replace(
            batch_length=after.batch_length,
            crc=after.crc,
            attributes=(before.attributes & ~7) | after.codec,
        )
    assert decode_all(admitted) == decode_all(given_batches)
    assert admit(admitted, config, wall_ms=NOW) is admitted, "a second pass changes nothing"


@given(appends, st.integers(0, 2**62))
def test_log_append_time_changes_only_timestamps(parts: Appends, time: int) -> None:
    given_batches = encoded(parts)
    stamped = stamp(given_batches, timestamp_ms=time)
    assert len(stamped) == len(given_batches)
    for position, header in iterate_batches(stamped):
        check_crc(stamped, position, header)
    expected = decode_all(given_batches)
    for record in expected:
        record.timestamp_ms = time
    assert decode_all(stamped) == expected


@given(records, codecs, st.integers(0, NOW), st.integers(0, NOW))
def test_the_limits_of_time_are_exact(
    items: list[Record], codec: Codec, before: int, after: int
) -> None:
    config = LogConfig(timestamp_before_max_ms=before, timestamp_after_max_ms=after)
    times = [record.timestamp_ms for record in items if record.timestamp_ms != -1]
    is_right = all(NOW - before <= time <= NOW + after for time in times)
    is_taken = True
    try:
        admit(encode_batch(items, codec=codec), config, wall_ms=NOW)
    except InvalidTimestamp:
        is_taken = False
    assert is_taken == is_right


@given(appends, kept_codecs, modes, st.integers(0, 200), st.integers(61, 900))
def test_the_loop_has_the_result_of_a_lane_or_defers_to_it(
    parts: Appends, kept: Codec | None, mode: ValidationMode, bytes_min: int, bytes_max: int
) -> None:
    config = LogConfig(
        compression_type=kept,
        record_validation=mode,
        message_bytes_max=bytes_max,
        inflate_bytes_max=700,
        timestamp_after_max_ms=NOW // 2,
    )
    batches = encoded(parts)
    with suppress(TooMuchWork):
        here = outcome(batches, config, wall_ms=NOW, bytes_min=bytes_min)
        assert here == outcome(batches, config, wall_ms=NOW)


@given(
    st.binary(max_size=200),
    codecs,
    kept_codecs,
    modes,
    st.integers(-1, 30),
    st.integers(-1, 30),
    st.integers(0, 255),
)
@settings(max_examples=300)
def test_garbage_with_a_valid_crc_is_rejected_or_can_be_read(
    raw: bytes,
    packing: Codec,
    kept: Codec | None,
    mode: ValidationMode,
    count: int,
    last_delta: int,
    attributes: int,
) -> None:
    """A malicious producer can send it. The header mode does not inspect a compressed batch that
    keeps its codec; its readers reject it."""
    batch = bytearray(encode_batch([Record(0, 5, b"k", b"v")])[:HEADER_SIZE])
    batch += compress(packing, raw)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = attributes & ~7 | packing
    batch[23:27] = last_delta.to_bytes(4, "big", signed=True)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    config = LogConfig(
        compression_type=kept, record_validation=mode, message_bytes_max=400, inflate_bytes_max=300
    )
    is_unseen = mode is ValidationMode.HEADER and packing is not Codec.NONE
    try:
        admitted = admit(batch, config, wall_ms=NOW)
    except QuorumlogError:
        return
    assert len(admitted) <= 400
    if not (is_unseen and kept in (None, packing)):
        assert len(decode_all(stamp(admitted, timestamp_ms=NOW))) == count
