"""The `quorumlog` command, in this process or in a separate one."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner, Result

from quorumlog.cli.main import app

COMMAND = [sys.executable, "-m", "quorumlog.cli"]
WAIT_S = 120.0


def invoke(*arguments: str, address: str = "", stdin: str | bytes = "") -> Result:
    """Run the command in this process, with the broker's address in the environment."""
    environment = {"QUORUMLOG_BOOTSTRAP": address} if address else {}
    return CliRunner().invoke(app, list(arguments), input=stdin, env=environment)


def succeed(*arguments: str, address: str, stdin: str | bytes = "") -> str:
    """Run the command in this process and return its output; AssertionError if it fails."""
    result = invoke(*arguments, address=address, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def answer_prompt(answer: bytes, *arguments: str, address: str) -> tuple[int, str]:
    """Run the command on a terminal, answer its confirmation prompt, and return its exit code and
    the text on the terminal."""
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments, *(("--bootstrap", address) if address else ())],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:
        try:
            shown = b""
            while b"[y/N]" not in shown:
                assert select.select([ours], [], [], WAIT_S)[0], f"no prompt: {shown.decode()}"
                shown += os.read(ours, 1_000)
            os.write(ours, answer)
            code = process.wait(WAIT_S)
            while select.select([ours], [], [], 0.0)[0]:
                shown += os.read(ours, 1_000)
            return code, shown.decode()
        finally:
            os.close(theirs)
            os.close(ours)  # ends a command that still waits for a response


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def start_dev(folder: Path, *options: str) -> "subprocess.Popen[str]":
    """Start `quorumlog dev` on free ports, with a pipe for its standard output."""
    ports = ["--grpc-port", "0", "--controller-port", "0"]
    return subprocess.Popen(
        [*COMMAND, "dev", "--data-dir", str(folder), *ports, *options],
        stdout=subprocess.PIPE,
        text=True,
    )


def ready_line(process: "subprocess.Popen[str]") -> dict[str, str]:
    """Return the ready line of a node that was started with `--output json`."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], WAIT_S)[0], "no ready line"
    addresses: dict[str, str] = json.loads(process.stdout.readline())
    return addresses


@contextmanager
def dev_node(folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """Run `quorumlog dev` on free ports; yield its ready line, which has the addresses."""
    with start_dev(folder, *options, "--output", "json") as process:
        try:
            yield ready_line(process)
        finally:
            process.terminate()
            process.wait(WAIT_S)
