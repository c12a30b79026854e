"""Prints what a file of a data directory holds: one row a batch, record, entry or line.

For people and tools; rows are plain dicts of JSON's types (bytes that are no text are written as
`\\x..`). Nothing is trusted and nothing is repaired: a bad batch is a row with an `error`, and the
dump of that file ends there. Works on a directory that is in use, and on one that Kafka wrote.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...errors import CorruptionError, InvalidRequest, QuorumlogError
from ...records.batch import BatchHeader, check_crc
from ...records.codec import decode_batch
from ..checkpoints import decode_epochs, decode_offsets
from ..contents import read_file
from ..index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from ..layout import (
    INDEX_SUFFIX,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    segment_base,
)
from ..segment import walk

if TYPE_CHECKING:
    from ...runtime.ports import File, Files

Row: TypeAlias = dict[str, Any]
Dump: TypeAlias = Callable[["Files", str], Iterator[Row]]

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


def dump_file(files: "Files", path: str, *, records: bool = False) -> Iterator[Row]:
    """Yield the rows of a .log, .index, .timeindex, checkpoint or properties file.

    With `records` the records of each batch follow it. Raises InvalidRequest for a file of no
    known kind, CorruptionError for a checkpoint that does not parse, OSError. Waits for the device.
    """
    name = path.rpartition("/")[2]
    if name.endswith(LOG_SUFFIX):
        return _dump_log(files, path, records=records)
    if name.endswith(INDEX_SUFFIX):
        return _dump_index(files, path)
    if name.endswith(TIME_INDEX_SUFFIX):
        return _dump_time_index(files, path)
    if name == LEADER_EPOCHS:
        return _dump_epochs(files, path)
    if name.endswith("-checkpoint"):
        return _dump_offsets(files, path)
    if name in (META_PROPERTIES, PARTITION_METADATA):
        return _dump_lines(files, path)
    raise InvalidRequest(
        f"{name} is no file of a log: one of *.log, *.index, *.timeindex, *-checkpoint, "
        f"{META_PROPERTIES}, {PARTITION_METADATA}"
    )


def _dump_log(files: "Files", path: str, *, records: bool) -> Iterator[Row]:
    file = files.open_readonly(path)
    try:
        size = file.size()
        try:
            for position, header in walk(file, 0, size):
                yield from _batch_rows(file, position, header, records=records)
        except CorruptionError as error:
            yield {"position": error.position, "bytes_left": size - error.position} | _error(error)
    finally:
        file.close()


def _batch_rows(
    file: "File", position: int, header: BatchHeader, *, records: bool
) -> Iterator[Row]:
    content = file.read(position, header.size)
    row: Row = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "position": position,
        "size": header.size,
        "leader_epoch": header.leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.log_append_time else "CreateTime",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": f"{header.crc:08x}",
    }
    try:
        row["codec"] = header.codec.name.lower()
        check_crc(content, 0, header)
    except QuorumlogError as error:
        yield row | _error(error)
        return
    yield row
    if records:
        yield from _record_rows(content)


def _record_rows(content: bytes) -> Iterator[Row]:
    try:
        decoded = decode_batch(content)
    except QuorumlogError as error:
        yield _error(error)
        return
    for record in decoded:
        yield {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": _shown(record.key),
            "value": _shown(record.value),
            "headers": [[name, _shown(value)] for name, value in record.headers],
        }


def _dump_index(files: "Files", path: str) -> Iterator[Row]:
    base = segment_base(path.rpartition("/")[2], INDEX_SUFFIX) or 0
    content = read_file(files, path)
    for at in range(0, len(content) - OFFSET_ENTRY_SIZE + 1, OFFSET_ENTRY_SIZE):
        relative, position = _OFFSET_ENTRY.unpack_from(content, at)
        yield {"offset": base + relative, "position": position}
    yield from _rest(content, OFFSET_ENTRY_SIZE)


def _dump_time_index(files: "Files", path: str) -> Iterator[Row]:
    base = segment_base(path.rpartition("/")[2], TIME_INDEX_SUFFIX) or 0
    content = read_file(files, path)
    for at in range(0, len(content) - TIME_ENTRY_SIZE + 1, TIME_ENTRY_SIZE):
        timestamp, relative = _TIME_ENTRY.unpack_from(content, at)
        yield {"timestamp": timestamp, "offset": base + relative}
    yield from _rest(content, TIME_ENTRY_SIZE)


def _rest(content: bytes, entry_size: int) -> Iterator[Row]:
    left = len(content) % entry_size
    if left:
        yield {"position": len(content) - left, "error": f"{left} bytes are no whole entry"}


def _dump_epochs(files: "Files", path: str) -> Iterator[Row]:
    for epoch, start in decode_epochs(read_file(files, path), path):
        yield {"leader_epoch": epoch, "start_offset": start}


def _dump_offsets(files: "Files", path: str) -> Iterator[Row]:
    for name, offset in decode_offsets(read_file(files, path), path).items():
        yield {"log": name, "offset": offset}


def _dump_lines(files: "Files", path: str) -> Iterator[Row]:
    for line in read_file(files, path).decode("utf-8", "backslashreplace").splitlines():
        separator = "=" if "=" in line else ":"
        key, _, value = line.partition(separator)
        yield {"key": key.strip(), "value": value.strip()}


def _shown(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")


def _error(error: QuorumlogError) -> Row:
    return {"error": error.message}
