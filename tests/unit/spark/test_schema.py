"""The source's columns, and a narrower schema as column pruning."""

import pytest

from quorumlog.errors import InvalidConfig
from quorumlog.spark.source import QuorumlogSource, columns_wanted, full_schema

FULL = full_schema(include_headers=True)


def test_headers_are_a_column_only_if_requested() -> None:
    assert "headers" in FULL.fieldNames()
    assert QuorumlogSource({}).schema() == full_schema(include_headers=False)
    assert QuorumlogSource({"INCLUDEheaders": "true"}).schema() == FULL


def test_a_schema_may_name_any_columns_in_any_order_and_case() -> None:
    picked = type(FULL)([FULL["offset"], FULL["value"]])
    assert columns_wanted(picked, include_headers=None) == ("offset", "value")
    renamed = type(FULL)().add("TimestampTYPE", FULL["timestampType"].dataType)
    assert columns_wanted(renamed, include_headers=None) == ("timestampType",)
    assert columns_wanted(FULL, include_headers=None) == tuple(FULL.fieldNames())


@pytest.mark.parametrize(
    ("add", "saying"),
    [
        (("valu", "binary"), "'valu' of the schema is unknown"),
        (("value", "string"), "'value' is binary, not string; read it with its type and cast it"),
        (("offset", "integer"), "'offset' is bigint, not int"),
    ],
)
def test_wrong_columns_are_refused(add: tuple[str, str], saying: str) -> None:
    with pytest.raises(InvalidConfig, match=saying):
        columns_wanted(type(FULL)().add(*add), include_headers=None)


def test_no_column_a_column_twice_and_refused_headers_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="no column"):
        columns_wanted(type(FULL)(), include_headers=None)
    twice = type(FULL)().add("value", "binary").add("VALUE", "binary")
    with pytest.raises(InvalidConfig, match="'value' occurs more than once"):
        columns_wanted(twice, include_headers=None)
    with pytest.raises(InvalidConfig, match="'includeHeaders' is false"):
        columns_wanted(FULL, include_headers=False)
