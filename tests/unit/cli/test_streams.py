"""`produce` and `consume`, and the output of `topics` and `bench`, with a real node."""

import json
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.kit.command import answer_prompt, invoke, json_lines, succeed
from typer.main import get_command
from typer.testing import CliRunner

import quorumlog
from quorumlog.cli.completion import candidates
from quorumlog.cli.main import app
from quorumlog.cli.output import print_table
from quorumlog.cli.produce.options import Format, OnError
from quorumlog.cli.produce.parsers import InputFormat
from quorumlog.cli.produce.report import Report
from quorumlog.cli.produce.sender import Sending


def test_formats_keys_timestamps_and_partitions_follow_the_options(
    address: str, topic: str, tmp_path: Path
) -> None:
    succeed("topics", "create", topic, "-p", "3", address=address)
    rows = tmp_path / "rows.csv"
    rows.write_text("id,at\n7,1970-01-01T00:00:01\n8,5\n")
    csv = ["--format", "csv", "--key-field", "id", "--timestamp-field", "at", "-p", "1"]
    succeed("produce", topic, *csv, "--file", str(rows), "-H", "a=b", address=address)
    template = "{partition}|{offset}|{timestamp_ms}|{key}|{headers}"
    text = succeed("consume", topic, "-e", "--format", template, address=address)
    assert text == "1|0|1000|7|a=b\n1|1|5|8|a=b\n"
    spread = ["--partitioner", "round_robin"]
    succeed("produce", topic, *spread, address=address, stdin="x\ny\nz\n")
    ends = json.loads(succeed("topics", "describe", topic, "-o", "json", address=address))
    assert [part["high_watermark"] for part in ends["partitions"]] == [1, 3, 1]


def test_lines_of_several_files_are_reported_with_their_file(
    address: str, topic: str, tmp_path: Path
) -> None:
    succeed("topics", "create", topic, address=address)
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text('{"value": "1"}\n')
    second.write_text('{"value": "2"}\n{"vlaue": 3}\n{"value": "4"}\n')
    files = ["--format", "json", "-f", str(first), "-f", str(second)]
    result = invoke("produce", topic, *files, address=address)
    assert result.exit_code == 1
    assert result.stderr == (
        f"quorumlog: {second} line 2: unknown member 'vlaue'; did you mean 'value'?\n"
    )
    assert succeed("consume", topic, "-e", address=address) == "1\n2\n4\n"
    stopped = invoke("produce", topic, *files, "--on-error", "stop", address=address)
    assert (stopped.exit_code, stopped.stdout[:9]) == (1, "2 records")


