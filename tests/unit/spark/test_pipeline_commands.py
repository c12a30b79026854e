"""The pipelines' command line and reports, without Spark."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import typer
from tests.unit.spark.table_rows import append
from typer.testing import CliRunner

from quorumlog.errors import InvalidConfig
from quorumlog.spark import pipelines
from quorumlog.spark.__main__ import EXIT_INTERRUPTED, app, exit_on_errors, spark_error_text
from quorumlog.spark.pipelines import PipelineProgress, PipelineReport, from_files, query_run
from quorumlog.spark.pipelines.files import FilesPlan
from quorumlog.spark.pipelines.report import ReportFormat, as_json, as_lines, show_progress

run = CliRunner().invoke


def report(**more: object) -> PipelineReport:
    fields = {"pipeline": "to-lake", "records": 3_000, "seconds": 2.0, "where": "lake (parquet)"}
    return PipelineReport(**fields, **more)  # type: ignore[arg-type]


def test_final_screen_has_counts_rate_and_path() -> None:
    assert as_lines(report(details={"files": 1_200})) == [
        "to-lake: complete",
        "  records  3,000",
        "  time     2.0 s, 1,500 records/s",
        "  files    1,200",
        "  data     lake (parquet)",
    ]
    assert as_lines(report(is_interrupted=True))[0].endswith(
        "run the same command again to continue"
    )
    assert as_lines(report(problems=("a gap",)))[-1] == "  problem: a gap"


def test_a_report_has_a_json_object() -> None:
    assert as_json(report(details={"lag": 1})) == {
        "event": "report",
        "pipeline": "to-lake",
        "records": 3_000,
        "seconds": 2.0,
        "records_per_second": 1_500.0,
        "where": "lake (parquet)",
        "details": {"lag": 1},
        "interrupted": False,
        "problems": [],
    }


def test_compaction_by_command_prints_its_report(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path / "table", number, range(number * 10, number * 10 + 10))
    done = run(app, ["compact", "--path", str(tmp_path / "table"), "--output", "json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout.splitlines()[-1])
    assert printed["records"] == 30
    assert (printed["details"]["files before"], printed["details"]["files after"]) == (12, 2)


def test_errors_of_the_system_and_of_packages_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "table"
    append(path, 0, range(10))
    append(path, 1, range(10, 20))
    next(path.rglob("*.parquet")).write_bytes(b"PAR1 is not Parquet")
    file = tmp_path / "file"
    file.touch()
    delta = tmp_path / "delta"
    append(delta, 0, range(10), format="delta")
    next((delta / "_delta_log").glob("*.json")).write_text("no action")
    for arguments, text in (
        (["--path", str(path)], f"{path}: the table cannot be read or written (Parquet"),
        (["--path", str(file / "x")], "no table of a pipeline is there"),
        (["--path", str(delta), "--format", "delta"], f"{delta}: "),
    ):
        done = run(app, ["compact", *arguments])
        assert done.exit_code == 1, done.output
        assert isinstance(done.exception, SystemExit)
        assert done.stderr.startswith(f"quorumlog: {text}" if text[0] == "/" else "quorumlog: ")
        assert text in done.stderr
        assert done.stderr.count("\n") == 1


def test_sigterm_has_the_exit_code_of_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(typer.Exit) as done, exit_on_errors():
        os.kill(os.getpid(), signal.SIGTERM)
    assert done.value.exit_code == EXIT_INTERRUPTED
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["compact", "--path", "/nowhere"], 1, "no table of a pipeline is there"),
        (["compact", "--path", "/nowhere", "--format", "x"], 1, "parquet, delta"),
        (["compact", "--path", "s3://a/b"], 1, "of a file system of this machine"),
        (["compact"], 2, "Missing option '--path'"),
        (["to-lake", "--subscribe", "t", "--path", "p", "--conf", "x"], 2, "is not NAME=VALUE"),
        (["mirrors"], 2, "No such command"),
    ],
)
def test_wrong_arguments_have_an_exit_code(arguments: list[str], code: int, text: str) -> None:
    done = run(app, arguments)
    assert done.exit_code == code
    assert text in done.output


def test_every_pipeline_is_a_function_of_the_package() -> None:
    for name in ("compact", "from_files", "mirror", "to_lake", "verify"):
        assert isinstance(getattr(pipelines, name), FunctionType)


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ["to-lake", "--pattern", "t", "--path", "p"],
        ["from-files", "--path", "p", "--topic", "t", "--checkpoint", "c"],
        ["verify", "--subscribe", "t"],
        ["mirror", "--subscribe", "t", "--to", "h:1", "--checkpoint", "c"],
    ],
)
def test_a_command_without_pyspark_names_the_extra(command: list[str]) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; sys.argv[0] = 'x'\n"
        "from quorumlog.spark.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("quorumlog: PySpark cannot be imported"), done.stderr
    assert "pip install 'quorumlog[spark]'" in done.stderr


def test_spark_s_text_is_reduced_to_the_error_of_this_package() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File x\n"
        "quorumlog.errors.cluster.InvalidConfig: option 'subscribe' names no topic\n\n\tat java"
    )
    assert spark_error_text(text) == "option 'subscribe' names no topic"
    nested = (
        "An error occurred while calling o517.save.\n"
        ": org.apache.spark.SparkException: [READ] File x\n\tat java\n"
        "Caused by: org.apache.spark.SparkException: [PARSE] Malformed\n\tat java"
    )
    assert spark_error_text(nested) == "[READ] File x; [PARSE] Malformed"
    assert spark_error_text("[A] something\n\tat java") == "[A] something"


def test_progress_without_a_terminal_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("to-lake", ReportFormat.HUMAN) as on_progress:
        on_progress(PipelineProgress(records=1_000, total=2_500, step="batch 1"))
        on_progress(PipelineProgress(records=2_000, total=2_500, step="batch 2"))
    assert capsys.readouterr().out == "to-lake: 1,000 of 2,500 records, batch 1, 0 s\n"


def test_lag_is_counted_from_spark_s_progress() -> None:
    end = {"#ids": {"t": "x"}, "t": {"0": 5}}
    latest = {"#ids": {"t": "x"}, "t": {"0": 8, "1": 2}}
    source = {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
    assert query_run._lag({"sources": [source]}) == 5
    assert query_run._lag({"sources": [source | {"latestOffset": None}]}) is None
    assert query_run._lag(None) is None


def test_a_start_is_added_unless_there_is_one() -> None:
    assert query_run.with_start({"a": "b"}) == {"a": "b", "startingOffsets": "earliest"}
    assert query_run.with_start({"STARTINGTIMESTAMP": "1"}) == {"STARTINGTIMESTAMP": "1"}


def test_a_micro_batch_has_a_limit_unless_one_is_given() -> None:
    assert query_run.with_limit({"a": "b"}) == {"a": "b", "maxBytesPerTrigger": str(4 << 30)}
    for name in ("MAXOFFSETSPERTRIGGER", "maxBytesPerTrigger"):
        assert query_run.with_limit({name: "1"}) == {name: "1"}


class SparkQuery:
    """A streaming query with one micro-batch, in place of Spark's."""

    id = "query-1"
    lastProgress = None
    recentProgress: list[Any] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.writeStream = self
        self.is_cancelled = threading.Event()

    def foreachBatch(self, write: Callable[[Any, int], None]) -> "SparkQuery":
        self._thread = threading.Thread(target=self._run, args=(write,))
        return self

    def _run(self, write: Callable[[Any, int], None]) -> None:
        write(None, 0)

    def option(self, name: str, value: str) -> "SparkQuery":
        return self

    def trigger(self, **trigger: Any) -> "SparkQuery":
        return self

    def start(self) -> "SparkQuery":
        self._thread.start()
        return self

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self.is_cancelled.set()

    def exception(self) -> None:
        return None


