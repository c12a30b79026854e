"""Parts of the benchmark of the Kafka listener run once, with small amounts."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="the load generator needs Linux and a C compiler: apt install gcc",
)


def ran(part: str, tmp_path: Path, *arguments: str) -> list[str]:
    """Return the lines that a part prints for quorumlog."""
    command = [sys.executable, "-m", "benchmarks.kafka_wire", "--quick", "--only", part]
    process = subprocess.run(
        [*command, "--systems", "quorum,receive", "--dir", str(tmp_path), *arguments],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines()


def rows(lines: list[str], system: str = "quorumlog  ") -> list[str]:
    """Return the lines of a system."""
    return [line for line in lines if line.startswith(system)]


@pytest.mark.long
def test_one_broker_prints_a_row_for_each_direction(tmp_path: Path) -> None:
    lines = ran("throughput", tmp_path, "--workload", "100 B, 16 KB")
    assert [line.split()[1] for line in rows(lines)] == ["produce", "fetch"]
    assert len(rows(lines, "quorumlog, fsync")) == 2
    assert len(rows(lines, "receive and write")) == 2


@pytest.mark.long
def test_three_brokers_print_a_row_for_each_direction(tmp_path: Path) -> None:
    lines = ran("replicas", tmp_path, "--workload", "100 B, 16 KB")
    assert [line.split()[1] for line in rows(lines)] == ["produce", "fetch"]


@pytest.mark.long
def test_waits_print_a_row_for_each_rate(tmp_path: Path) -> None:
    assert len(rows(ran("latency", tmp_path))) == 3


@pytest.mark.long
def test_a_start_prints_a_row(tmp_path: Path) -> None:
    assert len(rows(ran("starts", tmp_path))) == 2


@pytest.mark.long
def test_new_connections_print_a_row_for_each_kind(tmp_path: Path) -> None:
    found = [line.split()[1] for line in rows(ran("logins", tmp_path))]
    assert found == ["handshakes", "logins", "storm"]


@pytest.mark.long
def test_authorization_prints_a_row_for_each_node(tmp_path: Path) -> None:
    lines = ran("authorization", tmp_path)
    assert len(rows(lines, "with the authorizer")) == 1
    assert len(rows(lines, "without")) == 1
