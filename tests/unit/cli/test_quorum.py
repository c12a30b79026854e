"""The quorum commands with a node that is the whole quorum: output and refusals."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.command import dev_node
from typer.testing import CliRunner, Result

from quorumlog.cli.main import app

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "quorumlog.cli"]
WAIT_S = 120.0
ID = re.compile(r"[\w-]{22}")


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of the broker and the controller of a node shared by the tests of this file."""
    with dev_node(tmp_path_factory.mktemp("quorum") / "data") as found:
        yield found["grpc"], found["controller"]


def invoke(*arguments: str, address: str = "127.0.0.1:9") -> Result:
    return CliRunner().invoke(app, list(arguments), env={"QUORUMLOG_BOOTSTRAP": address})


def test_broker_and_controller_describe_the_quorum_equally(addresses: tuple[str, str]) -> None:
    for address in addresses:
        result = invoke("quorum", "status", "-o", "json", address=address)
        assert result.exit_code == 0, result.output
        output = json.loads(result.stdout)
        assert (output["leader"], output["answered_by"], output["observers"]) == (1, 1, [])
        (voter,) = output["voters"]
        assert ID.fullmatch(voter["directory_id"])
        assert voter["log_end_offset"] >= output["high_watermark"] > 0
        assert (voter["id"], voter["lag"], voter["heard_ms_ago"]) == (1, 0, 0)
        result = invoke("quorum", "status", address=address)
        assert re.search(r"leader +node 1\n", result.stdout)
        assert re.search(rf"1   leader   {voter['directory_id']}", result.stdout)
        assert "knows" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("remove-voter", "1"), "INVALID_REQUEST", "the last voter"),
        (("remove-voter", "2"), "VOTER_NOT_FOUND", "voters are 1"),
        (("add-voter", "1"), "DUPLICATE_VOTER", "already a voter"),
        (("add-voter", "2", "--timeout", "1"), "VOTER_LAGGING", "does not replicate the log"),
        (("add-voter", "2", "--directory-id", "x"), "INVALID_REQUEST", "22 characters"),
        (("transfer", "2"), "VOTER_NOT_FOUND", ""),
    ],
)
def test_invalid_changes_are_refused(
    addresses: tuple[str, str], arguments: tuple[str, ...], error: str, said: str
) -> None:
    result = invoke("quorum", *arguments, "-o", "json", address=addresses[1])
    assert result.exit_code == 1
    output = json.loads(result.stderr)
    assert output["error"] == error, output
    assert said in output["message"]


def test_transfer_to_the_leader_succeeds_at_once(addresses: tuple[str, str]) -> None:
    result = invoke("quorum", "transfer", "1", address=addresses[0])
    assert result.exit_code == 0, result.output
    assert result.stdout == "Node 1 leads. Voters: 1.\n"


def test_generated_id_is_valid_for_a_cluster_and_a_directory(tmp_path: Path) -> None:
    drawn = [invoke("storage", "random-id").stdout.strip() for _ in range(3)]
    assert len(set(drawn)) == 3
    file = tmp_path / "node.toml"
    file.write_text(
        f'data.dir = "{tmp_path / "data"}"\ncontroller.voters = ["1@127.0.0.1:9093:{drawn[0]}"]\n'
    )
    arguments = ("storage", "format", "--config", str(file), "--cluster-id", drawn[1])
    output = json.loads(invoke(*arguments, "-o", "json").stdout)
    assert (output["directory_id"], output["cluster_id"]) == (drawn[0], drawn[1])
    assert f"its directory id is {drawn[0]}." in invoke(*arguments).stdout
    assert json.loads(invoke("storage", "random-id", "-o", "json").stdout)["id"]


def test_flags_of_format_set_the_voters(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'data.dir = "{tmp_path / "data"}"\n')
    for flags, said in (
        (("--standalone", "--no-initial-voters"), "give one"),
        (("--no-initial-voters",), "controller.bootstrap"),
    ):
        refused = invoke("storage", "format", "--config", str(file), *flags)
        assert refused.exit_code == 1
        assert said in refused.stderr
    done = invoke("storage", "format", "--config", str(file), "--standalone")
    assert done.exit_code == 0, done.output
    assert list((tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint"))


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_that_waits_for_the_others_stops_in_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    ids = [invoke("storage", "random-id").stdout.strip() for _ in range(2)]
    file = tmp_path / "node.toml"
    file.write_text(
        f'data.dir = "{tmp_path / "data"}"\n'
        'listeners.controller = "127.0.0.1:0"\nlisteners.grpc = "127.0.0.1:0"\n'
        f'controller.voters = ["1@127.0.0.1:1:{ids[0]}", "2@127.0.0.1:2:{ids[1]}"]\n'
    )
    assert invoke("storage", "format", "--config", str(file)).exit_code == 0
    command = [*COMMAND, "server", "--config", str(file)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"QUORUMLOG_LOG": "INFO"},
    ) as process:
        assert process.stderr is not None
        while "became_pre_candidate" not in process.stderr.readline():
            pass
        process.send_signal(number)
        out, _ = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out) == (0, "")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


# --- clusters of processes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "--nodes", "1", "--controllers", "1"), "give one of them"),
        (("up", "--brokers", "1"), "a cluster needs controllers"),
        (("up", "--nodes", "1", "--racks", "a,"), "give a comma-separated list"),
        (("status",), "has no cluster"),
        (("down",), "has no cluster"),
        (("start", "1"), "has no cluster"),
        (("kill", "1"), "has no cluster"),
        (("bootstrap",), "has no cluster"),
    ],
)
def test_missing_cluster_is_refused(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    result = invoke("cluster", *arguments, "--data-dir", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert said in result.stderr
    assert not (tmp_path / "none").exists()


def test_dev_refuses_settings_of_another_quorum(tmp_path: Path) -> None:
    """It would form its own quorum without a message."""
    data_dir = tmp_path / "data"
    voters = f"controller.voters=2@127.0.0.1:9:{'A' * 21}Q"
    arguments = ("--data-dir", str(data_dir), "--controller-port", "9", "--set", voters)
    result = invoke("dev", *arguments)
    assert result.exit_code == 1
    assert "controller.voters: node 1 is missing" in result.stderr
    assert not data_dir.exists()
