"""Half a minute of the soak test, and its checks; `make soak` runs it for ten minutes."""

import json
from pathlib import Path

import pytest

from . import soak
from .growth import judge
from .soak_client import CODES, OUTCOME

SECONDS = 30.0
RESTART_S = 6.0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_restarts_lose_no_acknowledged_record_and_leak_nothing(tmp_path: Path) -> None:
    report = soak.run(tmp_path, seconds=SECONDS, restart_s=RESTART_S)
    print(json.dumps(report, indent=2))
    assert not report["problems"], report
    assert report["restarts"] >= 3, "kills and orderly stops"
    assert report["acknowledged"] > 5_000


FIRST = CODES["asyncio"][0]


def judged(
    folder: Path, outcomes: list[tuple[int, int, int, float, float]], stored: dict[int, list[int]]
) -> list[str]:
    """Return the problems of a run with these outcomes and one restart at [100, 101]."""
    (folder / "outcomes-asyncio").write_bytes(b"".join(OUTCOME.pack(*each) for each in outcomes))
    (folder / "outcomes-blocking").write_bytes(b"")
    run = soak.Soak(downs=[(100.0, 101.0)])
    soak._judge_records(run, stored, folder)
    return run.problems


def test_records_at_their_acknowledged_offsets_are_no_problem(tmp_path: Path) -> None:
    outcomes = [(FIRST, 0, 0, 1.0, 1.1), (FIRST + 1, 1, 0, 1.0, 1.1)]
    assert judged(tmp_path, outcomes, {0: [FIRST], 1: [FIRST + 1]}) == []


def test_an_acknowledged_record_that_is_elsewhere_is_lost(tmp_path: Path) -> None:
    (problem,) = judged(tmp_path, [(FIRST, 0, 0, 1.0, 1.1)], {0: [FIRST + 1, FIRST]})[:1]
    assert problem.startswith("1 acknowledged records are not where")


@pytest.mark.parametrize("given_s", [99.0, 1.0], ids=["over a restart", "in between"])
def test_a_record_that_is_stored_twice_is_found(given_s: float, tmp_path: Path) -> None:
    problems = judged(tmp_path, [(FIRST, 0, 1, given_s, given_s + 3)], {0: [FIRST, FIRST]})
    assert problems == ["1 records are stored twice"]


def test_a_record_without_an_outcome_is_found(tmp_path: Path) -> None:
    problems = judged(tmp_path, [(FIRST, 0, 0, 1.0, 1.1)], {0: [FIRST, FIRST + 1]})
    assert problems == ["1 stored records never got an outcome"]


@pytest.mark.parametrize(("step_kib", "is_growth"), [(0, False), (50, False), (1_000, True)])
def test_memory_that_rises_without_end_is_found(step_kib: int, is_growth: bool) -> None:
    problems: list[str] = []
    rows = [
        {"at": float(at), "rss_kib": 50_000 + at * step_kib + at % 3 * 500, "fds": 9, "threads": 4}
        for at in range(60)
    ]
    judge(problems, "node", rows)
    assert bool(problems) is is_growth


def test_descriptors_that_are_never_closed_are_found() -> None:
    problems: list[str] = []
    rows = [{"at": float(at), "rss_kib": 1, "fds": at, "threads": 4} for at in range(60)]
    judge(problems, "node", rows)
    assert "descriptors" in problems[0]


@pytest.mark.parametrize("what", ["tasks", "python_threads", "fds"])
def test_resources_left_after_the_close_are_found(what: str) -> None:
    before = {"fds": 9, "threads": 4, "python_threads": 2, "tasks": 1}
    run = soak.Soak(ends={"asyncio": {"before": before, "after": before | {what: 20}}})
    soak._judge_end(run, "asyncio")
    assert "left after the close" in run.problems[0]
