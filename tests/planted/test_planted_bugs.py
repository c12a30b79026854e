"""Every planted bug is found within a bounded number of seeds, and the unchanged package passes the
same seeds."""

from pathlib import Path

import pytest
from tests.planted.track_record import (
    LEVELS,
    PAGE,
    SEEDS_MAX,
    changed_functions,
    enclosing_function,
    function_cell,
    functions_of,
    hunt,
    marks,
    patches,
    plant,
    rule_of,
    scenario_of,
    seeds_on_page,
)

PATCHES = patches()
# whole clusters
OF_NODES = [
    patch
    for level in ("node", "kafka", "groups", "transactions", "intruder")
    for patch in patches(level)
]
OF_CORES = [patch for patch in PATCHES if patch not in OF_NODES]
SEEDS_OF_NODES = 40  # a minute of whole clusters each


@pytest.mark.parametrize("level", LEVELS)
def test_there_are_enough_planted_bugs_with_unique_numbers(level: str) -> None:
    found = patches(level)
    numbers = [patch.name[:2] for patch in found]
    assert numbers == [f"{number:02d}" for number in range(1, len(found) + 1)]
    assert len(found) >= 12


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_planted_bug_still_applies_to_its_function(patch: Path, tmp_path: Path) -> None:
    """After a rename or a move of the function, correct the patch's line `Function:` and its row in
    docs/track-record.md. Otherwise the patch drifted: correct its context."""
    plant(patch, tmp_path)
    assert len(rule_of(patch)) > 20
    assert changed_functions(tmp_path) == functions_of(patch)


def test_enclosing_function_is_the_innermost_one() -> None:
    source = "import os\nclass A:\n    def f(self):\n        return 1\n\ndef g():\n    return 2\n"
    found = [enclosing_function(source, line) for line in (1, 3, 4, 7)]
    assert found == ["", "A.f", "A.f", "g"]


def test_the_page_has_a_row_for_every_planted_bug() -> None:
    page = PAGE.read_text()
    missing = [patch.stem for patch in PATCHES if f"| {row_name(patch)} |" not in page]
    assert missing == [], "run `make track-record`"


@pytest.mark.parametrize("level", LEVELS)
def test_each_row_of_the_page_names_the_functions_of_its_bug(level: str) -> None:
    begin, end = marks(level)
    table = PAGE.read_text().partition(begin)[2].partition(end)[0]
    cells = [line.split("|") for line in table.splitlines()]
    shown = {row[1].strip(): row[-2].strip() for row in cells if len(row) > 2}
    expected = {row_name(patch): function_cell(functions_of(patch)) for patch in patches(level)}
    assert {name: shown.get(name) for name in expected} == expected


def test_every_planted_bug_of_the_page_was_found() -> None:
    assert "| not found |" not in PAGE.read_text()


@pytest.mark.parametrize("level", LEVELS)
def test_the_page_has_the_seeds_of_every_bug_without_a_scenario(level: str) -> None:
    without = [patch for patch in patches(level) if not scenario_of(patch)]
    assert {patch.stem for patch in without if not seeds_on_page(patch)} == set()


def row_name(patch: Path) -> str:
    number, _, name = patch.stem.partition("_")
    return f"{number} {name.replace('_', ' ')}"


@pytest.mark.long
@pytest.mark.parametrize("patch", OF_CORES, ids=lambda patch: patch.stem)
def test_a_planted_bug_is_found_by_the_seed_of_the_page_or_one_soon_after(patch: Path) -> None:
    """Start at the seed that found it when the page was written: the seeds before it take the
    time."""
    first = max(0, seeds_on_page(patch) - 1)
    found = hunt(patch, first=first, seeds=SEEDS_MAX - first)
    assert found.seeds, f"{patch.stem} is not found in {SEEDS_MAX} seeds"


@pytest.mark.long
@pytest.mark.parametrize("patch", OF_CORES, ids=lambda patch: patch.stem)
def test_a_planted_bug_is_found_within_its_bound(patch: Path) -> None:
    found = hunt(patch)
    assert found.seeds, f"{patch.stem} is not found in {SEEDS_MAX} seeds"


@pytest.mark.long
@pytest.mark.parametrize("patch", OF_NODES, ids=lambda patch: patch.stem)
def test_whole_nodes_find_a_planted_bug_within_its_bound(patch: Path) -> None:
    found = hunt(patch, seeds=SEEDS_OF_NODES)
    assert found.seeds, f"{patch.stem} is not found in {SEEDS_OF_NODES} seeds"
