"""`quorumlog check`: proves a data directory, or one log's folder, and mends it when asked to."""

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import CorruptionError, InvalidRequest, QuorumlogError
from .failures import EXIT_ERROR
from .options import Output, OutputOption
from .output import count_text, print_json, print_table, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..metadata import MetadataImage
    from ..runtime.files import RealFiles
    from ..storage.inspect.directory_check import Known
    from ..storage.inspect.findings import CheckReport, Finding
    from ..storage.inspect.repair import RepairReport

METADATA_FOLDER = "__cluster_metadata-0"

EXAMPLES = """\b
Examples:
  quorumlog check quorumlog-data
  quorumlog check quorumlog-data/flights-0 -o json
  quorumlog check quorumlog-data --repair

\b
Exit codes: 0 no problem (there may be notes), 1 problems, or DIR cannot be checked or repaired,
2 a wrong command line.
"""


def check(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A data directory, or the folder of one log.")
    ],
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend what is safe to mend; no node may have it open.")
    ] = False,
    cut_damage: Annotated[
        str | None,
        typer.Option(
            "--cut-damage",
            metavar="FOLDER",
            help="With --repair: cut damaged logs before their first bad batch; what is cut is "
            "copied to FOLDER first.",
        ),
    ] = None,
    compacted: Annotated[
        list[str] | None,
        typer.Option(
            "--compacted",
            metavar="TOPIC",
            help="A topic whose offsets may have gaps, where neither the metadata log nor the "
            "cleaner's checkpoint says so; may be repeated.",
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Prove a data directory: every batch, every record, and every file beside them.

    Nothing is changed without --repair. A directory that a node has open may be checked too; what
    is written meanwhile may show up as torn. What each finding means, and what to do about it, is
    in docs/checking.md.
    """
    from ..runtime.files import RealFiles

    if cut_damage is not None and not repair:
        raise typer.BadParameter("--cut-damage goes with --repair: without it nothing is changed")
    if cut_damage is not None and lies_in(cut_damage, directory):
        raise InvalidRequest(f"{cut_damage} lies in {directory}: copies must be kept outside of it")
    files = RealFiles()
    path = os.path.normpath(directory)
    known = what_is_known(files, path, frozenset(compacted or ()))
    try:
        found = None if repair else _check(files, path, known)
        mended = _repair(files, path, known, cut_damage) if repair else None
    except OSError as error:
        raise InvalidRequest(f"{error.filename or path} cannot be read: {error.strerror}") from None
    report = found or mended
    assert report is not None, "one of both was done"
    if output is Output.JSON:
        print_json(report.as_dict())
    elif found is not None:
        print_report(found)
    elif mended is not None:
        print_repair(mended)
    if not report.is_ok:
        raise typer.Exit(EXIT_ERROR)


def _check(files: "RealFiles", path: str, known: "Known") -> "CheckReport":
    from ..raftlog.inspection import check as check_files

    with progress_of(path) as progress:
        return check_files(files, path, known=known, progress=progress)


def _repair(
    files: "RealFiles",
    path: str,
    known: "Known",
    cut_damage: str | None,
) -> "RepairReport":
    from ..storage.inspect.repair import repair as repair_files

    cut_to = None if cut_damage is None else os.path.normpath(cut_damage)
    try:
        with progress_of(path) as progress:
            return repair_files(files, path, known=known, cut_to=cut_to, progress=progress)
    except KeyboardInterrupt:
        typer.echo(
            "interrupted; the next start, or another --repair, ends what was begun", err=True
        )
        raise


def lies_in(path: str, folder: str) -> bool:
    """Whether a path is a folder or in it, wherever links and dots lead."""
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return real == top or real.startswith(top.rstrip("/") + "/")


@contextmanager
def progress_of(path: str) -> "Iterator[Callable[[int], None]]":
    """Show on stderr how many bytes were read, where somebody looks."""
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
        console.show_cursor(True)  # also where Ctrl-C came while it was just hidden


# --- what the metadata log knows -----------------------------------------------------------------


def what_is_known(files: "RealFiles", path: str, compacted: frozenset[str]) -> "Known":
    """Return which topics there are, by the metadata log beside the logs, as far as it reads."""
    from google.protobuf.message import DecodeError

    from ..storage.inspect.directory_check import Known, KnownTopic

    for top in (path, path.rpartition("/")[0] or "."):
        folder = f"{top}/{METADATA_FOLDER}"
        if not files.exists(folder):
            continue
        try:
            image, is_whole = _image(files, folder)
        except (QuorumlogError, OSError, DecodeError):
            break  # the check of that log tells what is wrong with it
        topics = {
            topic.name: KnownTopic(
                topic_id=topic.id,
                is_compacted="compact" in topic.configs.get("cleanup.policy", ""),
            )
            for topic in image.sorted_topics()
        }
        if not is_whole:  # who knows what came and went behind it
            gappy = {name for name, topic in topics.items() if topic.is_compacted}
            return Known(compacted=compacted | gappy)
        directories = {broker.id: broker.directory_id for broker in image.sorted_brokers()}
        return Known(topics=topics, directories=directories, compacted=compacted)
    return Known(compacted=compacted)


def _image(files: "RealFiles", folder: str) -> "tuple[MetadataImage, bool]":
    """Return what a metadata log says, and whether all of it could be read: its end may be torn.
    Raises CorruptionError, also where neither the log nor a snapshot reaches back to offset 0."""
    from ..metadata import EMPTY_IMAGE, replay
    from ..metadata.snapshots import image_of
    from ..proto import metadata_records_pb2 as pb
    from ..raftlog.formats.snapshot_file import checkpoint_name
    from ..raftlog.inspection import newest_snapshot, read_snapshot
    from ..records.codec import decode_parts
    from ..storage.inspect.scan import Bad, scan

    image, start = EMPTY_IMAGE, 0
    snapshot = newest_snapshot(files, folder)
    if snapshot is not None and snapshot.end_offset > 0:
        values = read_snapshot(files, f"{folder}/{checkpoint_name(snapshot)}", snapshot)
        if values is None:
            raise CorruptionError("another server wrote the snapshot", path=folder)
        start = snapshot.end_offset
        image = image_of(values, end_offset=start, epoch=0)
    names = [name for name in files.names(folder) if name.endswith(".log")]
    if names and int(names[0].partition(".")[0]) > start:
        raise CorruptionError("the metadata log has lost its beginning", path=folder)
    for name in names:
        file = files.open_readonly(f"{folder}/{name}")
        try:
            for piece in scan(file, 0, file.size(), next_offset=0, with_records=False):
                if isinstance(piece, Bad):
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


# --- for people ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """A group of findings of one kind."""

    kind: str
    findings: "list[Finding]"


def print_report(report: "CheckReport") -> None:
    """Print a check: a line a log, the findings by kind, and what to do about each kind."""
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
    columns = ("log", "is", "segments", "batches", "records", "size", "start", "end")
    print_table(columns, rows, empty="There is no log.")
    groups: dict[str, Told] = {}
    for finding in report.all_findings():
        groups.setdefault(finding.kind, Told(finding.kind, [])).findings.append(finding)
    for group in sorted(groups.values(), key=lambda told: told.findings[0].severity != "problem"):
        _print_group(group)
    typer.echo("")
    typer.echo(_verdict(report))


def _print_group(group: Told) -> None:
    first = group.findings[0]
    typer.echo("")
    typer.echo(f"{first.severity}: {group.kind}")
    for finding in group.findings[:20]:
        where = finding.file
        if finding.position is not None:
            where += f" at byte {finding.position}"
        if finding.offset is not None:
            where += f", offset {finding.offset}"
        typer.echo(f"    {where}: {finding.what}")
    if len(group.findings) > 20:
        typer.echo(f"    and {len(group.findings) - 20} more: --output json lists them")
    typer.echo(f"    {first.remedy}")


def _verdict(report: "CheckReport") -> str:
    every = [report.findings, *(log.findings for log in report.logs)]
    problems = sum(found.problem_count for found in every)
    notes = sum(found.note_count for found in every)
    state = {
        True: "The last stop was clean.",
        False: "The last stop was not clean, or a node is running: the next start recovers.",
        None: "",
    }[report.is_clean]
    verdict = "ok" if report.is_ok else count_text(problems, "problem")
    return f"{report.path}: {verdict}, {count_text(notes, 'note')}. {state}".rstrip()


def print_repair(report: "RepairReport") -> None:
    """Print what a repair did, and what is left."""
    for done in report.done:
        typer.echo(f"done: {done}")
    if report.failed is not None:
        step, error = report.failed
        typer.echo(f"FAILED: {step}: {error}")
    for step in report.not_begun:
        typer.echo(f"not begun: {step}")
    for refused in report.refused:
        typer.echo(f"let be: {refused}")
    if not (report.done or report.failed or report.refused):
        typer.echo("There was nothing to repair.")
    typer.echo("")
    if report.after is not None:
        print_report(report.after)
    else:
        typer.echo("What was done stays; repair again once the cause is gone.")
