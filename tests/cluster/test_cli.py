"""The command as a process: pipes, Ctrl-C, shells, and unchanged input and output."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.command import COMMAND, WAIT_S, dev_node, ready_line, start_dev

import quorumlog

pytestmark = pytest.mark.slow

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of the shared node."""
    return tmp_path_factory.mktemp("cli") / "data"


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Return the gRPC address of the node that all tests of this file share. It has a topic
    `numbers`."""
    with dev_node(folder) as addresses:
        with quorumlog.connect(addresses["grpc"]) as log:
            log.admin.create_topic("numbers", partitions=2)
            with log.producer() as producer:
                for number in range(1_000):
                    producer.send("numbers", str(number), partition=number % 2)
        yield addresses["grpc"]


@pytest.fixture
def environment(address: str) -> dict[str, str]:
    return {**os.environ, "QUORUMLOG_BOOTSTRAP": address}


def run(
    *arguments: str, environment: dict[str, str], stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, env=environment, timeout=WAIT_S
    )


def succeed(*arguments: str, environment: dict[str, str], stdin: bytes = b"") -> bytes:
    done = run(*arguments, environment=environment, stdin=stdin)
    assert done.returncode == 0, done
    return done.stdout


def end_offset(address: str, topic: str) -> int:
    with quorumlog.connect(address) as log:
        return sum(log.list_offsets(topic).values())


# --- pipes ---------------------------------------------------------------------------------------


def test_a_pipe_copies_a_topic_unchanged(address: str, environment: dict[str, str]) -> None:
    with quorumlog.connect(address) as log:
        for name in ("pipe.a", "pipe.b"):
            log.admin.create_topic(name, partitions=3, configs={"retention.ms": "-1"})
        with log.producer() as producer:
            contents = (None, b"", b"text", "ünï".encode(), b"\xff\x00", b'{"a":\n1}')
            for number, (key, value) in enumerate((k, v) for k in contents for v in contents):
                headers = [("h", value), ("h", key), ("ü", b"x")]
                producer.send("pipe.a", value, key=key, headers=headers, timestamp_ms=number)
    reader = subprocess.Popen(
        [*COMMAND, "consume", "pipe.a", "-e", "-o", "json"], stdout=subprocess.PIPE, env=environment
    )
    with reader:
        done = subprocess.run(
            [*COMMAND, "produce", "pipe.b", "--format", "json", "-o", "json"],
            stdin=reader.stdout,
            capture_output=True,
            env=environment,
            timeout=WAIT_S,
        )
    assert (done.returncode, json.loads(done.stdout)["records"]) == (0, 36), done
    with quorumlog.connect(address) as log:
        found = [
            sorted(
                (r.partition, r.offset, r.timestamp_ms, repr((r.key, r.value, r.headers)))
                for r in log.consumer(name, until_end=True)
            )
            for name in ("pipe.a", "pipe.b")
        ]
    assert len(found[0]) == 36
    assert found[0] == found[1]


def test_a_delimiter_separates_binary_records(environment: dict[str, str]) -> None:
    succeed("topics", "create", "raw", environment=environment)
    content = b"\xff\n\0\0b\r\n\0"
    options = ["--format", "raw", "--delimiter", r"\0"]
    succeed("produce", "raw", *options, environment=environment, stdin=content)
    read = ["consume", "raw", "-e", "-o", "raw", "--delimiter", r"\0"]
    assert succeed(*read, environment=environment) == content


def test_results_are_printed_while_the_input_is_open(environment: dict[str, str]) -> None:
    succeed("topics", "create", "typed", environment=environment)
    with subprocess.Popen(
        [*COMMAND, "produce", "typed", "-v"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (1, 2):
            process.stdin.write(b"word\n")
            process.stdin.flush()
            expected = f"line {number}: typed-0 offset {number - 1}\n"
            assert process.stdout.readline().decode() == expected
        process.stdin.close()
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["completion", "bash"],
        ["topics", "list"],
        ["consume", "numbers"],
        ["produce", "numbers", "-v"],
        ["bench", "latency", "-n", "1", "--warm-up", "0"],
    ],
    ids=" ".join,
)
def test_a_closed_pipe_ends_every_command_without_an_error(
    environment: dict[str, str], arguments: list[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=b"x\n",
            stdout=pipe,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=WAIT_S,
        )
    assert (done.returncode, done.stderr) == (EXIT_BROKEN_PIPE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", [["topics", "list"], ["consume", "numbers", "-e"]])
def test_a_full_output_device_is_reported(
    environment: dict[str, str], arguments: list[str]
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=WAIT_S,
        )
    report = b"quorumlog: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, report)


def test_commands_run_with_closed_standard_streams(environment: dict[str, str]) -> None:
    for command, closed in (("topics list", ">&-"), ("produce numbers", "<&- >&- 2>&-")):
        shell = f'exec "$0" -m quorumlog.cli {command} {closed}'
        done = subprocess.run(
            ["sh", "-c", shell, sys.executable],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=WAIT_S,
        )
        assert (done.returncode, done.stderr) == (0, b""), (command, closed)


def test_a_terminal_shows_the_progress_of_a_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x" * 99 + b"\n" + b"a line\n" * 1_000)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "produce", "numbers", "--file", str(file)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**environment, "TERM": "xterm", "NO_COLOR": "1"},
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 10_000)
            except OSError:  # the end of a terminal on Linux
                break
        os.close(ours)
        assert process.wait(WAIT_S) == 0
        assert process.stdout is not None
        assert process.stdout.read().startswith(b"1,001 records, 6.1 KB in ")
    assert b"lines " in shown
    assert b"7.1" in shown
    assert b"\x1b[32m" not in shown


# --- Ctrl-C --------------------------------------------------------------------------------------

INTERRUPTED_WHEN = """
import os, signal, sys, threading, time
from quorumlog.cli.__main__ import main
def interrupt(has_come):
    while not has_come():
        time.sleep(0.0001)
    os.kill(os.getpid(), signal.SIGINT)
