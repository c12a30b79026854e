"""Parts of the benchmark of Spark run once, with small amounts."""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("part", ["read", "stream", "sink", "commit", "first"])
def test_each_part_compares_with_its_ceiling(part: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.spark", "--quick", "--only", part]
    process = subprocess.run(
        [*command, "--dir", str(tmp_path)],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert any(", goal " in line for line in process.stdout.splitlines())
