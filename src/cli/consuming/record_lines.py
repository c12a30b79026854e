"""Line formats of `consume`: values, JSON lines, a template, or raw bytes."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

from ..escapes import encode_escaped, unescape
from ..output import text_or_base64, time_text
from ..record_json import record_line

if TYPE_CHECKING:
    from ...clients import ConsumerRecord

Writer: TypeAlias = "Callable[[ConsumerRecord], bytes]"

FIELDS = ("topic", "partition", "offset", "timestamp", "timestamp_ms", "key", "value", "headers")
_SHOWN = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
del _SHOWN[ord("\t")], _SHOWN[ord("\n")]
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
    """Return a writer that escapes control characters as \\xHH, except tabs and line ends, so that
    records cannot control the terminal."""
    return lambda record: write(record).decode().translate(_SHOWN).encode()


def json_line(record: "ConsumerRecord") -> bytes:
    """Return the record as a JSON line."""
    return record_line(record).encode() + b"\n"


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
