"""The columns of the source, and which of them a read asks for.

They are the Kafka connector's: names, types and order. Spark does not tell a Python source which
columns a query needs, so a narrower schema given by the user is taken as the wish: what is not in
it is not decoded.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorumlog.errors import InvalidConfig

HEADERS: Final = "headers"
_HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),  # 0 when the record was created, 1 when the log took it
    HEADERS: _HEADERS_TYPE,  # null, not empty, for a record without headers
}
_BY_LOWER_NAME: Final = {name.lower(): name for name in _TYPES}


def full_schema(*, include_headers: bool) -> StructType:
    """Return all columns, with headers only when asked for."""
    names = [name for name in _TYPES if include_headers or name != HEADERS]
    return StructType([StructField(name, _TYPES[name]) for name in names])


def columns_wanted(schema: StructType, *, include_headers: bool | None) -> tuple[str, ...]:
    """Return the source's name of each column of a schema, in its order.

    Names match without case. Raises InvalidConfig for a column that is unknown, twice there or of
    another type, and for headers when `include_headers` is False.
    """
    wanted: list[str] = []
    for field in schema.fields:
        name = _BY_LOWER_NAME.get(field.name.lower())
        if name is None:
            known = ", ".join(_TYPES)
            raise InvalidConfig(f"column {field.name!r} of the schema is unknown; known: {known}")
        if field.dataType != _TYPES[name]:
            raise InvalidConfig(
                f"column {name!r} is {_TYPES[name].simpleString()}, not "
                f"{field.dataType.simpleString()}: read it as it is and cast it in the query"
            )
        if name in wanted:
            raise InvalidConfig(f"column {name!r} is twice in the schema")
        if name == HEADERS and include_headers is False:
            raise InvalidConfig(
                "column 'headers' is in the schema, but option 'includeHeaders' is false"
            )
        wanted.append(name)
    if not wanted:
        raise InvalidConfig(f"the schema has no column; name at least one of {', '.join(_TYPES)}")
    return tuple(wanted)
