"""What is typed, taken as it is where there is nothing to convert.

Typer hands every value of a command line to pydantic, also the text of a text option and an option
that was not given; loading it takes longer than most of our commands, and 10 MB that a node would
hold as long as it lives. So texts, whole numbers in range, and names of a choice are taken here.
All else, whatever is wrong included, is left to Typer, whose sentences stay the same. A Typer that
describes its parameters in another way, as older ones do, converts everything by itself.
"""

import re
from enum import StrEnum
from typing import Any, Final

WHOLE_DIGITS_MAX: Final = 18
DIGITS: Final = re.compile(r"-?[0-9]+")

OTHER: Final = object()  # not a value that is taken here


def take_plain_values(command: Any) -> None:
    """Have the parameters of a click command, and of those below it, take plain values."""
    usual = command.get_params

    def get_params(context: Any) -> Any:
        return taking_plain_values(usual(context))

    command.get_params = get_params
    for below in getattr(command, "commands", {}).values():
        take_plain_values(below)


def taking_plain_values(parameters: Any) -> Any:
    """Return the parameters, each one changed to take plain values; --help is among them."""
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)
        if described is not None and "process_value" not in vars(parameter):
            parameter.process_value = _taking(parameter, described)
    return parameters


def _taking(parameter: Any, described: Any) -> Any:
    usual = parameter.process_value
    callback = parameter.callback

    def process_value(context: Any, given: Any) -> Any:
        value = plain_value(parameter, described, given)
        if value is OTHER or (parameter.required and parameter.value_is_missing(value)):
            return usual(context, given)
        return value if callback is None else callback(context, parameter, value)

    return process_value


def plain_value(parameter: Any, described: Any, given: Any) -> Any:
    """Return what Typer would make of it, `OTHER` where that is more than this."""
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
    """A whole number in plain digits, or a default that is any number; in its range."""
    if type(given) is str:
        if len(given) > WHOLE_DIGITS_MAX or not DIGITS.fullmatch(given):
            return OTHER
        given = int(given)
    is_low = info.min is not None and given < info.min
    is_high = info.max is not None and given > info.max
    return OTHER if is_low or is_high else given
