"""The command line with a real node: output and exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kit.command import COMMAND, WAIT_S, invoke, json_lines, start_dev, succeed
from typer.main import get_command

import quorumlog
from quorumlog.cli.main import app

# --- topics --------------------------------------------------------------------------------------


def test_topics_are_created_listed_described_and_deleted(address: str, topic: str) -> None:
    made = succeed("topics", "create", topic, "-p", "2", "-c", "retention.ms=1000", address=address)
    assert made == f"Topic {topic} has 2 partitions with 1 replica each.\n"
    listed = json.loads(succeed("topics", "list", "--output", "json", address=address))
    (entry,) = [each for each in listed if each["name"] == topic]
    assert (entry["partitions"], entry["replication_factor"]) == (2, 1)
    described = json.loads(succeed("topics", "describe", topic, "-o", "json", address=address))
    assert described == {
        "name": topic,
        "id": entry["id"],
        "configs": {"retention.ms": "1000"},
        "partitions": [
            {
                "partition": partition,
                "leader": 1,
                "leader_epoch": 0,
                "replicas": [1],
                "isr": [1],
                "elr": [],
                "adding": [],
                "removing": [],
                "min_isr": 1,
                "states": [],
                "high_watermark": 0,
            }
            for partition in range(2)
        ],
    }
    assert len(entry["id"]) == 22
    deleted = succeed("topics", "delete", topic, "-o", "json", address=address)
    assert json.loads(deleted) == {"deleted": topic}
    assert topic not in succeed("topics", "list", address=address)


def test_the_first_records_of_a_topic_are_deleted(address: str, topic: str) -> None:
    succeed("topics", "create", topic, "-p", "2", address=address)
    for partition in "01":
        succeed("produce", topic, "--partition", partition, address=address, stdin="a\nb\nc\n")
    command = ("topics", "delete-records", topic, "--before")
    text = succeed(*command, "2", "--partition", "1", address=address)
    assert text.splitlines()[-1].split() == ["1", "2"]
    kept = json.loads(succeed(*command, "-1", "-o", "json", address=address))
    assert kept == {
        "topic": topic,
        "partitions": [{"partition": number, "log_start_offset": 2} for number in range(2)],
    }
    refused = invoke(*command, "9", address=address)
    assert (refused.exit_code, "the high watermark is 3" in refused.stderr) == (1, True)
    for arguments in (["soon"], ["1", "--partition", "2"]):
        assert invoke(*command, *arguments, address=address).exit_code != 0
    succeed(*command, "latest", address=address)
    assert succeed("consume", topic, "-e", address=address) == ""


def test_error_for_an_existing_topic_names_the_option_that_accepts_it(
    address: str, topic: str
) -> None:
    made = succeed("topics", "create", topic, address=address)
    assert made == f"Topic {topic} has 1 partition with 1 replica.\n"
    result = invoke("topics", "create", topic, address=address)
    assert (result.exit_code, "--if-not-exists" in result.stderr) == (1, True)
    assert succeed("topics", "create", topic, "--if-not-exists", address=address) == made


def test_tables_are_for_people(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    succeed("produce", topic, address=address, stdin="a\nb\n")
    text = succeed("topics", "describe", topic, address=address)
    assert text.splitlines()[0].startswith(f"Topic {topic}, id ")
    header, _, row = (line for line in text.splitlines()[1:] if line.strip())
    assert header.split() == [
        "partition",
        "leader",
        "epoch",
        "replicas",
        "isr",
        "elr",
        "high",
        "watermark",
        "state",
    ]
    assert row.split() == ["0", "1", "0", "1", "1", "-", "2"]


# --- produce and consume -------------------------------------------------------------------------


def test_lines_become_records_and_are_consumed(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    report = json.loads(
        succeed("produce", topic, "-o", "json", address=address, stdin="one\ntwo\r\n\nfour")
    )
    assert report.pop("seconds") >= 0
    assert report == {"records": 4, "bytes": 10, "errors": 0}
    assert succeed("consume", topic, "-e", address=address) == "one\ntwo\n\nfour\n"


def test_json_format_of_records(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    stdin = b"k=v\n=\xff\n"
    options = ["--key-separator", "=", "-H", "h=1"]
    succeed("produce", topic, *options, address=address, stdin=stdin)
    rows = json_lines(succeed("consume", topic, "-e", "-o", "json", address=address))
    assert all(isinstance(row.pop("timestamp"), int) for row in rows)
    common = {"topic": topic, "partition": 0, "headers": [{"key": "h", "value": "1"}]}
    assert rows == [
        {**common, "offset": 0, "key": "k", "value": "v"},
        {**common, "offset": 1, "key": "", "value": "/w==", "encoding": "base64"},
    ]


def test_verbose_prints_the_offset_of_each_line(address: str, topic: str) -> None:
    succeed("topics", "create", topic, "-p", "3", address=address)
    stdin = '{"id": "a", "n": 1}\n{"id": 7}\n{"id": null}\n'
    options = ["--key-field", "id", "--partition", "2", "-v"]
    rows = json_lines(
        succeed("produce", topic, *options, "-o", "json", address=address, stdin=stdin)
    )
    assert rows == [
        {"topic": topic, "partition": 2, "offset": offset, "key": key}
        for offset, key in enumerate(["a", "7", None])
    ]
    text = succeed("consume", topic, "-e", "-v", "--from", "1", "--partition", "2", address=address)
    assert [line.split("\t")[:2] for line in text.splitlines()] == [["2", "1"], ["2", "2"]]


def test_file_is_read_and_a_missing_one_is_reported(
    address: str, topic: str, tmp_path: Path
) -> None:
    succeed("topics", "create", topic, address=address)
    file = tmp_path / "lines"
    file.write_text("x\ny\n")
    assert "2 records" in succeed("produce", topic, "--file", str(file), address=address)
    result = invoke("produce", topic, "--file", str(tmp_path / "none"), address=address)
    assert result.exit_code == 1
    assert "cannot be read: No such file" in result.stderr


def test_failed_lines_are_listed_and_set_the_exit_code(address: str, topic: str) -> None:
    succeed("topics", "create", topic, "-c", "max.message.bytes=1000", address=address)
    stdin = "a:1\nno separator\n" + "b:" + "x" * 2_000 + "\nc:3\n"
    result = invoke("produce", topic, "--key-separator", ":", address=address, stdin=stdin)
    assert result.exit_code == 1
    assert "line 2: no key separator ':'" in result.stderr
    assert "line 3: " in result.stderr
    assert "2 records" in result.stdout
    assert "2 failed" in result.stdout
    assert succeed("consume", topic, "-e", address=address) == "1\n3\n"


def test_a_line_that_no_request_can_carry_does_not_stop_the_others(
    address: str, topic: str
) -> None:
    succeed("topics", "create", topic, address=address)
    stdin = b"first\n" + b"x" * 9_000_000 + b"\nlast\n"
    result = invoke("produce", topic, address=address, stdin=stdin)
    assert result.exit_code == 1
    assert result.stderr.startswith("quorumlog: line 2: ")
    assert "2 records" in result.stdout
    assert "1 failed" in result.stdout
    assert succeed("consume", topic, "-e", address=address) == "first\nlast\n"


def test_binary_content_and_the_last_of_times_can_be_printed(address: str, topic: str) -> None:
    with quorumlog.connect(address) as log:
        log.admin.create_topic(topic, configs={"message.timestamp.after.max.ms": 2**63 - 1})
        with log.producer() as producer:
            producer.send(topic, b"\xff\x00", key=b"\xfe", timestamp_ms=253_402_300_799_999)
    line = succeed("consume", topic, "-e", "--verbose", address=address)
    assert line.split("\t") == ["0", "0", "9999-12-31T23:59:59.999+00:00", "/g==", "/wA=\n"]


def test_consume_stops_after_max(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    succeed("produce", topic, address=address, stdin="a\nb\nc\n")
    assert succeed("consume", topic, "--max", "2", address=address) == "a\nb\n"
    assert succeed("consume", topic, "-e", "--from", "2000-01-01", address=address) == "a\nb\nc\n"
    assert succeed("consume", topic, "-e", "--from", "latest", address=address) == ""
    future = "2100-01-01T00:00:00+00:00"
    assert succeed("consume", topic, "-e", "--from", future, address=address) == ""


@pytest.mark.slow
def test_consume_waits_for_more_until_it_is_interrupted(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    with subprocess.Popen(
        [*COMMAND, "consume", topic, "--bootstrap", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            succeed("produce", topic, address=address, stdin="later\n")
            assert process.stdout is not None
            assert process.stdout.readline() == "later\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 130
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.slow
def test_closed_pipe_ends_a_table_quietly(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [*COMMAND, "topics", "list", "--bootstrap", address],
            stdout=pipe,
            stderr=subprocess.PIPE,
            timeout=WAIT_S,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.slow
def test_a_closed_pipe_ends_consume_quietly(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    succeed("produce", topic, address=address, stdin="x" * 100 + "\n")
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [*COMMAND, "consume", topic, "-e", "--bootstrap", address],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        timeout=WAIT_S,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["topics", "describe", "nope"], "nope: "),
        (["topics", "delete", "nope"], "--if-exists"),
        (["topics", "create", "a b"], "a b"),
        (["topics", "create", "t", "-c", "retention.msx=1"], "retention.ms"),
        (["topics", "create", "t", "-r", "9"], "9"),
        (["consume", "nope"], "nope: "),
        (["produce", "nope"], "nope: "),
        (["topics", "list", "--bootstrap", "http://127.0.0.1:9094"], "give host:port"),
        (["log", "dump", "/no/such/file.log"], "/no/such/file.log cannot be read"),
        (["log", "dump", "/no/such/file"], "file is not a file of a log: one of *.log"),
        (["server", "--config", "/no/such/file"], "/no/such/file cannot be read"),
        (["storage", "format", "--config", "/no/such/file"], "/no/such/file cannot be read"),
        (["topics", "list", "--bootstrap", "nonsense"], "give host:port"),
        (["topics", "list", "--bootstrap", "127.0.0.1:1"], "quorumlog dev"),
        (["server"], "data.dir: missing"),
    ],
)
def test_an_error_is_one_sentence_and_exit_code_1(
    address: str, arguments: list[str], sentence: str
) -> None:
    result = invoke(*arguments, address=address)
    assert result.exit_code == 1, result.output
    assert sentence in result.stderr
    assert result.stderr.startswith("quorumlog: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topics", "create"],
        ["topics", "create", "t", "--partitions", "0"],
        ["consume", "t", "--from", "whenever"],
        ["produce", "t", "--key-separator", ":", "--key-field", "x"],
        ["topics", "list", "--output", "xml"],
        ["produce", "t", "--acks", "most"],
        ["produce", "t", "--format", "csv", "--delimiter", "ab"],
        ["produce", "t", "--format", "csv", "--quote", ""],
        ["produce", "t", "--format", "json", "--key-field", "x"],
        ["produce", "t", "--format", "raw", "--key-field", "x"],
        ["produce", "t", "--delimiter", ";"],
        ["produce", "t", "--format", "raw", "--delimiter", "\\q"],
        ["produce", "t", "--key-separator", ""],
        ["produce", "t", "--partition", "0", "--partitioner", "sticky"],
        ["produce", "t", "--header", "x"],
        ["produce", "t", "--header", "\udcff=x"],
        ["produce", "t", "--compression-level", "3"],
        ["topics", "create", "t", "--config", "x"],
        ["bench", "produce", "--config", "x"],
        ["configs", "alter", "t", "--set", "x"],
        ["configs", "alter", "t", "--set", "x=1", "--delete", "x"],
        ["consume", "t", "--to-file", "x.csv", "--format", "{key}"],
        ["consume", "t", "--to-file", "x.csv", "--verbose"],
        ["consume", "t", "--to-file", "x.csv", "-o", "raw"],
        ["consume", "t", "--overwrite"],
        ["consume", "t", "--to", "whenever"],
        ["consume", "t", "--format", "{vlaue}"],
        ["consume", "t", "--format", "{value}", "-o", "raw"],
        ["consume", "t", "--delimiter", ","],
        ["completion", "tcsh"],
        ["bench"],
        ["bench", "produce", "-n", "0"],
    ],
)
def test_a_usage_error_is_exit_code_2(address: str, arguments: list[str]) -> None:
    result = invoke(*arguments, address=address)
    assert result.exit_code == 2, result.output
    assert "Usage: " in result.stderr


# --- nodes and files -----------------------------------------------------------------------------


def test_a_segment_is_dumped_batch_by_batch(
    address: str, folder: Path, topic: str, tmp_path: Path
) -> None:
    succeed("topics", "create", topic, address=address)
    for line in ("a\nb\n", "c\n"):
        succeed("produce", topic, "--compression", "lz4", address=address, stdin=line)
    (segment,) = (folder / f"{topic}-0").glob("*.log")
    rows = json_lines(succeed("log", "dump", str(segment), "-o", "json", address=address))
    assert [(row["base_offset"], row["last_offset"], row["count"]) for row in rows] == [
        (0, 1, 2),
        (2, 2, 1),
    ]
    assert {row["codec"] for row in rows} == {"lz4"}
    assert "position" in succeed("log", "dump", str(segment), address=address)
    with_records = succeed("log", "dump", str(segment), "--records", "-o", "json", address=address)
    assert [row["value"] for row in json_lines(with_records) if "value" in row] == ["a", "b", "c"]
    damaged = tmp_path / "damaged.log"
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    result = invoke("log", "dump", str(damaged), "-o", "json")
    assert result.exit_code == 1
    assert len(json_lines(result.stdout)) == 1
    assert f"{damaged} at byte {rows[1]['position']}: its CRC-32C" in result.stderr


def test_storage_is_formatted_once_for_one_cluster(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f'data.dir = "{tmp_path}/data"\nnode.id = 3\n')
    format_it = ["storage", "format", "--config", str(config)]
    result = invoke(*format_it, "-o", "json")
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)
    assert (row["node_id"], row["data_dir"]) == (3, f"{tmp_path}/data")
    assert len(row["cluster_id"]) == len(row["directory_id"]) == 22
    again = invoke(*format_it, "--cluster-id", row["cluster_id"], "-o", "json")
    assert json.loads(again.stdout) == row
    other = invoke(*format_it, "--cluster-id", "x" * 22)
    assert other.exit_code == 1
    assert "cluster" in other.stderr


@pytest.mark.slow
def test_dev_prints_its_addresses_and_stops_in_order(tmp_path: Path) -> None:
    with start_dev(tmp_path / "data") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("quorumlog is ready: grpc 127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0


@pytest.mark.slow
def test_a_configured_server_serves(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        f'data.dir = "{tmp_path}/data"\n'
        'listeners.grpc = "127.0.0.1:0"\nlisteners.controller = "127.0.0.1:0"\n'
    )
    heard = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert invoke("server", "--config", str(config)).exit_code == 1  # not formatted
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == heard
    assert invoke("storage", "format", "--config", str(config)).exit_code == 0
    with subprocess.Popen(
        [*COMMAND, "server", "--config", str(config), "-o", "json"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["ready"] is True
        assert json.loads(succeed("topics", "list", "-o", "json", address=ready["grpc"])) == []
        process.terminate()
        assert process.wait(WAIT_S) == 0


IMPORTS = """
import sys, threading
from quorumlog.server import main as server_main
heavy = {"pyarrow", "pyspark", "numpy", "pandas", "rich", "h11", "prometheus_client", "pydantic"}
heavy |= {"cramjam", "google.protobuf.descriptor_pb2", "grpc_health.v1", "grpc_reflection.v1alpha"}
say_ready = server_main.ready_line
def ready_line(*arguments, **settings):
    own = [name for name in sys.modules if name.startswith("quorumlog")]
    print(len(own), sorted(heavy & set(sys.modules)), flush=True)
    return say_ready(*arguments, **settings)