def test_failures_are_objects_where_the_output_is_json(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    options = ["-o", "json", "-K", ":"]
    result = invoke("produce", topic, *options, address=address, stdin="a:1\nb\n")
    assert result.exit_code == 1
    summary = json.loads(result.stdout)
    assert (summary["records"], summary["errors"]) == (1, 1)
    output = json.loads(result.stderr)
    assert (output["error"], output["line"], output["last_line"]) == ("INVALID_REQUEST", 2, 2)
    absent = invoke("topics", "describe", "nope", "-o", "json", address=address)
    error = json.loads(absent.stderr)
    assert absent.exit_code == 1
    assert (error["error"], error["topic"]) == ("UNKNOWN_TOPIC_OR_PARTITION", "nope")


def test_a_partition_that_does_not_exist_fails_those_records_alone(
    address: str, topic: str
) -> None:
    succeed("topics", "create", topic, address=address)
    for command in (["consume"], ["produce"]):  # reported before any input is read
        result = invoke(*command, topic, "--partition", "3", address=address, stdin="a\n")
        assert (result.exit_code, result.stdout, result.stderr) == (
            1,
            "",
            f"quorumlog: {topic}-3: the partition does not exist; the topic has partition 0 only\n",
        )
    stdin = '{"value": "a"}\n{"value": "b", "partition": 7}\n{"value": "c"}\n'
    mixed = invoke("produce", topic, "--format", "json", address=address, stdin=stdin)
    assert mixed.exit_code == 1
    assert mixed.stderr.startswith("quorumlog: line 2: ")
    assert mixed.stderr.count("\n") == 1
    assert mixed.stdout.startswith("2 records,")
    assert mixed.stdout.endswith("1 failed\n")


def test_ranges_start_and_end_at_the_given_positions(address: str, topic: str) -> None:
    succeed("topics", "create", topic, "-p", "2", address=address)
    for partition, letters in (("0", "abcdef"), ("1", "uvwxyz")):
        text = "\n".join(letters)
        succeed("produce", topic, "--partition", partition, address=address, stdin=text)

    def read(*options: str) -> str:
        return "".join(sorted(succeed("consume", topic, *options, address=address).split()))

    assert read("--from", "-2", "-e") == "efyz"
    assert read("--from", "2", "--to", "4") == "cdwx"
    assert read("--from", "-3", "--to", "-1") == "dexy"
    assert read("--from", "1", "--to", "9", "-e") == "bcdefvwxyz"
    assert read("--to", "latest", "-n", "12") == "abcdefuvwxyz"
    waited = (read("--from", "-1h", "--timeout", wait) for wait in ("0.3", "3", "30"))
    assert "abcdefuvwxyz" in waited, "a slow machine takes longer for the first record"
    assert read("--from", "latest", "--timeout", "0.05") == ""
    assert read("--from", "3", "--to", "3") == ""
    assert read("--to", "2", "--partition", "1") == "uv"
    assert len(read("--to", "5", "-n", "3")) == 3


def test_offset_outside_of_the_log_is_reported_with_the_valid_range(
    address: str, topic: str
) -> None:
    succeed("topics", "create", topic, address=address)
    result = invoke("consume", topic, "--from", "2025", address=address)
    assert (result.exit_code, result.stderr) == (
        1,
        f"quorumlog: {topic}-0: offset 2025 is out of range; the log has [0, 0]; "
        "give --from earliest, latest or an offset between\n",
    )


def test_records_go_into_files(address: str, topic: str, tmp_path: Path) -> None:
    from pyarrow import ipc, parquet

    succeed("topics", "create", topic, address=address)
    stdin = b"k=v\n\xff=\n"
    succeed("produce", topic, "-K", "=", "-H", "h=1", address=address, stdin=stdin)

    def path(ending: str) -> str:
        return str(tmp_path / f"records{ending}")

    for ending in (".parquet", ".arrow", ".csv", ".jsonl"):
        result = invoke("consume", topic, "-e", "--to-file", path(ending), address=address)
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == f"2 records in {path(ending)}\n"
    stored = parquet.read_table(path(".parquet"))
    assert stored.equals(ipc.open_file(path(".arrow")).read_all())
    assert stored.column("key").to_pylist() == [b"k", b"\xff"]
    assert stored.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}]] * 2
    assert str(stored.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    lines = json_lines(Path(path(".jsonl")).read_text())
    assert [row["value"] for row in lines] == ["v", ""]
    assert ",k,v," in Path(path(".csv")).read_text().splitlines()[1]
    again = invoke("consume", topic, "-e", "--to-file", path(".csv"), address=address)
    assert (again.exit_code, "--overwrite replaces it" in again.stderr) == (1, True)
    wrong = invoke("consume", topic, "-e", "--to-file", path(".xls"), address=address)
    assert (wrong.exit_code, ".parquet, .arrow" in wrong.stderr) == (1, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_file_that_could_not_be_written_has_no_count(
    address: str, topic: str, tmp_path: Path, ending: str
) -> None:
    succeed("topics", "create", topic, address=address)
    succeed("produce", topic, address=address, stdin="a\n")
    file = tmp_path / f"full.{ending}"
    file.symlink_to("/dev/full")
    wanted = ["consume", topic, "-e", "--overwrite", "--to-file", str(file)]
    result = invoke(*wanted, address=address)
    assert (result.exit_code, result.stderr) == (
        1,
        f"quorumlog: {file} cannot be written: No space left on device\n",
    )


def test_unknown_topic_is_reported_with_the_nearest_name(address: str, topic: str) -> None:
    succeed("topics", "create", "departures", address=address)
    for command in (["consume"], ["produce"], ["topics", "describe"], ["topics", "delete"]):
        result = invoke(*command, "depatures", address=address)
        assert (result.exit_code, result.stderr) == (
            1,
            "quorumlog: depatures: the topic does not exist; did you mean departures?\n",
        )
    result = invoke("consume", "qqq", address=address)
    assert "create it with `quorumlog topics create qqq`" in result.stderr
    gone = succeed("topics", "delete", "qqq", "--if-exists", address=address)
    assert gone == "Topic qqq does not exist.\n"


def test_offsets_are_counted_on_demand(address: str, topic: str) -> None:
    succeed("topics", "create", topic, "-p", "2", address=address)
    succeed("produce", topic, address=address, stdin="a\nb\nc\n")
    listed = json.loads(succeed("topics", "list", "--counts", "-o", "json", address=address))
    assert [each["offsets"] for each in listed if each["name"] == topic] == [3]
    assert "offsets" in succeed("topics", "list", "--counts", address=address)


@pytest.mark.long
def test_deletion_of_a_topic_asks_for_confirmation_on_a_terminal(address: str, topic: str) -> None:
    succeed("topics", "create", topic, address=address)
    for answer, code in ((b"n\n", 1), (b"maybe\ny\n", 0)):
        ended, shown = answer_prompt(answer, "topics", "delete", topic, address=address)
        assert f"Delete topic {topic} and all records of its 1 partition?" in shown
        assert ended == code
    assert topic not in succeed("topics", "list", address=address)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["produce", "--producers", "2", "-c", "retention.ms=1000"],
        ["produce", "--api", "arrow", "--warm-up", "0"],
        ["produce", "--rate", "5000", "--linger", "0", "-n", "200"],
        ["fetch", "--partitions", "2"],
        ["fetch", "--api", "arrow", "--compression", "lz4"],
        ["latency", "-n", "50", "--rate", "1000"],
    ],
    ids=" ".join,
)
def test_bench_prints_its_results_and_the_machine(address: str, options: list[str]) -> None:
    small = ["-n", "2000", "--warm-up", "100", "--size", "50"]
    text = succeed("bench", options[0], *small, *options[1:], "-o", "json", address=address)
    row = json.loads(text)
    settings = row["settings"]
    assert row["bench"] == options[0]
    assert row["records"] >= min(
        settings["records"], 1_500
    )  # a fetch measures the remaining records
    assert row["bytes"] >= row["records"] * 50
    assert row["records_per_second"] > 0
    for measured in row["latency"].values():
        assert measured["samples"] > 0
        quantiles = list(measured["ms"].values())
        assert quantiles == sorted(quantiles)
        assert quantiles[0] > 0
    assert (settings["size"], row["machine"]["cpus"]) == (50, os.cpu_count())
    names = [
        each["name"]
        for each in json.loads(succeed("topics", "list", "-o", "json", address=address))
    ]
    assert not [name for name in names if name.startswith("quorumlog-bench")]


