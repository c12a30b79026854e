"""Conversion of plain fields to the messages of one `kio` schema.

A schema has a class for each version, and so has every struct in it. Plain fields carry the names
of the newest version: fields that an older version lacks are left out, and a field that no version
has is a programming error. Durations and times are whole milliseconds, ids 16 bytes, error codes
numbers.
"""

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from .schemas import Writer, error_code, id_of, writer_of


class StructShape:
    """The conversion of plain fields to one class of a schema."""

    def __init__(self, schema: type[Any]) -> None:
        self.schema = schema
        hints = typing.get_type_hints(schema)
        self.slots: dict[str, _Slot] = {
            field.name: _Slot(field, hints[field.name]) for field in fields(schema)
        }

    def build(
        self,
        values: Mapping[str, Any],
        newest: "StructShape | None",
        errors: list[int] | None = None,
    ) -> Any:
        """Return an instance; `newest` is the same class in the newest version. `errors` receives
        the error codes other than 0."""
        known = newest.slots if newest is not None else {}
        for name in values:
            assert name in self.slots or name in known, f"no {name} in {self.schema}"
        made = {}
        for name, slot in self.slots.items():
            if name in values:
                other = known.get(name)
                nested = None if other is None else other.nested
                made[name] = slot.build(values[name], nested, errors)
            elif not slot.has_default:
                made[name] = slot.empty()
        return self.schema(**made)


class MessageShape(StructShape):
    """The conversion of plain fields to a whole message, and to its bytes."""

    def __init__(self, schema: type[Any]) -> None:
        super().__init__(schema)
        self.write: Writer = writer_of(schema)


class _Slot:
    """One field of a class."""

    def __init__(self, field: Field[Any], hint: Any) -> None:
        self.has_default = field.default is not MISSING or field.default_factory is not MISSING
        kind, self.is_optional = without_none(hint)
        self.is_array = typing.get_origin(kind) is tuple
        if self.is_array:
            kind = typing.get_args(kind)[0]
        self.nested = StructShape(kind) if hasattr(kind, "__dataclass_fields__") else None
        self.kafka_type: str = field.metadata.get("kafka_type", "")
        self._name = field.name

    def build(self, value: Any, newest: StructShape | None, errors: list[int] | None) -> Any:
        """Return the class's value for a plain value."""
        if value is None:
            return None
        if self.is_array:
            return tuple(self._one(each, newest, errors) for each in value)
        return self._one(value, newest, errors)

    def empty(self) -> Any:
        """Return the value of a field that the message does not set."""
        if self.is_array:
            return None if self.is_optional else ()
        if self.is_optional:
            return None
        if self._name.startswith("throttle_time"):
            return timedelta()
        if self.kafka_type == "error_code":
            return self._one(0, None, None)
        raise AssertionError(f"a message lacks {self._name}")

    def _one(self, value: Any, newest: StructShape | None, errors: list[int] | None) -> Any:
        if self.nested is not None:
            return self.nested.build(value, newest, errors)
        if errors is not None and value and self.kafka_type == "error_code":
            errors.append(int(value))
        convert = _CONVERSIONS.get(self.kafka_type)
        return value if convert is None else convert(value)


def without_none(hint: Any) -> tuple[Any, bool]:
    """Return the type of a field without None, and True if it is optional."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
        if len(kinds) == 1:
            return kinds[0], True
    return hint, False


def _duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _time(milliseconds: int) -> datetime | None:
    if milliseconds < 0:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _time,
    "uuid": id_of,
    "error_code": error_code,
}
