"""`quorumlog produce`: the lines, JSON objects, CSV rows or raw bytes of files or of stdin become
records."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidRequest, InvalidTimestamp, MessageTooLarge, QuorumlogError
from .failures import EXIT_ERROR, EXIT_INTERRUPTED
from .formats import Form, Format, read_entries
from .inputs import STDIN, Input, check_readable, inputs, progress_of
from .options import BootstrapOption, Output, OutputOption, TopicArgument
from .pieces import encode_escaped, unescape
from .record_json import Headers, NewRecord
from .report import Place, Report
from .topic_names import partitions_of

if TYPE_CHECKING:
    from ..clients.blocking_producer import Producer

EXAMPLES = """\b
Examples:
  echo hello | quorumlog produce greetings
  quorumlog produce flights --file flights.jsonl --key-field carrier
  quorumlog produce flights --format csv --file a.csv --file b.csv --key-field carrier
  quorumlog produce pairs --key-separator : --header source=shell
  find . -print0 | quorumlog produce paths --format raw --delimiter '\\0'
  quorumlog produce images --format raw --delimiter '' --file logo.png
  quorumlog consume a --until-end -o json | quorumlog produce b --format json
"""

OF_ONE_RECORD = (InvalidRequest, InvalidTimestamp, MessageTooLarge)  # the next ones may do


class Acks(StrEnum):
    """Whose acknowledgement a record waits for."""

    ALL = "all"
    LEADER = "leader"
    NONE = "none"


class Compression(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Spread(StrEnum):
    """How records find their partition."""

    KEY = "murmur2"
    CRC32 = "crc32"
    STICKY = "sticky"
    ROUND_ROBIN = "round_robin"


class OnError(StrEnum):
    """What a record that cannot be sent means for those behind it."""

    CONTINUE = "continue"
    STOP = "stop"


def produce(
    topic: TopicArgument,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Read this file, - for stdin; repeatable."
        ),
    ] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            help="lines: a record a line. json: an object a line, as `consume -o json` prints. "
            "csv: a header line, then a JSON object a row. raw: bytes between delimiters.",
        ),
    ] = Format.LINES,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter",
            metavar="TEXT",
            help="raw: what ends a record, '' for none (each input is one record); csv: what is "
            "between fields. Escapes: \\n \\t \\r \\0 \\\\ \\xHH.  [default: \\n; csv: a comma]",
        ),
    ] = None,
    quote: Annotated[
        str, typer.Option("--quote", metavar="CHARACTER", help="csv: what fields are quoted with.")
    ] = '"',
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="lines, raw: a record is KEY, this text, VALUE. Escapes as above.",
        ),
    ] = None,
    key_field: Annotated[
        str | None,
        typer.Option(
            "--key-field",
            metavar="NAME",
            help="The key is this member of the JSON on a line, or this column of a CSV.",
        ),
    ] = None,
    timestamp_field: Annotated[
        str | None,
        typer.Option(
            "--timestamp-field",
            metavar="NAME",
            help="The timestamp is this member or column: milliseconds since 1970, or ISO 8601.",
        ),
    ] = None,
    null_value: Annotated[
        str | None,
        typer.Option(
            "--null-value",
            metavar="TEXT",
            help="A key, value or CSV field that is this text is null (a tombstone).",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="For each record; repeatable."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", metavar="NUMBER", min=0, help="Send everything to this partition."
        ),
    ] = None,
    partitioner: Annotated[
        Spread | None,
        typer.Option(
            "--partitioner",
            help="murmur2, crc32: by the key's hash, without a key as sticky. sticky: one until a "
            "batch is full. round_robin: one after the other. Goes before what JSON records say.  "
            "[default: murmur2]",
        ),
    ] = None,
    acks: Annotated[
        Acks,
        typer.Option("--acks", help="Whose acknowledgement to wait for."),
    ] = Acks.ALL,
    compression: Annotated[
        Compression, typer.Option("--compression", help="How batches are compressed.")
    ] = Compression.NONE,
    compression_level: Annotated[
        int | None,
        typer.Option(
            "--compression-level",
            metavar="LEVEL",
            help="How hard gzip (1 to 9) or zstd (1 to 22) try.  [default: the codec's own]",
        ),
    ] = None,
    linger: Annotated[
        int,
        typer.Option("--linger", metavar="MS", min=0, help="A batch waits so long for more, ms."),
    ] = 5,
    batch_size: Annotated[
        int,
        typer.Option("--batch-size", metavar="BYTES", min=1, help="A full batch, bytes."),
    ] = 983_040,
    on_error: Annotated[
        OnError,
        typer.Option("--on-error", help="Whether a record that cannot be sent ends the rest."),
    ] = OnError.CONTINUE,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print where each record is stored.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Send each line, object, row or piece of the input as one record, and say what was stored.

    A record that could not be delivered is reported with its line, and the exit code is 1 then.
    After Ctrl-C it is told what was stored and what was not.
    """
    from . import settings

    form = _form(
        Form(
            format=format_,
            delimiter=_bytes_of(delimiter, "--delimiter"),
            quote=quote,
            key_separator=_bytes_of(key_separator, "--key-separator"),
            key_field=key_field,
            timestamp_field=timestamp_field,
            null_value=None if null_value is None else null_value.encode(),
            headers=parse_headers(header or []),
        )
    )
    if partition is not None and partitioner is not None:
        raise typer.BadParameter("give --partition or --partitioner, not both")
    paths = file or [STDIN]
    as_json = output is Output.JSON
    check_readable(paths)
    with settings.open_log(bootstrap=bootstrap) as log:
        partitions_of(log, topic)  # a topic that does not exist is told before anything is read
        report = Report(verbose=verbose, as_json=as_json)
        with log.producer(
            partitioner=(partitioner or Spread.KEY).value,
            acks=acks,
            compression=compression,
            compression_level=compression_level,
            linger_ms=linger,
            batch_size=batch_size,
        ) as producer:
            sending = Sending(
                producer, report, topic, partition, on_error, keeps_partition=partitioner is None
            )
            _invite(paths, as_json=as_json)
            sending.run(paths, form, show_progress=not (verbose or as_json))
    report.print_summary(interrupted_at=sending.interrupted_at)
    if sending.interrupted_at:
        raise typer.Exit(EXIT_INTERRUPTED)
    if report.errors:
        raise typer.Exit(EXIT_ERROR)


