"""Records with edge cases for clients and brokers, and their comparison."""

from collections.abc import Iterable, Sequence
from typing import Final

from .driving import Driver, Found, Headers, Sent

T0: Final = 1_750_000_000_000
LARGE_BYTES: Final = 900_000


def unusual(driver: Driver) -> list[Sent]:
    """Return records with nulls, empty values, headers and extreme timestamps, as far as the client
    supports them."""
    records = [
        Sent(key=b"key", value=b"value", timestamp_ms=T0 + 500),
        Sent(key=None, value=b"no key", timestamp_ms=T0 + 400),
        Sent(key="\u00fc\u2192\U0001f600".encode(), value=bytes(range(256)), timestamp_ms=T0 + 1),
        Sent(key=b"early", value=b"x" * 3000, timestamp_ms=1),
        Sent(key=b"k", value=b"v", headers=(("h", b"1"), ("h", b"2")), timestamp_ms=T0),
        Sent(key=b"k", value=b"v", headers=(("\u00fc", bytes(range(128, 256))),), timestamp_ms=T0),
    ]
    if "empty" not in driver.cannot:
        records.append(Sent(key=b"", value=b"", timestamp_ms=T0 + 100))
        records.append(Sent(key=b"k", value=b"v", headers=(("h", b""),), timestamp_ms=T0))
    if "null" not in driver.cannot:
        records.append(Sent(key=b"tombstone", value=None, timestamp_ms=T0 + 600))
    if "headers.null" not in driver.cannot:
        records.append(Sent(key=b"k", value=b"v", headers=(("h", None),), timestamp_ms=T0))
    return [sayable(driver, record) for record in records]


def sayable(driver: Driver, record: Sent) -> Sent:
    """Return a record without the parts that the client does not support."""
    headers: Headers = () if "headers" in driver.cannot else record.headers
    time_ms = None if "timestamps" in driver.cannot else record.timestamp_ms
    return Sent(
        value=record.value,
        key=record.key,
        headers=headers,
        timestamp_ms=time_ms,
        partition=record.partition,
    )


def numbered(
    count: int, *, size: int = 100, partition: int | None = 0, since: int = 0
) -> list[Sent]:
    """Return `count` distinct records of `size` bytes."""
    return [
        Sent(key=b"%d" % (i % 97), value=(b"%d " % i * size)[:size], partition=partition)
        for i in range(since, since + count)
    ]


def contents(records: Iterable[Sent | Found]) -> list[tuple[bytes | None, bytes | None, Headers]]:
    """Return the compared parts of records: not position and time."""
    return [(record.key, record.value, tuple(record.headers)) for record in records]


def assert_same(found: Sequence[Found], sent: Sequence[Sent]) -> None:
    """Assert that the found records are the sent ones, in order, with their timestamps."""
    assert contents(found) == contents(sent)
    for one, wanted in zip(found, sent, strict=True):
        if wanted.timestamp_ms is not None:
            assert one.timestamp_ms == wanted.timestamp_ms, (one, wanted)
        assert wanted.partition in (None, one.partition)


def assert_dense(found: Sequence[Found], first: int = 0) -> None:
    """Assert that a partition's offsets have neither gap nor repeat."""
    assert [one.offset for one in found] == list(range(first, first + len(found)))
