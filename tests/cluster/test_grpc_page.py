"""The programs and commands of docs/grpc.md run against a real node."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool

from quorumlog.api import validation
from quorumlog.errors import ERROR_BY_NAME
from quorumlog.frontends.grpc import log_service
from quorumlog.runtime import grpc_options, grpc_status
from quorumlog.server.config import NodeConfig
from quorumlog.testing import Broker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "grpc.md").read_text()
ADDRESS = "127.0.0.1:9094"  # as in the page and the README
WAIT_S = 240
DESCRIPTORS = descriptor_pool.Default()
COMMAND = re.compile(rf"^grpcurl -plaintext -d '(.+)' {re.escape(ADDRESS)} (\S+)$", re.MULTILINE)
ERROR_ROW = re.compile(r"^\| `([A-Z_]+)` \| (-?\d+) \| ([A-Z_]+) \| (yes|no) \|", re.MULTILINE)


# Errors that a client never gets in a response to its own call, and their places.
NOT_ANSWERED = {
    "for clients of other brokers": {
        "DUPLICATE_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
    },
    "made by a client for its caller": {
        "CLIENT_CLOSED",
        "COMMITTED_BATCH_DIFFERS",
        "NETWORK_EXCEPTION",
        "CONNECTION_FAILED",
        "STREAM_BROKEN",
        "UNSUPPORTED_VERSION",
        "PARTITIONER_FAILED",
        "PRODUCER_UNUSABLE",
        "NOT_DELIVERED",
        "NO_COMMITTED_OFFSET",
        "POLL_TOO_LATE",
        "ROWS_NOT_DELIVERED",
        "UNDECODABLE_VALUE",
        "ENVIRONMENT_UNUSABLE",
    },
    "a refused start": {
        "ADDRESS_IN_USE",
        "DIRECTORY_IN_USE",
        "DIRECTORY_NOT_FORMATTED",
        "DIRECTORY_MISMATCH",
        "DIRECTORY_UNUSABLE",
    },
    "between nodes": {
        "INVALID_UPDATE_VERSION",
        "INELIGIBLE_REPLICA",
        "NEW_LEADER_ELECTED",
        "STALE_BROKER_EPOCH",
        "DUPLICATE_BROKER_REGISTRATION",
        "SNAPSHOT_DAMAGED",
        "VOTER_MISMATCH",
    },
}


def block(language: str, title: str) -> str:
    """Return the first block of a language below a title."""
    return PAGE.partition(f"\n## {title}\n")[2].partition(f"```{language}\n")[2].partition("```")[0]


def printed(title: str) -> str:
    """Return the documented output of a title's program."""
    below = PAGE.partition(f"\n## {title}\n")[2].partition("It prints:\n\n```text\n")[2]
    return below.partition("```")[0]


REFLECTION = "By reflection, in Python"
STUBS = "With generated stubs, in Python"


def commands() -> list[tuple[str, object]]:
    """Return (path, request) of every grpcurl call in the page and the README."""
    text = PAGE + (ROOT / "README.md").read_text()
    return [(path, json.loads(request)) for request, path in COMMAND.findall(text)]


@pytest.fixture
def address() -> Iterator[str]:
    """Start a broker and return its gRPC address."""
    with Broker() as broker:
        yield broker.grpc


def play(code: str, address: str, *options: str, **environment: str) -> str:
    """Run a program of the page against the node at `address`; return its output."""
    finished = subprocess.run(
        [sys.executable, *options, "-c", code.replace(ADDRESS, address)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.slow
def test_the_session_prints_the_documented_output(address: str) -> None:
    assert play(block("python", REFLECTION), address) == printed(REFLECTION)


@pytest.mark.slow
def test_the_program_with_stubs_prints_the_documented_output(address: str, tmp_path: Path) -> None:
    """The stubs are generated in another folder, as their package has the same name as this one."""
    command = block("text", STUBS).split()
    assert command[:2] == ["python", "-m"]
    command[0], command[command.index("proto")] = sys.executable, str(ROOT / "proto")
    subprocess.run(command, cwd=tmp_path, check=True, timeout=WAIT_S)
    path = f"{tmp_path}:{sysconfig.get_path('purelib')}"
    said = play(block("python", STUBS), address, "-S", PYTHONPATH=path)
    assert said == printed(STUBS)


@pytest.mark.slow
def test_every_documented_grpcurl_call_succeeds(address: str) -> None:
    """Each request must succeed with its documented JSON, and so must its results."""
    asked = commands()
    assert len(asked) >= 5, "no call was found"
    code = block("python", REFLECTION) + (
        f"\nprint('---')\nfor path, request in {asked!r}:\n"
        "    answers = call(path, request)\n"
        "    assert answers and 'error' not in str(answers), (path, answers)\n"
        "    print(path)\n"
    )
    assert play(code, address).partition("---\n")[2].split() == [path for path, _ in asked]


def test_every_call_is_documented() -> None:
    for service in ("Log", "Admin", "StagedCommits"):
        for method in DESCRIPTORS.FindServiceByName(f"quorumlog.v1.{service}").methods:
            names = (f"**{method.name}**", f"`{method.name}` is described and not served")
            assert any(name in PAGE for name in names), method.name


def test_the_page_lists_the_errors_of_the_table() -> None:
    rows = ERROR_ROW.findall(PAGE)
    listed = [name for name, *_ in rows]
    assert len(set(listed)) == len(listed)
    assert set(listed) == set(ERROR_BY_NAME) - set().union(*NOT_ANSWERED.values())
    for name, code, status, retriable in rows:
        error = ERROR_BY_NAME[name]
        assert (error.code, error.status) == (int(code), status), name
        assert error.retriable == (retriable == "yes"), name


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    limits = PAGE.partition("## Limits")[2]
    config = NodeConfig(data_dir="/d").requests
    assert f"{validation.PARTITIONS_MAX:,}, each named once" in limits
    assert f"| records in one Publish | {log_service.RECORDS_MAX:,} |" in limits
    names = "names in one DescribeTopics, DescribeGroups or DeleteGroups"
    assert f"| {names} | {validation.NAMES_MAX:,} |" in limits
    timeout = f"{validation.TIMEOUT_MS_MAX:,}; 0 means {validation.TIMEOUT_MS_DEFAULT:,}"
    assert timeout in limits
    assert f"| `max_wait_ms` of Fetch | {validation.MAX_WAIT_MS_MAX:,} |" in limits
    assert f"({config.fetch_bytes_max >> 20} MiB)" in limits
    assert f"fewer than {config.produce_inflight_max} requests" in PAGE
    assert f"every {config.subscribe_heartbeat_ms // 1000} seconds" in PAGE
    assert f"`subscribe.streams.max`, {config.subscribe_streams_max:,} by default" in limits
    assert f"| streams of one connection at once | {grpc_options.STREAMS_MAX:,};" in limits
    assert f"| the text of an error | {grpc_status.ERROR_TEXT_MAX:,} bytes;" in limits
    assert f"the wait {validation.ANSWER_MS} ms before" in PAGE
    assert f"for {grpc_options.KEEPALIVE_MS // 1000} seconds is pinged" in PAGE
