"""The condition of a search for records: a text, a regular expression, or a path in JSON.

Its cost is bounded: regular expressions run in RE2, in linear time and SEARCH_STEPS_MAX; JSON is
decoded up to JSON_BYTES_MAX, and a path selects at most SELECTED_MAX values.
"""

import json
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeAlias

from ..clients.consumer.record import ConsumerRecord
from ..errors import InvalidRequest
from ..patterns import compile_pattern

TEXT_MAX: Final = 500  # characters of a condition
JSON_BYTES_MAX: Final = 1024 * 1024
SEARCH_STEPS_MAX: Final = 100_000_000
"""Bytes of a content times instructions of the expression: at worst 0.5 s."""
SELECTED_MAX: Final = 1_000
FIELDS: Final = {"value": "Value", "key": "Key", "header": "Header"}
MODES: Final = {
    "contains": "contains",
    "equals": "equals",
    "regex": "matches regular expression",
    "json": "has JSON path",
}

RecordFilter: TypeAlias = Callable[[ConsumerRecord], bool]
"""Returns True for a record of the search."""

_Matcher: TypeAlias = Callable[[bytes], bool]
_STEP: Final = re.compile(
    r"\.(?P<name>[\w-]+|\*)|\[(?P<index>\d{1,9}|\*)\]|\['(?P<quoted>[^']*)'\]"
)
_CONDITION: Final = re.compile(r"(?P<path>(?:'[^']*'|[^'=])*)(?:=(?P<value>.*))?", re.DOTALL)


def compile_filter(field: str, mode: str, text: str) -> RecordFilter:
    """Return the filter; raise InvalidRequest for a malformed one."""
    if field not in FIELDS or mode not in MODES:
        raise InvalidRequest(
            f"unknown search {field[:20]!r} {mode[:20]!r}; choose one from the form"
        )
    if len(text) > TEXT_MAX:
        raise InvalidRequest(
            f"the search has {len(text):,} characters; the limit is {TEXT_MAX}; use a shorter one"
        )
    matches = _matcher(mode, text)
    if field == "key":
        return lambda record: record.key is not None and matches(record.key)
    if field == "value":
        return lambda record: record.value is not None and matches(record.value)
    return lambda record: any(
        matches(name.encode()) or (content is not None and matches(content))
        for name, content in record.headers
    )


def _matcher(mode: str, text: str) -> _Matcher:
    if mode == "regex":
        return _compile_regex(text)
    if mode == "json":
        return _compile_path(text)
    wanted = text.encode("utf-8", "surrogateescape")
    if mode == "equals":
        return lambda content: content == wanted
    return lambda content: wanted in content


def _compile_regex(pattern: str) -> _Matcher:
    """Return a search with RE2 in bytes, as UTF-8."""
    try:
        compiled = compile_pattern(pattern.encode())
    except ValueError as error:
        raise InvalidRequest(f"{pattern[:80]!r} is not a valid RE2 pattern: {error}") from None

    def matches(content: bytes) -> bool:
        if compiled.programsize * len(content) > SEARCH_STEPS_MAX:
            raise InvalidRequest(
                f"{pattern[:80]!r} is too complex for a record with {len(content):,} bytes: it has"
                f" {compiled.programsize:,} instructions; use a simpler expression"
            )
        return compiled.search(content) is not None

    return matches


def _compile_path(text: str) -> _Matcher:
    """Return a matcher of `$.items[0].name = text`; without "=" any value of the path matches."""
    condition = _CONDITION.fullmatch(text.strip())
    path = "" if condition is None else condition["path"].strip().removeprefix("$")
    if path and path[0] not in ".[":
        path = f".{path}"
    steps: list[str | int | None] = []  # a member, an index, None for all
    position = 0
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            break
        position = found.end()
        name = found["name"] if found["name"] is not None else found["quoted"]
        if found["index"] is not None and found["index"] != "*":
            steps.append(int(found["index"]))
        else:
            steps.append(None if "*" in (found["name"], found["index"]) else name)
    if condition is None or not steps or position < len(path):
        raise InvalidRequest(
            f"{text[:80]!r} is not a JSON path; give a path such as $.customer.city = Oslo,"
            " $.items[0] or $.items[*].name"
        )
    wanted = None if condition["value"] is None else condition["value"].strip()

    def matches(content: bytes) -> bool:
        found = select(content, steps)
        return bool(found) if wanted is None else any(_is_equal(each, wanted) for each in found)

    return matches


def select(content: bytes, steps: list[str | int | None]) -> list[Any]:
    """Return the values of a path; [] if the content is no JSON, too large or nested too deeply."""
    if len(content) > JSON_BYTES_MAX:
        return []
    try:
        selected = [json.loads(content)]
    except (ValueError, RecursionError):
        return []
    for step in steps:
        members = (member for value in selected for member in _members(value, step))
        selected = list(islice(members, SELECTED_MAX))
    return selected


def _members(value: Any, step: str | int | None) -> Iterable[Any]:
    """Return the members of a value that one step selects."""
    if isinstance(value, dict):
        return value.values() if step is None else [value[step]] if step in value else []
    if isinstance(value, list):
        if step is None:
            return value
        return value[step : step + 1] if isinstance(step, int) else []
    return []


def _is_equal(value: Any, wanted: str) -> bool:
    """Return True if a value is this text, or this JSON literal."""
    if isinstance(value, str):
        return value == wanted or json.dumps(value, ensure_ascii=False) == wanted
    if isinstance(value, dict | list):
        return False
    try:
        return json.dumps(value) == wanted
    except ValueError:  # a number of thousands of digits
        return False
