"""docs/observability.md lists the metrics and the log events of the code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from quorumlog.server.json_log import RESERVED
from quorumlog.server.observability.metrics_page import metrics_table, with_tables

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "observability.md"
CALLS = ("debug", "info", "warning", "error", "exception", "log", "say")
EVENT = re.compile(r"((?:[a-z]+|%s)\.(?:[a-z_]|%s)+):?(?=\s|$)")
KINDS = ("groups", "transactions")  # of coordinators: their shared code fills in one of these
KEY = re.compile(r"(?<!\S)(\w+)=")


@cache
def logged() -> list[tuple[str, tuple[str, ...], str]]:
    """Return every event of the sources: name with `*` for placeholders, keys, location."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        for call in ast.walk(ast.parse(text)) if "getLogger" in text else ():
            if not isinstance(call, ast.Call):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            name = call.func.id if isinstance(call.func, ast.Name) else name
            for argument in call.args[:2] if name in CALLS else ():
                form = argument.value if isinstance(argument, ast.Constant) else None
                if isinstance(form, str) and (event := EVENT.match(form)):
                    where = f"{path.relative_to(ROOT)}:{call.lineno}"
                    kinds = KINDS if event[1].startswith("%s.") else ("",)
                    for kind in kinds:
                        name = event[1].replace("%s", kind, 1) if kind else event[1]
                        found.append((name.replace("%s", "*"), tuple(KEY.findall(form)), where))
    return found


def listed() -> dict[str, list[str]]:
    """Return the events of the page with their fields, in order."""
    text = PAGE.read_text()
    rows = re.findall(
        r"^\| `([a-z]+\.[a-z_*]+)` \| ([a-z, ]+) \| ([a-z_, ]*) \| (.+\.) \|$", text, re.M
    )
    return {name: [each for each in fields.split(", ") if each] for name, _, fields, _ in rows}


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == with_tables(page), "run `make docs`"
    assert metrics_table().count("\n") > 40


def test_every_metric_that_the_page_names_exists() -> None:
    page = PAGE.read_text()
    spoken = set(re.findall(r"quorumlog_[a-z_]+", page.replace(metrics_table(), "")))
    named = set(re.findall(r"^\| `(quorumlog_[a-z_]+)", metrics_table(), re.M))
    assert spoken
    assert spoken - named == set()


@pytest.mark.slow
def test_every_log_event_is_on_the_page_with_its_fields() -> None:
    on_page = listed()
    missing = [
        f"{where}: {name} {', '.join(keys)}"
        for name, keys, where in logged()
        if not set(keys) <= set(on_page.get(name, ())) or name not in on_page
    ]
    assert not missing, "add a row for each to docs/observability.md"


def test_page_lists_no_removed_event_or_field() -> None:
    said: dict[str, set[str]] = {}
    for name, keys, _ in logged():
        said.setdefault(name, set()).update(keys)
    assert len(said) > 50
    assert {name: set(keys) for name, keys in listed().items()} == said
    assert list(listed()) == sorted(listed())


def test_no_field_uses_a_reserved_key() -> None:
    taken = [where for _, keys, where in logged() if set(keys) & set(RESERVED)]
    assert not taken, f"these keys have another meaning in every JSON line: {RESERVED}"
