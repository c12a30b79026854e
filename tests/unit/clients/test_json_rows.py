"""The column-wise conversion to JSON rows equals that of the json module."""

import datetime
import decimal
import json
import math

import pyarrow as pa
import pytest

from quorumlog.clients.producer.arrow_producer import json_cells, json_rows


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (pa.array([1, None, -5], pa.int64()), [1, None, -5]),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (pa.array([1.5, None, -0.25, 1e300, 3.0]), [1.5, None, -0.25, 1e300, 3.0]),
        (pa.array([math.nan, math.inf, -math.inf]), [None, None, None]),
        (pa.array([True, None, False]), [True, None, False]),
        (pa.array(["plain", None, ""]), ["plain", None, ""]),
        (pa.array(['quote " here', "back\\slash"]), ['quote " here', "back\\slash"]),
        (pa.array(["line\nfeed", "nul\0", "ü €"]), ["line\nfeed", "nul\0", "ü €"]),
        (pa.array(["large"], pa.large_string()), ["large"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array([decimal.Decimal("1.50")]), [1.5]),
        (pa.array([None, None], pa.null()), [None, None]),
        (pa.array([b"text", b"\xff", None]), ["text", "/w==", None]),
        (pa.array([[1, None], None, []]), [[1, None], None, []]),
        (pa.array([{"a": 1, "b": [math.nan]}]), [{"a": 1, "b": [None]}]),
        (pa.array([datetime.date(2013, 1, 31)]), ["2013-01-31"]),
        (pa.array([datetime.timedelta(seconds=1)], pa.duration("ms")), [1000]),
        (
            pa.array([datetime.datetime(2013, 1, 31, 5, 4, 3)], pa.timestamp("s")),
            ["2013-01-31T05:04:03"],
        ),
    ],
)
def test_a_cell_is_what_json_would_read_back(column: pa.Array, cells: list[object]) -> None:
    assert [json.loads(text) for text in json_cells(column).to_pylist()] == cells


def test_a_timestamp_with_a_zone_ends_in_z() -> None:
    column = pa.array([0], pa.timestamp("ms", tz="UTC"))
    assert json_cells(column).to_pylist() == ['"1970-01-01T00:00:00.000Z"']


def test_a_row_has_the_columns_in_order_with_their_names_escaped() -> None:
    batch = pa.record_batch({'a"b': [1, 2], "c": ["x", None], "d": [0.5, 1.5]})
    assert json_rows(batch, ["d", 'a"b', "c"]).to_pylist() == [
        '{"d":0.5,"a\\"b":1,"c":"x"}',
        '{"d":1.5,"a\\"b":2,"c":null}',
    ]


def test_no_columns_are_empty_objects() -> None:
    assert json_rows(pa.record_batch({"a": [1, 2]}), []).to_pylist() == ["{}", "{}"]


def test_a_slice_is_only_its_rows() -> None:
    batch = pa.record_batch({"a": ["x", "y\n", "z"]}).slice(1, 1)
    assert json_rows(batch, ["a"]).to_pylist() == ['{"a":"y\\n"}']
