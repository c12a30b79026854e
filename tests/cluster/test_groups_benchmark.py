"""Parts of the benchmark of groups run once, with small amounts."""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def ran(part: str, tmp_path: Path) -> list[str]:
    """Return the lines that a part prints for quorumlog alone."""
    command = [sys.executable, "-m", "benchmarks.groups", "--quick", "--only", part]
    process = subprocess.run(
        [*command, "--systems", "quorumlog", "--dir", str(tmp_path)],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines()


@pytest.mark.long
def test_rebalances_print_a_row_for_each_event_and_protocol(tmp_path: Path) -> None:
    lines = ran("rebalance", tmp_path)
    assert [line.split()[1] for line in lines] == ["classic"] * 3 + ["KIP-848"] * 3


@pytest.mark.long
def test_every_request_has_a_rate(tmp_path: Path) -> None:
    lines = ran("rates", tmp_path)
    assert sum("/s, " in line for line in lines) == len(lines) == 8


@pytest.mark.long
def test_idle_members_print_a_row_for_each_protocol(tmp_path: Path) -> None:
    assert ["of a core" in line for line in ran("idle", tmp_path)] == [True, True]


@pytest.mark.long
def test_a_kill_of_a_coordinator_prints_a_line(tmp_path: Path) -> None:
    assert "kill of broker" in ran("failover", tmp_path)[0]


@pytest.mark.long
def test_every_way_copies_every_record(tmp_path: Path) -> None:
    lines = ran("mirror", tmp_path)
    assert [line.split()[0] for line in lines[:6]] == ["mirror", "client", "librdkafka"] * 2
