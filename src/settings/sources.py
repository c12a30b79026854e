"""Where values come from, in one order for everything: flag, environment, file, default.

Each source is a mapping by setting name that says of every value where it stands; `resolve` lays
them over each other. An unknown name in a file or a flag is refused; an unknown environment
variable is told, since the environment is shared with others.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import InvalidConfig
from .rows import Setting, check_value, nearest, parse_value

PREFIX: Final = "QUORUMLOG_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value stands."""

    kind: str  # "flag", "environment", "file", "default"
    place: str = ""  # the flag, the variable's name, "file:line" or the file

    def __str__(self) -> str:
        return f"{self.kind} {self.place}" if self.place else self.kind


DEFAULT: Final = Origin(kind="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Values of one kind of place, by setting name, each with where it stands."""

    values: Mapping[str, tuple[Any, Origin]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The value of every setting of a table, and where it comes from."""

    values: Mapping[str, Any]  # by name; one that must be given and was not is absent
    origins: Mapping[str, Origin]  # by name, of the same settings

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def resolve(rows: Iterable[Setting], sources: Sequence[Source]) -> Resolved:
    """Return every setting's value from the first of `sources` that has it, else its default."""
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for row in rows:
        found = next((s.values[row.name] for s in sources if row.name in s.values), None)
        if found is None and row.default is None:
            continue
        values[row.name], origins[row.name] = (row.default, DEFAULT) if found is None else found
    return Resolved(values=values, origins=origins)


# --- flags -------------------------------------------------------------------------------------


def flag_source(rows: Iterable[Setting], given: Iterable[tuple[str, str, str]]) -> Source:
    """Read flags as (setting, text, flag as typed); raises InvalidConfig, also for a setting that
    two flags give."""
    by_name = {row.name: row for row in rows}
    values: dict[str, tuple[Any, Origin]] = {}
    for name, text, flag in given:
        row = by_name.get(name)
        if row is None:
            raise InvalidConfig(f"{flag}: {unknown_name(name, by_name)}")
        if name in values:
            raise InvalidConfig(f"{name} is given twice, by {values[name][1].place} and {flag}")
        values[name] = (parse_value(row, text), Origin(kind="flag", place=flag))
    return Source(values=values)


def split_assignments(pairs: Iterable[str], *, flag: str) -> list[tuple[str, str, str]]:
    """Return "name=value" texts as `flag_source` takes them; raises InvalidConfig."""
    given = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidConfig(f"{flag} {pair!r}: give NAME=VALUE")
        given.append((name.strip(), value.strip(), f"{flag} {name.strip()}"))
    return given


# --- environment -------------------------------------------------------------------------------


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: QUORUMLOG_DATA_DIR of data.dir."""
    return PREFIX + name.replace(".", "_").upper()


def environment_source(rows: Iterable[Setting], environment: Mapping[str, str]) -> Source:
    """Read the variables of these settings; raises InvalidConfig naming the variable. An empty
    variable counts as not given, as is the custom."""
    values: dict[str, tuple[Any, Origin]] = {}
    for row in rows:
        variable = variable_of(row.name)
        text = environment.get(variable, "")
        if text:
            try:
                value = parse_value(row, text)
            except InvalidConfig as error:
                raise InvalidConfig(f"{variable}: {error.message}") from None
            values[row.name] = (value, Origin(kind="environment", place=variable))
    return Source(values=values)


def unknown_variables(environment: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Return a sentence for each QUORUMLOG_ variable that nothing reads, with the nearest name."""
    names = set(known)
    sentences = []
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near}?" if near else "unset it, or see docs/configuration.md"
            sentences.append(f"environment variable {name} is not known and was ignored; {hint}")
    return sentences


# --- files -------------------------------------------------------------------------------------


def file_source(
    rows: Iterable[Setting],
    text: str,
    *,
    path: str,
    table: str = "",
    others: Sequence[str] = (),
) -> Source:
    """Read TOML; raises InvalidConfig naming the file, the line, the key and the remedy.

    Dotted keys and tables are the same thing. `table`: read only this table and leave the rest of
    the file alone; `others`: top-level tables that belong to somebody else.
    """
    import tomllib  # 12 ms that a command without a file does not need

    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number or a nesting without end
        raise InvalidConfig(f"{path} is not TOML: {error}") from None
    if table:
        part = tree.get(table, {})
        if not isinstance(part, dict):
            raise InvalidConfig(f"{path}: {table} is {part!r}; make it a table, [{table}]")
    else:
        part = {key: value for key, value in tree.items() if key not in others}
    by_name = {row.name: row for row in rows}
    lines = line_numbers(text)
    values: dict[str, tuple[Any, Origin]] = {}
    for name, value in sorted(_flatten(part, ""), key=lambda found: found[0]):
        line = lines.get(f"{table}.{name}" if table else name)
        place = f"{path}:{line}" if line else path
        row = by_name.get(name)
        if row is None:
            raise InvalidConfig(f"{place}: {unknown_name(name, by_name)}")
        try:
            checked = check_value(row, value)
        except InvalidConfig as error:
            raise InvalidConfig(f"{place}: {error.message}") from None
        if name in values:  # TOML takes a.b and "a.b" for two keys
            raise InvalidConfig(f"{path}: {name} is given twice; give each setting once")
        values[name] = (checked, Origin(kind="file", place=place))
    return Source(values=values)


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that a setting is unknown, and which was probably meant."""
    names = sorted(known)
    near = nearest(name, names)
    hint = f"; did you mean {near}?" if near else f"; known are {', '.join(names)}"
    return f"unknown setting {name}{hint}"


_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_.\"'\- ]+?)\s*=")


def line_numbers(text: str) -> dict[str, int]:
    """Return the line of each dotted key of a TOML text, counted from 1.

    A reader for people's eyes: it knows tables and dotted keys, not inline tables or text that
    spans lines. What it does not find is told without a line.
    """
    found: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            prefix = _dotted(header[1]) + "."
            continue
        key = _KEY.match(line)
        if key:
            found.setdefault(prefix + _dotted(key[1]), number)
    return found


def _dotted(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _flatten(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value