@pytest.mark.slow
@pytest.mark.parametrize("api", ["record", "arrow"])
def test_bench_measures_the_requested_amount_after_its_warm_up(
    address: str, topic: str, api: str
) -> None:
    run = ["bench", "fetch", "--size", "10", "--api", api, "-o", "json"]
    small = succeed(*run, "-n", "7", "--warm-up", "300", address=address)
    assert json.loads(small)["records"] == 7
    succeed("topics", "create", topic, address=address)
    succeed("produce", topic, address=address, stdin="a\nb\nc\n")
    own = ["--topic", topic, "--warm-up"]
    assert json.loads(succeed(*run, *own, "1", "-n", "9", address=address))["records"] == 2
    result = invoke("bench", "fetch", "--api", api, *own, "3", address=address)
    assert (result.exit_code, "--warm-up 0" in result.stderr) == (1, True)


def test_percentiles_are_nearest_ranks() -> None:
    from quorumlog.cli.bench import percentile

    values = list(range(1, 1_001))
    assert [percentile(values, p) for p in (0.1, 50, 99, 99.9, 100)] == [1, 500, 990, 999, 1_000]
    assert percentile([7], 50) == 7


# --- tables and sentences ------------------------------------------------------------------------


def test_table_has_no_frame(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count"), [("a", 1_000), ("bb", None)], empty="none")
    assert capsys.readouterr().out == "name   count\n────────────\na      1,000\nbb         -\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["topics", "list", "-o", "xml"], "'xml' is not one of 'human', 'json'."),
        (["topics", "create", "t", "-p", "x"], "'x' is not a whole number"),
        (["topics", "create", "t", "-p", "0"], "0 is too small: give 1 or more"),
        (["dev", "--grpc-port", "65536"], "65536 is too large: give 65535 or less"),
        (["consume", "t", "--timeout", "soon"], "'soon' is not a number"),
        (["consume", "t", "-p", "0", "-p", "x"], "'x' is not a whole number"),
    ],
)
def test_invalid_argument_is_named_with_the_valid_values(
    arguments: list[str], sentence: str
) -> None:
    result = invoke(*arguments, address="127.0.0.1:1")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith(f": {sentence}")


