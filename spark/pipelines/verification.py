"""The findings of `verify`, and their display. Pure, except for `print_verification`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from quorumlog.ids import TopicPartition
from quorumlog.spark.pipelines.record_digest import Digest
from quorumlog.spark.pipelines.report import ReportFormat
from quorumlog.spark.plan import Range
from quorumlog.visible_text import visible, visible_json


class Comparison(StrEnum):
    """The equality of two topics that `verify` checks, from the strictest on."""

    ORDERED = "ordered"  # each partition has the same records in the same order
    UNORDERED = "unordered"  # each partition has the same records
    TOPIC = "topic"  # the topics have the same records, in any partitions
    LATEST = "latest"  # each partition has the same last record of each key, tombstones apart


class Gaps(StrEnum):
    """The cause of offsets without a record."""

    NONE = "none"
    COMPACTION = "compaction"  # the topic is compacted
    TRANSACTIONS = "transactions"  # markers, and records of aborted transactions
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFindings:
    """The findings in one partition, and in its counterpart."""

    range: Range
    digest: Digest | None  # None: no record
    gaps: Gaps
    explained: int = 0  # offsets of markers and of records of aborted transactions
    other: Digest | None = None  # of the partition compared with

    @property
    def records(self) -> int:
        """Number of records."""
        return self.digest.records if self.digest else 0

    @property
    def missing(self) -> int:
        """Number of offsets of the range without a record."""
        return self.range.size - self.records

    @property
    def largest_gap(self) -> tuple[int, int]:
        """The largest number of consecutive offsets without a record, and its first offset."""
        start, end = self.range.start, self.range.end
        if self.digest is None:
            return end - start, start
        edges = [(self.digest.first - start, start)]
        edges += [(self.digest.gap, self.digest.gap_start)]
        edges += [(end - self.digest.last - 1, self.digest.last + 1)]
        return max(edges, key=lambda each: each[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDifference:
    """A difference between two topics or partitions."""

    topic: str
    partition: int | None  # None: of whole topics
    text: str  # a sentence
    records: tuple[int, int]  # here and there
    offsets: tuple[int | None, int | None] = (None, None)
    """The offset of the first differing record here and there."""

    def __str__(self) -> str:
        place = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"{place}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """The records of a topic with equal values of expressions."""

    topic: str
    by: str  # the expressions
    values: int  # values that more than one record has
    surplus: int  # records beyond the first of each value
    most: int = 0  # records of the most frequent value
    first: tuple[TopicPartition, int] | None = None  # place of that value's first record
    last: tuple[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result of `verify`."""

    bootstrap: str
    against: str | None  # "bootstrap/topic" or "bootstrap"
    comparison: Comparison | None
    columns: tuple[str, ...]  # that the checksums cover
    partitions: tuple[PartitionFindings, ...]
    differences: tuple[TopicDifference, ...]
    duplicates: tuple[Duplicates, ...]
    seconds: float

    @property
    def records(self) -> int:
        """Number of records that were scanned, without those compared with."""
        return sum(each.records for each in self.partitions)

    @property
    def disordered(self) -> tuple[PartitionFindings, ...]:
        """Partitions with records out of offset order."""
        return tuple(each for each in self.partitions if each.digest and each.digest.disordered)

    @property
    def is_sound(self) -> bool:
        """True if nothing differs and no offset is out of order."""
        return not self.differences and not self.disordered


def checksum(digest: Digest | None, comparison: Comparison | None) -> int:
    """Return the checksum that a comparison uses; 0 without a record."""
    if digest is None:
        return 0
    return digest.ordered if comparison in (None, Comparison.ORDERED) else digest.unordered


# --- display -------------------------------------------------------------------------------------

ROWS_MAX: Final = 40
"""The greatest number of partitions on the screen; JSON has all."""


def as_json(report: VerifyReport) -> dict[str, Any]:
    """Return the JSON object of a report."""
    return {
        "event": "report",
        "pipeline": "verify",
        "where": report.bootstrap,
        "against": report.against,
        "comparison": report.comparison,
        "columns": list(report.columns),
        "records": report.records,
        "seconds": round(report.seconds, 3),
        "partitions": [_partition_json(each, report) for each in report.partitions],
        "duplicates": [_duplicates_json(each) for each in report.duplicates],
        "differences": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "records": list(each.records),
                "offsets": list(each.offsets),
                "text": str(each),
            }
            for each in report.differences
        ],
        "sound": report.is_sound,
    }


def _partition_json(found: PartitionFindings, report: VerifyReport) -> dict[str, Any]:
    gap, gap_start = found.largest_gap
    compared: Mapping[str, Any] = {}
    if report.against is not None:
        compared = {"against": _digest_json(found.other)}
    return {
        "topic": found.range.place.topic,
        "partition": found.range.place.partition,
        "start": found.range.start,
        "end": found.range.end,
        **_digest_json(found.digest),
        "offsets_without_record": found.missing,
        "largest_gap": gap,
        "largest_gap_start": gap_start if gap else None,
        "gaps": found.gaps,
        "explained": found.explained,
        "disordered": found.digest.disordered if found.digest else 0,
        **compared,
    }


