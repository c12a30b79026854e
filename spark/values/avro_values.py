"""Avro values: one record each in the binary encoding, without the header of a container file.

Types are those of Spark's from_avro, except that only unions of a type with null, of int with long,
and of float with double are read. Times of day, UUIDs and times in nanoseconds have their physical
types. Schemas are parsed by fastavro, the extra `avro`; values are read by `avro_binary`.
"""

import json
from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from quorumlog.errors import EnvironmentUnusable, InvalidConfig

from .avro_binary import record_reader
from .decoder import Decoded, decode_rows

_PRIMITIVES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LOGICAL: Final[dict[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
_DECIMAL: Final = "decimal"
_DECIMAL_PRECISION_MAX: Final = 38


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise EnvironmentUnusable(
            f"fastavro cannot be imported ({error}), which valueFormat=avro needs; install "
            "quorumlog with its extra on the driver and the executors: pip install "
            "'quorumlog[avro]'"
        ) from error
    return fastavro


def parse_schema(text: bytes) -> Any:
    """Return a writer's schema as fastavro has it. Raise InvalidConfig, EnvironmentUnusable."""
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(_without_other_logical_types(json.loads(text)))
    except Exception as error:  # fastavro raises many kinds, some of its own
        raise InvalidConfig(
            f"option 'valueSchema' is no Avro schema ({type(error).__name__}: {error}); give the "
            "writer's schema as JSON, or the path of its file on the driver"
        ) from error


def _without_other_logical_types(schema: Any) -> Any:
    """Return a schema in which types without a counterpart in Spark are the physical ones."""
    if isinstance(schema, list):
        return [_without_other_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    logical = schema.get("logicalType")
    keeps = logical in _LOGICAL or (
        logical == _DECIMAL and schema.get("precision", 0) <= _DECIMAL_PRECISION_MAX
    )
    return {
        name: _without_other_logical_types(each)
        for name, each in schema.items()
        if name != "logicalType" or keeps
    }


def spark_type(schema: Any, fields: Collection[str] | None) -> StructType:
    """Return the type of a parsed schema, with these top-level fields only (None: all). Raise
    InvalidConfig for a schema that Spark does not represent."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidConfig("option 'valueSchema': the schema of a value must be a record")
    return _Types(schema).record(schema, "value", fields)


class _Types:
    """Spark types of a schema's types."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []  # the records around the current type
        self._collect(schema)

    def record(
        self, schema: dict[str, Any], path: str, fields: Collection[str] | None = None
    ) -> StructType:
        """Return the type of a record, with these fields only (None: all)."""
        name = schema["name"]
        if name in self._open:
            raise _refuse(path, f"record {name} contains itself")
        self._open.append(name)
        columns = [
            StructField(each["name"], self._of(each["type"], f"{path}.{each['name']}"))
            for each in schema["fields"]
            if fields is None or each["name"] in fields
        ]
        self._open.pop()
        if not columns and fields is None:
            raise _refuse(path, f"record {name} has no field")
        return StructType(columns)

    def _collect(self, schema: Any) -> None:
        """Find the named types, which another part of the schema may refer to."""
        if isinstance(schema, list):
            for each in schema:
                self._collect(each)
        if isinstance(schema, dict):
            if "name" in schema:
                self._named[schema["name"]] = schema
            for each in schema.get("fields", ()):
                self._collect(each["type"])
            for part in ("type", "items", "values"):
                self._collect(schema.get(part))

    def _of(self, schema: Any, path: str) -> DataType:
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            if schema not in self._named:
                raise _refuse(path, f"type {schema} has no values")
            return self._of(self._named[schema], path)
        logical = schema.get("logicalType")
        if logical == _DECIMAL:
            return DecimalType(schema["precision"], schema.get("scale", 0))
        return self._complex(schema, path) if logical is None else _LOGICAL[logical]

    def _complex(self, schema: dict[str, Any], path: str) -> DataType:
        match schema["type"]:
            case "record" | "error":
                return self.record(schema, path)
            case "enum":
                return StringType()
            case "fixed":
                return BinaryType()
            case "array":
                # Items without a size, as nulls, would allow any number of them in a few bytes;
                # they have no type in Spark.
                return ArrayType(self._of(schema["items"], f"{path}[]"))
            case "map":
                return MapType(StringType(), self._of(schema["values"], f"{path}{{}}"))
            case inner:
                return self._of(inner, path)

    def _union(self, branches: list[Any], path: str) -> DataType:
        others = [each for each in branches if each != "null"]
        if len(others) == 1:
            return self._of(others[0], path)
        if sorted(map(str, others)) == ["int", "long"]:
            return LongType()
        if sorted(map(str, others)) == ["double", "float"]:
            return DoubleType()
        raise _refuse(path, "a union of several types has no type in Spark")


def _refuse(path: str, what: str) -> InvalidConfig:
    return InvalidConfig(
        f"{path}: {what}; name the fields to read, without this one, by .schema(), or read "
        "binary values"
    )


class AvroDecoder:
    """Decodes records of a writer's schema to a struct type."""

    def __init__(self, text: bytes, kind: pa.StructType) -> None:
        self._kind = kind
        self._read = record_reader(parse_schema(text), {each.name for each in kind})

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values without nulls."""
        return decode_rows(values, self._kind, self._read, (ValueError,))
