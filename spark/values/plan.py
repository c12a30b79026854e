"""The plan of a read's values: the type of the column, and all that a task needs to decode it.

Made on the driver, where files of schemas are read, and pickled to the tasks. Without a schema of
the read, Spark parses the DDL of valueSchema; a Python source has no parser of its own.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from quorumlog.errors import InvalidConfig
from quorumlog.spark.options import ValueFormat, ValueOptions
from quorumlog.spark.versions import to_arrow_schema

from .bad_values import BadValue, BadValues
from .decoder import Decoder, decode_column

VALUE: Final = "value"

_LEAVES: Final = (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

_NO_TYPE: Final = (
    "option 'valueSchema' is missing; give the fields as DDL, for example 'id BIGINT, name "
    "STRING', or a schema with the column 'value' by .schema()"
)


def declared_type(options: ValueOptions) -> DataType | str:
    """Return the type of the column by the options, as a type or as DDL that Spark parses.

    Raises InvalidConfig for a missing or an invalid schema.
    """
    text = options.schema
    if text is None:
        raise InvalidConfig(_NO_TYPE)
    if options.format in (ValueFormat.AVRO, ValueFormat.PROTOBUF):
        return _defined_type(options, _read_definition(options), None)
    if text.startswith("{"):
        try:
            fields = StructType.fromJson(json.loads(text))
        except Exception as error:  # ValueError, KeyError and others of pyspark
            raise InvalidConfig(
                f"option 'valueSchema' is no schema in Spark's JSON form ({error}); give the "
                "result of StructType.json(), or DDL"
            ) from error
        return ArrayType(fields) if options.format is ValueFormat.ARROW else fields
    ddl = text if text.lower().startswith("struct<") else f"STRUCT<{text}>"
    return f"ARRAY<{ddl}>" if options.format is ValueFormat.ARROW else ddl


def _read_definition(options: ValueOptions) -> bytes:
    """Return a schema of Avro or Protobuf, which the option has itself or by its file."""
    text = options.schema
    assert text is not None, "the options refuse these formats without a schema"
    if options.format is ValueFormat.AVRO and text.startswith(("{", "[", '"')):
        return text.encode()
    try:
        return Path(text).read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidConfig(
            f"option 'valueSchema': the file cannot be read ({error}); give the path of a file on "
            "the driver's machine"
        ) from error


def _defined_type(
    options: ValueOptions, definition: bytes, fields: Collection[str] | None
) -> StructType:
    """Return the type that a schema of Avro or Protobuf defines, with these fields (None: all)."""
    if options.format is ValueFormat.AVRO:
        from . import avro_values

        return avro_values.spark_type(avro_values.parse_schema(definition), fields)
    from . import protobuf_values

    assert options.message is not None, "the options refuse this format without a message"
    message = protobuf_values.find_message(definition, options.message)
    return protobuf_values.spark_type(message, fields)


@dataclass(frozen=True, slots=True)
class ValuePlan:
    """The decoding of one read's values."""

    options: ValueOptions
    type: DataType
    definition: bytes  # the schema of Avro or Protobuf, from its file; empty for other formats

    @classmethod
    def of(cls, options: ValueOptions, schema: StructType) -> "ValuePlan":
        """Return the plan of a read with a schema; raise InvalidConfig if the format or its schema
        has no such column."""
        column = next((each for each in schema.fields if each.name.lower() == VALUE), None)
        if column is None:
            raise InvalidConfig(
                "option 'valueFormat' decodes the column 'value', which the schema lacks; add it, "
                "or remove the option"
            )
        fields: DataType | None = column.dataType
        if options.format is ValueFormat.ARROW:
            fields = fields.elementType if isinstance(fields, ArrayType) else None
        if not isinstance(fields, StructType) or not fields.fields:
            wanted = "an array of structs" if options.format is ValueFormat.ARROW else "a struct"
            raise InvalidConfig(
                f"column 'value' is {column.dataType.simpleString()} in the schema; with "
                f"valueFormat={options.format} it is {wanted} with at least one field"
            )
        if options.format in (ValueFormat.AVRO, ValueFormat.PROTOBUF):
            definition = _read_definition(options)
            defined = _defined_type(options, definition, set(fields.names))
            _check_defined(fields, defined)
            return cls(options, column.dataType, definition)
        _check_type(VALUE, column.dataType, options.format)
        return cls(options, column.dataType, b"")

    def arrow_type(self) -> pa.DataType:
        """Return the type of the column as Spark requires it."""
        column = StructType([StructField(VALUE, self.type)])
        return to_arrow_schema(column).field(0).type

    def decoder(self) -> Decoder:
        """Return a decoder."""
        match self.options.format:
            case ValueFormat.JSON:
                from .json_values import JsonDecoder

                return JsonDecoder(self.arrow_type())
            case ValueFormat.ARROW:
                from .arrow_values import ArrowDecoder

                return ArrowDecoder(self.arrow_type())
            case ValueFormat.AVRO:
                from .avro_values import AvroDecoder

                return AvroDecoder(self.definition, self.arrow_type())
            case ValueFormat.PROTOBUF:
                from .protobuf_values import ProtobufDecoder

                assert self.options.message is not None, "the options have a message"
                return ProtobufDecoder(self.definition, self.options.message, self.arrow_type())


