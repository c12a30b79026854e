"""Plans of runs: what a file must have, and runs that are replayed and shrunk."""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from tests.simulation.levels.quorum import level as quorum_level
from tests.simulation.runs import player_of
from tests.simulation.shrink.plan import (
    PlannedEvent,
    PlanRefused,
    RunPlan,
    load_plan,
    store_plan,
)
from tests.simulation.shrink.report import REFUSED, replay_plan
from tests.simulation.shrink.script import replace_option
from tests.simulation.shrink.shrinker import Shrinker
from tests.simulation.shrink.subjects import PlayedPlan, simpler_options, subject_of

from quorumlog.storage.shell import writer

PLAN = RunPlan(
    level="core",
    seed=7,
    violation="OneVote",
    options={"options": {"loss": 0.0}},
    events=(PlannedEvent(at_us=5, key="start n1", draws={"weather": [0.25, 3]}),),
)


def test_a_stored_plan_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "core-7.json"
    store_plan(PLAN, path)
    assert load_plan(path, level="core", seed=7) == PLAN


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        ({"version": 2}, "version 2, expected 1"),
        ({"level": "node"}, "level 'node', expected 'core'"),
        ({"seed": 8}, "seed 8, expected 7"),
        ({"colour": 1}, "unknown field `colour`"),
        (
            {"events": [{"at_us": 1, "key": "a"}]},
            r"missing required field `draws` - at `\$.events\[0\]`",
        ),
        (
            {"events": [{"at_us": 1, "key": "a", "draws": {"b": ["c"]}}]},
            r"Expected `int \| float`, got `str` - at `\$.events\[0\].draws",
        ),
        ({"options": {"options": 1}}, "Expected `object`, got `int`"),
    ],
)
def test_an_invalid_plan_is_refused(change: dict[str, object], sign: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    store_plan(PLAN, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(PlanRefused, match=sign):
        load_plan(path, level="core", seed=7)
    assert replay_plan("core", 7, path) == REFUSED


def test_a_plan_with_an_unknown_option_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    store_plan(replace(PLAN, options={"options": {"speed": 1}}), path)
    assert replay_plan("core", 7, path) == REFUSED


@dataclass(frozen=True, kw_only=True)
class Part:
    count: int
    wait_ms: int = 5


@dataclass(frozen=True, kw_only=True)
class Whole:
    parts: tuple[Part, ...]
    is_on: bool
    loss: float = 0.0


def test_simpler_options_are_defaults_single_items_and_off() -> None:
    whole = Whole(parts=(Part(count=3, wait_ms=9), Part(count=1)), is_on=True, loss=0.5)
    assert simpler_options(whole) == [
        ("parts", 1),
        ("parts.0.count", 1),
        ("parts.0.wait_ms", 5),
        ("is_on", False),
        ("loss", 0.0),
    ]
    assert replace_option(whole, "parts", 1).parts == whole.parts[:1]
    assert replace_option(whole, "parts.0.count", 1).parts[0] == Part(count=1, wait_ms=9)


@pytest.mark.long
@pytest.mark.parametrize("level", ["core", "partitions", "storage"])
def test_a_recorded_run_is_the_run_of_its_seed(level: str) -> None:
    outcome = player_of(level)(1, trace=None)
    played = subject_of(level, 1).play(None)
    assert (played.event_hash, played.rule) == (outcome.event_hash, "")


def shrunk(level: str, seeds: range, runs_max: int) -> tuple[PlayedPlan, PlayedPlan]:
    """Return the first failing run of some seeds, and the shrunk one."""
    for seed in seeds:
        subject = subject_of(level, seed)
        first = subject.play(None)
        if first.rule:
            best = Shrinker(subject, first, runs_max=runs_max).shrink()
            assert subject.play(best.plan).event_hash == best.event_hash
            return first, best
    raise AssertionError(f"level {level} passes {seeds}")


@pytest.mark.long
def test_a_directory_that_acknowledges_before_its_sync_fails_in_a_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "perform_flush", lambda files, flush: None)
    first, best = shrunk("storage", range(3), runs_max=30)
    assert best.rule == first.rule
    assert best.events * 2 <= first.events
    assert len(best.plan.events) < len(first.plan.events)


@pytest.mark.long
def test_a_quorum_that_applies_twice_fails_without_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    play = partial(quorum_level.play, bug="double-apply")
    monkeypatch.setattr(quorum_level, "play", play)
    first, best = shrunk("quorum", range(3), runs_max=30)
    assert best.rule == first.rule
    assert best.events <= first.events
    assert len(best.plan.events) <= len(first.plan.events)
