"""Records from JSON lines: read by `produce --format json`, printed by `consume --output json`.

```
{"topic", "partition", "offset", "timestamp", "key", "value", "headers": [{"key", "value"}]}
```
The two commands in a pipe copy records without loss. `timestamp` is milliseconds since 1970 (UTC).
Content that is not UTF-8 is base64, marked by "encoding" (of the value, and in a header) or
"key_encoding"; null is null. On input every member is optional, `timestamp` may be ISO 8601,
`headers` may be an object, and a value that is not a string is sent as JSON; `topic` and `offset`
are ignored.
"""

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias

from ..clients.consumer.record_json import MEMBERS
from ..clients.times import timestamp_of
from ..errors import InvalidRequest

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

_ENCODINGS = (None, "base64", "utf-8")
_dumps_compact: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


@dataclass(slots=True)
class NewRecord:
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None  # None: the time of the send
    partition: int | None = None  # None: the partitioner chooses

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


def parse_line(line: bytes) -> Any:
    """Return the value of a line of JSON; raise InvalidRequest if it is malformed."""
    try:
        return _decode(line.decode())
    except RecursionError:
        raise InvalidRequest("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"not JSON at column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError:
        raise InvalidRequest("not UTF-8") from None
    except ValueError as error:  # a number of thousands of digits
        raise InvalidRequest(f"not JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise InvalidRequest(f"{name} is not valid JSON; give null or a string")


_decode: Callable[[str], Any] = json.JSONDecoder(parse_constant=_refuse_constant).decode


def parse_record(line: bytes) -> NewRecord:
    """Return the record of a JSON line; raise InvalidRequest for malformed lines."""
    row = parse_line(line)
    if not isinstance(row, dict):
        raise InvalidRequest('not a JSON object; give {"key": "UA", "value": "..."}')
    for name in row:
        if name not in MEMBERS:
            near = get_close_matches(name, MEMBERS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"members are {', '.join(MEMBERS)}"
            raise InvalidRequest(f"unknown member {name!r}; {hint}")
    partition = row.get("partition")
    if partition is not None and not (_is_int(partition) and partition >= 0):
        raise InvalidRequest(f"partition is {partition!r}; give a number, 0 or more")
    return NewRecord(
        key=content_of(row.get("key"), row.get("key_encoding"), "key"),
        value=content_of(row.get("value"), row.get("encoding"), "value"),
        headers=_headers_of(row.get("headers")),
        timestamp_ms=timestamp_of(row.get("timestamp")),
        partition=partition,
    )


def content_of(value: Any, encoding: Any, what: str) -> bytes | None:
    """Return the bytes of a JSON value: a string as UTF-8 or from base64, null as None, other
    values as compact JSON."""
    if encoding not in _ENCODINGS:
        raise InvalidRequest(f"the encoding of the {what} is {encoding!r}; give base64 or utf-8")
    if value is None:
        return None
    if encoding == "base64":
        return _from_base64(value, what)
    try:
        if isinstance(value, str):
            return value.encode()
        return _dumps_compact(value).encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            f"the {what} has an unpaired surrogate, which is not valid text"
        ) from None
    except ValueError:
        raise InvalidRequest(f"the {what} has an infinite number or NaN; give a string") from None


def _from_base64(value: Any, what: str) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InvalidRequest(f"the {what} is not valid base64")


def _headers_of(headers: Any) -> Headers:
    if headers is None:
        return ()
    if isinstance(headers, dict):
        return tuple(
            (_header_name(name), content_of(value, None, f"header {name!r}"))
            for name, value in headers.items()
        )
    if not isinstance(headers, list):
        raise InvalidRequest('headers must be a list of {"key", "value"}, or an object')
    pairs = []
    for each in headers:
        if not (isinstance(each, dict) and isinstance(each.get("key"), str)):
            raise InvalidRequest(
                'a header must be an object {"key": string, "value": string or null}'
            )
        what = f"header {each['key']!r}"
        value = content_of(each.get("value"), each.get("encoding"), what)
        pairs.append((_header_name(each["key"]), value))
    return tuple(pairs)


def _header_name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            "a header's key has an unpaired surrogate, which is not valid text"
        ) from None
    return name


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
