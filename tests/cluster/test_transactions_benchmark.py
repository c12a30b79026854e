"""Parts of the benchmark of transactions run once, with small amounts."""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def ran(part: str, tmp_path: Path) -> list[str]:
    """Return the lines that a part prints for quorumlog alone."""
    command = [sys.executable, "-m", "benchmarks.transactions", "--quick", "--only", part]
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
def test_every_client_has_a_rate_of_transactions(tmp_path: Path) -> None:
    lines = ran("rate", tmp_path)
    assert lines
    assert all(" commits, p50 " in line for line in lines)


@pytest.mark.long
def test_every_client_sends_with_and_without_transactions(tmp_path: Path) -> None:
    lines = [line for line in ran("throughput", tmp_path) if "µs a record" in line]
    assert lines
    assert len(lines) == 2 * sum(" commits, p50 " in line for line in lines)


@pytest.mark.long
def test_open_transactions_use_no_processor_time(tmp_path: Path) -> None:
    (line,) = ran("idle", tmp_path)
    assert "of a core" in line


@pytest.mark.long
def test_both_isolation_levels_read_the_log(tmp_path: Path) -> None:
    lines = ran("fetch", tmp_path)
    assert sorted(line.split()[1] for line in lines[:2]) == ["read_committed", "read_uncommitted"]


@pytest.mark.long
def test_a_coordinator_that_is_killed_is_replaced(tmp_path: Path) -> None:
    assert "kill of broker" in ran("recovery", tmp_path)[0]