@dataclass(slots=True)
class Sending:
    """The work of one `produce`: entries to the producer, outcomes to the report."""

    producer: "Producer"
    report: Report
    topic: str
    partition: int | None  # for all records
    on_error: OnError
    keeps_partition: bool  # whether records may name their own
    interrupted_at: str = ""  # how far it came, where Ctrl-C ended it
    _place: Place | None = None  # of the newest entry

    def run(self, paths: list[str], form: Form, *, show_progress: bool) -> None:
        """Send everything; returns when each record has its outcome, or is known to have none."""
        try:
            try:
                with progress_of(paths, wanted=show_progress) as progress:
                    for source in inputs(paths, progress, on_idle=self.report.settle_all):
                        if not self._send_all(source, form):
                            break
            except InvalidRequest as error:  # of an input as a whole: what was read is sent
                self.report.refused(error)
            self.report.finish(self.producer)
        except KeyboardInterrupt:
            unread = "nothing was read" if self._place is None else f"read up to {self._place}"
            self.interrupted_at = unread
            self.report.interrupt(self.producer)
            self.producer.close(flush=False)
        except BaseException:  # the reader of our output has gone, or worse: do not wait for more
            self.producer.close(flush=False)
            raise

    def _send_all(self, source: Input, form: Form) -> bool:
        """Send an input's entries; whether the next input is wanted."""
        unit = "record" if form.format is Format.RAW else "line"
        try:
            for entry in read_entries(source.chunks, form):
                self._place = place = Place.of(source.name, unit, entry)
                if not self._send(place, entry.record):
                    return False
        except InvalidRequest as error:
            here = f"{source.name}: " if source.name else ""
            raise InvalidRequest(f"{here}{error.message}") from None
        return True

    def _send(self, place: Place, record: NewRecord | QuorumlogError) -> bool:
        """Send one record; whether the next one is wanted."""
        if isinstance(record, QuorumlogError):
            return self._failed(place, record)
        named = record.partition if self.keeps_partition else None
        try:
            delivery = self.producer.send(
                self.topic,
                record.value,
                key=record.key,
                headers=record.headers or None,
                timestamp_ms=record.timestamp_ms,
                partition=named if self.partition is None else self.partition,
            )
        except OF_ONE_RECORD as error:
            return self._failed(place, error)
        except QuorumlogError as error:  # what keeps this record out keeps out the rest
            self.report.failed(place, error)
            typer.echo(f"quorumlog: the input is not read on behind {place}", err=True)
            return False
        self.report.sent(place, record, delivery)
        return self.on_error is OnError.CONTINUE or not self.report.errors

    def _failed(self, place: Place, error: QuorumlogError) -> bool:
        self.report.failed(place, error)
        return self.on_error is OnError.CONTINUE


def parse_headers(pairs: list[str]) -> Headers:
    """Return NAME=VALUE pairs; raises InvalidRequest for anything else."""
    headers = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"--header {pair!r}: give NAME=VALUE")
        headers.append((name, value.encode("utf-8", "surrogateescape")))
    return tuple(headers)


def _form(form: Form) -> Form:
    """Return the form unless its parts do not fit together; that is a usage error."""
    name = form.format
    is_csv, is_raw, is_json = name is Format.CSV, name is Format.RAW, name is Format.JSON
    refusals = (
        (form.key_separator and form.key_field, "give --key-separator or --key-field, not both"),
        (form.key_separator == b"", "--key-separator is empty"),
        (form.key_separator and (is_csv or is_json), f"--format {name} has no --key-separator"),
        (form.key_field and (is_raw or is_json), f"--format {name} has no --key-field"),
        (form.timestamp_field and (is_raw or is_json), f"--format {name} has no --timestamp-field"),
        (form.key_separator and form.timestamp_field, "--timestamp-field needs JSON lines or csv"),
        (form.null_value is not None and is_json, "--format json has null, and no --null-value"),
        (form.delimiter is not None and not (is_csv or is_raw), f"{name} has no --delimiter"),
        (is_csv and not _is_character(form.delimiter or b","), "csv has one ASCII --delimiter"),
        (is_csv and len(form.quote) != 1, "--quote is one character"),
        (is_csv and form.quote.encode() == (form.delimiter or b","), "--quote is the delimiter"),
    )
    for is_wrong, reason in refusals:
        if is_wrong:
            raise typer.BadParameter(reason)
    return form


def _is_character(delimiter: bytes) -> bool:
    return len(delimiter) == 1 and delimiter < b"\x80" and delimiter not in b"\r\n\0"


def _bytes_of(text: str | None, option: str) -> bytes | None:
    if text is None:
        return None
    try:
        return encode_escaped(unescape(text))
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text!r}: {error}") from None


def _invite(paths: list[str], *, as_json: bool) -> None:
    """Tell whoever sits in front of a silent terminal what it waits for."""
    if STDIN in paths and not as_json and sys.stdin.isatty() and sys.stderr.isatty():
        typer.echo("Type records, one a line; Ctrl-D ends.", err=True)
