"""The declaration of a setting, and the checks of its values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import InvalidConfig
from .quantities import parse_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of one setting, for checks, tools and documentation."""

    name: str  # in files, such as "listeners.grpc"
    attribute: str  # of the dataclass that the value is stored in
    kind: type  # int, str, or tuple (of str)
    default: Any  # of that kind; None: required
    doc: str  # one or two sentences, with the trade-off
    unit: str = ""
    low: int | None = None  # inclusive, ints only
    high: int | None = None  # inclusive, ints only
    choices: tuple[str, ...] = ()  # str only; empty: any text
    field_name: str = ""  # Kafka's name, if it differs
    changes: str = "restart"  # when a new value takes effect


_TAKES: Final = {int: "a whole number", str: "text", tuple: 'a list of text, ["...", "..."]'}


def check_value(row: Setting, value: object) -> Any:
    """Return the checked value of a setting; a number may be text with or without a unit.

    Raises InvalidConfig with the setting, the value, and the accepted values.
    """
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
