"""docs/testing.md: its scenario runs; it names every fault, anomaly and level."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from tests.simulation.checkers import client_expectations
from tests.simulation.runs import LEVELS

from quorumlog.simulation import Faults
from quorumlog.testing import checkers

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


def play(hash_seed: str) -> str:
    """Return the output of the page's scenario under a PYTHONHASHSEED."""
    code = PAGE.partition("```python\n")[2].partition("```")[0]
    finished = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.long
def test_the_scenario_of_the_page_holds_and_is_one_run() -> None:
    printed = play("1")
    assert printed.startswith("[(0, b'value')] ")
    assert printed == play("2")


def test_the_page_explains_every_fault() -> None:
    rows = PAGE.partition("| fault |")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`(?=[^|]*\| )", rows) == [each.name for each in fields(Faults)]


def test_the_page_explains_every_anomaly() -> None:
    tables = PAGE.partition("### The checkers")[2].partition("The level `clients`")[0]
    explained = re.findall(r"^\| ([a-z ]+) \| (?!meaning)", tables, re.MULTILINE)
    known = re.findall(r"\*([a-z\s]+)\*", checkers.__doc__ or "")
    assert sorted(explained) == sorted(" ".join(name.split()) for name in known)


def test_the_page_explains_every_expectation() -> None:
    rows = PAGE.partition("| expectation |")[2].partition("\n\n")[0]
    explained = re.findall(r"^\| ([a-z ]+) \|", rows, re.MULTILINE)
    known = re.findall(r"\*([a-z\s]+)\*", client_expectations.__doc__ or "")
    assert sorted(explained) == sorted(" ".join(name.split()) for name in known)


def test_the_page_explains_every_level() -> None:
    levels = PAGE.partition("Levels are scenarios.")[2].partition("###")[0]
    assert set(LEVELS) <= set(re.findall(r"`(\w+)`:", levels))
