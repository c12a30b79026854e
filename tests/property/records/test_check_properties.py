"""The combined check of a batch accepts exactly the batches that the separate rules accept."""

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorumlog.errors import QuorumlogError
from quorumlog.records.batch import BatchHeader, check_crc, iterate_batches, parse_header
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import INT64_MAX, INT64_MIN, Record
from quorumlog.records.validate import TimestampLimits, ValidationMode, validate_batch

_codec = pytest.importorskip("quorumlog.records._codec")

WALL_MS = 1_000
blobs = st.one_of(st.none(), st.binary(max_size=20))
records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.one_of(st.integers(-1, 2_000), st.just(2**40)),
        key=blobs,
        value=blobs,
        headers=st.lists(st.tuples(st.text(max_size=3), blobs), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=6,
)
producers = st.sampled_from(
    [(-1, -1, -1, False), (7, 0, 0, False), (7, 3, 2**31 - 1, True), (2**62, 9, 5, True)]
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    producer_id, epoch, sequence, is_transactional = draw(producers)
    return encode_batch(
        draw(records),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """Return a batch with some bytes changed, mostly with a valid CRC; truncated or extended."""
    batch = bytearray(draw(batches()))
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(batch) - 1))
        batch[position] = draw(st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 0x7F, 0xFF])))
    if draw(st.integers(0, 4)):
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    end = draw(st.sampled_from([0, 0, 0, 0, 1, 30]))
    return bytes(batch[: len(batch) - end]) + draw(st.sampled_from([b"", b"", b"", b"\0"]))


def by_rules(batch: bytes, limits: TimestampLimits, *, keys_required: bool) -> BatchHeader | None:
    """Return the result of the slow path for one uncompressed batch."""
    try:
        header = parse_header(batch)
        if header.size != len(batch) or header.attributes & 7:
            return None
        validate_batch(
            batch,
            0,
            header,
            mode=ValidationMode.FULL,
            max_bytes=len(batch),
            keys_required=keys_required,
            timestamps=limits,
        )
    except QuorumlogError:
        return None
    return header


def at_once(batch: bytes, limits: TimestampLimits, *, keys_required: bool) -> Any:
    content = bytearray(batch)
    found = _codec.sound_header(
        content,
        keys_required,
        max(INT64_MIN, limits.oldest_ms),
        min(INT64_MAX, limits.wall_ms + limits.after_max_ms),
    )
    content.append(0)  # BufferError where it is held
    return found


limits = st.builds(
    TimestampLimits,
    st.just(WALL_MS),
    st.sampled_from([0, 500, WALL_MS, WALL_MS + 1, INT64_MAX]),
    st.sampled_from([0, 500, 2**40, INT64_MAX]),
)
ANY = TimestampLimits()


@given(changed(), limits, st.booleans())
@example(b"", ANY, False)
@example(b"\0" * 61, ANY, False)
@settings(max_examples=600)
def test_one_call_accepts_what_the_rules_accept(
    batch: bytes, limits: TimestampLimits, keys_required: bool
) -> None:
    wanted = by_rules(batch, limits, keys_required=keys_required)
    found = at_once(batch, limits, keys_required=keys_required)
    assert found == wanted
    assert type(found) is type(wanted)


@given(batches())
@settings(max_examples=20)
def test_each_field_of_the_header_counts_as_in_the_rules(batch: bytes) -> None:
    """Every bit of the header changes, one at a time, with a valid CRC."""
    for bit in range(61 * 8):
        wrong = bytearray(batch)
        wrong[bit // 8] ^= 1 << bit % 8
        if bit // 8 not in range(17, 21):
            wrong[17:21] = crc32c(bytes(wrong[21:])).to_bytes(4, "big")
        content = bytes(wrong)
        found = at_once(content, ANY, keys_required=False)
        assert found == by_rules(content, ANY, keys_required=False), f"bit {bit}"


@given(st.lists(st.one_of(batches(), changed()), max_size=3), st.booleans())
@settings(max_examples=300)
def test_a_row_is_sealed_when_each_of_its_batches_is(row: list[bytes], is_view: bool) -> None:
    content = b"".join(row)
    try:
        wanted = list(iterate_batches(content)) or None
        for position, header in wanted or []:
            check_crc(content, position, header)
    except QuorumlogError:
        wanted = None
    assert _codec.sealed_headers(memoryview(content) if is_view else content) == wanted


@pytest.mark.parametrize("size", [60_000, 200_000])
def test_large_batches_are_decided_like_small_ones(size: int) -> None:
    """Above 64 KiB the check releases the GIL."""
    batch = encode_batch([Record(0, 5, b"k", bytes(size)), Record(0, 6, None, b"")])
    assert at_once(batch, ANY, keys_required=False) == parse_header(batch)
    assert at_once(batch, ANY, keys_required=True) is None
    assert _codec.sealed_headers(batch * 2)[1] == (len(batch), parse_header(batch))
    torn = batch[:-1] + b"\7"
    assert at_once(torn, ANY, keys_required=False) is None
    assert _codec.sealed_headers(batch + torn) is None
