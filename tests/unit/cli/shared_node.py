"""A node that the tests of a file share, and the command line against it."""

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner, Result

from quorumlog.cli.main import app

COMMAND = [sys.executable, "-m", "quorumlog.cli"]
WAIT_S = 120.0


def start_dev(folder: Path, *options: str) -> "subprocess.Popen[str]":
    ports = ["--grpc-port", "0", "--controller-port", "0"]
    return subprocess.Popen(
        [*COMMAND, "dev", "--data-dir", str(folder), *ports, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def invoke(*arguments: str, address: str = "", stdin: str | bytes = "") -> Result:
    environment = {"QUORUMLOG_BOOTSTRAP": address} if address else {}
    return CliRunner().invoke(app, list(arguments), input=stdin, env=environment)


def succeed(*arguments: str, address: str, stdin: str | bytes = "") -> str:
    result = invoke(*arguments, address=address, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]