def _digest_json(digest: Digest | None) -> dict[str, Any]:
    return {
        "records": digest.records if digest else 0,
        "first": digest.first if digest else None,
        "last": digest.last if digest else None,
        "ordered": f"{digest.ordered if digest else 0:016x}",
        "unordered": f"{digest.unordered if digest else 0:016x}",
    }


def _duplicates_json(found: Duplicates) -> dict[str, Any]:
    def location(at: tuple[TopicPartition, int] | None) -> dict[str, int] | None:
        return None if at is None else {"partition": at[0].partition, "offset": at[1]}

    return {
        "topic": found.topic,
        "by": found.by,
        "values": found.values,
        "surplus": found.surplus,
        "most": found.most,
        "first": location(found.first),
        "last": location(found.last),
    }


def print_verification(report: VerifyReport, output: ReportFormat) -> None:
    """Print one screen, or a JSON object."""
    import typer

    if output is ReportFormat.JSON:
        typer.echo(visible_json(json.dumps(as_json(report), ensure_ascii=False)))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    headings, rows = table_rows(report)
    for heading in headings:
        is_text = heading in ("partition", "largest gap", "gaps", "checksum", "same")
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(visible, row))
    console = Console(highlight=False, markup=False)
    console = console if console.is_terminal else Console(width=500, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    typer.echo("\n".join([*lines, "", *map(visible, summary_lines(report))]))


def table_rows(report: VerifyReport) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the rows of the screen; the differing partitions first if there are
    more than ROWS_MAX."""
    has_gaps = any(each.missing for each in report.partitions)
    headings = ["partition", "records", "first", "last"]
    headings += ["no record", "largest gap", "gaps"] * has_gaps
    headings += ["checksum"]
    headings += ["records there", "same"] * (report.against is not None)
    differing = {(each.topic, each.partition) for each in report.differences}

    def is_same(place: TopicPartition) -> bool:
        return not differing & {place, (place.topic, None)}

    shown = list(report.partitions)
    if len(shown) > ROWS_MAX:
        shown.sort(key=lambda each: is_same(each.range.place))
    rows = []
    for each in shown[:ROWS_MAX]:
        place = each.range.place
        digest = each.digest
        gap, gap_start = each.largest_gap
        row = [str(place), f"{each.records:,}"]
        row += [f"{digest.first:,}", f"{digest.last:,}"] if digest else ["-", "-"]
        if has_gaps:
            where = f"{gap:,} at {gap_start:,}" if gap else "-"
            row += [f"{each.missing:,}", where, "-" if each.gaps is Gaps.NONE else each.gaps]
        row += [f"{checksum(digest, report.comparison):016x}"]
        if report.against is not None:
            there = f"{each.other.records if each.other else 0:,}"
            row += [there, "yes" if is_same(place) else "NO"]
        rows.append(row)
    return headings, rows


def summary_lines(report: VerifyReport) -> list[str]:
    """Return the lines below the table; the last one is the verdict."""
    lines = []
    hidden = len(report.partitions) - ROWS_MAX
    if hidden > 0:
        lines.append(f"{hidden:,} more partitions; --output json has all")
    lines += [_duplicates_line(each) for each in report.duplicates]
    unexplained = [each for each in report.partitions if each.gaps is Gaps.UNEXPLAINED]
    if unexplained:
        places = _list([str(each.range.place) for each in unexplained])
        lines.append(
            f"unexplained gaps: {places}; no record, transaction or compaction has these offsets"
        )
    for each in report.disordered:
        assert each.digest is not None, "only records can be out of order"
        lines.append(
            f"{each.range.place}: {each.digest.disordered:,} records are out of offset order"
        )
    lines += [str(each) for each in report.differences[:10]]
    if len(report.differences) > 10:
        lines.append(f"{len(report.differences) - 10:,} more differences; --output json has all")
    rate = report.records / max(report.seconds, 1e-9)
    lines.append(
        f"{report.records:,} records in {len(report.partitions):,} partitions,"
        f" {report.seconds:.1f} s, {rate:,.0f} records/s; checksums of {', '.join(report.columns)}"
    )
    lines.append(_verdict(report))
    return lines


def _verdict(report: VerifyReport) -> str:
    if report.against is None:
        return "verify: complete" if report.is_sound else "verify: failed"
    if report.is_sound:
        return f"verify: equal to {report.against} ({report.comparison})"
    return f"verify: different from {report.against} ({report.comparison})"


def _duplicates_line(found: Duplicates) -> str:
    if not found.values:
        return f"{found.topic}: no duplicates by {found.by}"
    assert found.first is not None, "a duplicate has a place"
    assert found.last is not None, "a duplicate has a place"
    return (
        f"{found.topic}: {found.surplus:,} duplicates by {found.by}, of {found.values:,} values;"
        f" the most frequent has {found.most:,} records, from {found.first[0]} offset"
        f" {found.first[1]:,} to {found.last[0]} offset {found.last[1]:,}"
    )


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