def test_environment_sets_json_output_for_every_command(
    tmp_path: Path,
) -> None:
    environment = {"QUORUMLOG_OUTPUT": "json"}
    folder = f"data.dir={tmp_path / 'data'}"
    result = CliRunner().invoke(app, ["storage", "format", "--set", folder], env=environment)
    assert json.loads(result.stdout)["node_id"] == 1
    result = CliRunner().invoke(app, ["server", "--config", "/no/such/file"], env=environment)
    assert "/no/such/file" in json.loads(result.stderr)["message"]


# --- completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("quorumlog ben", ["bench"]),
        ("quorumlog topics de", ["describe", "delete", "delete-records"]),
        ("quorumlog topics create t --part", ["--partitions"]),
        ("quorumlog produce t --compression z", ["zstd"]),
        ("quorumlog produce t --compression=z", ["--compression=zstd"]),
        ("quorumlog produce t --compression-", ["--compression-level"]),
        ("quorumlog produce t --key-field ", []),
        ("quorumlog nonsense x", []),
        ("quorumlog completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_the_end_of_a_line_is_completed(line: str, expected: list[str]) -> None:
    assert [value for value, _ in candidates(get_command(app), line)] == expected


def test_names_of_topics_are_completed_at_topic_arguments(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeed("topics", "create", "completed", address=address)
    monkeypatch.setenv("QUORUMLOG_BOOTSTRAP", address)
    for line, expected in (
        ("quorumlog consume comp", ["completed"]),
        ("quorumlog consume completed comp", ["completed"]),
        ("quorumlog topics describe completed comp", []),
    ):
        assert [value for value, _ in candidates(get_command(app), line)] == expected


def test_topics_are_those_of_the_context_in_the_line(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeed("topics", "create", "in-context", address=address)
    for name in ("QUORUMLOG_CONFIG", "QUORUMLOG_CONTEXT"):
        monkeypatch.setenv(name, "")
    file = tmp_path / "config.toml"
    file.write_text(f'[context.here]\nbootstrap = "{address}"\n')
    line = f"quorumlog --config {file} --context here consume in-c"
    assert [value for value, _ in candidates(get_command(app), line)] == ["in-context"]


# --- Ctrl-C --------------------------------------------------------------------------------------


class InterruptAtLine:
    """Raises KeyboardInterrupt once, before a line of code on a record's way through `produce`."""

    WAY = ("_send", "sending", "sent", "settle_done", "settle_all", "_settle")

    def __init__(self, lines: int) -> None:
        self._lines_left = lines
        self.has_come = False

    def __enter__(self) -> "InterruptAtLine":
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, value: Any) -> Any:
        code = frame.f_code
        return (
            self._line if "cli/produce/" in code.co_filename and code.co_name in self.WAY else None
        )

    def _line(self, frame: FrameType, event: str, value: Any) -> Any:
        if event == "line" and not self.has_come:
            self._lines_left -= 1
            if self._lines_left < 0:
                self.has_come = True
                raise KeyboardInterrupt
        return self._line


@pytest.mark.slow
def test_report_after_ctrl_c_covers_all_stored_records(
    address: str, topic: str, tmp_path: Path
) -> None:
    """For an interrupt at any line: at least the reported records are stored, at most those plus
    the unknown."""
    (tmp_path / "two.txt").write_text("1\n2\n")
    come = 0
    with quorumlog.connect(address) as log:
        log.admin.create_topic(topic)
        before = 0
        while True:
            report = Report(verbose=False, as_json=True)
            with log.producer(linger_ms=0) as producer, InterruptAtLine(come) as ctrl_c:
                Sending(
                    producer=producer,
                    report=report,
                    topic=topic,
                    partitions=1,
                    partition=None,
                    on_error=OnError.STOP,
                    keeps_partition=True,
                ).run(
                    [str(tmp_path / "two.txt")],
                    InputFormat(format=Format.LINES),
                    show_progress=False,
                )
            end = log.list_offsets(topic, at="latest")[0]
            assert report.records <= end - before <= report.records + report.unknown, come
            before = end
            if not ctrl_c.has_come:
                break
            come += 1
    assert come > 20, "many lines were met"
    assert (report.records, report.unknown) == (2, 0)
