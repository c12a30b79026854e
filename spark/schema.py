"""The columns of the source, and the selection of columns of a read.

Names, types and order are those of Spark's Kafka connector. Spark does not pass the columns that a
query needs to a Python source; so a narrower schema given by the user selects the columns to
decode.
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
    """Return all columns, headers only if requested."""
    names = [name for name in _TYPES if include_headers or name != HEADERS]
    return StructType([StructField(name, _TYPES[name]) for name in names])


def columns_wanted(schema: StructType, *, include_headers: bool | None) -> tuple[str, ...]:
    """Return the source's name of each column of a schema, in its order.

    Names match case-insensitively. Raises InvalidConfig for a column that is unknown, repeated or
    of another type, and for headers if `include_headers` is False.
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
                f"{field.dataType.simpleString()}; read it with its type and cast it in the query"
            )
        if name in wanted:
            raise InvalidConfig(f"column {name!r} occurs more than once in the schema")
        if name == HEADERS and include_headers is False:
            raise InvalidConfig(
                "column 'headers' is in the schema, but option 'includeHeaders' is false"
            )
        wanted.append(name)
    if not wanted:
        raise InvalidConfig(f"the schema has no column; name at least one of {', '.join(_TYPES)}")
    return tuple(wanted)
