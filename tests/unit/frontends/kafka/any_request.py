"""Requests of any schema with random content, generated from the schemas."""

import typing
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from io import BytesIO
from random import Random
from typing import Any
from uuid import UUID

from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.schemas import error_code
from quorumlog.frontends.kafka.shapes import MessageShape, without_none

OFFERED = [(api.key, version) for api in APIS for version in range(api.low, api.high + 1)]
"""Every key and version that is answered."""


def schema_of(key: int, version: int) -> type[Any]:
    """Return the class of a request."""
    from kio.index import load_request_schema

    return load_request_schema(key, version)


def bytes_of(message: Any) -> bytes:
    """Return the encoded message without a header."""
    from kio.serial import entity_writer

    out = BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def any_message(schema: type[Any], random: Random) -> Any:
    """Return a random message of a schema, or a part of one."""
    hints = typing.get_type_hints(schema)
    values: dict[str, Any] = {}
    for field in fields(schema):
        kind, is_optional = without_none(hints[field.name])
        is_tagged = "tag" in field.metadata
        kafka_type = field.metadata.get("kafka_type", "")
        if is_tagged and random.random() < 0.5:
            continue
        if typing.get_origin(kind) is tuple:
            inner, _ = without_none(typing.get_args(kind)[0])
            count = random.choice((0, 1, 1, 2, 5))
            values[field.name] = tuple(_any_value(inner, kafka_type, random) for _ in range(count))
            if is_optional and random.random() < 0.2:
                values[field.name] = None
        elif is_optional and not is_tagged and random.random() < 0.3:
            values[field.name] = None
        else:
            values[field.name] = _any_value(kind, kafka_type, random)
    return schema(**values)


def _any_value(kind: Any, kafka_type: str, random: Random) -> Any:
    if hasattr(kind, "__dataclass_fields__"):
        return any_message(kind, random)
    return _VALUES[kafka_type](random)


def _number(bits: int) -> Callable[[Random], int]:
    return lambda random: random.choice((0, 1, -1, random.randrange(-(1 << bits), 1 << bits)))


def _text(random: Random) -> str:
    return random.choice(("", "a", "topic", "ü" * 3, "x" * random.randrange(300)))


def _octets(random: Random) -> bytes:
    return random.randbytes(random.choice((0, 1, 61, 200)))


def _span(random: Random) -> timedelta:
    return timedelta(milliseconds=random.choice((0, 1, 30_000, (1 << 31) - 1)))


_VALUES: dict[str, Callable[[Random], Any]] = {
    "int8": _number(7),
    "int16": _number(15),
    "int32": _number(31),
    "int64": _number(63),
    "uint16": lambda random: random.randrange(1 << 16),
    "float64": lambda random: random.choice((0.0, 1.5, -1e300)),
    "bool": lambda random: random.random() < 0.5,
    "string": _text,
    "bytes": _octets,
    "records": _octets,
    "error_code": lambda random: error_code(random.choice((0, 3, -1, 42))),
    "uuid": lambda random: UUID(bytes=random.randbytes(16)),
    "timedelta_i32": _span,
    "timedelta_i64": _span,
    "datetime_i64": lambda random: datetime.fromtimestamp(random.randrange(1 << 31), UTC),
}


def answer_bytes(key: int, version: int, newest: int, fields: dict[str, Any]) -> bytes:
    """Return a response as the schemas encode it."""
    from kio.index import load_response_schema

    shape = MessageShape(load_response_schema(key, version))
    known = MessageShape(load_response_schema(key, newest))
    out = BytesIO()
    shape.write(out, shape.build(fields, known))
    return out.getvalue()
