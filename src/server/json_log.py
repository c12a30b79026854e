"""The log of a node on stderr, as text or as JSON.

Every log line is an event: a stable name (`raft.became_leader`), then `key=value` pairs, written as
a format string with arguments. So the JSON formatter derives the fields from the format string, and
numbers stay numbers. docs/observability.md lists the events.
"""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any, Final

TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
RESERVED: Final = ("time", "level", "logger", "event", "message", "traceback")
"""Keys of every line, which no event may use for a field."""

_EVENT: Final = re.compile(r"([a-z]+\.[a-z_]+):?(?=\s|$)")
_TOKEN: Final = re.compile(r"(?:(?<!\S)(\w+)=)?(\S+)")
_CONVERSION: Final = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z%]")


class JsonFormatter(logging.Formatter):
    """Writes one JSON object for each record: the reserved keys, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a value without a JSON form becomes text."""
        text = record.getMessage()
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z",
            "level": record.levelname,
            "logger": record.name,
        }
        if (event := _EVENT.match(text)) is not None:
            line["event"] = event[1]
            line.update(fields_of(record.msg, record.args))
        line["message"] = text
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def fields_of(form: object, arguments: object) -> dict[str, Any]:
    """Return the `key=` fields of a format string with their values. Numbers, booleans and None
    stay as they are; other values are formatted."""
    if not isinstance(form, str) or not isinstance(arguments, tuple):
        return {}
    found: dict[str, Any] = {}
    used = 0  # arguments consumed by earlier tokens
    for key, text in _TOKEN.findall(form):
        count = sum(1 for each in _CONVERSION.findall(text) if each != "%%")
        values, used = arguments[used : used + count], used + count
        if key and key not in RESERVED and len(values) == count:
            found[key] = _value(text.rstrip(":,;"), values)
    return found


def _value(text: str, values: tuple[object, ...]) -> object:
    """Return a single number or None unchanged, any other value as text."""
    if len(values) == 1 and _CONVERSION.fullmatch(text):
        value = values[0]
        if value is None or isinstance(value, int | float):
            return value
    return text % values


def write_json() -> None:
    """Set the JSON formatter on every root handler of this process."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
