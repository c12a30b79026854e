"""A seed that finds a planted bug shrinks to a run with the same violation, and the package without
the bug does not violate that rule."""

import os
import re
from pathlib import Path
from statistics import median

import pytest
from tests.planted.shrunk import EXAMPLE, EXAMPLE_PAGE, EXAMPLE_PLAN, bugs, run_module, shrink
from tests.planted.track_record import FOLDER, level_of, planted_package, seeds_on_page
from tests.simulation.shrink.plan import load_plan

QUICK = {
    "core/04_vote_for_shorter_log": 0.5,
    "partitions/03_silent_member_not_waited_for": 0.5,
    "node/03_mark_moves_under_min_isr": 1.0,
    "groups/07_generation_without_all": 1.0,
    "transactions/06_stable_offset_passes_open_transactions": 1.0,
    "intruder/06_streams_not_identified": 1.0,
}
"""A bug of each level that its seed finds early, and a bound of the ratio of events."""
EVENT_LEVELS = ("core", "partitions")
"""The plans of these bugs have every event: the package without the bug passes them."""
QUICK_S = 8.0
LONG_S = 60.0
RATIO_MAX = 0.1


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_a_shrunk_seed_keeps_its_violation_and_replays_to_the_byte(
    name: str, tmp_path: Path
) -> None:
    patch = FOLDER / f"{name}.patch"
    level, seed = level_of(patch), seeds_on_page(patch) - 1
    path = tmp_path / f"{level}-{seed}.json"
    arguments = ("--level", level, "--seed", f"{seed}", "--plan", f"{path}")
    with planted_package(patch) as environment:
        bug = shrink(patch, tmp_path, environment, QUICK_S)
        assert bug.events, bug.output
        replays = [run_module(environment, "tests.simulation", *arguments) for _ in "ab"]
    assert [each.returncode for each in replays] == [1, 1], replays[0].stderr
    assert replays[0].stdout == replays[1].stdout
    assert bug.output.startswith(replays[0].stdout)
    assert f"violated: {load_plan(path, level=level).violation}" in replays[0].stdout
    assert bug.ratio <= QUICK[name], bug.output
    assert path.with_suffix(".svg").read_text().startswith("<svg")
    without = run_module(dict(os.environ), "tests.simulation", *arguments)
    assert f"violated: {load_plan(path, level=level).violation}" not in without.stdout
    if level in EVENT_LEVELS:
        assert without.returncode == 0, without.stdout


@pytest.mark.slow
def test_the_example_of_the_page_is_the_story_of_its_plan() -> None:
    arguments = ("tests.simulation", "--level", "core", "--plan", f"{EXAMPLE_PLAN}")
    with planted_package(EXAMPLE) as environment:
        replayed = run_module(environment, *arguments)
    assert replayed.returncode == 1, replayed.stderr
    page = EXAMPLE_PAGE.read_text()
    assert replayed.stdout in page, "run `python -m tests.planted.shrunk --example`"


@pytest.mark.long
def test_a_seed_that_passes_has_nothing_to_shrink(tmp_path: Path) -> None:
    finished = run_module(
        dict(os.environ),
        *("tests.simulation.shrink", "--level", "core", "--seed", "0", "--folder", f"{tmp_path}"),
    )
    assert finished.returncode == 3
    assert re.match(r"seed 0 of level core passes: nothing to shrink", finished.stdout)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_the_median_of_the_shrunk_seeds_has_a_tenth_of_the_events(tmp_path: Path) -> None:
    ratios = []
    for patch in bugs():
        with planted_package(patch) as environment:
            bug = shrink(patch, tmp_path, environment, LONG_S)
        assert bug.events, f"{patch.stem}: {bug.output}"
        ratios.append(bug.ratio)
    print(f"{len(ratios)} seeds, median ratio {median(ratios):.1%}")
    assert median(ratios) <= RATIO_MAX
