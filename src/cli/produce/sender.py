"""The work of `quorumlog produce`: sends the entries of the input, reports their outcomes."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from ...errors import (
    InvalidRequest,
    InvalidTimestamp,
    MessageTooLarge,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from ..escapes import encode_escaped, unescape
from ..failures import EXIT_ERROR, EXIT_INTERRUPTED
from ..output import echo
from ..record_json import Headers, NewRecord
from .inputs import STDIN, Input, inputs, progress_of
from .options import Compression, Format, OnError, Partitioner
from .parsers import InputFormat, read_entries
from .report import InputPosition, Report

if TYPE_CHECKING:
    from ...clients.blocking.producer import Producer

OF_ONE_RECORD = (
    InvalidRequest,
    InvalidTimestamp,
    MessageTooLarge,
)  # errors of one record, not of the producer


@dataclass(slots=True, kw_only=True)
class Sending:
    """One run of `produce`."""

    producer: "Producer"
    report: Report
    topic: str
    partitions: int  # partition count of the topic at the start
    partition: int | None  # for all records
    on_error: OnError
    keeps_partition: bool  # True: use the partition of JSON records
    _interrupted_at: str = ""  # position at Ctrl-C
    _position: InputPosition | None = None  # of the last entry

    def run(self, paths: list[str], form: InputFormat, *, show_progress: bool) -> None:
        """Send all entries; return when each record has an outcome, or is known to have none."""
        is_reported = False
        try:
            try:
                with progress_of(paths, wanted=show_progress) as progress:
                    for source in inputs(paths, progress, on_idle=self.report.settle_all):
                        if not self._send_all(source, form):
                            break
            except InvalidRequest as error:  # of an input as a whole; entries before it are sent
                self.report.refused(error)
            self.report.finish(self.producer)
            is_reported = True
        except KeyboardInterrupt:
            unread = (
                "nothing was read" if self._position is None else f"read up to {self._position}"
            )
            self._interrupted_at = unread
            self.report.interrupt(self.producer)
        finally:
            if not is_reported:  # no result is reported any more
                self.producer.close(flush=False)

    def end(self) -> None:
        """Print the summary, and exit with a code other than 0 after errors or Ctrl-C."""
        self.report.print_summary(interrupted_at=self._interrupted_at)
        if self._interrupted_at:
            raise typer.Exit(EXIT_INTERRUPTED)
        if self.report.errors:
            raise typer.Exit(EXIT_ERROR)

    def _send_all(self, source: Input, form: InputFormat) -> bool:
        """Send the entries of an input; return True to continue with the next input."""
        unit = "record" if form.format is Format.RAW else "line"
        try:
            for entry in read_entries(source.chunks, form):
                self._position = place = InputPosition.of(source.name, unit, entry)
                if not self._send(place, entry.record):
                    return False
        except InvalidRequest as error:
            here = f"{source.name}: " if source.name else ""
            raise InvalidRequest(f"{here}{error.message}") from None
        return True

    def _send(self, place: InputPosition, record: NewRecord | QuorumlogError) -> bool:
        """Send one record; return True to continue with the next one."""
        if isinstance(record, QuorumlogError):
            return self._failed(place, record)
        named = record.partition if self.keeps_partition else None
        self.report.sending()
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
            self.report.not_sent()
            return self._failed(place, error)
        except QuorumlogError as error:
            self.report.not_sent()
            if isinstance(error, UnknownTopicOrPartition) and (named or 0) >= self.partitions:
                return self._failed(place, error)
            self.report.failed(place, error, is_last=True)  # later records would fail too
            return False
        self.report.sent(place, record, delivery)
        return self.on_error is OnError.CONTINUE or not self.report.errors

    def _failed(self, place: InputPosition, error: QuorumlogError) -> bool:
        self.report.failed(place, error)
        return self.on_error is OnError.CONTINUE


def parse_headers(pairs: list[str]) -> Headers:
    """Return NAME=VALUE pairs as headers; raise BadParameter for other texts."""
    headers = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--header {pair!r}: give NAME=VALUE")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"--header {pair!r}: the name is not valid UTF-8") from None
        headers.append((name, value.encode("utf-8", "surrogateescape")))
    return tuple(headers)


def input_format(
    *,
    format_: Format,
    delimiter: str | None,
    quote: str,
    key_separator: str | None,
    key_field: str | None,
    timestamp_field: str | None,
    null_value: str | None,
    headers: list[str],
) -> InputFormat:
    """Return the input format of the options; raise BadParameter if they contradict each other."""
    return _checked(
        InputFormat(
            format=format_,
            delimiter=_bytes_of(delimiter, "--delimiter"),
            quote=quote,
            key_separator=_bytes_of(key_separator, "--key-separator"),
            key_field=key_field,
            timestamp_field=timestamp_field,
            null_value=None if null_value is None else null_value.encode(),
            headers=parse_headers(headers),
        )
    )


def _checked(form: InputFormat) -> InputFormat:
    """Return the format; raise BadParameter if its options contradict each other."""
    name = form.format
    is_csv, is_raw, is_json = name is Format.CSV, name is Format.RAW, name is Format.JSON
    refusals = (
        (form.key_separator and form.key_field, "give --key-separator or --key-field, not both"),
        (form.key_separator == b"", "--key-separator is empty"),
        (form.key_separator and (is_csv or is_json), f"--format {name} has no --key-separator"),
        (form.key_field and (is_raw or is_json), f"--format {name} has no --key-field"),
        (form.timestamp_field and (is_raw or is_json), f"--format {name} has no --timestamp-field"),
        (form.key_separator and form.timestamp_field, "--timestamp-field needs JSON lines or csv"),
        (form.null_value is not None and is_json, "--format json has no --null-value; use null"),
        (
            form.delimiter is not None and not (is_csv or is_raw),
            f"--format {name} has no --delimiter",
        ),
        (
            is_csv and not _is_character(form.delimiter or b","),
            "--format csv needs a --delimiter of one ASCII character",
        ),
        (is_csv and len(form.quote) != 1, "--quote must be one character"),
        (
            is_csv and form.quote.encode() == (form.delimiter or b","),
            "--quote and --delimiter must differ",
        ),
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


def check_options(
    partition: int | None,
    partitioner: Partitioner | None,
    compression: Compression,
    compression_level: int | None,
) -> None:
    """Raise BadParameter for options that contradict each other."""
    if partition is not None and partitioner is not None:
        raise typer.BadParameter("give --partition or --partitioner, not both")
    if compression_level is not None and compression not in (Compression.GZIP, Compression.ZSTD):
        raise typer.BadParameter("--compression-level needs --compression gzip or zstd")


def print_prompt(paths: list[str], *, as_json: bool) -> None:
    """Print a hint if records are read from a terminal."""
    if STDIN in paths and not as_json and sys.stdin.isatty() and sys.stderr.isatty():
        echo("Type one record per line; Ctrl-D ends the input.", err=True)
