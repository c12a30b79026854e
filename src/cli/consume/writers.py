"""Output of `quorumlog consume`: values, JSON lines, a template or raw bytes, or a file."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

import typer

from ...clients.consumer.record_json import record_line, text_or_base64
from ...clients.times import OffsetSpec, parse_offset_spec
from ...visible_text import visible, visible_json
from ..escapes import encode_escaped, unescape
from ..output import count_text, echo, time_text
from .options import RecordOutput
from .record_files import RecordFile

if TYPE_CHECKING:
    from ...clients.consumer.record import ConsumerRecord

Writer: TypeAlias = "Callable[[ConsumerRecord], bytes]"

FIELDS = ("topic", "partition", "offset", "timestamp", "timestamp_ms", "key", "value", "headers")
_PLAIN = re.compile("([\t\n])")  # not escaped
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def value_line(record: "ConsumerRecord") -> bytes:
    """Return the value and a line end; base64 if the value is not UTF-8."""
    return (text_or_base64(record.value)[0] or "").encode() + b"\n"


def verbose_line(record: "ConsumerRecord") -> bytes:
    """Return partition, offset, time, key and value, separated by tabs."""
    key, _ = text_or_base64(record.key)
    value, _ = text_or_base64(record.value)
    time = time_text(record.timestamp_ms)
    text = f"{record.partition}\t{record.offset}\t{time}\t{key or '-'}\t{value or ''}\n"
    return text.encode()


def for_terminal(write: Writer) -> Writer:
    """Return a writer that escapes hidden characters, except tabs and line ends, so that records
    cannot control the terminal."""

    def shown(record: "ConsumerRecord") -> bytes:
        parts = _PLAIN.split(write(record).decode())
        return "".join(each if _PLAIN.fullmatch(each) else visible(each) for each in parts).encode()

    return shown


def json_line(record: "ConsumerRecord") -> bytes:
    """Return the record as a JSON line."""
    return record_line(record).encode() + b"\n"


def json_line_for_terminal(record: "ConsumerRecord") -> bytes:
    """Return the record as a JSON line with hidden characters as escapes of JSON."""
    return visible_json(record_line(record)).encode() + b"\n"


def raw_writer(delimiter: bytes) -> Writer:
    """Return the writer of unchanged values, each followed by the delimiter."""
    return lambda record: (record.value or b"") + delimiter


def template_writer(template: str, delimiter: bytes) -> Writer:
    """Return the writer of a template such as `{key}\\t{value}`: escapes, fields of `FIELDS` in
    braces, {{ and }} for braces. Keys and values are written byte for byte, null as empty.

    Raises ValueError for an unknown field or escape.
    """
    literals: list[bytes] = []
    getters: list[Writer] = []
    text = ""
    end = 0
    for match in _FIELD.finditer(template):
        text += template[end : match.start()]
        end = match.end()
        if match[1] is None:
            if len(match[0]) == 1:
                raise ValueError(f"unmatched {match[0]}; write {match[0] * 2} for the character")
            text += match[0][0]
            continue
        literals.append(encode_escaped(unescape(text)))
        getters.append(_getter(match[1]))
        text = ""
    last = encode_escaped(unescape(text + template[end:])) + delimiter

    def write(record: "ConsumerRecord") -> bytes:
        parts = []
        for literal, getter in zip(literals, getters, strict=True):
            parts.append(literal)
            parts.append(getter(record))
        parts.append(last)
        return b"".join(parts)

    return write


def _getter(name: str) -> Writer:
    getters: dict[str, Writer] = {
        "topic": lambda record: record.topic.encode(),
        "partition": lambda record: b"%d" % record.partition,
        "offset": lambda record: b"%d" % record.offset,
        "timestamp": lambda record: time_text(record.timestamp_ms).encode(),
        "timestamp_ms": lambda record: b"%d" % record.timestamp_ms,
        "key": lambda record: record.key or b"",
        "value": lambda record: record.value or b"",
        "headers": _headers,
    }
    if name not in getters:
        near = get_close_matches(name, FIELDS, n=1)
        hint = f"did you mean {{{near[0]}}}?" if near else f"fields are {', '.join(FIELDS)}"
        raise ValueError(f"unknown field {{{name}}}; {hint}")
    return getters[name]


def _headers(record: "ConsumerRecord") -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


def fill(file: RecordFile, records: "Iterator[list[ConsumerRecord]]") -> None:
    """Write records to a file and print their number, also after an error or Ctrl-C, unless writing
    the file itself failed."""
    try:
        with file, _count_of(file.path) as shown:
            for some in records:
                file.write(some)
                shown(file.count)
    finally:
        if file.is_whole:
            echo(f"{count_text(file.count, 'record')} in {file.path}", err=True)


@contextmanager
def _count_of(path: str) -> Iterator[Callable[[int], None]]:
    """Show the number of records written on stderr, if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description} {task.completed:,.0f} records"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(os.path.basename(path), total=None)
        yield lambda count: progress.update(task, completed=count)


def offset_option(option: str, text: str, now: datetime) -> OffsetSpec:
    """Return the value of an offset option; raise BadParameter if it is malformed."""
    try:
        return parse_offset_spec(text, now=now)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def check_file_options(
    *, output: RecordOutput | None, template: str | None, delimiter: str | None, verbose: bool
) -> None:
    """Raise BadParameter for format options with --to-file, whose name determines the format."""
    named = {
        "--format": template is not None,
        "--delimiter": delimiter is not None,
        "--output raw": output is RecordOutput.RAW,
        "--verbose": verbose,
    }
    for option, is_given in named.items():
        if is_given:
            raise typer.BadParameter(f"the file's suffix sets the format; remove {option}")


def writer_of(
    output: RecordOutput | None, template: str | None, delimiter: str | None, *, verbose: bool
) -> Writer:
    """Return the writer of these options; raise BadParameter if they contradict each other."""
    is_raw = output is RecordOutput.RAW
    if template is not None and is_raw:
        raise typer.BadParameter("give --format or --output raw, not both")
    if delimiter is not None and not is_raw and template is None:
        raise typer.BadParameter("--delimiter needs --output raw or --format")
    try:
        end = encode_escaped(unescape("\\n" if delimiter is None else delimiter))
        if is_raw:
            return raw_writer(end)
        if template is not None:
            return template_writer(template, end)
    except ValueError as error:
        option = "--delimiter" if template is None else "--format"
        raise typer.BadParameter(f"{option}: {error}") from None
    if output is RecordOutput.JSON:
        return json_line_for_terminal if sys.stdout.isatty() else json_line
    write = verbose_line if verbose else value_line
    return for_terminal(write) if sys.stdout.isatty() else write
