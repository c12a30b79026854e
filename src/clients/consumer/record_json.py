"""Consumed records as JSON lines, the format of `quorumlog consume --output json`.

Content that is not UTF-8 is base64, marked by "encoding" (of the value, and in a header) or
"key_encoding"; null is null.
"""

import base64
import json
from collections.abc import Callable
from typing import Any

from .record import ConsumerRecord

MEMBERS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "encoding",
    "key_encoding",
)
_dumps: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False).encode


def text_or_base64(content: bytes | None) -> tuple[str | None, bool]:
    """Return (text, False) for UTF-8 bytes, (base64, True) for others."""
    if content is None:
        return None, False
    try:
        return content.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(content).decode("ascii"), True


def record_line(record: ConsumerRecord) -> str:
    """Return a record as one line of JSON."""
    return _dumps(record_json(record))


def record_json(record: ConsumerRecord) -> dict[str, Any]:
    """Return the JSON object of a record."""
    value, is_value_base64 = text_or_base64(record.value)
    key, is_key_base64 = text_or_base64(record.key)
    row: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "value": value,
        "headers": [_header_json(name, content) for name, content in record.headers],
    }
    if is_value_base64:
        row["encoding"] = "base64"
    if is_key_base64:
        row["key_encoding"] = "base64"
    return row


def _header_json(name: str, content: bytes | None) -> dict[str, Any]:
    value, is_base64 = text_or_base64(content)
    row: dict[str, Any] = {"key": name, "value": value}
    if is_base64:
        row["encoding"] = "base64"
    return row
