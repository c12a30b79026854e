"""The sources of values, in one order for all settings: flag, environment, file, default.

A source maps the names of settings to values with their origin; `resolve` combines sources. An
unknown name in a file or flag is an error. An unknown environment variable is only reported, since
other programs share the environment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import InvalidConfig
from .declaration import Setting, check_value, nearest, parse_value

PREFIX: Final = "QUORUMLOG_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOrigin:
    """The origin of a value."""

    kind: str  # "flag", "environment", "file", "default"
    place: str = ""  # the flag, the variable, "file:line" or the file

    def __str__(self) -> str:
        return f"{self.kind} {self.place}" if self.place else self.kind


DEFAULT: Final = ValueOrigin(kind="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSource:
    """The values of one source, by name of the setting, with their origins."""

    values: Mapping[str, tuple[Any, ValueOrigin]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The value and origin of every setting of a table."""

    values: Mapping[str, Any]  # by name; a required one without a value is absent
    origins: Mapping[str, ValueOrigin]  # by name

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def resolve(rows: Iterable[Setting], sources: Sequence[SettingSource]) -> Resolved:
    """Return every setting's value from the first source that has it, else its default."""
    values: dict[str, Any] = {}
    origins: dict[str, ValueOrigin] = {}
    for row in rows:
        found = next((s.values[row.name] for s in sources if row.name in s.values), None)
        if found is None and row.default is None:
            continue
        values[row.name], origins[row.name] = (row.default, DEFAULT) if found is None else found
    return Resolved(values=values, origins=origins)


# --- flags -------------------------------------------------------------------------------------


def flag_source(rows: Iterable[Setting], given: Iterable[tuple[str, str, str]]) -> SettingSource:
    """Read flags, each as (setting, text, flag as typed); raise InvalidConfig, also if two flags
    have the same setting."""
    by_name = {row.name: row for row in rows}
    values: dict[str, tuple[Any, ValueOrigin]] = {}
    for name, text, flag in given:
        row = by_name.get(name)
        if row is None:
            raise InvalidConfig(f"{flag}: {unknown_name(name, by_name)}")
        if name in values:
            raise InvalidConfig(f"{name} is given twice, by {values[name][1].place} and {flag}")
        values[name] = (parse_value(row, text), ValueOrigin(kind="flag", place=flag))
    return SettingSource(values=values)


def split_assignments(pairs: Iterable[str], *, flag: str) -> list[tuple[str, str, str]]:
    """Split "name=value" texts for `flag_source`; raise InvalidConfig."""
    given = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidConfig(f"{flag} {pair!r}: give NAME=VALUE")
        given.append((name.strip(), value.strip(), f"{flag} {name.strip()}"))
    return given


# --- environment -------------------------------------------------------------------------------


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: QUORUMLOG_DATA_DIR for data.dir."""
    return PREFIX + name.replace(".", "_").upper()


def environment_source(rows: Iterable[Setting], environment: Mapping[str, str]) -> SettingSource:
    """Read the environment variables of settings; raise InvalidConfig with the variable. An empty
    variable counts as unset, as is customary."""
    values: dict[str, tuple[Any, ValueOrigin]] = {}
    for row in rows:
        variable = variable_of(row.name)
        text = environment.get(variable, "")
        if text:
            try:
                value = parse_value(row, text)
            except InvalidConfig as error:
                raise InvalidConfig(f"{variable}: {error.message}") from None
            values[row.name] = (value, ValueOrigin(kind="environment", place=variable))
    return SettingSource(values=values)


def unknown_variables(environment: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Return a sentence for each unknown QUORUMLOG_ variable, with the most similar name."""
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
    table: Sequence[str] = (),
    others: Sequence[str] = (),
) -> SettingSource:
    """Read TOML; raise InvalidConfig with the file, line, key and remedy.

    Dotted keys and tables are equivalent. `table`: read only the table of these keys; `others`:
    top-level keys of other programs, which are ignored.
    """
    part = {key: value for key, value in toml_tree(text, path=path).items() if key not in others}
    for depth, key in enumerate(table, start=1):
        part = part.get(key, {})
        if not isinstance(part, dict):
            name = ".".join(table[:depth])
            raise InvalidConfig(f"{path}: {name} is {part!r}; make it a table, [{name}]")
    by_name = {row.name: row for row in rows}
    lines = line_numbers(text)
    values: dict[str, tuple[Any, ValueOrigin]] = {}
    for name, value in sorted(_flatten(part, ""), key=lambda found: found[0]):
        line = lines.get(".".join((*table, name)))
        place = f"{path}:{line}" if line else path
        row = by_name.get(name)
        if row is None:
            raise InvalidConfig(f"{place}: {unknown_name(name, by_name)}")
        try:
            checked = check_value(row, value)
        except InvalidConfig as error:
            raise InvalidConfig(f"{place}: {error.message}") from None
        if name in values:  # in TOML, a.b and "a.b" are two keys
            raise InvalidConfig(f"{path}: {name} is given twice; give each setting once")
        values[name] = (checked, ValueOrigin(kind="file", place=place))
    return SettingSource(values=values)


def toml_tree(text: str, *, path: str) -> dict[str, Any]:
    """Parse TOML; raise InvalidConfig with the file."""
    import tomllib  # 12 ms, not needed without a file

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a huge number or very deep nesting
        raise InvalidConfig(f"{path} is not TOML: {error}") from None


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Return the text of an unknown setting's error, with the most similar name."""
    names = sorted(known)
    near = nearest(name, names)
    hint = f"; did you mean {near}?" if near else f"; known are {', '.join(names)}"
    return f"unknown setting {name}{hint}"


_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_.\"'\- ]+?)\s*=")


def line_numbers(text: str) -> dict[str, int]:
    """Return the line of each dotted key of a TOML text, counted from 1.

    For messages only: it handles tables and dotted keys, not inline tables or multi-line text.
    Other keys have no line.
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
