"""Each part of the benchmark of whole clusters runs once, with small amounts."""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def ran(part: str, tmp_path: Path, *arguments: str) -> list[str]:
    """Return the lines that a part prints."""
    command = [sys.executable, "-m", "benchmarks.cluster", "--quick", "--only", part]
    process = subprocess.run(
        [*command, "--dir", str(tmp_path), *arguments],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines()


@pytest.mark.long
def test_replication_is_compared_with_one_replica(tmp_path: Path) -> None:
    lines = ran("replication", tmp_path)
    assert sum("records/s" in line for line in lines) == 4
    assert sum("of one replica" in line for line in lines) == 6


@pytest.mark.long
@pytest.mark.parametrize("case", ["leader", "controller", "both"])
def test_failover_prints_a_row_for_each_clock(case: str, tmp_path: Path) -> None:
    lines = ran("failover", tmp_path, "--case", case)
    assert [line.split(",")[1].split()[0] for line in lines] == ["served", "client"]


@pytest.mark.long
def test_rolling_restart_prints_its_errors(tmp_path: Path) -> None:
    assert "errors" in ran("restart", tmp_path)[0]


@pytest.mark.long
def test_many_partitions_print_a_line(tmp_path: Path) -> None:
    assert "at rest" in ran("scale", tmp_path)[0]
