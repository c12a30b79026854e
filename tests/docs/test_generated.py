"""The generated pages and tables (docs/cli.md, docs/clients.md, docs/benchmarks.md) are up to
date."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from quorumlog.cli.pages import cli_page
from quorumlog.clients.config import ClientConfig, ConsumerConfig, ProducerConfig
from quorumlog.clients.settings_page import table, with_tables
from quorumlog.errors import (
    ERRORS,
    AdminError,
    GroupError,
    StorageError,
    TransportError,
)

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


def test_the_page_of_commands_has_the_text_of_help() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == cli_page(), "run `make docs`"


def test_the_page_of_commands_has_every_command() -> None:
    titles = re.findall(r"^## (quorumlog.*)$", cli_page(), re.MULTILINE)
    assert {"quorumlog", "quorumlog topics create", "quorumlog log dump"} <= set(titles)
    assert len(titles) == len(set(titles)) > 15


def test_the_tables_of_the_clients_page_are_up_to_date() -> None:
    page = (ROOT / "docs" / "clients.md").read_text()
    assert page == with_tables(page), "run `make docs`"
    assert page.count("<!-- made by `make docs`: ") == 5


@pytest.mark.parametrize("kind", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_every_setting_has_a_description(kind: type[ClientConfig]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", table(kind.__name__), re.MULTILINE)
    assert [name for name, _, _ in rows] == [each.name for each in fields(kind)]
    assert all(len(meaning.split()) >= 3 for _, _, meaning in rows)


def test_every_error_is_listed_with_a_description() -> None:
    rows = re.findall(r"^\| `(\w+)`.*? \| (yes|no) \| (.+) \|$", table("errors"), re.MULTILINE)
    assert [name for name, _, _ in rows] == [error.__name__ for error in ERRORS]
    assert all(len(meaning.split()) >= 5 for _, _, meaning in rows)


def test_every_error_is_in_the_tree_under_its_base() -> None:
    tree = table("error_tree")
    for error in ERRORS:
        assert tree.count(f"`{error.__name__}`") == 1, error
    for base in (TransportError, GroupError, AdminError, StorageError):
        under = tree.partition(f"    - `{base.__name__}`: ")[2].partition("\n    - ")[0]
        assert {each.__name__ for each in ERRORS if issubclass(each, base)} == set(
            re.findall(r"`(\w+)`", under)
        )


def test_the_page_of_benchmarks_has_marks_for_each_benchmark() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    scripts = {path.name for path in BENCHMARKS.glob("[a-z]*.py")} - {"page.py", "parts.py"}
    assert {name for name in scripts if f"benchmarks/{name}`" not in page} == set()
    modules = {path.stem for path in (BENCHMARKS / "storage").glob("[a-z]*.py")} - {"subject"}
    assert {name for name in modules if f"benchmarks.storage.{name}`" not in page} == set()


@pytest.mark.long
def test_the_benchmark_of_the_clients_writes_its_table(tmp_path: Path) -> None:
    """A smoke test: its numbers have no meaning."""
    stored = tmp_path / "clients.json"
    command = [sys.executable, str(BENCHMARKS / "clients.py"), "--quick", "--store", str(stored)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(stored.read_text())["sizes"]["100"]
    names = [row["name"] for row in rows]
    for name in ("aio send", "blocking send", "aio poll_arrow", "blocking read_arrow"):
        assert name in names
    assert all(row["records_per_s"] > 0 for row in rows)
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import page; "
        "print(page.page({'clients': json.load(open(sys.argv[2]))}))"
    )
    made = subprocess.run(
        [sys.executable, "-c", program, str(BENCHMARKS), str(stored)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "| produce, each: aio send |" in made
    assert made.count("Not measured here yet") == made.count("\n## ") - 1, "one row has a result"
