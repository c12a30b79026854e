"""`quorumlog produce`: lines of a file or of stdin become records."""

import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ..errors import InvalidRequest, MessageTooLarge, QuorumlogError
from .options import (
    CONNECT_TIMEOUT_MS,
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    Output,
    OutputOption,
    TopicArgument,
)
from .output import count_text, print_json, size_text, text_or_base64

if TYPE_CHECKING:
    from ..clients.blocking_producer import Delivery, Producer


def produce(
    topic: TopicArgument,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read this file instead of stdin."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="A line is KEY, this text, VALUE."),
    ] = None,
    key_field: Annotated[
        str | None,
        typer.Option("--key-field", metavar="NAME", help="Lines are JSON; this member is the key."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Send everything to this partition.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="For each record; repeatable."),
    ] = None,
    acks: Annotated[str, typer.Option("--acks", help="all, leader or none.")] = "all",
    compression: Annotated[
        str, typer.Option("--compression", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print where each record is stored.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.HUMAN,
) -> None:
    """Send each line as one record, and say what was stored.

    A record that could not be delivered is reported with its line number; the exit code is 1 then.
    """
    from ..clients.blocking import connect

    if key_separator is not None and key_field is not None:
        raise typer.BadParameter("give --key-separator or --key-field, not both")
    split = Splitter(key_separator, key_field)
    headers = parse_headers(header or [])
    report = Report(verbose=verbose, as_json=output is Output.JSON)
    with (
        open_lines(file, show_progress=not verbose and output is Output.HUMAN) as lines,
        connect(bootstrap, connect_timeout_ms=CONNECT_TIMEOUT_MS) as log,
        log.producer(acks=acks, compression=compression) as producer,
    ):
        log.partitions(topic)  # a topic that does not exist is told before anything is read
        for number, line in enumerate(lines, start=1):
            send_line(producer, report, split, topic, number, line, headers, partition)
        report.finish(producer)
    report.print_summary()
    if report.errors:
        raise typer.Exit(1)


def send_line(
    producer: "Producer",
    report: "Report",
    split: "Splitter",
    topic: str,
    number: int,
    line: bytes,
    headers: list[tuple[str, bytes]],
    partition: int | None,
) -> None:
    """Send one line and report what is known by now."""
    try:
        key, value = split.split(line)
        delivery = producer.send(
            topic, value, key=key, headers=headers or None, partition=partition
        )
    except (InvalidRequest, MessageTooLarge) as error:  # of this line alone
        report.failed(number, error)
        return
    report.sent(number, key, value, delivery)


@dataclass(slots=True)
class Splitter:
    """How a line becomes key and value."""

    key_separator: str | None
    key_field: str | None

    def split(self, line: bytes) -> tuple[bytes | None, bytes]:
        """Return (key, value); raises InvalidRequest for a line that does not have the form."""
        if self.key_separator is not None:
            key, found, value = line.partition(self.key_separator.encode())
            if not found:
                raise InvalidRequest(f"the line has no key separator {self.key_separator!r}")
            return key, value
        if self.key_field is not None:
            return self._json_key(line, self.key_field), line
        return None, line

    def _json_key(self, line: bytes, name: str) -> bytes | None:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InvalidRequest(f"the line is not JSON: {error}") from None
        if not isinstance(row, dict) or name not in row:
            raise InvalidRequest(f"the line is no JSON object with a member {name!r}")
        key = row[name]
        if key is None:
            return None
        return (key if isinstance(key, str) else json.dumps(key)).encode()


@dataclass(slots=True)
class Report:
    """What happened to each line, told in the order of the lines."""

    verbose: bool
    as_json: bool
    records: int = 0
    stored_bytes: int = 0  # of keys and values
    errors: int = 0
    _waiting: "deque[tuple[int, bytes | None, int, Delivery]]" = field(default_factory=deque)
    _start_ns: int = field(default_factory=lambda: _now_ns())

    def sent(self, number: int, key: bytes | None, value: bytes, delivery: "Delivery") -> None:
        """Note a record on its way; tell of those in front that have arrived."""
        self._waiting.append((number, key, len(key or b"") + len(value), delivery))
        while self._waiting and self._waiting[0][3].done():
            self._settle()

    def finish(self, producer: "Producer") -> None:
        """Wait for what is on its way."""
        with suppress(QuorumlogError):  # told below, record by record
            producer.flush()
        while self._waiting:
            self._settle()

    def failed(self, number: int, error: QuorumlogError) -> None:
        """Tell of a line that is not stored."""
        self.errors += 1
        typer.echo(f"quorumlog: line {number}: {error}", err=True)

    def print_summary(self) -> None:
        """Print what the whole run did."""
        seconds = (_now_ns() - self._start_ns) / 1e9
        if self.as_json and not self.verbose:
            print_json(
                {
                    "records": self.records,
                    "bytes": self.stored_bytes,
                    "seconds": round(seconds, 3),
                    "errors": self.errors,
                }
            )
        elif not self.as_json:
            failures = f", {count_text(self.errors, 'line')} failed" if self.errors else ""
            size = size_text(self.stored_bytes)
            text = f"{count_text(self.records, 'record')}, {size} in {seconds:.2f} s{failures}"
            typer.echo(text, err=self.verbose)

    def _settle(self) -> None:
        number, key, size, delivery = self._waiting.popleft()
        try:
            topic, partition, offset = delivery.result()
        except QuorumlogError as error:
            self.failed(number, error)
            return
        self.records += 1
        self.stored_bytes += size
        if not self.verbose:
            return
        if self.as_json:
            text, is_base64 = text_or_base64(key)
            row: dict[str, Any] = {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "key": text,
            }
            if is_base64:
                row["key_encoding"] = "base64"
            print_json(row)
        else:
            typer.echo(f"line {number}: {topic}-{partition} offset {offset}")


def parse_headers(pairs: list[str]) -> list[tuple[str, bytes]]:
    """Return NAME=VALUE pairs; raises InvalidRequest for anything else."""
    headers = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"--header {pair!r}: give NAME=VALUE")
        headers.append((name, value.encode()))
    return headers


class open_lines:
    """The lines of a file or of stdin without their ends, with a progress bar where someone looks.

    Raises InvalidRequest when the file cannot be opened.
    """

    def __init__(self, path: str | None, *, show_progress: bool) -> None:
        self._path = path
        self._show_progress = show_progress and path is not None and sys.stderr.isatty()
        self._file: BinaryIO

    def __enter__(self) -> Iterator[bytes]:
        if self._path is None or self._path == "-":
            self._file = sys.stdin.buffer
            return _stripped(self._file)
        try:
            self._file = open(self._path, "rb")  # closed in __exit__
        except OSError as error:
            raise InvalidRequest(f"{self._path} cannot be read: {error.strerror}") from None
        if not self._show_progress:
            return _stripped(self._file)
        from rich.console import Console
        from rich.progress import wrap_file

        size = self._file.seek(0, 2)
        self._file.seek(0)
        self._bar = wrap_file(
            self._file, size, description="producing", console=Console(stderr=True)
        )
        return _stripped(self._bar.__enter__())

    def __exit__(self, *error: object) -> None:
        bar = getattr(self, "_bar", None)
        if bar is not None:
            bar.__exit__(None, None, None)
        if self._file is not sys.stdin.buffer:
            self._file.close()


def _stripped(file: BinaryIO) -> Iterator[bytes]:
    for line in file:
        yield line.rstrip(b"\n").removesuffix(b"\r")


def _now_ns() -> int:
    import time

    return time.monotonic_ns()
