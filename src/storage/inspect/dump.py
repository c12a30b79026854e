"""Dump of a file of a data directory: one row per batch, record, entry or line.

Rows are dicts of JSON's types; bytes that are not text are written as `\\x..`. Nothing is trusted
or repaired: an invalid part is a row with an `error`. Files of unfinished work (`.cleaned`,
`.swap`, `.deleted`, `.tmp`) are shown like finished ones. Works on a directory in use, and on one
written by Kafka. Memory is bounded by the largest batch, or by part of a compressed one.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...errors import CorruptionError, InvalidRequest, QuorumlogError
from ...records.batch import MAGIC, BatchHeader
from ...records.codec import decode_batch, decode_parts
from ...records.control import KEY, MarkerType, parse_marker
from ...records.record import Record
from ..checkpoints import decode_epochs, decode_offsets
from ..index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from ..layout import (
    CLEAN_MARKER,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_DIGITS,
    PART_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    is_number,
)
from ..producer_snapshot import decode_snapshot
from ..small_files import read_file
from ..transaction_index import ENTRY as TXN_ENTRY
from ..transaction_index import ENTRY_SIZE as TXN_ENTRY_SIZE
from .directory_check import QUORUM_STATE
from .scan import InvalidRange, ValidBatch, scan

if TYPE_CHECKING:
    from ...runtime.ports import Files

Row: TypeAlias = dict[str, Any]
Dump: TypeAlias = Callable[["Files", str], Iterator[Row]]

UNFINISHED_SUFFIXES: Final = (
    CLEANED_SUFFIX,
    SWAP_SUFFIX,
    DELETED_SUFFIX,
    TEMPORARY_SUFFIX,
    PART_SUFFIX,
)
METADATA_SNAPSHOT_SUFFIX: Final = ".checkpoint"
ENTRIES_READ: Final = 4096
"""Entries of an index per read."""

CONTROL_NAMES: Final = {
    0: "abort",
    1: "commit",
    2: "leader-change",
    3: "snapshot-header",
    4: "snapshot-footer",
    5: "kraft-version",
    6: "voters",
}

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


def dump_file(
    files: "Files",
    path: str,
    *,
    records: bool = False,
    controls: Callable[[bytes], Row] = lambda batch: {},
) -> Iterator[Row]:
    """Yield the rows of a file of a data directory.

    With `records`, the records of each batch follow it. `controls` returns additional fields for a
    control batch that ends no transaction. Raises InvalidRequest for an unknown kind of file,
    CorruptionError for a small file that does not parse, OSError. Waits for the device.
    """
    name = kind_name(path.rpartition("/")[2])
    if name.endswith((LOG_SUFFIX, METADATA_SNAPSHOT_SUFFIX)):
        return _dump_log(files, path, records=records, controls=controls)
    by_suffix: dict[str, Dump] = {
        INDEX_SUFFIX: _dump_index,
        TIME_INDEX_SUFFIX: _dump_time_index,
        TXN_INDEX_SUFFIX: _dump_transactions,
        SNAPSHOT_SUFFIX: _dump_snapshot,
    }
    for suffix, dump in by_suffix.items():
        if name.endswith(suffix):
            return dump(files, path)
    if name == LEADER_EPOCHS:
        return _dump_epochs(files, path)
    if name.endswith("-checkpoint"):
        return _dump_offsets(files, path)
    if name in (META_PROPERTIES, PARTITION_METADATA):
        return _dump_lines(files, path)
    if name in (QUORUM_STATE, CLEAN_MARKER):
        return _dump_json(files, path)
    raise InvalidRequest(
        f"{name} is not a file of a log: one of *.log, *.index, *.timeindex, *.txnindex,"
        f" *.snapshot, *.checkpoint, *-checkpoint, {META_PROPERTIES}, {PARTITION_METADATA},"
        f" {QUORUM_STATE}, {CLEAN_MARKER}"
    )


def kind_name(name: str) -> str:
    """Return a file's name without suffixes of unfinished work."""
    for suffix in UNFINISHED_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _base(path: str) -> int:
    """Return the base offset at the start of a file's name, 0 without one."""
    digits = path.rpartition("/")[2][:OFFSET_DIGITS]
    return int(digits) if len(digits) == OFFSET_DIGITS and is_number(digits) else 0


# --- batches -----------------------------------------------------------------------------------


def _dump_log(
    files: "Files", path: str, *, records: bool, controls: Callable[[bytes], Row]
) -> Iterator[Row]:
    is_snapshot = METADATA_SNAPSHOT_SUFFIX in path.rpartition("/")[2]
    file = files.open_readonly(path)
    try:
        size, first = file.size(), 0 if is_snapshot else _base(path)
        for piece in scan(file, 0, size, next_offset=first, with_records=False):
            if isinstance(piece, InvalidRange):
                yield _bad_row(piece, size)
                continue
            content = piece.content[piece.at : piece.at + piece.header.size]
            yield _batch_row(piece.position, piece.header) | _control(content, piece, controls)
            if records:
                yield from _record_rows(content, piece.header)
    finally:
        file.close()


