"""`quorumlog check`: verify a data directory or one log's folder, and repair it with --repair."""

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import CorruptionError, InvalidRequest, QuorumlogError
from .failures import EXIT_ERROR
from .options import Output, OutputOption
from .output import count_text, echo, print_json, print_table, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..metadata import MetadataImage
    from ..runtime.files import RealFiles
    from ..storage.inspect.directory_check import KnownMetadata
    from ..storage.inspect.findings import CheckFinding, CheckReport
    from ..storage.inspect.repair import RepairReport

METADATA_FOLDER = "__cluster_metadata-0"

EXAMPLES = """\b
Examples:
  quorumlog check quorumlog-data
  quorumlog check quorumlog-data/flights-0 -o json
  quorumlog check quorumlog-data --repair

\b
Exit codes: 0 no problems (notes are possible), 1 problems, or DIR cannot be checked or repaired,
2 invalid arguments.
"""


def check(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A data directory, or the folder of one log")
    ],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Repair what is safe to repair; requires that no node has DIR open"
        ),
    ] = False,
    cut_damage: Annotated[
        str | None,
        typer.Option(
            "--cut-damage",
            metavar="FOLDER",
            help="With --repair, truncate damaged logs before their first invalid batch, after "
            "copying the removed bytes to FOLDER",
        ),
    ] = None,
    compacted: Annotated[
        list[str] | None,
        typer.Option(
            "--compacted",
            metavar="TOPIC",
            help="Accept offset gaps in this topic even if neither the metadata log nor the "
            "cleaner's checkpoint says that it is compacted; repeatable",
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Verify every batch, every record and every auxiliary file of a data directory.

    Without --repair nothing changes. A directory that a node has open can be checked; batches that
    are written during the check can be reported as truncated. docs/checking.md explains each
    finding and its remedy.
    """
    from ..runtime.files import RealFiles

    if cut_damage is not None and not repair:
        raise typer.BadParameter("--cut-damage requires --repair")
    if cut_damage is not None and is_inside(cut_damage, directory):
        raise InvalidRequest(f"{cut_damage} is inside {directory}; give a folder outside of it")
    files = RealFiles()
    path = os.path.normpath(directory)
    known = known_topics(files, path, frozenset(compacted or ()))
    try:
        checked = None if repair else _check(files, path, known)
        repaired = _repair(files, path, known, cut_damage) if repair else None
    except OSError as error:
        raise InvalidRequest(f"{error.filename or path} cannot be read: {error.strerror}") from None
    report = checked or repaired
    assert report is not None, "neither checked nor repaired"
    if output is Output.JSON:
        print_json(report.as_dict())
    elif checked is not None:
        print_report(checked)
    elif repaired is not None:
        print_repair(repaired)
    if not report.is_ok:
        raise typer.Exit(EXIT_ERROR)


def _check(files: "RealFiles", path: str, known: "KnownMetadata") -> "CheckReport":
    from ..raftlog.inspection import check as check_files

    with progress_of(path) as progress:
        return check_files(files, path, known=known, progress=progress)


def _repair(
    files: "RealFiles",
    path: str,
    known: "KnownMetadata",
    cut_damage: str | None,
) -> "RepairReport":
    from ..storage.inspect.repair import repair as repair_files

    cut_to = None if cut_damage is None else os.path.normpath(cut_damage)
    try:
        with progress_of(path) as progress:
            return repair_files(files, path, known=known, cut_to=cut_to, progress=progress)
    except KeyboardInterrupt:
        echo("interrupted; the next node start or --repair completes the repair", err=True)
        raise


def is_inside(path: str, folder: str) -> bool:
    """Return True if a path is the folder or inside it, after resolving links."""
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return real == top or real.startswith(top.rstrip("/") + "/")


@contextmanager
def progress_of(path: str) -> "Iterator[Callable[[int], None]]":
    """Show the number of bytes read on stderr, if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), DownloadColumn())
    console = Console(stderr=True)
    try:
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
            task = progress.add_task(os.path.basename(path), total=None)
            yield lambda size: progress.advance(task, size)
    finally:
        console.show_cursor(True)  # Ctrl-C may have come right after it was hidden


# --- topics of the metadata log ------------------------------------------------------------------


def known_topics(files: "RealFiles", path: str, compacted: frozenset[str]) -> "KnownMetadata":
    """Return the topics of the data directory's metadata log, as far as it is readable."""
    from google.protobuf.message import DecodeError

    from ..storage.inspect.directory_check import KnownMetadata, KnownTopic

    for top in (path, path.rpartition("/")[0] or "."):
        folder = f"{top}/{METADATA_FOLDER}"
        if not files.exists(folder):
            continue
        try:
            image, is_whole = _image(files, folder)
        except (QuorumlogError, OSError, DecodeError):
            break  # the check of that log reports the damage
        topics = {
            topic.name: KnownTopic(
                topic_id=topic.id,
                is_compacted="compact" in topic.configs.get("cleanup.policy", ""),
            )
            for topic in image.sorted_topics()
        }
        if not is_whole:  # records after the damage may have created or deleted topics
            gappy = {name for name, topic in topics.items() if topic.is_compacted}
            return KnownMetadata(compacted=compacted | gappy)
        directories = {broker.id: broker.directory_id for broker in image.sorted_brokers()}
        return KnownMetadata(topics=topics, directories=directories, compacted=compacted)
    return KnownMetadata(compacted=compacted)


