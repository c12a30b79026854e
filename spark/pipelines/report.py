"""Progress and final report of a pipeline, and their display by the command line.

On a terminal the progress is one line that is redrawn; otherwise it is one line of text every few
seconds, or with JSON output one object.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

import typer

from quorumlog.visible_text import visible, visible_json

LINE_INTERVAL_S: Final = 5.0
"""Interval of the progress lines where there is no terminal."""


class ReportFormat(StrEnum):
    """The output formats of a command."""

    HUMAN = "human"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProgress:
    """The progress of a running pipeline."""

    records: int  # so far, in this run
    total: int | None = None  # records of the run as far as they are known; None: unknown
    step: str = ""  # "batch 12"


OnProgress: TypeAlias = Callable[[PipelineProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """The result of a pipeline's run."""

    pipeline: str  # the command's name
    records: int
    seconds: float  # of the work, without the start of Spark
    where: str  # of the data: a path, or a topic and its brokers
    details: Mapping[str, str | int | float] = field(default_factory=dict)
    is_interrupted: bool = False  # Ctrl-C ended it; the next run continues
    problems: tuple[str, ...] = ()  # one sentence each; a run with problems fails

    @property
    def records_per_second(self) -> float:
        """The average rate of the work."""
        return self.records / max(self.seconds, 1e-9)


def as_json(report: PipelineReport) -> dict[str, Any]:
    """Return the JSON object of a report."""
    return {
        "event": "report",
        "pipeline": report.pipeline,
        "records": report.records,
        "seconds": round(report.seconds, 3),
        "records_per_second": round(report.records_per_second, 1),
        "where": report.where,
        "details": dict(report.details),
        "interrupted": report.is_interrupted,
        "problems": list(report.problems),
    }


def as_lines(report: PipelineReport) -> list[str]:
    """Return the final screen of a report."""
    rows = {
        "records": f"{report.records:,}",
        "time": f"{report.seconds:.1f} s, {report.records_per_second:,.0f} records/s",
        **{name: _value_text(value) for name, value in report.details.items()},
        "data": report.where,
    }
    width = max(map(len, rows))
    outcome = "complete"
    if report.is_interrupted:
        outcome = "interrupted; run the same command again to continue"
    if report.problems:
        outcome = "failed"
    lines = [f"{report.pipeline}: {outcome}"]
    lines += [f"  {name:<{width}}  {text}" for name, text in rows.items()]
    lines += [f"  problem: {text}" for text in report.problems]
    return lines


def print_report(report: PipelineReport, output: ReportFormat) -> None:
    """Print the final screen, or its JSON object."""
    if output is ReportFormat.JSON:
        typer.echo(visible_json(json.dumps(as_json(report), ensure_ascii=False)))
    else:
        typer.echo("\n".join(map(visible, as_lines(report))))


@contextmanager
def show_progress(title: str, output: ReportFormat) -> Iterator[OnProgress]:
    """Yield the function that displays the progress of a pipeline on stdout."""
    started = time.monotonic()
    if output is ReportFormat.JSON or not sys.stdout.isatty():
        yield _LinePrinter(title, output, started)
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(highlight=False).status(f"{title}: starting Spark") as status:
        yield lambda progress: status.update(escape(visible(_line(title, progress, started))))


class _LinePrinter:
    """Prints progress as lines, at most one per interval."""

    def __init__(self, title: str, output: ReportFormat, started: float) -> None:
        self._title = title
        self._output = output
        self._started = started
        self._next = started
        self._last: PipelineProgress | None = None

    def __call__(self, progress: PipelineProgress) -> None:
        now = time.monotonic()
        if progress == self._last or now < self._next:
            return
        self._last, self._next = progress, now + LINE_INTERVAL_S
        if self._output is ReportFormat.JSON:
            row = json.dumps({"event": "progress", **asdict(progress)}, ensure_ascii=False)
            text = visible_json(row)
        else:
            text = visible(_line(self._title, progress, self._started))
        typer.echo(text)


def _line(title: str, progress: PipelineProgress, started: float) -> str:
    """Return progress as text; `started` is on time.monotonic()."""
    done = f"{progress.records:,}"
    if progress.total is not None:
        done += f" of {progress.total:,}"
    step = f", {progress.step}" if progress.step else ""
    return f"{title}: {done} records{step}, {time.monotonic() - started:.0f} s"


def _value_text(value: str | float) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
