"""Parsers of records: lines, JSON, CSV, raw bytes.

A malformed piece of the input yields an error in its position; later pieces are still read.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ...clients.times import timestamp_of
from ...errors import InvalidRequest, MessageTooLarge, QuorumlogError
from ..output import count_text
from ..record_json import Headers, NewRecord, content_of, parse_line, parse_record
from .options import Format

Piece: TypeAlias = bytes | MessageTooLarge


def split(chunks: Iterable[bytes], delimiter: bytes, *, limit: int) -> Iterator[Piece]:
    """Yield the pieces between delimiters; a delimiter at the end of the input starts no piece.

    An empty delimiter yields the whole input as one piece. Memory: one chunk and one piece.
    """
    if not delimiter:
        yield _whole(chunks, limit)
        return
    overlap = len(delimiter) - 1
    held = bytearray()  # the start of the incomplete piece
    dropped = 0  # its discarded bytes, if it is too long
    for chunk in chunks:
        if held or dropped:
            searched = max(0, len(held) - overlap)
            held += chunk
            end = held.find(delimiter, searched)
            if end < 0:
                if dropped + len(held) - overlap > limit:
                    gone = len(held) - overlap
                    dropped += gone
                    del held[:gone]
                continue
            yield _bounded(bytes(held[:end]), dropped, limit)
            chunk = bytes(held[end + len(delimiter) :])
            dropped = 0
        *whole, rest = chunk.split(delimiter)
        for piece in whole:
            yield piece if len(piece) <= limit else _too_large(len(piece), limit)
        held = bytearray(rest)
    if held or dropped:
        yield _bounded(bytes(held), dropped, limit)


def _whole(chunks: Iterable[bytes], limit: int) -> Piece:
    held = bytearray()
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size <= limit:
            held += chunk
        else:
            held.clear()
    return bytes(held) if size <= limit else _too_large(size, limit)


def _bounded(piece: bytes, dropped: int, limit: int) -> Piece:
    size = dropped + len(piece)
    return piece if size <= limit else _too_large(size, limit)


def _too_large(size: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the record has {size:,} bytes; the limit is {limit:,}")


RECORD_BYTES_MAX = 8 << 20  # the limit of a request (`max_request_size`)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFormat:
    """The format of an input and its options."""

    format: Format
    delimiter: bytes | None = None  # raw: between records, b"" for none; csv: between fields
    quote: str = '"'  # csv
    key_separator: bytes | None = None
    key_field: str | None = None
    timestamp_field: str | None = None
    null_value: bytes | None = None  # keys, values and fields equal to it are null
    headers: Headers = ()  # added to each record, before its own


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of the input: its position, and its record or error."""

    first: int  # 1-based number of the line, or of the record in raw input
    last: int
    record: NewRecord | QuorumlogError


Rows: TypeAlias = Iterator[Entry]


def read_entries(chunks: Iterable[bytes], form: InputFormat) -> Rows:
    """Yield the entries of an input in order. Raise InvalidRequest if the input as a whole is
    malformed (a CSV without a valid header line)."""
    if form.format is Format.CSV:
        yield from _csv_entries(chunks, form)
        return
    delimiter = b"\n"
    if form.format is Format.RAW and form.delimiter is not None:
        delimiter = form.delimiter
    is_text = form.format is not Format.RAW
    for number, piece in enumerate(split(chunks, delimiter, limit=RECORD_BYTES_MAX), start=1):
        if isinstance(piece, bytes):
            if is_text:
                piece = piece.removesuffix(b"\r")
                if number == 1:
                    piece = piece.removeprefix(b"\xef\xbb\xbf")
            yield Entry(number, number, _record_or_error(piece, form))
        else:
            yield Entry(number, number, piece)


def _record_or_error(piece: bytes, form: InputFormat) -> NewRecord | QuorumlogError:
    try:
        record = parse_record(piece) if form.format is Format.JSON else _record(piece, form)
    except QuorumlogError as error:
        return error
    if form.headers:
        record.headers = (*form.headers, *record.headers)
    return record


