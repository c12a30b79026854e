"""docs/failure_model.md lists every scenario of a replicated log, with tests that exist."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
ROWS: Final = (ROOT / "docs" / "failure_model.md").read_text().partition("## Scenarios")[2]
TESTS: Final = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", ROWS)))


def test_every_scenario_has_a_row_in_its_order_with_a_test() -> None:
    rows = [line for line in ROWS.splitlines() if line.startswith("| R")]
    assert [row.split("|")[1].strip() for row in rows] == [f"R{number}" for number in range(1, 32)]
    assert all("::test_" in row for row in rows)


@pytest.mark.parametrize(("path", "name"), TESTS, ids=lambda value: value.rpartition("/")[2])
def test_a_test_of_the_page_exists(path: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
