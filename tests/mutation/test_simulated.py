"""The mutation run by simulation draws the same sample for a commit, and counts each result
once."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from . import simulated
from .cores import CI_SEEDS, CORES, Core
from .mutants import ROOT, file_of, mutants_of
from .page import EXPLAINED, explanations
from .reach import PlayedSeed, missing, report_of
from .simulated import (
    BEGIN,
    END,
    EQUIVALENT,
    Ending,
    Result,
    Seed,
    interval,
    judge,
    reach,
    row,
    sample,
    table,
    without_equivalents,
    write_page,
)
from .types import refused_by_types

ISR = Core(name="isr", modules=("broker.isr",), levels=("partitions",))


def test_the_seeds_are_those_of_ci() -> None:
    played = {}
    for line in (ROOT / "Makefile").read_text().splitlines():
        found = re.search(r"simulate LEVEL=(\w+) (?:FIRST=(\d+) )?SEEDS=(\d+) TWICE", line)
        if found:
            first = int(found[2] or 0)
            played[found[1]] = range(first, first + int(found[3]))
    assert played == CI_SEEDS


def test_every_module_of_a_core_exists_and_is_in_one_core() -> None:
    modules = [module for core in CORES for module in core.modules]
    assert len(set(modules)) == len(modules)
    assert all(file_of(module).exists() for module in modules)


def test_python_errors_and_unreached_mutants_do_not_count() -> None:
    endings = [*Ending, Ending.FOUND, Ending.FOUND]
    results = [
        Result(module="m", place="p", change=str(at), line=1, ending=each, by="", seeds=1)
        for at, each in enumerate(endings)
    ]
    counts = "| 9 | 1 | 1 | 1 | 1 | 3 | 1 | 1 | 60% (23% to 88%) |"
    assert row("core", results) == f"| core {counts}"
    assert row("native", results) == f"| native (`make mutate-native`) {counts}"


def test_the_page_keeps_the_rows_of_cores_without_stored_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{BEGIN}\n\n{END}\nbelow\n")
    monkeypatch.setattr(simulated, "FOLDER", tmp_path)
    result = Result(module="m", place="p", change="c", line=1, ending=Ending.FOUND, by="", seeds=1)
    for core in ("groups", "raftlog"):
        stored = tmp_path / f"{core}.json"
        stored.write_text(json.dumps({"results": [asdict(result)]}))
        write_page(page)
        stored.unlink()
    rows = (row("raftlog", [result]), row("groups", [result]))
    assert page.read_text() == f"above\n{BEGIN}\n\n{table(rows)}\n\n{END}\nbelow\n"


def test_a_mutant_with_an_argument_is_equal() -> None:
    argued = explanations(EXPLAINED)[0]
    results = [
        Result(module="", place=argued.place, change=change, line=1, ending=ending, by="", seeds=1)
        for change, ending in (
            (argued.changes[0], Ending.EQUAL),
            (argued.changes[0], Ending.UNNOTICED),
            ("another", Ending.EQUAL),
        )
    ]
    endings = [each.ending for each in without_equivalents(results)]
    assert endings == [Ending.EQUIVALENT, Ending.UNNOTICED, Ending.EQUAL]


def test_each_equivalent_mutant_exists() -> None:
    for each in explanations(EQUIVALENT):
        core = next(core for core in CORES if each.place.startswith(core.modules))
        module = max((m for m in core.modules if each.place.startswith(f"{m}.")), key=len)
        known = {mutant.change for mutant in mutants_of(module, orders=True)}
        assert set(each.changes) <= known, each.place


@pytest.mark.slow
def test_types_refuse_a_none_but_not_a_condition_that_never_holds() -> None:
    found = {mutant.change: mutant for mutant in mutants_of("broker.isr")}
    none = "return tuple(node for node, _ in self.isr) -> return tuple(None)"
    never = next(
        change
        for change in found
        if change.endswith("if (self.state.counts_flushed) and False else self.log_end_offset")
    )
    refused = refused_by_types([found[none], found[never]])
    assert {change for _, change in refused} == {none}


def test_the_interval_of_a_share() -> None:
    low, high = interval(360, 400)
    assert (round(low, 3), round(high, 3)) == (0.867, 0.926)  # 90 % of 400
    assert interval(0, 0) == (0.0, 1.0)


@pytest.mark.slow
def test_a_mutant_is_found_by_the_seeds_that_reach_it() -> None:
    drawn = sample(ISR, 30, "a commit")
    assert [each.change for each in drawn] == [each.change for each in sample(ISR, 30, "a commit")]
    assert len(drawn) == 30
    seed = Seed(**reach(ISR, "partitions", 0))
    results = [judge(each, [seed]) for each in drawn]
    assert {Ending.FOUND, Ending.EQUAL} <= {each.ending for each in results}
    unreached = Seed(level="partitions", seed=0, event_hash="", cpu_s=0.0, lines={})
    assert judge(drawn[0], [unreached]).ending is Ending.NOT_REACHED


def test_branch_is_covered_by_the_arcs_of_any_seed() -> None:
    core = Core(name="progress", modules=("raftlog.progress",), levels=("core",))
    name = str(file_of("raftlog.progress"))
    _, *branches = missing(core, [PlayedSeed(level="core", events=1, cpu_s=1, arcs={})]).split()
    taken = branches[0]
    first, last = map(int, taken.split("->"))
    seeds = [
        PlayedSeed(level="core", events=1, cpu_s=1, arcs=arcs)
        for arcs in ({}, {name: [(first, last)]}, {})
    ]
    assert report_of(core, seeds)["totals"]["covered_branches"] == 1
    assert missing(core, seeds).split()[1:] == branches[1:]
