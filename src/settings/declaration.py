"""The declaration of settings as dataclass fields, and the checks of their values.

A dataclass declares its settings beside the code that uses them. Its other fields are constants
that no source can change. A field with such a dataclass as its default factory is a section.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, TypeVar, cast

from ..errors import InvalidConfig
from .quantities import parse_quantity

C = TypeVar("C")

SWITCH: Final = ("false", "true")
"""The texts of a bool."""
_KEY: Final = "setting"  # in the metadata of a field


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of one setting, for checks, tools and documentation."""

    name: str  # in files, such as "listeners.grpc"
    kind: type  # int, bool, str, or tuple (of str)
    default: Any  # of that kind; None: required
    doc: str  # one or two sentences, with the trade-off
    unit: str = ""
    low: int | None = None  # inclusive, ints only
    high: int | None = None  # inclusive, ints only
    choices: tuple[str, ...] = ()  # str and bool only; empty: any text
    field_name: str = ""  # Kafka's name, if it differs
    changes: str = "restart"  # when a new value takes effect


def setting(
    name: str,
    default: Any,
    doc: str,
    *,
    unit: str = "",
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    field_name: str = "",
    changes: str = "restart",
) -> Any:
    """Return a dataclass field that declares a setting; None as the default: required text."""
    kind = str if default is None else type(default)
    declared = Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        unit=unit,
        low=low,
        high=high,
        choices=SWITCH if kind is bool else choices,
        field_name=field_name,
        changes=changes,
    )
    if default is None:
        return field(metadata={_KEY: declared})
    return field(default=default, metadata={_KEY: declared})


_declared: dict[type, dict[str, tuple[Setting, tuple[str, ...]]]] = {}


def declared(owner: type) -> Mapping[str, tuple[Setting, tuple[str, ...]]]:
    """Return the settings of a dataclass and its sections by name, in the order of the fields, each
    with the path of attributes that leads to its value."""
    if owner in _declared:
        return _declared[owner]
    found = _declared[owner] = {}
    for each in fields(owner):
        factory: Any = each.default_factory
        if is_dataclass(factory):
            for name, (row, path) in declared(cast(type, factory)).items():
                found[name] = (row, (each.name, *path))
        elif _KEY in each.metadata:
            row = each.metadata[_KEY]
            found[row.name] = (row, (each.name,))
    return found


def value_of(config: Any, name: str) -> Any:
    """Return the value of a setting by its name."""
    value = config
    for attribute in declared(type(config))[name][1]:
        value = getattr(value, attribute)
    return value


def from_values(owner: type[C], values: Mapping[str, Any]) -> C:
    """Return a dataclass with these checked values by name of the setting, else the defaults."""
    arguments: dict[str, Any] = {}
    for each in fields(cast(Any, owner)):
        factory: Any = each.default_factory
        if is_dataclass(factory):
            arguments[each.name] = from_values(cast(type, factory), values)
        elif _KEY in each.metadata and each.metadata[_KEY].name in values:
            arguments[each.name] = values[each.metadata[_KEY].name]
    return owner(**arguments)


_TAKES: Final = {
    int: "a whole number",
    bool: "one of false, true",
    str: "text",
    tuple: 'a list of text, ["...", "..."]',
}


def check_value(row: Setting, value: object) -> Any:
    """Return the checked value of a setting; a number may be text with or without a unit.

    Raises InvalidConfig with the setting, the value, and the accepted values.
    """
    if row.kind is bool:
        return _check_switch(row, value)
    if row.kind is int and isinstance(value, str):
        return parse_value(row, value)
    if row.kind is tuple and isinstance(value, list):
        value = tuple(value)
    fits = isinstance(value, row.kind) and not isinstance(value, bool)
    if fits and isinstance(value, tuple):
        fits = all(isinstance(item, str) and _is_text(item) for item in value)
    if fits and isinstance(value, str):
        fits = _is_text(value)
    if not fits:
        raise InvalidConfig(f"{row.name} is {value!r}; give {_TAKES[row.kind]}")
    if isinstance(value, int):
        if (row.low is not None and value < row.low) or (row.high is not None and value > row.high):
            raise InvalidConfig(f"{row.name} is {value}; give {range_text(row)}")
    elif row.choices and value not in row.choices:
        raise InvalidConfig(f"{row.name} is {value!r}; give one of {', '.join(row.choices)}")
    return value


def _check_switch(row: Setting, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in SWITCH:
        raise InvalidConfig(f"{row.name} is {value!r}; give {_TAKES[bool]}")
    return value == "true"


def parse_value(row: Setting, text: str) -> Any:
    """Parse the text of a flag or environment variable; a list is separated by commas.

    Raises InvalidConfig.
    """
    if row.kind is int:
        try:
            number = parse_quantity(text, row.unit)
        except ValueError as error:
            raise InvalidConfig(f"{row.name} is {text!r}; {error}, {range_text(row)}") from None
        return check_value(row, number)
    if row.kind is tuple:
        return check_value(row, tuple(item.strip() for item in text.split(",") if item.strip()))
    return check_value(row, text)


def check_values(config: Any) -> None:
    """Raise InvalidConfig for the first setting of a dataclass with an invalid value."""
    for name, (row, _) in declared(type(config)).items():
        value = value_of(config, name)
        if type(check_value(row, value)) is not type(value):
            raise InvalidConfig(f"{name}: {value!r}; give {_TAKES[row.kind]}")


def value_text(value: object) -> str:
    """Return the text of a value: "true", "a,b", "7"; empty for None."""
    if isinstance(value, bool):
        return SWITCH[value]
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def _is_text(value: str) -> bool:
    """Return True if the text can be printed, sent, and name a file: no NUL and no surrogates."""
    return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def range_text(row: Setting) -> str:
    """Return the accepted interval of a number, such as "1..1000 requests"."""
    low = "" if row.low is None else str(row.low)
    high = "" if row.high is None else str(row.high)
    return f"{low}..{high} {row.unit}".rstrip()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, or None."""
    import difflib  # slow to import, and needed only for errors

    names = sorted(known)
    folded: Mapping[str, str] = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.5)
    return folded[near[0]] if near else None
