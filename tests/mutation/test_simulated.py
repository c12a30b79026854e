"""The mutation run by simulation draws the same sample for a commit, and counts each result
once."""

import re

import pytest

from .cores import CI_SEEDS, CORES, Core
from .mutants import ROOT, file_of
from .reach import PlayedSeed, missing, report_of
from .simulated import Ending, Result, Seed, interval, judge, reach, row, sample

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
    counts = "| 7 | 1 | 1 | 1 | 3 | 1 | 60% (23% to 88%) |"
    assert row("core", results) == f"| core {counts}"
    assert row("native", results) == f"| native (`make mutate-native`) {counts}"


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
