"""The counts of `make smells` stay within their bounds, and commit subjects keep their form."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.tidy import smells

ROOT = Path(__file__).parents[2]
BOUNDS = tomllib.loads((ROOT / "tests/tidy/smells.toml").read_text())
SUBJECT = re.compile(r"[a-z][a-z0-9_,/ -]*: \S.*")
SUBJECT_LENGTH_MAX = 72


def test_every_smell_has_a_bound() -> None:
    assert BOUNDS.keys() == smells.SMELLS.keys()


@pytest.mark.parametrize("name", smells.SMELLS)
def test_a_smell_stays_within_its_bound(name: str) -> None:
    found = smells.SMELLS[name]()
    assert len(found) <= BOUNDS[name], f"`python -m tests.tidy.smells {name}` lists them"


@pytest.mark.parametrize(
    ("docstring", "found"),
    [
        ("What a leader knows.", True),
        ("Return what is left.", True),
        ("Return True if the log is empty.", False),
        ("Append a batch, as a follower does.", False),
    ],
)
def test_a_clause_is_distinguished_from_a_sentence(docstring: str, found: bool) -> None:
    assert (smells.CLAUSE.match(docstring) is not None) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the member who left", True),
        ("for users who run one broker", False),
        ("what is asked of a leader", True),
        ("the request to the leader", False),
    ],
)
def test_listed_words_are_found_apart_from_the_allowed_ones(text: str, found: bool) -> None:
    assert smells.has_listed_word(text) is found


def test_smells_of_tests_cover_tests_and_benchmarks() -> None:
    folders = {"/".join(path.split("/")[:-1]) for path in smells.tracked(*smells.TESTS)}
    assert {"tests", "tests/tidy", "benchmarks"} <= folders
    assert not {"src", "tests/simulation", "tests/simulation/checkers"} & folders


def test_docstrings_in_nested_bodies_are_found() -> None:
    text = 'if x:\n    class C:\n        "Class."\n        field = 1\n        "Field."\n'
    text += (
        'else:\n    try:\n        pass\n    except E:\n        def f():\n            "Function."\n'
    )
    module = smells.Module("m.py", text, ast.parse(text))
    found = [node.value for node in smells.docstring_nodes(module)]
    assert sorted(map(str, found)) == ["Class.", "Function."]
    fields = [node.value for node in smells.field_docstring_nodes(module)]
    assert sorted(map(str, fields)) == ["Class.", "Field.", "Function."]


def test_commit_subjects_keep_their_form() -> None:
    """Only commits since this check exists count; a tree without history has none."""

    def git(*arguments: str) -> list[str]:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else []

    first = git("log", "--diff-filter=A", "--format=%H", "--", "tests/tidy/smells.py")
    subjects = git("log", "--no-merges", "--format=%s", f"{first[-1]}..HEAD") if first else []
    wrong = [
        subject
        for subject in subjects
        if len(subject) > SUBJECT_LENGTH_MAX or not SUBJECT.fullmatch(subject)
    ]
    assert not wrong, f"write `area: imperative summary` in {SUBJECT_LENGTH_MAX} characters"