def interrupted_run(signals: int) -> query_run.QueryRun | None:
    """Run a query that gets signals while it writes. Return no outcome if they end the run.

    If the query is cancelled, the micro-batch ends a moment later.
    """
    query = SparkQuery()
    written = []

    def write(frame: Any, number: int, query_id: str) -> int:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)
        if signals > 1:
            assert query.is_cancelled.wait(60)
            time.sleep(0.2)
        written.append(number)
        return 5

    outcome = None
    with contextlib.suppress(KeyboardInterrupt):
        frame: Any = query
        outcome = query_run.run_batches(frame, write, checkpoint="x")
    assert written == [0]
    assert query.is_cancelled.is_set()
    return outcome


def test_an_interrupted_run_ends_after_its_micro_batch() -> None:
    outcome = interrupted_run(signals=1)
    assert outcome is not None
    assert (outcome.is_interrupted, outcome.records) == (True, 5)


def test_a_second_interrupt_cancels_the_micro_batch_and_waits_for_its_end() -> None:
    assert interrupted_run(signals=2) is None


def test_a_checkpoint_of_files_is_of_one_topic_and_schema(tmp_path: Path) -> None:
    def schema(kind: str) -> str:
        field = {"name": "a", "type": kind, "nullable": True, "metadata": {}}
        return json.dumps({"type": "struct", "fields": [field]})

    plan = FilesPlan(
        cluster="c", topic="t", topic_id="1", path="/in", format="json", schema=schema("long")
    )
    folder = tmp_path / "checkpoint"
    plan.store(folder)
    assert FilesPlan.load(folder) is None  # without a file: the path may have been wrong
    (folder / "sources/0").mkdir(parents=True)
    (folder / "sources/0/0").touch()
    assert FilesPlan.load(folder) == plan
    plan.check(folder, plan)
    plan.check(folder, replace(plan, schema=""))
    for name in ("cluster", "topic", "path", "format"):
        with pytest.raises(InvalidConfig, match=f"is of {name} .*, and this run has 'other'"):
            plan.check(folder, replace(plan, **{name: "other"}))
    with pytest.raises(InvalidConfig, match="deleted and created again"):
        plan.check(folder, replace(plan, topic_id="2"))
    with pytest.raises(InvalidConfig, match="struct<a:bigint>, and the schema is struct<a:string>"):
        plan.check(folder, replace(plan, schema=schema("string")))
    stored = folder / "quorumlog-files.json"
    stored.write_text(stored.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(InvalidConfig, match="version 2, this release reads 1"):
        FilesPlan.load(folder)


@pytest.mark.parametrize("name", ["commitName", "COMMITNUMBER", "topic", "bootstrap"])
def test_options_that_a_pipeline_sets_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"option '{name}' of the sink is fixed by from-files"):
        from_files(bootstrap="h:1", topic="t", path="p", checkpoint="c", options={name: "1"})


def test_interrupts_are_not_caught_outside_of_the_main_thread() -> None:
    seen: list[bool] = []

    def work() -> None:
        with query_run.catch_interrupts() as event:
            seen.append(event.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