def _image(files: "RealFiles", folder: str) -> "tuple[MetadataImage, bool]":
    """Return the image of a metadata log, and True if all of it is readable: its end may be
    truncated. Raise CorruptionError for damage, and if records at the start are missing."""
    from ..metadata import EMPTY_IMAGE, replay
    from ..metadata.snapshots import image_of
    from ..proto import metadata_records_pb2 as pb
    from ..raftlog.inspection import newest_snapshot, read_snapshot
    from ..raftlog.snapshot_format import checkpoint_name
    from ..records.codec import decode_parts
    from ..storage.inspect.scan import InvalidRange, scan

    image, start = EMPTY_IMAGE, 0
    snapshot = newest_snapshot(files, folder)
    if snapshot is not None and snapshot.end_offset > 0:
        values = read_snapshot(files, f"{folder}/{checkpoint_name(snapshot)}", snapshot)
        if values is None:
            raise CorruptionError("the snapshot was not written by quorumlog", path=folder)
        start = snapshot.end_offset
        image = image_of(values, end_offset=start, epoch=0)
    names = [name for name in files.names(folder) if name.endswith(".log")]
    if names and int(names[0].partition(".")[0]) > start:
        raise CorruptionError(
            f"the metadata log starts at {int(names[0].partition('.')[0])}; records from {start}"
            " are missing",
            path=folder,
        )
    for name in names:
        file = files.open_readonly(f"{folder}/{name}")
        try:
            for piece in scan(file, 0, file.size(), next_offset=0, with_records=False):
                if isinstance(piece, InvalidRange):
                    return image, False
                if piece.header.base_offset < start or piece.header.is_control:
                    continue
                batch = piece.content[piece.at : piece.at + piece.header.size]
                for records in decode_parts(batch):
                    for record in records:
                        change = pb.MetadataRecord.FromString(record.value or b"")
                        image = replay(image, change, offset=record.offset, epoch=0)
        finally:
            file.close()
    return image, True


# --- text output ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """The findings of one kind."""

    kind: str
    findings: "list[CheckFinding]"


def print_report(report: "CheckReport") -> None:
    """Print the result of a check: one line per log, the findings by kind, and their remedies."""
    rows = [
        (
            log.name,
            "ok" if log.is_ok else "PROBLEMS",
            log.segments,
            log.batches,
            log.records,
            size_text(log.bytes),
            log.log_start_offset,
            log.log_end_offset,
        )
        for log in report.logs
    ]
    columns = ("log", "state", "segments", "batches", "records", "size", "start", "end")
    print_table(columns, rows, empty="No logs.")
    groups: dict[str, FindingGroup] = {}
    for finding in report.all_findings():
        groups.setdefault(finding.kind, FindingGroup(finding.kind, [])).findings.append(finding)
    for group in sorted(groups.values(), key=lambda each: each.findings[0].severity != "problem"):
        _print_group(group)
    echo("")
    echo(_verdict(report))


def _print_group(group: FindingGroup) -> None:
    first = group.findings[0]
    echo("")
    echo(f"{first.severity}: {group.kind}")
    for finding in group.findings[:20]:
        where = finding.file
        if finding.position is not None:
            where += f" at byte {finding.position}"
        if finding.offset is not None:
            where += f", offset {finding.offset}"
        echo(f"    {where}: {finding.what}")
    if len(group.findings) > 20:
        echo(f"    and {len(group.findings) - 20} more; --output json lists all")
    echo(f"    {first.remedy}")


def _verdict(report: "CheckReport") -> str:
    every = [report.findings, *(log.findings for log in report.logs)]
    problems = sum(found.problem_count for found in every)
    notes = sum(found.note_count for found in every)
    state = {
        True: "The last stop was clean.",
        False: "The last stop was not clean, or a node is running; the next start recovers.",
        None: "",
    }[report.is_clean]
    verdict = "ok" if report.is_ok else count_text(problems, "problem")
    return f"{report.path}: {verdict}, {count_text(notes, 'note')}. {state}".rstrip()


def print_repair(report: "RepairReport") -> None:
    """Print the completed, failed and refused steps of a repair."""
    for done in report.done:
        echo(f"done: {done}")
    if report.failed is not None:
        step, error = report.failed
        echo(f"FAILED: {step}: {error}")
    for step in report.not_begun:
        echo(f"not started: {step}")
    for refused in report.refused:
        echo(f"refused: {refused}")
    if not (report.done or report.failed or report.refused):
        echo("Nothing to repair.")
    echo("")
    if report.after is not None:
        print_report(report.after)
    else:
        echo("Completed steps remain; fix the cause, then run --repair again.")