server_main.ready_line = ready_line
from quorumlog.cli.main import main
sys.argv = ["quorumlog", *sys.argv[1:]]
main()
"""


MODULES_MAX = 394
"""Modules of the package that a node imports before it is ready. Each takes 1 ms and 20 KB."""


@pytest.mark.slow
def test_dev_imports_little_before_it_is_ready(tmp_path: Path) -> None:
    options = ["--data-dir", str(tmp_path / "data"), "--grpc-port", "0", "--controller-port", "0"]
    with subprocess.Popen(
        [sys.executable, "-c", IMPORTS, "dev", *options], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        count, _, heavy = process.stdout.readline().partition(" ")
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert heavy == "[]\n"
    assert int(count) <= MODULES_MAX


@pytest.mark.slow
def test_help_loads_neither_the_network_nor_tables(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from quorumlog.cli.main import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'grpc', 'uvloop', 'google', 'asyncio', 'rich', 'pyarrow', 'tenacity'}\n"
        "rooms = {'clients', 'records', 'runtime', 'server', 'services', 'storage', 'proto'}\n"
        "heavy |= {f'quorumlog.{room}' for room in rooms}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_version_is_that_of_the_package() -> None:
    from quorumlog import __version__

    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"quorumlog {__version__}\n")


def commands() -> list[tuple[str, ...]]:
    """Return every command of the tree by its words."""
    found: list[tuple[str, ...]] = []

    def walk(command: Any, words: tuple[str, ...]) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*words, name))
        if not hasattr(command, "commands"):
            found.append(words)

    walk(get_command(app), ())
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_a_help_and_refuses_unknown_options(
    words: tuple[str, ...],
) -> None:
    for flag in ("--help", "-h"):
        result = invoke(*words, flag)
        assert result.exit_code == 0
        usage, description = result.stdout.split("\n\n")[:2]
        assert usage.startswith(f"Usage: quorumlog {' '.join(words)}")
        assert description.strip().endswith((".", ":"))
    wrong = invoke(*words, "--outptu", "json")
    assert wrong.exit_code == 2
    assert "No such option: --outptu" in wrong.stderr


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_option_has_its_own_help(words: tuple[str, ...]) -> None:
    command: Any = get_command(app)
    for word in words:
        command = command.commands[word]
    for parameter in command.params:
        assert parameter.help, (words, parameter.name)


def test_a_mistyped_command_names_the_nearest() -> None:
    assert "Did you mean 'produce'?" in invoke("prodcue").stderr
    assert "Did you mean 'describe'?" in invoke("topics", "descirbe").stderr
    assert "--acks" in invoke("produce", "t", "--ack", "all").stderr


def test_unexpected_error_is_one_line_that_names_the_option_for_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from quorumlog.cli.failures import print_unexpected

    assert (
        print_unexpected(UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed"))
        == 1
    )
    output = capsys.readouterr().err
    assert output == "quorumlog: 'a\\udcff' is not valid UTF-8; give UTF-8 text\n"
    assert print_unexpected(RuntimeError("two\nlines")) == 1
    output = capsys.readouterr().err
    assert output.startswith("quorumlog: unexpected RuntimeError: two lines; this is a bug, ")
    assert "QUORUMLOG_DEBUG=1" in output
    assert output.count("\n") == 1


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOG_DEBUG", "1")
    result = invoke("topics", "list", "--bootstrap", "127.0.0.1:1")
    assert isinstance(result.exception, quorumlog.QuorumlogError)
