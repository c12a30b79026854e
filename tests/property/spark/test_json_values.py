"""The bulk reader of JSON returns the values of the row reader, independent of neighbouring
rows."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quorumlog.spark.values.decoder import decode_rows
from quorumlog.spark.values.json_values import JsonDecoder

KIND = pa.struct(
    [
        pa.field("a", pa.int32()),
        pa.field("b", pa.string()),
        pa.field("f", pa.float32()),
        pa.field("g", pa.float64()),
        pa.field("l", pa.list_(pa.field("element", pa.struct([pa.field("d", pa.date32())])))),
        pa.field("m", pa.decimal128(6, 2)),
        pa.field("o", pa.bool_()),
        pa.field("t", pa.timestamp("us", tz="UTC")),
    ]
)

_TEXTS = st.one_of(
    st.text(max_size=5),
    st.dates().map(lambda each: each.isoformat()),
    st.datetimes(timezones=st.timezones()).map(lambda each: each.isoformat()),
    st.decimals(min_value=-1_000, max_value=1_000, places=2).map(str),
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    _TEXTS,
)
_NAMES = st.sampled_from(["a", "b", "f", "g", "l", "m", "o", "t", "d", "other"])
_ANY = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=4)
    ),
    max_leaves=8,
)
_OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1), _LEAVES),
        "b": st.one_of(st.none(), _TEXTS),
        "f": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers()),
        "g": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers()),
        "l": st.one_of(
            _ANY,
            st.lists(
                st.one_of(
                    st.none(),
                    st.fixed_dictionaries({"d": st.dates().map(lambda each: each.isoformat())}),
                ),
                max_size=3,
            ),
        ),
        "m": st.one_of(st.integers(-9999, 9999), _TEXTS),
        "o": st.booleans(),
        "t": st.datetimes(timezones=st.timezones()).map(lambda each: each.isoformat()),
        "other": _ANY,
    },
)
_DUMPED = st.one_of(_OBJECTS, _OBJECTS, _OBJECTS, _ANY).map(json.dumps)


@st.composite
def _values(draw: st.DrawFn) -> bytes:
    """Return a strategy for documents, some of them damaged."""
    text = draw(_DUMPED)
    match draw(st.integers(0, 9)):
        case 0:
            cut = draw(st.integers(0, len(text)))
            text = (
                text[:cut]
                + draw(st.sampled_from(["", "}", "]", ",", "\n", "{", "NaN"]))
                + text[cut:]
            )
        case 1:
            text = text + draw(st.sampled_from([" ", "\n", ","])) + draw(_DUMPED)
        case 2:
            return text.encode("utf-16")
        case _:
            pass
    return text.encode()


def _by_row(decoder: JsonDecoder, value: bytes) -> tuple[Any, bool]:
    values = pa.array([value], pa.binary())
    decoded = decode_rows(values, KIND, decoder._row, (ValueError, RecursionError))
    return decoded.array, bool(decoded.reasons)


@pytest.mark.slow
@given(st.lists(_values(), max_size=6))
@example([b'{"a":1}],"w":['])
@example([b'{"a":1}],"w":[{"a":2}'])
@example([b'null ] , "w":['])
@example([b'{"t":"0000-01-01T00:00:00Z"}'])
@example([b'{"t":"9999-12-31T23:59:59-10:00"}'])
@example([b'{"l":[{"d":"0000-01-01"}]}'])
def test_columns_equal_rows(values: list[bytes]) -> None:
    decoder = JsonDecoder(KIND)
    column = pa.array(values, pa.binary())
    decoded = decoder.decode(column)
    rows = [_by_row(decoder, value) for value in values]
    assert set(decoded.reasons) == {index for index, (_, is_bad) in enumerate(rows) if is_bad}
    assert decoded.array.equals(pa.concat_arrays([pa.nulls(0, KIND), *(row for row, _ in rows)]))
    for value in values:  # alone, the bulk reader accepts no value that the row reader rejects
        bulk = decoder._bulk(pa.array([value], pa.binary()))
        row, is_bad = _by_row(decoder, value)
        assert bulk is None or (not is_bad and bulk.equals(row)), value
