"""`python -m tests.simulation`: what it prints, and when it fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.__main__ import explain, judge, players_of

ROOT = Path(__file__).parents[2]


def play(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.long
def test_seeds_that_hold_give_a_line_each_and_a_summary() -> None:
    finished = play("--level", "mini", "--seeds", "3", "--first", "7")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    lines = finished.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["7", "8", "9"]
    assert all(" ok " in line for line in lines[1:4])
    assert "3 seeds, 0 failed" in lines[-1]


@pytest.mark.slow
def test_a_replayed_seed_gives_the_same_event_hash() -> None:
    hashes = [play("--level", "mini", "--seed", "4").stdout.split("\n")[1].split()[4] for _ in "ab"]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 16


@pytest.mark.long
def test_seeds_that_are_shared_are_each_played_and_have_the_hashes_of_those_played_twice() -> None:
    both, shared = (
        play("--level", "mini", "--seeds", "4", *options).stdout.splitlines()
        for options in ((), ("--twice", "1"))
    )
    hashes = [[line.split()[4] for line in lines[1:5]] for lines in (both, shared)]
    assert hashes[0] == hashes[1]
    assert "each under 2 hash seeds and builds" in both[-1]
    assert "4 seeds, 0 failed; 1 of them under 2 hash seeds and builds" in shared[-1]


def test_every_seed_has_a_player_and_the_first_have_both() -> None:
    assert [tuple(players_of(position, 3)) for position in range(6)] == [
        (0, 1),
        (0, 1),
        (0, 1),
        (1,),
        (0,),
        (1,),
    ]


@pytest.mark.long
def test_a_whole_node_survives_a_few_seeds() -> None:
    finished = play("--level", "broker", "--seeds", "2")
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("CPU_S_MAX", "took over 0.01 s of processor time"),
        ("WALL_S_MAX", "took over 0.01 s of wall time, not of processor time"),
    ],
)
def test_a_seed_that_does_not_end_is_told(bound: str, said: str) -> None:
    code = (
        "import sys\n"
        "from tests.simulation import __main__ as command\n"
        f"command.{bound} = 0.01\n"
        "sys.exit(command.main())\n"
    )
    worker = ("--worker", "0", "--level", "broker", "--first", "1", "--seeds", "1", "--twice", "1")
    output = subprocess.check_output([sys.executable, "-c", code, *worker], cwd=ROOT, text=True)
    assert json.loads(output)["failure"] == said


OUTCOME = {
    "seed": 5,
    "event_hash": "aa",
    "events": 1,
    "virtual_ms": 2_000,
    "facts": {},
    "options": "Faults()",
    "failure": "",
    "last_events": ["1 n what"],
    "wall_s": 0.1,
}


def judged(*pair: dict[str, object] | None) -> str:
    return judge(5, pair, difference=lambda: "event 3 differs")


def test_a_failing_seed_is_explained_with_its_replay_command() -> None:
    failed = OUTCOME | {"failure": "AssertionError: lost write"}
    text = explain("broker", 5, [failed, failed], judged(failed, failed))
    assert "lost write" in text
    assert "1 n what" in text
    assert "make simulate LEVEL=broker SEED=5" in text


def test_different_hashes_are_a_failure() -> None:
    problem = judged(OUTCOME, OUTCOME | {"event_hash": "bb"})
    assert "the two workers differ" in problem
    assert "event 3 differs" in problem


def test_a_worker_without_a_result_is_a_failure() -> None:
    assert judged(OUTCOME, None) == "a worker ended early"
    assert judged(None) == "a worker ended early"


def test_a_seed_played_once_is_judged_by_its_scenario() -> None:
    assert judged(OUTCOME) == ""
    assert "lost write" in judged(OUTCOME | {"failure": "AssertionError: lost write"})


def test_a_seed_that_holds_is_no_problem() -> None:
    assert judged(OUTCOME, OUTCOME) == ""
