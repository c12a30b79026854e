"""docs/grpc.md is run: its session against a real node, its command lines as the same requests."""

import json
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorumlog.errors import ERROR_BY_NAME
from quorumlog.server.config import NodeConfig
from quorumlog.wire.grpc import admin_service, validation

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "grpc.md").read_text()
ADDRESS = "127.0.0.1:9094"  # as the page and the README write it
WAIT_S = 60
COMMAND = re.compile(rf"^grpcurl -plaintext -d '(.+)' {re.escape(ADDRESS)} (\S+)$", re.MULTILINE)
ERROR_ROW = re.compile(r"^\| `([A-Z_]+)` \| (-?\d+) \| ([A-Z_]+) \| (yes|no) \|", re.MULTILINE)


def block(language: str) -> str:
    """The page's first block in a language."""
    return PAGE.partition(f"```{language}\n")[2].partition("```")[0]


def commands() -> list[tuple[str, object]]:
    """(path, request) of every call on the command line, on the page and in the README."""
    text = PAGE + (ROOT / "README.md").read_text()
    return [(path, json.loads(request)) for request, path in COMMAND.findall(text)]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where a node of its own listens."""
    command = [sys.executable, "-m", "quorumlog.cli", "dev", "--data-dir", str(tmp_path / "data")]
    command += ["--grpc-port", "0", "--controller-port", "0", "--output", "json"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        assert select.select([node.stdout], [], [], WAIT_S)[0], "no ready line"
        found: str = json.loads(node.stdout.readline())["grpc"]
        yield found
    finally:
        node.kill()
        node.communicate()


def play(code: str, address: str) -> str:
    """What a program of the page prints when the node is at `address`."""
    finished = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, address)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.slow
def test_the_session_of_the_page_prints_what_the_page_says(address: str) -> None:
    assert play(block("python"), address) == block("text")


@pytest.mark.slow
def test_every_request_of_a_command_line_is_answered(address: str) -> None:
    """With the requests' JSON as it stands there; each must succeed, in its results too."""
    asked = commands()
    assert len(asked) >= 5, "the pages show calls"
    code = block("python") + (
        f"\nprint('---')\nfor path, request in {asked!r}:\n"
        "    answers = call(path, request)\n"
        "    assert answers and 'error' not in str(answers), (path, answers)\n"
        "    print(path)\n"
    )
    assert play(code, address).partition("---\n")[2].split() == [path for path, _ in asked]


def test_the_page_lists_errors_as_the_table_has_them() -> None:
    rows = ERROR_ROW.findall(PAGE)
    assert len(rows) > 20
    for name, code, status, retriable in rows:
        error = ERROR_BY_NAME[name]
        assert (error.code, error.status) == (int(code), status), name
        assert error.retriable == (retriable == "yes"), name


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    limits = PAGE.partition("## Limits")[2]
    config = NodeConfig(data_dir="/d")
    assert f"{validation.PARTITIONS_MAX:,}, each named once" in limits
    assert f"| records in one Publish | {validation.RECORDS_MAX:,} |" in limits
    assert f"| names in one DescribeTopics | {admin_service.NAMES_MAX:,} |" in limits
    timeout = f"{validation.TIMEOUT_MS_MAX:,}; 0 means {validation.TIMEOUT_MS_DEFAULT:,}"
    assert timeout in limits
    assert f"| `max_wait_ms` of Fetch | {validation.MAX_WAIT_MS_MAX:,} |" in limits
    assert f"({config.fetch_bytes_max >> 20} MiB)" in limits
    assert f"fewer than {config.produce_inflight_max} requests" in PAGE
    assert f"every {config.subscribe_heartbeat_ms // 1000} seconds" in PAGE
