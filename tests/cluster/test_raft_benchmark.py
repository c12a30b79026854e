"""Each row of the benchmark of consensus is measured once, with small amounts."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def ran(module: str, *arguments: str) -> list[str]:
    """Return the lines that a benchmark prints."""
    process = subprocess.run(
        [sys.executable, "-m", module, "--quick", *arguments],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines()


def rows(system: str, tmp_path: Path) -> list[str]:
    """Return the rows of a system."""
    return ran("benchmarks.raft", "--only", system, "--no-failover", "--dir", str(tmp_path))


@pytest.mark.long
def test_quorumlog_has_all_rows(tmp_path: Path) -> None:
    found = rows("quorumlog", tmp_path)
    assert [line.split()[0] for line in found] == ["quorumlog"] * 5
    assert sum("stream" in line for line in found) == 3


@pytest.mark.long
@pytest.mark.parametrize("case", ["kill -9, halved time-outs", "SIGTERM, default time-outs"])
def test_a_failover_prints_a_row(case: str, tmp_path: Path) -> None:
    (line,) = ran("benchmarks.raft.failover", "--only", case, "--dir", str(tmp_path))
    assert line.startswith(case)
    assert " median " in line


@pytest.mark.slow
def test_etcd_has_all_rows(tmp_path: Path) -> None:
    if not os.environ.get("ETCD") and not shutil.which("etcd"):
        pytest.skip("etcd is not installed: apt install etcd-server")
    assert [line.split("  ")[0] for line in rows("etcd", tmp_path)] == ["etcd"] * 2


@pytest.mark.long
def test_pysyncobj_has_all_rows(tmp_path: Path) -> None:
    if importlib.util.find_spec("pysyncobj") is None:
        pytest.skip("PySyncObj is not installed: pip install pysyncobj")
    system = "PySyncObj, journal file"
    assert [line.split("  ")[0] for line in rows(system, tmp_path)] == [system] * 4
