"""Tests of the mutation run of the consensus core: mutants, explanations and page.

The run itself is `make mutate`.
"""

import pytest

from quorumlog.raftlog.leader import ReadIndexQueue

from .mutants import Mutant, file_of, mutants_of
from .page import BEGIN, END, PAGE, Explanation, Outcome, explanations, survivors, table
from .run import infect


def one_line(text: str) -> str:
    return " ".join(line.partition("  #")[0].strip() for line in text.splitlines())


@pytest.mark.parametrize("explanation", explanations(), ids=lambda each: each.place)
def test_each_explained_mutant_exists(explanation: Explanation) -> None:
    module = ".".join(explanation.place.split(".")[:2])
    source = one_line(file_of(module).read_text())
    for change in explanation.changes:
        assert change.partition(" -> ")[0] in source


def test_the_page_has_every_explanation() -> None:
    section = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert survivors() in section


def test_the_table_counts_each_mutant_once() -> None:
    ends = ["", "types", "endless", "tests/x.py::test_a", "tests/x.py::test_b"]
    outcomes = [
        Outcome(module="raftlog.leader", place="p", change=str(n), line=1, killed_by=end)
        for n, end in enumerate(ends)
    ]
    assert table(outcomes).splitlines()[-1] == "| all | 5 | 3 | 1 | 1 |"


@pytest.fixture(scope="module")
def of_reads() -> list[Mutant]:
    found = mutants_of("raftlog.leader")
    return [each for each in found if each.function.startswith("ReadIndexQueue.")]


@pytest.mark.long
def test_functions_and_properties_are_changed_but_neither_texts_nor_assertions(
    of_reads: list[Mutant],
) -> None:
    changes = {(each.place, each.change) for each in of_reads}
    assert len(changes) == len(of_reads), "the changes are distinct"
    assert (
        "raftlog.leader.ReadIndexQueue.has_round",
        "return bool(self._asked) -> return False",
    ) in changes
    assert ("raftlog.leader.ReadIndexQueue.add", "self._count += 1 -> self._count -= 1") in changes
    assert not [each for each in of_reads if "wait for the quorum" in each.change]


@pytest.mark.slow
def test_the_code_of_a_mutant_runs(of_reads: list[Mutant], monkeypatch: pytest.MonkeyPatch) -> None:
    has_round = vars(ReadIndexQueue)["has_round"].fget
    monkeypatch.setattr(has_round, "__code__", has_round.__code__)  # restores it after the test
    reads = ReadIndexQueue(reads_max=2)
    assert reads.has_round is False
    (mutant,) = (m for m in of_reads if m.change == "return bool(self._asked) -> return True")
    infect(mutant)
    assert reads.has_round is True


@pytest.mark.long
def test_effects_are_reordered_and_a_field_is_removed() -> None:
    usual = {(each.place, each.change) for each in mutants_of("broker.isr")}
    orders = [
        each
        for each in mutants_of("broker.isr", orders=True)
        if (each.place, each.change) not in usual
    ]
    assert orders
    for each in orders:
        before, _, after = each.change.partition(" -> ")
        assert sorted(before.split()) == sorted(after.split()) or len(after) < len(before)
