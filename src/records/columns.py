"""Columns of records in Arrow's memory layout, as plain buffers.

The codecs encode from and decode into these columns. This module does not import pyarrow:
`arrow.py` converts between these buffers and arrays without a copy.

Layout (the Arrow columnar format): a validity bitmap is least-significant-bit first, 1 = present,
and None without nulls; a binary column has length + 1 offsets into its data. `start` is the index
of the first element, so that a slice shares its parent's buffers. A buffer too short for its column
raises ValueError at construction.
"""

from dataclasses import dataclass

from .compression import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryColumn:
    """Byte strings, some of them null."""

    length: int
    offsets: Buffer  # int32, or int64 when `is_wide`; native byte order
    data: Buffer
    validity: Buffer | None = None
    start: int = 0
    is_wide: bool = False

    def __post_init__(self) -> None:
        width = 8 if self.is_wide else 4
        _check_slice(self.start, self.length)
        if self.length:
            _check_size("offsets", self.offsets, width * (self.start + self.length + 1))
        _check_validity(self.validity, self.start + self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int64Column:
    """64-bit integers, some of them null."""

    length: int
    values: Buffer
    validity: Buffer | None = None
    start: int = 0

    def __post_init__(self) -> None:
        _check_slice(self.start, self.length)
        _check_size("values", self.values, 8 * (self.start + self.length))
        _check_validity(self.validity, self.start + self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderColumn:
    """Lists of (key, value); list i is entries [offsets[start + i], offsets[start + i + 1])."""

    length: int
    offsets: Buffer  # int32, length + 1 of them from `start`
    keys: BinaryColumn
    values: BinaryColumn
    validity: Buffer | None = None
    start: int = 0

    def __post_init__(self) -> None:
        _check_slice(self.start, self.length)
        if self.length:
            _check_size("offsets", self.offsets, 4 * (self.start + self.length + 1))
        _check_validity(self.validity, self.start + self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """The columns of a producer's records, all of one length; only `values` is required."""

    values: BinaryColumn
    keys: BinaryColumn | None = None
    timestamps_ms: Int64Column | None = None
    headers: HeaderColumn | None = None
    timestamp_ms: int = -1  # of records without an own timestamp; -1 is Kafka's "none"

    @property
    def length(self) -> int:
        """Number of records."""
        return self.values.length

    def __post_init__(self) -> None:
        for name in ("keys", "timestamps_ms", "headers"):
            column = getattr(self, name)
            if column is not None and column.length != self.length:
                raise ValueError(f"{name} has {column.length} rows, values has {self.length}")
        if not -(2**63) <= self.timestamp_ms < 2**63:
            raise ValueError(f"timestamp {self.timestamp_ms} has more than 64 bits")


def _check_slice(start: int, length: int) -> None:
    if start < 0 or length < 0:
        raise ValueError(f"a column of {length} rows from {start}; neither may be negative")


def _check_size(name: str, buffer: Buffer, least: int) -> None:
    size = memoryview(buffer).nbytes
    if size < least:
        raise ValueError(f"{name} has {size} bytes, {least} are needed")


def _check_validity(validity: Buffer | None, rows: int) -> None:
    if validity is not None:
        _check_size("validity", validity, (rows + 7) // 8)


WANT_KEY = 1
WANT_VALUE = 2
WANT_OFFSET = 4
WANT_TIMESTAMP = 8
WANT_TIMESTAMP_TYPE = 16
WANT_HEADERS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedColumns:
    """The decoded columns of many batches; columns that were not requested are None.

    `timestamps_us` is microseconds since 1970 (milliseconds outside its range are clamped),
    `timestamp_types` is 0 for the producer's time and 1 for the log's.
    """

    length: int
    keys: BinaryColumn | None = None
    values: BinaryColumn | None = None
    offsets: Buffer | None = None  # int64
    timestamps_us: Buffer | None = None  # int64
    timestamp_types: Buffer | None = None  # int32
    headers: HeaderColumn | None = None  # null for a record without headers
