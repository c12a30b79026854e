"""The codec functions of compaction: the compiled ones compared with plain Python."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.errors import CorruptionError
from quorumlog.records import _plain_clean
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.record import Body, Malformed, Record
from quorumlog.storage import compaction

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


# --- whole batches --------------------------------------------------------------------------------

WALL_MS = 1_000
FEW_KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"", b"a longer key", None])
FEW_RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.sampled_from([-1, 0, WALL_MS - 1, WALL_MS, WALL_MS + 1, 5_000]),
        FEW_KEYS,
        st.sampled_from([b"1", b"22", None]),
    ),
    min_size=1,
    max_size=20,
)
ATTRIBUTES = st.sampled_from([0, 0, 0, 0x08, 0x40, 0x40, 0x48])  # append time, delete horizon


Pieces = tuple[bytes, bytes]
"""The batches that are mapped, and those that are filtered."""


def sealed(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


@st.composite
def rows(draw: st.DrawFn) -> Pieces:
    """Consecutive batches, most of them plain; sometimes one is changed where it is mapped, or
    where it is filtered."""
    content, offset, epoch = b"", 100, 3
    for items in draw(st.lists(FEW_RECORDS, max_size=6)):
        codec = draw(st.sampled_from([Codec.NONE] * 5 + [Codec.LZ4]))
        batch = bytearray(encode_batch(items, base_offset=offset, codec=codec))
        epoch += draw(st.sampled_from([0, 0, 1]))
        batch[12:16] = epoch.to_bytes(4, "big")
        batch[22] |= draw(ATTRIBUTES)
        content += sealed(batch)
        offset += len(items) + draw(st.sampled_from([0, 0, 2]))
    if content and draw(st.booleans()):
        pieces = (content, draw(changed(content)))
        return draw(st.sampled_from([pieces, pieces[::-1]]))
    return content, content


@st.composite
def changed(draw: st.DrawFn, content: bytes) -> bytes:
    """Return batches of which one has another field or byte, mostly under a CRC that fits."""
    starts = [0]
    while starts[-1] < len(content):
        starts.append(starts[-1] + 12 + int.from_bytes(content[starts[-1] + 8 :][:4], "big"))
    at = draw(st.integers(0, len(starts) - 2))
    batch = bytearray(content[starts[at] : starts[at + 1]])
    position, size = draw(
        st.sampled_from([(0, 8), (8, 4), (12, 4), (16, 1), (21, 2), (23, 4), (35, 8), (57, 4)])
        | st.integers(0, len(batch) - 1).map(lambda place: (place, 1))
    )
    old = int.from_bytes(batch[position : position + size], "big")
    new = (
        old + draw(st.sampled_from([-1, 1])) if draw(st.booleans()) else draw(st.integers(0, 2**64))
    )
    batch[position : position + size] = (new % (1 << 8 * size)).to_bytes(size, "big")
    whole = sealed(batch) if draw(st.integers(0, 4)) else bytes(batch)
    return content[: starts[at]] + whole + content[starts[at + 1] :]


def compacted(
    module: Any, pieces: Pieces, fields: dict[str, Any], kept_empty: list[int]
) -> list[Any]:
    """Return all that a cleaning run gives for consecutive batches, up to its error."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "Sieve", module.Sieve)
        patch.setattr(compaction, "rebase_records", module.rebase_records)
        try:
            found += cleaning(module.KeyMap(fields["slots"], SEED), pieces, fields, kept_empty)
        except CorruptionError as error:
            found.append(error.args)
    return found


def cleaning(
    keys: Any, pieces: Pieces, fields: dict[str, Any], kept_empty: list[int]
) -> Iterator[Any]:
    rules = compaction.CompactionRules(
        first_dirty_offset=fields["first"],
        end_offset=fields["end"],
        wall_ms=WALL_MS,
        delete_retention_ms=100,
        inflate_bytes_max=10_000,
        live_producers={},
    )
    builder = compaction.KeyMapBuilder(rules, keys, base_offset=fields["base"])
    yield builder.feed(pieces[0])
    yield builder.mapped_end, builder.is_done, builder.last_offset, builder.next_offset
    yield keys.count
    compactor = compaction.Compactor(
        rules,
        keys,
        base_offset=fields["base"],
        mapped_end=builder.mapped_end,
        kept_empty=kept_empty,
    )
    yield compactor.feed(pieces[1])
    yield compactor.next_offset, compactor.records_read, compactor.records_kept
    yield [bytes(each) for each in compactor.take()]


@given(
    rows(),
    st.fixed_dictionaries(
        {
            "slots": st.sampled_from([2, 3, 5, 1_000]),
            "first": st.integers(95, 160),
            "end": st.one_of(st.integers(95, 160), st.just(2**40)),
            "base": st.sampled_from([0, 100, 101]),
        }
    ),
    st.lists(st.integers(99, 160), max_size=8),
)
@settings(max_examples=500)
def test_a_cleaning_run_is_the_same_with_both(
    pieces: Pieces, fields: dict[str, Any], kept_empty: list[int]
) -> None:
    assert compacted(_codec, pieces, fields, kept_empty) == compacted(
        _plain_clean, pieces, fields, kept_empty
    )


@given(st.lists(FEW_RECORDS, min_size=1, max_size=6), st.sampled_from([0, 0x08, 0x48]))
def test_plain_batches_are_taken_in_one_call(groups: list[list[Record]], attributes: int) -> None:
    """The results are the same without: the caller takes each batch that is left."""
    content, offset = b"", 100
    for items in groups:
        batch = bytearray(encode_batch(items, base_offset=offset))
        batch[22] |= attributes
        content += sealed(batch)
        offset += len(items)
    keys = _codec.KeyMap(1_000, SEED)
    mapping, filtering = (_codec.Sieve(keys, 0, 2**40, WALL_MS) for _ in range(2))
    assert (mapping.map_batches(content, 0), mapping.next_offset) == (len(content), offset)
    needs_horizon = any(record.value is None for items in groups for record in items)
    if attributes & 0x40 or not needs_horizon:
        assert filtering.filter_batches(content, 0) == len(content)


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