def _bad_row(bad: InvalidRange, size: int) -> Row:
    header = bad.header
    left: Row = {"position": bad.position, "bytes_left": size - bad.position}
    if header is not None and header.magic == MAGIC and bad.position + header.size == bad.end:
        left = _batch_row(bad.position, header)
    return left | {"error": bad.reason}


def _batch_row(position: int, header: BatchHeader) -> Row:
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
        "delete_horizon": header.base_timestamp if header.has_delete_horizon else None,
        "crc": f"{header.crc:08x}",
    }
    try:
        row["codec"] = header.codec.name.lower()
    except QuorumlogError as error:
        row |= {"codec": None} | _error(error)
    return row


def _control(content: bytes, good: ValidBatch, controls: Callable[[bytes], Row]) -> Row:
    """Return the fields of a control batch."""
    header = good.header
    if not header.is_control or header.record_count == 0:
        return {"marker": None}
    try:
        marker = parse_marker(content, 0, header)
        if marker is not None:
            return {
                "marker": CONTROL_NAMES[marker.kind],
                "coordinator_epoch": marker.coordinator_epoch,
            }
        key = decode_batch(content)[0].key or b""
    except QuorumlogError as error:
        return {"marker": None} | _error(error)
    _, kind = KEY.unpack_from(key)
    assert kind not in tuple(MarkerType), f"{kind} ends a transaction"
    said: Row = {}
    with suppress(QuorumlogError):  # of another server or a newer version; the CRC is valid
        said = controls(content)
    return {"marker": CONTROL_NAMES.get(kind, f"type {kind}")} | said


def _record_rows(content: bytes, header: BatchHeader) -> Iterator[Row]:
    try:
        if header.is_control:
            yield from map(_record_row, decode_batch(content))
            return
        for part in decode_parts(content):
            yield from map(_record_row, part)
    except QuorumlogError as error:
        yield _error(error)


def _record_row(record: Record) -> Row:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _shown(record.key),
        "value": _shown(record.value),
        "headers": [[name, _shown(value)] for name, value in record.headers],
    }


# --- indexes and snapshots ---------------------------------------------------------------------


def _entries(files: "Files", path: str, entry: Struct) -> Iterator[tuple[int, ...] | Row]:
    """Yield the entries of a file, and an error row for remaining bytes."""
    file = files.open_readonly(path)
    try:
        position, size = 0, file.size()
        while position + entry.size <= size:
            content = file.read(position, min(size - position, ENTRIES_READ * entry.size))
            whole = len(content) - len(content) % entry.size
            if not whole:
                break  # the file was truncated
            yield from entry.iter_unpack(memoryview(content)[:whole])
            position += whole
    finally:
        file.close()
    if position < size:
        yield {"position": position, "error": f"{size - position} bytes are not a whole entry"}


def _dump_index(files: "Files", path: str) -> Iterator[Row]:
    base = _base(path)
    assert _OFFSET_ENTRY.size == OFFSET_ENTRY_SIZE, "the layout of index.py"
    for entry in _entries(files, path, _OFFSET_ENTRY):
        if isinstance(entry, dict):
            yield entry
        else:
            yield {"offset": base + entry[0], "position": entry[1]}


def _dump_time_index(files: "Files", path: str) -> Iterator[Row]:
    base = _base(path)
    assert _TIME_ENTRY.size == TIME_ENTRY_SIZE, "the layout of index.py"
    for entry in _entries(files, path, _TIME_ENTRY):
        if isinstance(entry, dict):
            yield entry
        else:
            yield {"timestamp": entry[0], "offset": base + entry[1]}


def _dump_transactions(files: "Files", path: str) -> Iterator[Row]:
    assert TXN_ENTRY.size == TXN_ENTRY_SIZE, "the layout of transactions.py"
    for entry in _entries(files, path, TXN_ENTRY):
        if isinstance(entry, dict):
            yield entry
            continue
        version, producer_id, first, last, stable = entry
        yield {
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }


def _dump_snapshot(files: "Files", path: str) -> Iterator[Row]:
    snapshot = decode_snapshot(read_file(files, path), path, end_offset=_base(path))
    for producer_id, entry in snapshot.entries:
        yield {
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "next_sequence": entry.next_sequence,
            "transaction_start": entry.transaction_start,
            "idle_ms": snapshot.age_ms - entry.touched_ms,
            "batches": [batch._asdict() for batch in entry.batches],
        }
    for first, marker in snapshot.unreplicated:
        yield {"unreplicated_first_offset": first, "marker_offset": marker}


# --- small files -------------------------------------------------------------------------------


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


def _dump_json(files: "Files", path: str) -> Iterator[Row]:
    try:
        fields = json.loads(read_file(files, path) or b"{}")
    except ValueError as error:
        raise CorruptionError(f"invalid JSON: {error}", path=path) from None
    if not isinstance(fields, dict):
        raise CorruptionError("not a JSON object", path=path)
    for key, value in fields.items():
        yield {"key": str(key), "value": str(value)}


def _shown(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")


def _error(error: QuorumlogError) -> Row:
    return {"error": error.message}
