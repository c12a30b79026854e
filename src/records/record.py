"""One record as an object; columns are in `columns.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from .compression import Buffer

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

INT32_MAX = 2**31 - 1
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

RECORD_SIZE_MIN = 7
"""Size of the smallest record in bytes: length, attributes, two deltas, null key, null value, no
headers."""


@dataclass(slots=True)
class Record:
    """One record of a log; `offset` is ignored when encoding."""

    offset: int
    timestamp_ms: int  # ms since 1970; -1 none
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Body(NamedTuple):
    """The inflated records of one batch, with fields of its header.

    The input of both codecs; header, CRC and compression are already processed.
    """

    buffer: Buffer
    start: int  # the records are buffer[start:end]
    end: int
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_timestamp: int | None  # every record's timestamp when the log sets it, else None


class Fault(IntEnum):
    """The possible faults of the records of a batch with a valid header and CRC."""

    COUNT = 1
    TRUNCATED = 2
    VARINT = 3
    LENGTH = 4
    KEY_LENGTH = 5
    VALUE_LENGTH = 6
    HEADER_COUNT = 7
    HEADER_KEY = 8
    HEADER_VALUE = 9
    TRAILING = 10
    OFFSET = 11
    TIMESTAMP = 12
    LEFTOVER = 13
    KEY_MISSING = 14
    TIMESTAMP_MAX = 15
    TIMESTAMP_MIN = 16


FAULT_TEXT: dict[Fault, str] = {
    Fault.COUNT: "the record count of the header exceeds the size of the batch",
    Fault.TRUNCATED: "it is truncated",
    Fault.VARINT: "a varint is too long",
    Fault.LENGTH: "its length is impossible",
    Fault.KEY_LENGTH: "the key's length is impossible",
    Fault.VALUE_LENGTH: "the value's length is impossible",
    Fault.HEADER_COUNT: "the number of headers is impossible",
    Fault.HEADER_KEY: "a header's key is not UTF-8 or its length is impossible",
    Fault.HEADER_VALUE: "the length of a header's value is impossible",
    Fault.TRAILING: "bytes follow its last field",
    Fault.OFFSET: "its offset is out of order",
    Fault.TIMESTAMP: "its timestamp is out of range",
    Fault.LEFTOVER: "bytes follow the last record",
    Fault.KEY_MISSING: "it has no key",
    Fault.TIMESTAMP_MAX: "its timestamp is above the batch's maximum",
    Fault.TIMESTAMP_MIN: "its timestamp is older than the topic allows",
}


class Malformed(Exception):
    """An invalid record, `index` (0-based) of a body; both codecs raise it with equal arguments."""

    def __init__(self, fault: int, index: int) -> None:
        super().__init__(fault, index)
        self.fault = Fault(fault)
        self.index = index

    def __str__(self) -> str:
        return f"record {self.index}: {FAULT_TEXT[self.fault]}"


class ColumnTooLarge(Exception):
    """A column would exceed the 2 GiB that its 32-bit offsets can address."""


Seal: TypeAlias = Callable[[memoryview, int, int, int], bytes]
"""(records, count, base timestamp, max timestamp) -> the header of the batch."""
