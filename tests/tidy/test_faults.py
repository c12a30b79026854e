"""The table of faults in docs/testing.md names existing tests and levels."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
TABLE = PAGE.partition("| what goes wrong |")[2].partition("\n\n")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| ")
]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
LEVEL = re.compile(r"`make simulate LEVEL=(\w+)`")

PROMISED = {
    "the server is down",
    "the server restarts",
    "the server is slow or hangs",
    "the server closes streams",
    "the server answers nonsense",
    "the wrong address",
    "a TLS port",
    "a name that does not resolve",
    "a topic deleted while producing",
    "a topic deleted while consuming",
    "a full buffer",
    "a callback that raises",
    "a process that forks",
    "an event loop closed early",
    "Ctrl-C in the command line",
    "Ctrl-C in a blocking call",
    "broken pipes",
    "a bad wire",
}


@cache
def defined_in(path: str) -> set[str]:
    """Return the tests that a file defines; none if the file does not exist."""
    file = ROOT / path
    if not file.is_file():
        return set()
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_table_has_a_row_for_every_fault() -> None:
    assert {row[0] for row in ROWS} == PROMISED


def test_every_row_names_a_test() -> None:
    assert [row[0] for row in ROWS if not TEST.search(row[-1])] == []


def test_every_test_of_the_table_exists() -> None:
    missing = [
        f"{path}::{name}" for path, name in TEST.findall(TABLE) if name not in defined_in(path)
    ]
    assert missing == []


def test_every_level_of_the_table_exists() -> None:
    from tests.simulation.runs import LEVELS

    assert set(LEVEL.findall(TABLE)) <= set(LEVELS)
