"""Conversion and validation of records given to a producer, one by one or as columns. Pure.

Raises TypeError for a wrong type, InvalidTimestamp for a time out of range, InvalidRecord for text
that UTF-8 cannot encode.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from operator import index
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

from ...errors import InvalidRecord, InvalidRequest, InvalidTimestamp, MessageTooLarge
from ...records.record import Headers
from .batch_encoder import headers_size
from .batches import OBJECT_OVERHEAD, RECORD_OVERHEAD

Content: TypeAlias = bytes | bytearray | memoryview | str | None
"""A key or a value; text is encoded as UTF-8."""

HeadersIn: TypeAlias = Mapping[str, Content] | Sequence[tuple[str, Content]] | None

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
TIMESTAMP_MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999, as in datetime


def as_bytes(content: Content, what: str) -> bytes:
    """Return content as bytes, text as UTF-8; raise TypeError for another type."""
    if isinstance(content, str):
        return _encoded(content, what)
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"a {what} is bytes or str, not {type(content).__name__}")


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecord(f"a {what} is text that UTF-8 cannot encode: {error.reason}") from None


def as_int(number: object, what: str) -> int:
    """Return an int from any integer type; raise TypeError for another type."""
    if not isinstance(number, SupportsIndex):
        raise TypeError(f"{what} an int, not {type(number).__name__}")
    return index(number)


def as_timestamp_ms(timestamp: int | datetime) -> int:
    """Return milliseconds since 1970.

    Raises InvalidTimestamp for a time out of range or a naive datetime, TypeError for another
    type.
    """
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise InvalidTimestamp(
                f"{timestamp} has no time zone: give an aware datetime, e.g. in datetime.UTC"
            )
        timestamp_ms = (timestamp - EPOCH) // MILLISECOND
    elif type(timestamp) is int:
        timestamp_ms = timestamp
    else:
        timestamp_ms = as_int(timestamp, "timestamp_ms is milliseconds since 1970,")
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise InvalidTimestamp(
            f"timestamp_ms is {timestamp_ms}: it is milliseconds since 1970, 0 to "
            f"{TIMESTAMP_MS_MAX} (the year 9999)"
        )
    return timestamp_ms


def size_bound(value: Content, key: Content, headers: HeadersIn) -> int:
    """Return an upper bound of a record's size in the buffer, in bytes."""
    size = RECORD_OVERHEAD + OBJECT_OVERHEAD
    for content in (value, key):
        if content is not None:
            size += len(as_bytes(content, "key or value"))
    return size if headers is None else size + headers_size(as_headers(headers))


def as_headers(headers: Mapping[str, Content] | Sequence[tuple[str, Content]]) -> Headers:
    """Return headers in order, as (name, value or None) pairs."""
    taken: list[tuple[str, bytes | None]] = []
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TypeError(f"headers are a mapping, or pairs of a str and its value, not {pair!r}")
        name, value = pair
        _encoded(name, "header's name")
        taken.append((name, None if value is None else as_bytes(value, "header's value")))
    return tuple(taken)


class Bulk(NamedTuple):
    """The records of one `send_many`."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    ends: Sequence[int]  # running sums of the records' sizes
    size_max: int  # of one of them


def check_size(topic: str, size: int, size_max: int) -> None:
    """Raise MessageTooLarge if a record of `size` bytes exceeds the request size."""
    if size > size_max:
        raise MessageTooLarge(
            f"a record of {size} bytes is larger than max_request_size ({size_max}): raise it on"
            " the producer, and max.message.bytes on the topic",
            topic=topic,
        )


def make_bulk(
    topic: str, values: Sequence[Content], keys: Sequence[Content] | None, *, size_max: int
) -> Bulk:
    """Return the arguments as columns of bytes; one invalid record refuses all.

    Raises InvalidRequest for columns of different lengths, TypeError, and MessageTooLarge.
    """
    if keys is not None and len(keys) != len(values):
        raise InvalidRequest(f"{len(values)} values have {len(keys)} keys: give one key per value")
    whole = _as_column(values, "value")
    own = None if keys is None else _as_column(keys, "key")
    sizes = _sizes(whole)
    if own is not None:
        sizes = [size + more for size, more in zip(sizes, _sizes(own), strict=True)]
    largest = max(sizes, default=0) + RECORD_OVERHEAD
    if largest > size_max:
        place = sizes.index(largest - RECORD_OVERHEAD)
        raise MessageTooLarge(
            f"record {place} of {len(whole)} has {largest} bytes, more than max_request_size "
            f"({size_max}): none was taken",
            topic=topic,
        )
    ends = list(accumulate(size + RECORD_OVERHEAD for size in sizes))
    return Bulk(whole, own, ends, largest)


def _as_column(contents: Sequence[Content], what: str) -> list[bytes | None]:
    if isinstance(contents, str | bytes | bytearray):
        raise TypeError(f"send_many takes a sequence of {what}s, not one {what}")
    if set(map(type, contents)) <= {bytes, type(None)}:
        return list(contents)  # type: ignore[arg-type]  # the types were checked above
    return [None if content is None else as_bytes(content, what) for content in contents]


def _sizes(column: Sequence[bytes | None]) -> list[int]:
    if None in column:
        return [0 if item is None else len(item) for item in column]
    return list(map(len, column))  # type: ignore[arg-type]  # None is ruled out above
