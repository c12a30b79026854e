"""Generated parts of docs/clients.md: settings and errors, from the code that defines them.

Pure. `make docs` writes them between the page's markers; a test compares the page.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from textwrap import wrap
from typing import Any

from ..errors import ERRORS, QuorumlogError, RetriableError
from .config import KIB, MIB, ClientConfig, ConsumerConfig, ProducerConfig

MARKED = re.compile(r"(<!-- made by `make docs`: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

ROOTS = (QuorumlogError, RetriableError)
WRAPPED: Any = {"width": 128, "subsequent_indent": "      ", "break_on_hyphens": False}

# A field of a config with the comment lines above it and the comment to its right.
FIELD = re.compile(r"((?:^    # .*\n)*)^    (\w+): [^=\n]+ = [^#\n]+(?:# (.*))?$", re.MULTILINE)


def with_tables(page: str) -> str:
    """Return the page with every marked table regenerated."""
    return MARKED.sub(lambda mark: f"{mark[1]}{table(mark[2])}{mark[3]}", page)


def table(name: str) -> str:
    """Return the table of a config class, the table of `errors`, or the list `error_tree`."""
    configs = {kind.__name__: kind for kind in (ClientConfig, ProducerConfig, ConsumerConfig)}
    if name == "errors":
        return _table(("error", "retriable", "meaning and remedy"), _error_rows())
    if name == "error_tree":
        return "".join(f"{line}\n" for line in _error_tree())
    return _table(("setting", "default", "meaning"), _setting_rows(configs[name]))


def _setting_rows(kind: type[Any]) -> Iterator[tuple[str, ...]]:
    """Yield name, default and comment of each field, in source order."""
    comments = {
        match[2]: match[3] or " ".join(line.strip(" #") for line in match[1].splitlines())
        for match in FIELD.finditer(inspect.getsource(kind))
    }
    for each in fields(kind):
        assert each.default is not MISSING, f"{each.name} has no default"
        comment = comments[each.name].replace("|", "\\|").replace("<", "\\<")
        yield f"`{each.name}`", _default(each.default), comment


def _default(value: object) -> str:
    if type(value) is not int:
        return f"`{value!r}`"
    size = ""
    if value >= KIB and value % KIB == 0:
        size = f" ({value // MIB} MiB)" if value % MIB == 0 else f" ({value // KIB} KiB)"
    return f"`{value}`{size}"


def _error_rows() -> Iterator[tuple[str, ...]]:
    """Yield name, retriability and docstring of each class, in the order of the error table."""
    for error in ERRORS:
        name = f"`{error.__name__}` (`{error.name}`)"
        meaning = " ".join((error.__doc__ or "").split()).replace("|", "\\|")
        yield name, "yes" if error.retriable else "no", meaning


def _error_tree() -> Iterator[str]:
    """Yield a nested list: each base class with its errors, in the order of the error table."""
    bases = [each for each in QuorumlogError.__subclasses__() if each not in ERRORS]
    yield f"- `QuorumlogError`: {_sentence(QuorumlogError)}"
    for base in bases:
        if base is RetriableError:
            text = f"{_sentence(base)} All errors with *yes* in the table below."
        else:
            text = f"{_sentence(base)} {_names(base)}."
        yield from wrap(text, initial_indent=f"    - `{base.__name__}`: ", **WRAPPED)
    others = [each for each in ERRORS if each.__bases__[0] in ROOTS]
    listed = ", ".join(_name(each) for each in others)
    yield from wrap(f"{listed}.", initial_indent="    - no other base: ", **WRAPPED)


def _names(base: type[QuorumlogError]) -> str:
    return ", ".join(_name(each) for each in ERRORS if base in each.__bases__)


def _name(error: type[QuorumlogError]) -> str:
    """Return the name of an error with its subclasses, and with a base class of Python."""
    more = [f"`{each.__name__}`" for each in ERRORS if error in each.__bases__]
    if issubclass(error, TimeoutError):
        more.append("a `TimeoutError` of Python")
    return f"`{error.__name__}`" + (f" ({', '.join(more)})" if more else "")


def _sentence(kind: type[QuorumlogError]) -> str:
    """Return the first sentence of a docstring."""
    return " ".join((kind.__doc__ or "").split()).partition(". ")[0].rstrip(".") + "."


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
