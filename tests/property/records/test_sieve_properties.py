"""The codec functions of compaction: the compiled ones compared with plain Python."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.records import _plain_clean
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Body, Malformed, Record

_codec: Any = pytest.importorskip("quorumlog.records._codec")

SEED = bytes(range(16))
MASK = 2**64 - 1

KEYS = st.one_of(st.none(), st.binary(max_size=3), st.binary(max_size=40))
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.one_of(st.integers(-1, 10_000), st.integers(-(2**63), 2**63 - 1)),
        KEYS,
        st.one_of(st.none(), st.binary(max_size=20)),
        st.just((("h", b"1"), ("i", None))),
    ),
    min_size=1,
    max_size=30,
)


def body_of(records: Sequence[Record]) -> Body:
    try:
        batch = encode_batch(records, base_offset=100)
    except ValueError:  # timestamps too far apart
        flat = [Record(0, 5, r.key, r.value, r.headers) for r in records]
        return body_of(flat)
    base = int.from_bytes(batch[27:35], "big", signed=True)
    return Body(batch, 61, len(batch), len(records), 100, len(records) - 1, base, None)


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result or the exception of a call in a comparable form."""
    try:
        result = call()
    except Malformed as error:
        return error.args
    except OverflowError:
        return OverflowError
    if isinstance(result, memoryview):
        return bytes(result)
    if isinstance(result, tuple) and isinstance(result[0], memoryview):
        return (bytes(result[0]), *result[1:])
    return result


def sieves(slots: int, first: int, end: int) -> list[Any]:
    return [
        module.Sieve(module.KeyMap(slots, SEED), first, end, 0) for module in (_codec, _plain_clean)
    ]


@given(RECORDS, st.integers(2, 40), st.integers(95, 135), st.integers(95, 135), st.booleans())
def test_both_keep_the_same_records(
    records: list[Record], slots: int, first: int, end: int, is_due: bool
) -> None:
    body = body_of(records)
    compiled, plain = sieves(slots, first, end)
    assert compiled.map_body(body) == plain.map_body(body)
    assert compiled.keys.count == plain.keys.count <= compiled.keys.capacity == plain.keys.capacity
    for record in records:
        if record.key is not None:
            assert compiled.keys.offset_of(record.key) == plain.keys.offset_of(record.key)
    found = outcome(lambda: compiled.filter_body(body, is_due))
    assert found == outcome(lambda: plain.filter_body(body, is_due))
    assert compiled.records_kept == plain.records_kept == found[1]


@given(RECORDS, st.data())
def test_both_find_the_same_fault_in_a_malformed_body(
    records: list[Record], data: st.DataObject
) -> None:
    body = body_of(records)
    spoiled = bytearray(body.buffer)
    for _ in range(data.draw(st.integers(1, 3))):
        spoiled[data.draw(st.integers(61, len(spoiled) - 1))] = data.draw(st.integers(0, 255))
    body = body._replace(
        buffer=bytes(spoiled),
        end=data.draw(st.sampled_from([body.end, body.end - 1])),
        record_count=body.record_count + data.draw(st.sampled_from([-1, 0, 0, 1])),
    )
    compiled, plain = sieves(1000, 0, 1000)
    assert outcome(lambda: compiled.filter_body(body, False)) == outcome(
        lambda: plain.filter_body(body, False)
    )
    mapped = outcome(lambda: compiled.map_body(body))
    assert mapped == outcome(lambda: plain.map_body(body))
    if isinstance(mapped, tuple):
        assert compiled.keys.count == plain.keys.count == 0, "a malformed body adds no key"
    assert outcome(lambda: _codec.rebase_records(body, 300)) == outcome(
        lambda: _plain_clean.rebase_records(body, 300)
    )


@given(RECORDS, st.one_of(st.integers(-500, 500), st.integers(-(2**64), 2**64)))
def test_both_move_timestamps_alike(records: list[Record], by: int) -> None:
    body = body_of(records)
    moved = outcome(lambda: _codec.rebase_records(body, by))
    assert moved == outcome(lambda: _plain_clean.rebase_records(body, by))
    if moved is not OverflowError and abs(by) < 2**63:
        back = body._replace(buffer=moved, start=0, end=len(moved))
        assert outcome(lambda: _codec.rebase_records(back, -by)) == bytes(body.buffer[61:])


@given(st.binary(max_size=200))
def test_the_checksum_is_that_of_the_library_in_both_ways(content: bytes) -> None:
    assert _codec.crc32c_both(content) == (crc32c(content), crc32c(content))


@given(st.binary(max_size=70), st.binary(min_size=16, max_size=16))
def test_keys_are_hashed_by_siphash(content: bytes, key: bytes) -> None:
    assert _codec.siphash(key, content) == siphash_128(key, content)


def test_siphash_has_the_published_results() -> None:
    """The first test vectors of the reference implementation."""
    assert _codec.siphash(SEED, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert _codec.siphash(SEED, b"\0").hex() == "da87c1d86b99af44347659119b22fc45"


def siphash_128(key: bytes, content: bytes) -> bytes:
    """Return the SipHash-2-4 with 128 bits, by its description."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def turn(word: int, bits: int) -> int:
        return (word << bits | word >> 64 - bits) & MASK

    def half(a: int, b: int, c: int, d: int, e: int, f: int) -> None:
        v[a] = (v[a] + v[b]) & MASK
        v[c] = (v[c] + v[d]) & MASK
        v[b] = turn(v[b], e) ^ v[a]
        v[d] = turn(v[d], f) ^ v[c]
        v[a] = turn(v[a], 32)

    def rounds(count: int) -> None:
        for _ in range(count):
            half(0, 1, 2, 3, 13, 16)
            half(2, 1, 0, 3, 17, 21)

    padded = content + bytes(7 - len(content) % 8) + bytes([len(content) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return first.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