def _check_defined(fields: StructType, defined: StructType) -> None:
    """Raise InvalidConfig if the schema of a read has other fields than the definition."""
    types = {each.name: each.dataType for each in defined.fields}
    for each in fields.fields:
        if each.dataType != types.get(each.name):
            known = types.get(each.name)
            raise InvalidConfig(
                f"value.{each.name} is {each.dataType.simpleString()} in the schema of the read; "
                + (
                    f"by option 'valueSchema' it is {known.simpleString()}"
                    if known is not None
                    else "option 'valueSchema' has no such field"
                )
            )
        _check_nullable(f"value.{each.name}", is_nullable=each.nullable)


def _check_type(path: str, kind: DataType, value_format: ValueFormat) -> None:
    """Raise InvalidConfig for a type that a format does not have, and for a type without nulls."""
    match kind:
        case StructType():
            names = [each.name for each in kind.fields]
            if len({name.lower() for name in names}) < len(names):
                raise InvalidConfig(f"{path}: two fields have one name (in any case); rename one")
            for each in kind.fields:
                inner = f"{path}.{each.name}"
                _check_nullable(inner, is_nullable=each.nullable)
                _check_type(inner, each.dataType, value_format)
        case ArrayType():
            _check_nullable(f"{path}[]", is_nullable=kind.containsNull)
            _check_type(f"{path}[]", kind.elementType, value_format)
        case MapType():
            _check_nullable(f"{path}{{}}", is_nullable=kind.valueContainsNull)
            if kind.keyType != StringType():
                raise InvalidConfig(f"{path}: the keys of a map are STRING; change the type")
            _check_type(f"{path}{{}}", kind.valueType, value_format)
        case _:
            if type(kind) not in _LEAVES:
                raise InvalidConfig(
                    f"{path} is {kind.simpleString()}, which valueFormat={value_format} does not "
                    "decode; read another type, and cast it in the query"
                )


def _check_nullable(path: str, *, is_nullable: bool) -> None:
    if not is_nullable:
        raise InvalidConfig(
            f"{path} is NOT NULL in the schema, which records may violate; make it nullable, and "
            "filter by IS NOT NULL"
        )


class TaskValues:
    """The decoding of the values of one task."""

    def __init__(self, plan: ValuePlan, bad_values: BadValues) -> None:
        self._decoder = plan.decoder()
        self._header_bytes = plan.options.header_bytes
        self._bad = bad_values

    @property
    def columns(self) -> tuple[str, ...]:
        """The codec's columns that `decode` needs."""
        more = ("key", "headers", "timestamp") if self._bad.needs_records else ()
        return (VALUE, "offset", *more)

    def decode(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records with decoded values, without the bad ones. Raise the errors of
        `BadValues.handle`."""
        values = records.column(VALUE)
        decoded = decode_column(self._decoder, values, header_bytes=self._header_bytes)
        index = records.schema.get_field_index(VALUE)
        columns = list(records.columns)
        columns[index] = decoded.array
        names = records.schema.names
        result = pa.RecordBatch.from_arrays(columns, names=names)
        if not decoded.reasons:
            return result
        rows = sorted(decoded.reasons)
        self._bad.handle(_bad_records(records.take(pa.array(rows)), decoded.reasons))
        is_good = pc.invert(pc.is_in(_row_numbers(len(values)), pa.array(rows, pa.int64())))
        return result.filter(is_good)

    def finish(self) -> None:
        """Log the number of bad values."""
        self._bad.log_count()


def _row_numbers(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _bad_records(records: pa.RecordBatch, reasons: dict[int, str]) -> list[BadValue]:
    """Return bad records; `records` has those of `reasons`, in the order of their rows."""
    if "timestamp" in records.schema.names:  # a timestamp may be beyond the range of datetime
        index = records.schema.get_field_index("timestamp")
        times = records.column(index).cast(pa.int64())
        records = records.set_column(index, "timestamp", times)
    return [
        BadValue(
            offset=record["offset"],
            reason=reason,
            timestamp_ms=record.get("timestamp", -1_000) // 1_000,
            key=record.get("key"),
            value=record[VALUE],
            headers=tuple((each["key"], each["value"]) for each in record.get("headers") or ()),
        )
        for record, (_, reason) in zip(records.to_pylist(), sorted(reasons.items()), strict=True)
    ]