has_come = eval("lambda: " + sys.argv[1])
threading.Thread(target=interrupt, args=(has_come,), daemon=True).start()
sys.argv = ["quorumlog", *sys.argv[2:]]
main()
"""
AT_ONCE = "signal.getsignal(signal.SIGINT) is not signal.default_int_handler"
LOADING = "'quorumlog.cli.main' in sys.modules"
LOADING_MORE = "'grpc' in sys.modules"
AT_WORK = "any(each.name == 'quorumlog-io' for each in threading.enumerate())"
PORTS = ["--grpc-port", "0", "--controller-port", "0"]
SILENT = "10.255.255.1:9"  # a host that sends no response and no refusal


@pytest.mark.parametrize(
    ("point", "arguments"),
    [
        (AT_ONCE, ["topics", "list"]),
        (LOADING, ["topics", "list"]),
        (LOADING_MORE, ["topics", "list", "--bootstrap", SILENT]),
        (AT_WORK, ["topics", "list", "--bootstrap", SILENT]),
        (AT_WORK, ["consume", "numbers"]),
        (AT_WORK, ["produce", "numbers"]),
        (AT_WORK, ["bench", "produce"]),
        (LOADING_MORE, ["dev", "--data-dir", "{folder}", *PORTS]),
    ],
)
def test_ctrl_c_ends_a_command_at_any_point(
    environment: dict[str, str], tmp_path: Path, point: str, arguments: list[str]
) -> None:
    words = [word.format(folder=tmp_path / "data") for word in arguments]
    with (
        subprocess.Popen(["yes", "a line"], stdout=subprocess.PIPE) as endless,
        subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED_WHEN, point, *words],
            stdin=endless.stdout,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        ) as process,
    ):
        try:
            _, report = process.communicate(timeout=WAIT_S)
        finally:
            endless.kill()
            process.kill()
    assert process.returncode == EXIT_INTERRUPTED, report.decode()
    assert report.count(b"\n") <= 1


def test_a_bench_that_is_interrupted_leaves_no_topic(
    address: str, environment: dict[str, str]
) -> None:
    with (
        subprocess.Popen(
            [*COMMAND, "bench", "latency", "-n", "1000000"],
            env=environment,
            stdout=subprocess.DEVNULL,
        ) as process,
        quorumlog.connect(address) as log,
    ):
        while not (names := bench_topics(log)):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == EXIT_INTERRUPTED
        assert not set(bench_topics(log)) & set(names)


def bench_topics(log: "quorumlog.Log") -> list[str]:
    names = (topic.name for topic in log.admin.list_topics())
    return [name for name in names if name.startswith("quorumlog-bench-")]


def test_produce_reports_the_stored_records_after_ctrl_c(
    address: str, environment: dict[str, str]
) -> None:
    succeed("topics", "create", "cut", environment=environment)
    endless = subprocess.Popen(["yes", "a line"], stdout=subprocess.PIPE)
    process = subprocess.Popen(
        [*COMMAND, "produce", "cut", "-o", "json"],
        stdin=endless.stdout,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    with endless, process:
        try:
            while end_offset(address, "cut") == 0:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            report, errors = process.communicate(timeout=WAIT_S)
        finally:
            endless.kill()
            process.kill()
    assert (process.returncode, errors) == (EXIT_INTERRUPTED, b"")
    summary = json.loads(report)
    assert summary["interrupted"] is True
    stored = end_offset(address, "cut")
    assert summary["records"] <= stored <= summary["records"] + summary["unknown"]


def test_ctrl_c_ends_a_flush_that_waits_for_a_silent_broker(tmp_path: Path) -> None:
    with start_dev(tmp_path / "data", "--output", "json") as node:
        try:
            environment = {**os.environ, "QUORUMLOG_BOOTSTRAP": ready_line(node)["grpc"]}
            succeed("topics", "create", "t", environment=environment)
            with subprocess.Popen(
                [*COMMAND, "produce", "t", "-v"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(b"first\n")
                process.stdin.flush()
                assert process.stdout.readline() == b"line 1: t-0 offset 0\n"
                node.send_signal(signal.SIGSTOP)
                process.stdin.write(b"second\n")
                process.stdin.flush()
                process.stdin.close()
                process.stdin = None  # so that communicate() does not use it
                process.send_signal(signal.SIGINT)
                _, report = process.communicate(timeout=WAIT_S)
            assert process.returncode == EXIT_INTERRUPTED
            assert report.startswith(b"interrupted, read up to line ")
            assert b": 1 record, 5 B in " in report
        finally:
            node.send_signal(signal.SIGCONT)
            node.terminate()
            node.wait(WAIT_S)


# --- shells --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the completion script for bash."""
    path = tmp_path_factory.mktemp("script") / "quorumlog"
    path.write_bytes(succeed("completion", "bash", environment=dict(os.environ)))
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a `quorumlog` command as a shell finds it."""
    path = tmp_path_factory.mktemp("bin") / "quorumlog"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m quorumlog.cli "$@"\n')
    path.chmod(0o755)
    return path


DRIVE = """
source "$1"
COMP_LINE="$2" COMP_POINT=${#2} COMP_CWORD=$(($# - 3))
shift 2
COMP_WORDS=("$@")
_quorumlog_complete
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["topics", "de"], ["delete", "delete-records", "describe"]),
        (["consume", "--bootstrap", "127.0.0.1", ":", "1", "num"], []),
        (["produce", "numbers", "--compression", "=", "z"], ["zstd"]),
    ],
)
def test_bash_completes(
    program: Path, script: Path, environment: dict[str, str], words: list[str], expected: list[str]
) -> None:
    line = " ".join(["quorumlog", *words]).replace(" : ", ":").replace(" = ", "=")
    done = subprocess.run(
        ["bash", "--norc", "-c", DRIVE, "bash", str(script), line, str(program), *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=WAIT_S,
    )
    assert sorted(filter(None, done.stdout.split("\n"))) == expected
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_accepts_its_script(shell: str, environment: dict[str, str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = succeed("completion", shell, environment=environment)
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, timeout=WAIT_S)
    assert (done.returncode, done.stderr) == (0, b"")
