"""Damage is detected on both codecs: any changed byte, any truncation, any garbage."""

from contextlib import suppress
from types import ModuleType

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorumlog.errors import CorruptionError, MessageTooLarge, QuorumlogError
from quorumlog.records import _plain, codec
from quorumlog.records.arrow import COLUMNS, decode_arrow
from quorumlog.records.batch import HEADER_SIZE, parse_header
from quorumlog.records.codec import decode_all, decode_batch, encode_batch
from quorumlog.records.compression import Codec, compress, decompress
from quorumlog.records.record import Record
from quorumlog.records.validate import ValidationMode, validate_batch

KERNELS: list[ModuleType] = [_plain]
if codec.COMPILED:
    from quorumlog.records import _codec

    KERNELS.append(_codec)

RECORDS = [
    Record(0, 1_000 + index, b"key", b"value %d" % index, (("h", b"x"),) if index % 2 else ())
    for index in range(5)
]
CODECS = st.sampled_from(list(Codec))


@pytest.fixture(params=KERNELS, ids=lambda kernel: kernel.__name__.rpartition("._")[2])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use this codec during the test."""
    monkeypatch.setattr(codec, "_kernel", request.param)


both_kernels = pytest.mark.usefixtures("kernel")
fixture_is_constant = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@both_kernels
@pytest.mark.parametrize("packing", list(Codec))
def test_any_changed_byte_after_the_prefix_is_detected(packing: Codec) -> None:
    """Bytes 0 to 15 are assigned by the log; of them only the length can be checked here."""
    batch = encode_batch(RECORDS, codec=packing)
    for position in range(8, len(batch)):
        if 12 <= position < 16:
            continue  # the leader epoch
        damaged = bytearray(batch)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(CorruptionError):
            decode_all(damaged)
        with pytest.raises(CorruptionError):
            decode_arrow(damaged, columns=("value",))


@both_kernels
@pytest.mark.parametrize("packing", list(Codec))
def test_a_batch_cut_anywhere_is_corrupt(packing: Codec) -> None:
    batch = encode_batch(RECORDS, codec=packing)
    for size in range(1, len(batch)):
        with pytest.raises(CorruptionError):
            decode_all(batch[:size])
        with pytest.raises(CorruptionError):
            decode_batch(batch[:size])
        with pytest.raises(CorruptionError):
            decode_arrow(batch + batch[:size])


@both_kernels
@given(st.binary(max_size=200))
@fixture_is_constant
def test_garbage_raises_a_typed_error_and_no_other(raw: bytes) -> None:
    if raw:
        with pytest.raises(QuorumlogError):
            decode_all(raw)
        with pytest.raises(QuorumlogError):
            decode_arrow(raw)


@both_kernels
@given(st.binary(max_size=200), CODECS, st.integers(-1, 30), st.integers(-1, 30))
@fixture_is_constant
def test_garbage_with_a_valid_crc_is_records_or_raises_a_typed_error(
    raw: bytes, packing: Codec, count: int, last_delta: int
) -> None:
    """A malicious producer can send arbitrary bytes with a valid header and CRC."""
    batch = bytearray(encode_batch(RECORDS, codec=packing)[:HEADER_SIZE] + compress(packing, raw))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = last_delta.to_bytes(4, "big", signed=True)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    is_valid = True
    try:
        validate_batch(
            batch, 0, parse_header(batch), mode=ValidationMode.FULL, max_bytes=1000,
            inflate_limit=1000,
        )  # fmt: skip
    except QuorumlogError:
        is_valid = False
    try:
        records = decode_all(batch)
        columns = decode_arrow(batch, columns=tuple(COLUMNS))
    except QuorumlogError:
        assert not is_valid, "a reader can read every accepted batch"
    else:
        columns.validate(full=True)
        assert columns.num_rows == len(records)
        assert columns.column("value").to_pylist() == [record.value for record in records]


@given(st.binary(max_size=400), CODECS, st.integers(0, 2000))
@settings(max_examples=300)
def test_inflating_garbage_stays_below_its_limit(raw: bytes, packing: Codec, limit: int) -> None:
    with suppress(CorruptionError, MessageTooLarge):
        assert len(decompress(packing, raw, limit)) <= limit


@given(
    st.binary(min_size=1, max_size=3000), CODECS,
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=3),
)  # fmt: skip
@settings(max_examples=300)
def test_inflating_damaged_data_stays_below_its_limit(
    data: bytes, packing: Codec, damage: list[tuple[int, int]]
) -> None:
    packed = bytearray(compress(packing, data))
    for position, value in damage:
        packed[position % len(packed)] = value
    with suppress(CorruptionError, MessageTooLarge):
        assert len(decompress(packing, packed, 4000)) <= 4000
