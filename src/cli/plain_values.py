"""Fast conversion of plain command-line values, without pydantic.

Typer converts every value with pydantic, also the text of a text option and options that were not
given. Importing pydantic takes longer than most commands run, and costs a node 10 MB. This module
converts texts, whole numbers in range, and enum values itself. It leaves everything else, including
invalid values, to Typer, so error messages do not change. A Typer version that describes its
parameters differently converts everything itself.
"""

import re
from enum import StrEnum
from typing import Any, Final

WHOLE_DIGITS_MAX: Final = 18
DIGITS: Final = re.compile(r"-?[0-9]+")

OTHER: Final = object()  # a value that is left to Typer


def convert_plain_values(command: Any) -> None:
    """Patch the parameters of a click command and its subcommands to convert plain values here."""
    get_all = command.get_params

    def get_params(context: Any) -> Any:
        return with_plain_values(get_all(context))

    command.get_params = get_params
    for subcommand in getattr(command, "commands", {}).values():
        convert_plain_values(subcommand)


def with_plain_values(parameters: Any) -> Any:
    """Patch parameters, --help among them, to convert plain values here, and return them."""
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)
        if described is not None and "process_value" not in vars(parameter):
            parameter.process_value = _plain_processor(parameter, described)
    return parameters


def _plain_processor(parameter: Any, described: Any) -> Any:
    by_typer = parameter.process_value
    callback = parameter.callback

    def process_value(context: Any, given: Any) -> Any:
        value = plain_value(parameter, described, given)
        if value is OTHER or (parameter.required and parameter.value_is_missing(value)):
            return by_typer(context, given)
        return value if callback is None else callback(context, parameter, value)

    return process_value


def plain_value(parameter: Any, described: Any, given: Any) -> Any:
    """Return the converted value, or `OTHER` if Typer must convert it."""
    is_many = parameter.multiple or parameter.nargs != 1
    if given is None:
        return () if is_many else None
    info, kind = described.parameter_info, described.annotation
    if getattr(info, "parser", None) is not None:
        return OTHER
    if is_many:
        is_texts = kind == list[str] and isinstance(given, list | tuple)
        return list(given) if is_texts and all(type(each) is str for each in given) else OTHER
    if type(given) is not str and type(given) is not kind:
        return OTHER
    if kind is str:
        return given
    if kind is int or type(given) is float:
        return _number(info, given)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(given) if given in tuple(kind) else OTHER
    return OTHER


def _number(info: Any, given: Any) -> Any:
    """Return a number that is in range and given in plain digits or as a default, else `OTHER`."""
    if type(given) is str:
        if len(given) > WHOLE_DIGITS_MAX or not DIGITS.fullmatch(given):
            return OTHER
        given = int(given)
    is_low = info.min is not None and given < info.min
    is_high = info.max is not None and given > info.max
    return OTHER if is_low or is_high else given
