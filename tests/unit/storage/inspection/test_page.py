"""docs/checking.md explains each kind of finding and each reason of a difference."""

import re
from pathlib import Path

from quorumlog.storage.inspect.diff import SENTENCES, DifferenceKind
from quorumlog.storage.inspect.findings import RULES, FindingKind, Severity

PAGE = (Path(__file__).parents[4] / "docs" / "checking.md").read_text()


def test_every_kind_is_explained_under_its_severity() -> None:
    problems, _, notes = PAGE.partition("### Problems")[2].partition("### Notes")
    notes = notes.partition("\n## ")[0]
    for kind in FindingKind:
        there = problems if RULES[kind].severity is Severity.PROBLEM else notes
        assert re.search(rf"^- [^:]*`{kind}`", there, re.MULTILINE), kind


def test_every_kind_has_a_rule_and_every_reason_a_sentence() -> None:
    assert set(RULES) == set(FindingKind)
    assert set(SENTENCES) == set(DifferenceKind)
    assert not [
        why for why in DifferenceKind if f"`{why}`" not in PAGE.partition("## Comparing")[2]
    ]