def _record(piece: bytes, form: InputFormat) -> NewRecord:
    """Return the record of a line or of raw bytes."""
    if form.key_separator is not None:
        key, found, value = piece.partition(form.key_separator)
        if not found:
            raise InvalidRequest(f"no key separator {form.key_separator.decode()!r}")
        return NewRecord(_unless_null(key, form), _unless_null(value, form))
    record = NewRecord(None, _unless_null(piece, form))
    if form.key_field is not None or form.timestamp_field is not None:
        row = parse_line(piece)
        if not isinstance(row, dict):
            raise InvalidRequest('not a JSON object, such as {"id": 7}')
        if form.key_field is not None:
            record.key = content_of(_member(row, form.key_field), None, "key")
        if form.timestamp_field is not None:
            record.timestamp_ms = timestamp_of(_member(row, form.timestamp_field))
    return record


def _member(row: dict[str, object], name: str) -> object:
    if name not in row:
        raise InvalidRequest(f"the JSON object has no member {name!r}")
    return row[name]


def _unless_null(content: bytes, form: InputFormat) -> bytes | None:
    return None if content == form.null_value else content


# --- CSV -----------------------------------------------------------------------------------------


class _Lines:
    """The lines of a CSV as text. An invalid line raises its error; later lines are still read."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self.number = 0  # of the last line

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        piece = next(self._pieces)
        self.number += 1
        if isinstance(piece, QuorumlogError):
            raise piece
        try:
            text = piece.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise InvalidRequest("not UTF-8") from None
        return text + "\n"


def _csv_entries(chunks: Iterable[bytes], form: InputFormat) -> Rows:
    lines = _Lines(split(chunks, b"\n", limit=RECORD_BYTES_MAX))
    csv.field_size_limit(RECORD_BYTES_MAX)  # per process; the csv module has no other limit
    delimiter = "," if form.delimiter is None else form.delimiter.decode()
    rows = csv.reader(lines, delimiter=delimiter, quotechar=form.quote, strict=True)
    names: list[str] | None = None
    while True:
        first = lines.number + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except (csv.Error, QuorumlogError) as error:
            if names is None:
                raise InvalidRequest(f"the header line is not valid CSV: {error}") from None
            yield Entry(first, lines.number, _csv_error(error))
            continue
        if not row:  # an empty line
            continue
        if names is None:
            names = _header(row, form)
        else:
            yield Entry(first, lines.number, _csv_record(names, row, form))


def _csv_error(error: csv.Error | QuorumlogError) -> QuorumlogError:
    if isinstance(error, QuorumlogError):
        return error
    if "unexpected end" in str(error):
        return InvalidRequest("unclosed quote")
    return InvalidRequest(f"not valid CSV: {error}")


def _header(row: list[str], form: InputFormat) -> list[str]:
    names = [name.strip() for name in row]
    twice = {name for name in names if names.count(name) > 1}
    if twice or "" in names:
        what = f"{min(twice)!r} twice" if twice - {""} else "a column without a name"
        raise InvalidRequest(f"the header line has {what}; give each column a unique name")
    for name in (form.key_field, form.timestamp_field):
        if name is not None and name not in names:
            raise InvalidRequest(f"column {name!r} does not exist; columns are {', '.join(names)}")
    return names


def _csv_record(names: list[str], row: list[str], form: InputFormat) -> NewRecord | QuorumlogError:
    if len(row) != len(names):
        return InvalidRequest(f"{count_text(len(row), 'field')}; the header line has {len(names)}")
    null = None if form.null_value is None else form.null_value.decode("utf-8", "replace")
    fields = {
        name: None if null is not None and field == null else field
        for name, field in zip(names, row, strict=True)
    }
    record = NewRecord(None, json.dumps(fields, ensure_ascii=False).encode(), form.headers)
    try:
        if form.key_field is not None:
            record.key = content_of(fields[form.key_field], None, "key")
        if form.timestamp_field is not None:
            record.timestamp_ms = timestamp_of(fields[form.timestamp_field])
    except QuorumlogError as error:
        return error
    return record
