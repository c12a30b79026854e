"""Types of the compiled codec; what the functions do is said in `_plain.py`."""

from collections.abc import Callable, Sequence
from typing import Any

from .columns import BinaryColumn, DecodedColumns, RecordColumns
from .compression import Buffer
from .record import Body, Record, Seal

FAULT_NUMBERS: dict[str, int]
WANT_NUMBERS: dict[str, int]

class ColumnBuilder:
    def __init__(self, wanted: int, reserve: int = 0, data_limit: int = ...) -> None: ...
    def append(self, body: Body, start_offset: int, end_offset: int) -> None: ...
    def finish(self) -> DecodedColumns: ...

class ColumnWriter:
    count: int
    def __init__(self, columns: RecordColumns, rows: Buffer | None) -> None: ...
    def write(
        self, first: int, end: int, body_limit: int, seal: Seal | None
    ) -> tuple[bytes, int, int, int]: ...

def read_records(
    body: Body,
    start_offset: int,
    end_offset: int,
    records: list[Any],
    make: Callable[..., Any] = ...,
) -> None: ...
def walk_records(body: Body, max_timestamp: int, keys_required: bool) -> None: ...
def find_timestamp(body: Body, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None: ...
def write_records(
    records: Sequence[Record], base_offset: int, keep_offsets: bool
) -> tuple[bytes, int, int, int]: ...
def murmur2(key: Buffer) -> int: ...
def partitions_for_keys(keys: BinaryColumn, partitions: int, null_start: int) -> Buffer: ...
def partition_rows(
    keys: BinaryColumn, partitions: int, null_start: int
) -> tuple[Buffer, list[int]]: ...
