"""Protobuf values: one message each, by a descriptor set.

A field without presence has its default value, as in generated code; an absent one with presence is
null. Enums are their names, unknown numbers of them as text. uint32 is BIGINT, uint64 is
DECIMAL(20,0), google.protobuf.Timestamp is TIMESTAMP. Unknown fields are ignored, so bytes of
another message may decode without an error.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorumlog.errors import InvalidConfig

from .decoder import Decoded, decode_rows

_SCALARS: Final[dict[int, DataType]] = {
    FieldDescriptor.TYPE_DOUBLE: DoubleType(),
    FieldDescriptor.TYPE_FLOAT: FloatType(),
    FieldDescriptor.TYPE_INT32: IntegerType(),
    FieldDescriptor.TYPE_SINT32: IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: IntegerType(),
    FieldDescriptor.TYPE_UINT32: LongType(),
    FieldDescriptor.TYPE_FIXED32: LongType(),
    FieldDescriptor.TYPE_INT64: LongType(),
    FieldDescriptor.TYPE_SINT64: LongType(),
    FieldDescriptor.TYPE_SFIXED64: LongType(),
    FieldDescriptor.TYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FIXED64: DecimalType(20, 0),
    FieldDescriptor.TYPE_BOOL: BooleanType(),
    FieldDescriptor.TYPE_STRING: StringType(),
    FieldDescriptor.TYPE_ENUM: StringType(),
    FieldDescriptor.TYPE_BYTES: BinaryType(),
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"

Convert = Callable[[Any], Any]


def find_message(definition: bytes, name: str) -> Descriptor:
    """Return a message of a descriptor set; raise InvalidConfig."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(definition).file:
            pool.AddSerializedFile(file.SerializeToString())
    except (DecodeError, TypeError, KeyError) as error:
        raise InvalidConfig(
            f"option 'valueSchema' has no complete descriptor set ({error}); write the file by "
            "protoc --include_imports --descriptor_set_out=FILE"
        ) from error
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        raise InvalidConfig(
            f"option 'valueMessage' is {name!r}, which the descriptor set lacks; give the full "
            "name of a message: package.Message"
        ) from error


def spark_type(message: Descriptor, fields: Collection[str] | None) -> StructType:
    """Return the type of a message, with these top-level fields only (None: all). Raise
    InvalidConfig for a message that Spark does not represent."""
    return _struct(message, "value", (), fields)


def _struct(
    message: Descriptor,
    path: str,
    around: tuple[str, ...],
    names: Collection[str] | None = None,
) -> StructType:
    if message.full_name in around:
        raise _refuse(path, f"message {message.full_name} contains itself")
    inside = (*around, message.full_name)
    columns = [
        StructField(field.name, _field_type(field, f"{path}.{field.name}", inside))
        for field in message.fields
        if names is None or field.name in names
    ]
    if not columns and names is None:
        raise _refuse(path, f"message {message.full_name} has no field")
    return StructType(columns)


def _field_type(field: FieldDescriptor, path: str, around: tuple[str, ...]) -> DataType:
    if _is_map(field):
        key, value = _map_fields(field)
        return MapType(_single(key, path, around), _single(value, f"{path}{{}}", around))
    single = _single(field, path, around)
    return ArrayType(single) if field.is_repeated else single


def _single(field: FieldDescriptor, path: str, around: tuple[str, ...]) -> DataType:
    if field.message_type is None:
        return _SCALARS[field.type]
    if field.message_type.full_name == _TIMESTAMP:
        return TimestampType()
    return _struct(field.message_type, path, around)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _map_fields(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """Return the fields of a map's entries: key and value."""
    assert field.message_type is not None, "a map has a message of its entries"
    return field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]


def _refuse(path: str, what: str) -> InvalidConfig:
    return InvalidConfig(
        f"{path}: {what}, which has no type in Spark; name the fields to read, without this one, "
        "by .schema(), or read binary values"
    )


class ProtobufDecoder:
    """Decodes messages to a struct type."""

    def __init__(self, definition: bytes, name: str, kind: pa.StructType) -> None:
        message = find_message(definition, name)
        self._class: type[Message] = message_factory.GetMessageClass(message)
        self._kind = kind
        self._convert = _converter(message, {each.name for each in kind})

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values without nulls."""
        return decode_rows(values, self._kind, self._row, (DecodeError, ValueError))

    def _row(self, value: bytes) -> Any:
        return self._convert(self._class.FromString(value))


def _converter(message: Descriptor, names: Collection[str] | None = None) -> Convert:
    """Return the conversion of a message to a dict without the keys of null fields."""
    fields = [
        (field.name, field.has_presence, _field_converter(field))
        for field in message.fields
        if names is None or field.name in names
    ]

    def convert(parsed: Any) -> dict[str, Any]:
        return {
            name: getattr(parsed, name) if converted is None else converted(getattr(parsed, name))
            for name, has_presence, converted in fields
            if not has_presence or parsed.HasField(name)
        }

    return convert


def _field_converter(field: FieldDescriptor) -> Convert | None:
    """Return the conversion of a field's value, None if it needs none."""
    if _is_map(field):
        item = _single_converter(_map_fields(field)[1])
        return lambda pairs: [
            (key, value if item is None else item(value)) for key, value in pairs.items()
        ]
    single = _single_converter(field)
    if not field.is_repeated:
        return single
    return lambda values: [value if single is None else single(value) for value in values]


def _single_converter(field: FieldDescriptor) -> Convert | None:
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if field.message_type is None:
        return None
    if field.message_type.full_name == _TIMESTAMP:
        return lambda time: time.seconds * 1_000_000 + time.nanos // 1_000
    return _converter(field.message_type)
