"""Parsing of input into records and formatting of records into lines, without a node."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.cli.consume.writers import (
    for_terminal,
    raw_writer,
    template_writer,
    value_line,
    verbose_line,
)
from quorumlog.cli.escapes import encode_escaped, unescape
from quorumlog.cli.produce.options import Format
from quorumlog.cli.produce.parsers import RECORD_BYTES_MAX, Entry, InputFormat, read_entries, split
from quorumlog.cli.record_json import NewRecord, parse_record
from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.consumer.record_json import record_line
from quorumlog.clients.times import FromEnd, parse_offset_spec, timestamp_of
from quorumlog.errors import InvalidRequest, MessageTooLarge, QuorumlogError

NOW = datetime(2024, 6, 1, 12, tzinfo=UTC)


def record(
    value: bytes | None, *, key: bytes | None = None, headers: object = ()
) -> ConsumerRecord:
    return ConsumerRecord("t", 1, 42, 1_700_000_000_123, key, value, headers)  # type: ignore[arg-type]


def entries(content: bytes, form: InputFormat, *, chunk: int = 7) -> list[Entry]:
    chunks = [content[at : at + chunk] for at in range(0, len(content), chunk)]
    return list(read_entries(chunks, form))


def sent(content: bytes, form: InputFormat) -> list[tuple[bytes | None, bytes | None]]:
    found = []
    for entry in entries(content, form):
        assert isinstance(entry.record, NewRecord), entry
        found.append((entry.record.key, entry.record.value))
    return found


def refusals(content: bytes, form: InputFormat) -> list[tuple[int, int, str]]:
    return [
        (entry.first, entry.last, entry.record.message)
        for entry in entries(content, form)
        if isinstance(entry.record, QuorumlogError)
    ]


# --- splitting -----------------------------------------------------------------------------------


@given(
    st.lists(st.binary(max_size=6), max_size=8),
    st.sampled_from([b"\n", b"\0", b"ab", b"aab", b"\r\n"]),
    st.integers(1, 9),
)
def test_pieces_do_not_depend_on_the_chunks_of_the_input(
    parts: list[bytes], delimiter: bytes, chunk: int
) -> None:
    content = delimiter.join(parts)
    expected = content.split(delimiter)
    if expected[-1] == b"":
        expected.pop()
    chunks = [content[at : at + chunk] for at in range(0, len(content), chunk)]
    assert list(split(chunks, delimiter, limit=100)) == expected


@given(st.lists(st.binary(max_size=9), max_size=8), st.integers(1, 9))
def test_a_piece_beyond_the_limit_is_an_error_in_its_place(parts: list[bytes], chunk: int) -> None:
    content = b"".join(part.replace(b"|", b"") + b"|" for part in parts)
    chunks = [content[at : at + chunk] for at in range(0, len(content), chunk)]
    pieces = list(split(chunks, b"|", limit=4))
    for piece, whole in zip(pieces, content.split(b"|")[:-1], strict=True):
        if len(whole) <= 4:
            assert piece == whole
        else:
            assert isinstance(piece, MessageTooLarge)
            assert piece.message.startswith(f"the record has {len(whole)} bytes")


def test_a_line_without_an_end_is_not_kept_in_memory() -> None:
    chunk = b"x" * 1_000_000
    pieces = split((chunk for _ in range(200)), b"\n", limit=1_000)  # 200 MB
    (piece,) = pieces
    assert isinstance(piece, MessageTooLarge)
    assert piece.message.startswith("the record has 200,000,000 bytes")


def test_an_empty_delimiter_takes_the_whole_input() -> None:
    assert list(split([b"a\n", b"b\0"], b"", limit=10)) == [b"a\nb\0"]
    assert list(split([], b"", limit=10)) == [b""]
    (piece,) = split([b"12345", b"6789"], b"", limit=8)
    assert isinstance(piece, MessageTooLarge)


def test_escapes_stand_for_bytes() -> None:
    assert encode_escaped(unescape(r"a\n\t\r\0\\\x1e\xffé")) == b"a\n\t\r\0\\\x1e\xff\xc3\xa9"
    for wrong in (r"\q", "\\", r"\x1"):
        with pytest.raises(ValueError, match="not an escape"):
            unescape(wrong)


# --- lines, raw ----------------------------------------------------------------------------------


def test_lines_lose_only_their_line_ends() -> None:
    content = b"\xef\xbb\xbfa\r\n\n b \n\xff\r\r\nlast"
    values = [value for _, value in sent(content, InputFormat(format=Format.LINES))]
    assert values == [b"a", b"", b" b ", b"\xff\r", b"last"]


def test_separator_splits_key_and_value_and_a_text_means_null() -> None:
    form = InputFormat(format=Format.LINES, key_separator=b"::", null_value=b"-")
    assert sent(b"a::1\n-::x::y\nk::-\n::\n", form) == [
        (b"a", b"1"),
        (None, b"x::y"),
        (b"k", None),
        (b"", b""),
    ]
    assert refusals(b"a::1\nb:2\n", form) == [(2, 2, "no key separator '::'")]


def test_members_of_a_json_line_set_key_and_timestamp() -> None:
    form = InputFormat(format=Format.LINES, key_field="id", timestamp_field="at")
    (one, two) = entries(b'{"id": 7, "at": "1970-01-01T00:00:01"}\n{"id": null, "at": 5}\n', form)
    assert one.record == NewRecord(
        b"7", b'{"id": 7, "at": "1970-01-01T00:00:01"}', timestamp_ms=1_000
    )
    assert two.record == NewRecord(None, b'{"id": null, "at": 5}', timestamp_ms=5)
    messages = [
        message for _, _, message in refusals(b'x\n[1]\n{"id": 1}\n{"id": 1, "at": "noon"}\n', form)
    ]
    assert messages[0].startswith("not JSON at column 1: ")
    assert messages[1] == 'not a JSON object, such as {"id": 7}'
    assert messages[2] == "the JSON object has no member 'at'"
    assert messages[3].startswith("timestamp is 'noon'; give milliseconds")


def test_raw_pieces_are_unchanged() -> None:
    assert sent(b"a\r\n\0\0b\n", InputFormat(format=Format.RAW, delimiter=b"\0")) == [
        (None, b"a\r\n"),
        (None, b""),
        (None, b"b\n"),
    ]
    assert sent(b"a\nb", InputFormat(format=Format.RAW, delimiter=b"")) == [(None, b"a\nb")]


# --- CSV -----------------------------------------------------------------------------------------


def csv_form(**changes: object) -> InputFormat:
    return InputFormat(format=Format.CSV, **changes)  # type: ignore[arg-type]


def test_csv_rows_become_objects() -> None:
    content = '\ufeffid,name\r\n1,"a ""b"",\nc"\r\n\r\n2,\n'.encode()
    form = csv_form(key_field="id", null_value=b"")
    assert sent(content, form) == [
        (b"1", b'{"id": "1", "name": "a \\"b\\",\\nc"}'),
        (b"2", b'{"id": "2", "name": null}'),
    ]
    tabs = csv_form(delimiter=b"\t", quote="'")
    assert sent(b"a\tb\n'x\ty'\tz\n", tabs) == [(None, b'{"a": "x\\ty", "b": "z"}')]


def test_invalid_csv_row_does_not_stop_the_others() -> None:
    content = b'a,b\n1\nx,"y"z\n\xff,1\n2,3\n"open\n4,5\n'
    found = entries(content, csv_form())
    values = [e.record.value for e in found if isinstance(e.record, NewRecord)]
    assert values == [b'{"a": "2", "b": "3"}']
    output = refusals(content, csv_form())
    assert [(first, last) for first, last, _ in output] == [(2, 2), (3, 3), (4, 4), (6, 7)]
    assert output[0][2] == "1 field; the header line has 2"
    assert output[1][2].startswith("not valid CSV: ")
    assert output[2][2] == "not UTF-8"
    assert output[3][2] == "unclosed quote"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,a\n", "'a' twice"),
        (b"a,,b\n", "a column without a name"),
        (b"x,y\n1,2\n", "column 'id' does not exist; columns are x, y"),
        (b'"a\n', "the header line is not valid CSV"),
    ],
)
def test_csv_without_a_valid_header_line_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        entries(content, csv_form(key_field="id"))


# --- JSON records --------------------------------------------------------------------------------


@given(
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=20) | st.text(max_size=9).map(str.encode),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)
def test_json_record_round_trip(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = record_line(record(value, key=key, headers=tuple(headers)))
    assert parse_record(line.encode()) == NewRecord(
        key, value, tuple(headers), 1_700_000_000_123, 1
    )


def test_json_records_may_be_short() -> None:
    assert parse_record(b"{}") == NewRecord(None, None)
    assert parse_record(b'{"value": {"n": 1}, "headers": {"a": "b", "c": null}}') == NewRecord(
        None, b'{"n":1}', (("a", b"b"), ("c", None))
    )
    assert parse_record(b'{"key": 7, "timestamp": "1970-01-01T00:00:00.5"}') == NewRecord(
        b"7", None, timestamp_ms=500
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"vlaue": 1}', "did you mean 'value'?"),
        (b'{"value": "!", "encoding": "base64"}', "the value is not valid base64"),
        (b'{"value": 5, "encoding": "base64"}', "the value is not valid base64"),
        (b'{"key": "a", "key_encoding": "hex"}', "key is 'hex'"),
        (b'{"value": "\\ud800"}', "unpaired surrogate"),
        (b'{"headers": {"\\ud800": "a"}}', "unpaired surrogate"),
        (b'{"headers": 1}', "headers must be a list"),
        (b'{"headers": [{"k": 1}]}', "a header must be an object"),
        (b'{"partition": -1}', "partition is -1"),
        (b'{"partition": true}', "partition is True"),
        (b'{"timestamp": "soon"}', "timestamp is 'soon'"),
        (b'{"timestamp": 9999999999999999999999}', "the largest is"),
        (b"\xff", "not UTF-8"),
        (b'{"a": 1,}', "not JSON at column 9: "),
        (b'{"value": NaN}', "NaN is not valid JSON"),
        (b'{"value": [-Infinity]}', "-Infinity is not valid JSON"),
        (b'{"value": 1e400}', "infinite number"),
        (b'{"headers": {"h": [1e400]}}', "infinite number"),
    ],
)
def test_invalid_json_record_has_a_reason(line: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_record(line)
    assert message in caught.value.message


def test_headers_of_the_command_line_go_before_those_of_the_record() -> None:
    form = InputFormat(format=Format.JSON, headers=(("a", b"1"),))
    (entry,) = entries(b'{"headers": {"b": "2"}}\n', form)
    assert isinstance(entry.record, NewRecord)
    assert entry.record.headers == (("a", b"1"), ("b", b"2"))


def test_a_line_beyond_every_request_is_named() -> None:
    content = b"a\n" + b"x" * (RECORD_BYTES_MAX + 1) + b"\nb\n"
    found = entries(content, InputFormat(format=Format.LINES), chunk=1 << 18)
    assert [type(entry.record) for entry in found] == [NewRecord, MessageTooLarge, NewRecord]
    assert found[1].first == 2


# --- templates -----------------------------------------------------------------------------------


def test_a_template_writes_content_byte_for_byte() -> None:
    write = template_writer(
        r"{{{partition}/{offset}}} {timestamp}\t{key}={value}\0{headers}", b"\n"
    )
    line = write(record(b"\xff\n", key=None, headers=(("h", b"1"), ("n", None))))
    assert line == b"{1/42} 2023-11-14T22:13:20.123+00:00\t=\xff\n\0h=1,n=\n"
    assert template_writer("", b"")(record(b"x")) == b""
    assert raw_writer(b"\0")(record(None)) == b"\0"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{vlaue}", r"did you mean \{value\}\?"),
        ("{}", "fields are topic, partition"),
        ("{value", r"unmatched \{; write \{\{"),
        (r"\d", "not an escape"),
    ],
)
def test_invalid_template_has_a_reason(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        template_writer(template, b"")


# --- positions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("beginning", "earliest"),
        ("start", "earliest"),
        ("end", "latest"),
        ("now", "latest"),
        ("0", 0),
        ("42", 42),
        ("-5", FromEnd(5)),
        ("-90s", datetime(2024, 6, 1, 11, 58, 30, tzinfo=UTC)),
        ("-1.5h", datetime(2024, 6, 1, 10, 30, tzinfo=UTC)),
        ("-2d", datetime(2024, 5, 30, 12, tzinfo=UTC)),
        ("2024-01-02", datetime(2024, 1, 2, tzinfo=UTC)),
        ("2024-01-02T03:04:05+01:00", datetime.fromisoformat("2024-01-02T03:04:05+01:00")),
        ("1704164645000ms", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_positions_are_parsed(text: str, place: object) -> None:
    assert parse_offset_spec(text, now=NOW) == place


@pytest.mark.parametrize("text", ["", "soon", "-", "-x", "-1y", "1.5", "9" * 30, "-99999999999d"])
def test_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"place|offset"):
        parse_offset_spec(text, now=NOW)


def test_timestamps_are_numbers_or_times() -> None:
    assert [timestamp_of(value) for value in (None, -1, 0, "17", "1970-01-01T00:00:02Z")] == [
        None,
        None,
        0,
        17,
        2_000,
    ]
    wrong: object
    for wrong in (True, -2, 1.5, "x", []):
        with pytest.raises(InvalidRequest, match="timestamp is"):
            timestamp_of(wrong)


def test_json_line_of_a_record() -> None:
    row = json.loads(record_line(record(b"\xff", key=b"k", headers=(("h", b"\xfe"),))))
    assert row == {
        "topic": "t",
        "partition": 1,
        "offset": 42,
        "timestamp": 1_700_000_000_123,
        "key": "k",
        "value": "/w==",
        "headers": [{"key": "h", "value": "/g==", "encoding": "base64"}],
        "encoding": "base64",
    }


# --- terminals -----------------------------------------------------------------------------------


def test_record_content_cannot_control_a_terminal() -> None:
    value = "\x1b]0;title\x07 \u009b2J ü\tb\nc\r".encode()
    evil = record(value, key=b"\x1b[31m")
    shown = rb"\x1b]0;title\x07 \x9b2J " + "ü\tb\nc".encode() + rb"\r" + b"\n"
    assert for_terminal(value_line)(evil) == shown
    assert b"\t\\x1b[31m\t" in for_terminal(verbose_line)(evil)
    assert b"\x1b" not in for_terminal(verbose_line)(evil)
