"""A setting as a dataclass field with metadata."""

from dataclasses import Field, field
from typing import Any

from ...settings import Setting

MIB = 1 << 20


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
) -> Any:
    about = {
        "name": name,
        "unit": unit,
        "low": low,
        "high": high,
        "choices": choices,
        "doc": doc,
        "field_name": field_name,
    }
    if default is None:
        return field(metadata=about)
    return field(default=default, metadata=about)


def row_of(each: "Field[Any]") -> Setting:
    """Return the `Setting` of a field made by `setting`."""
    about = each.metadata
    default = None if about["name"] == "data.dir" else each.default
    kind = str if default is None else type(default)
    return Setting(
        name=about["name"],
        attribute=each.name,
        kind=kind,
        default=default,
        unit=about["unit"],
        low=about["low"],
        high=about["high"],
        choices=about["choices"],
        doc=about["doc"],
        field_name=about["field_name"],
    )
