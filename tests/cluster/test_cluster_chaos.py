"""Whole clusters of real processes under faults; the full length is `make soak`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .chaos_faults import KINDS, Kind
from .cluster_chaos import run_chaos

ROOT = Path(__file__).parents[2]


def storm(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run the program, in namespaces if they are permitted; return its report."""
    path = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.cluster.cluster_chaos", "--json", str(path)]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def held(report: dict[str, Any]) -> None:
    """Check the report of a run that made enough progress."""
    assert report["anomalies"] == 0
    assert report["acknowledged"] > 1_000, report
    assert report["handed_out"] > 1_000, report


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_a_cluster_under_faults_loses_no_record(tmp_path: Path) -> None:
    report = storm(tmp_path, "--minutes", "1", "--seed", "1")
    held(report)
    assert len(report["faults"]) >= 4, report


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_network_disk_clock_and_memory_faults_lose_no_record(tmp_path: Path) -> None:
    kinds = (Kind.LOSS, Kind.DELAY, Kind.DISK, Kind.CLOCK, Kind.MEMORY)
    only = [argument for kind in kinds for argument in ("--only", kind)]
    report = storm(tmp_path, "--minutes", "2", "--seed", "1", *only)
    held(report)
    assert len(report["faults"]) >= 4 or report["skipped"], report


@pytest.mark.long
def test_clients_get_no_error_from_a_rolling_restart(tmp_path: Path) -> None:
    report = run_chaos(tmp_path, seconds=5, seed=1, kinds=(Kind.ROLL,))
    held(report)
    assert report["errors"] == {}
    assert report["starts"] >= 6, "every node twice"


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("shape", ["combined", "apart"])
def test_ten_minutes_of_every_fault_lose_no_record(tmp_path: Path, shape: str) -> None:
    report = storm(tmp_path, "--minutes", "10", "--shape", shape)
    held(report)
    assert len(report["faults"]) + len(report["skipped"]) >= len(KINDS) - 3, report
