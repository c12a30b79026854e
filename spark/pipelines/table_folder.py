"""The folder of a pipeline's table: its lock, its last micro-batch, and files that are not in it.

Spark writes a micro-batch into a work folder beside the table, so that no reader of the table finds
the files of a failed attempt. `_quorumlog/table.json` has the query that writes the table and its
last micro-batch; readers ignore names that begin with an underscore. One process at a time changes
a table, under a lock on `_quorumlog/lock`.
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from quorumlog.errors import DirectoryInUse, DirectoryUnusable, InvalidConfig

TARGET_BYTES: Final = 128 << 20
"""Default size of a compacted file."""

_CONTROL: Final = "_quorumlog"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a micro-batch."""

    schema: str  # Spark's JSON
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of one micro-batch."""

    files: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CompactedFiles:
    """The result of a compaction."""

    partitions: int  # that had small files
    files_before: int  # of these partitions
    files_after: int
    records: int  # in rewritten files
    bytes: int  # of new files


class StagedFile(NamedTuple):
    """A file in the work folder."""

    path: Path
    partition: str  # "date=2013-01-01"
    name: str  # in the table; the same for every attempt, so that a repeated move replaces it
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The content of table.json: the last decided micro-batch."""

    query: str = ""  # empty: none
    number: int = -1
    moves: tuple[tuple[str, str], ...] = ()  # from the work folder into the table; none once done
    columns: TableColumns | None = None  # of the table; None: its format stores them itself


class TableFolder:
    """The folder of a table that this process may change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = work_folder(path)
        self._last = path / _CONTROL / "table.json"

    def read_last(self) -> LastBatch:
        """Return the last decided micro-batch; raise DirectoryUnusable for a damaged file."""
        try:
            fields = json.loads(self._last.read_bytes())
        except FileNotFoundError:
            return LastBatch()
        except ValueError as error:
            raise DirectoryUnusable(
                f"{self._last}: it is not JSON ({error}); restore it"
            ) from error
        if fields["version"] != _VERSION:
            raise DirectoryUnusable(
                f"{self._last}: version {fields['version']} is not supported, only {_VERSION}; "
                "use the release that wrote it"
            )
        moves = tuple((source, target) for source, target in fields["moves"])
        columns = None
        if "schema" in fields:
            columns = TableColumns(fields["schema"], tuple(fields["partition_by"]))
        return LastBatch(fields["query"], fields["batch"], moves, columns)

    def write_last(self, last: LastBatch) -> None:
        """Store the last decided micro-batch, atomically and durably."""
        fields: dict[str, Any] = {
            "version": _VERSION,
            "query": last.query,
            "batch": last.number,
            "moves": last.moves,
        }
        if last.columns is not None:
            fields["schema"] = last.columns.schema
            fields["partition_by"] = last.columns.partition_by
        replace_file(self._last, json.dumps(fields, indent=1).encode())

    def stage(self, query: str, number: int, last: LastBatch) -> Path | None:
        """Return the absent folder for the files of a micro-batch, None if it is decided.

        Raises InvalidConfig unless the query's checkpoint wrote the table so far.
        """
        if last.query and last.query != query:
            raise InvalidConfig(
                f"{self.path}: another checkpoint wrote it up to batch {last.number} (query "
                f"{last.query}, this is {query}), so records could be there twice; use that "
                "checkpoint, or an empty path"
            )
        if number == last.number:
            return None
        if number != last.number + 1:
            consequence = "there twice" if number < last.number else "missing"
            raise InvalidConfig(
                f"{self.path}: the checkpoint continues with batch {number} and the table with "
                f"{last.number + 1}, so records would be {consequence}; restore the checkpoint "
                "and the table from the same time, or use an empty path"
            )
        folder = self.batch_folder(number)
        if folder.exists():
            shutil.rmtree(folder)
        return folder

    def staged_files(self, query: str, number: int, rows: int) -> list[StagedFile]:
        """Return the files of a micro-batch in order, after a flush to the disk.

        Raises DirectoryUnusable unless they have these rows.
        """
        folder = self.batch_folder(number)
        found = []
        for index, path in enumerate(data_files(folder)):
            sync(path)
            found.append(
                StagedFile(
                    path=path,
                    partition=str(path.parent.relative_to(folder)),
                    name=f"{number:010}-{index:05}-{query[:8]}.parquet",
                    records=pq.read_metadata(path).num_rows,
                    bytes=path.stat().st_size,
                )
            )
        records = sum(each.records for each in found)
        if records != rows or not folder.is_dir():
            raise DirectoryUnusable(
                f"{folder}: Spark wrote {rows} records of micro-batch {number} there, and "
                f"{records} are found; mount this path on all executors, and run again"
            )
        return found

    def batch_folder(self, number: int) -> Path:
        """Return the work folder of a micro-batch."""
        return self.work / f"batch-{number}"

    def delete_work(self) -> None:
        """Delete the work folder."""
        if self.work.exists():
            shutil.rmtree(self.work)


@contextmanager
def lock_table(path: Path, *, must_exist: bool = False) -> Iterator[TableFolder]:
    """Lock the folder of a table and yield it; delete its work folder at the end.

    Creates an empty table unless `must_exist`. Raises DirectoryInUse if another process changes it,
    InvalidConfig for a folder with files that are not a pipeline's, DirectoryUnusable if files
    cannot be moved into it.
    """
    control = path / _CONTROL
    if must_exist and not control.is_dir():
        raise InvalidConfig(f"{path}: no table of a pipeline is there; give the path of to-lake")
    if path.is_dir() and not control.is_dir() and any(path.iterdir()):
        raise InvalidConfig(f"{path}: it has files that no pipeline wrote; use an empty path")
    if not control.is_dir():
        control.mkdir(parents=True)
        sync(path)
        sync(path.parent)
    with open(control / "lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise DirectoryInUse(
                f"{path}: another process writes or compacts it; wait for its end"
            ) from None
        folder = TableFolder(path)
        _check_moves(folder.work, control)
        yield folder
        folder.delete_work()


def _check_moves(work: Path, control: Path) -> None:
    """Move an empty file from the work folder into the table; raise DirectoryUnusable if it
    fails."""
    probe, moved = work / "probe", control / "probe"
    try:
        work.mkdir(exist_ok=True)
        probe.touch()
        probe.rename(moved)
    except OSError as error:
        remedy = "make both writable"
        if error.errno == errno.EXDEV:
            remedy = "it is a mount point, so give a folder in it"
        raise DirectoryUnusable(
            f"{control.parent}: a file cannot be moved into it from {work} ({error.strerror}); "
            f"{remedy}"
        ) from error
    moved.unlink()


def check_columns(path: Path, has: TableColumns, given: TableColumns) -> None:
    """Raise InvalidConfig unless a table has these columns and partition columns."""
    names = [_column_names(json.loads(each.schema)["fields"]) for each in (has, given)]
    if names[0] != names[1] or has.partition_by != given.partition_by:
        raise InvalidConfig(
            f"{path}: it has the columns {names[0]} and the partitions "
            f"{', '.join(has.partition_by)}, not {names[1]} and {', '.join(given.partition_by)}; "
            "select these, or use an empty path"
        )


def _column_names(fields: Sequence[Mapping[str, Any]]) -> str:
    """Return names and types of fields of Spark's JSON, without nullability."""
    return ", ".join(f"{field['name']} {_type_name(field['type'])}" for field in fields)


def _type_name(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            return f"struct<{_column_names(kind['fields'])}>"
        case "array":
            return f"array<{_type_name(kind['elementType'])}>"
        case "map":
            return f"map<{_type_name(kind['keyType'])}, {_type_name(kind['valueType'])}>"
        case _:
            return json.dumps(kind, sort_keys=True)


def work_folder(path: Path) -> Path:
    """Return the folder beside a table for files that are not in it yet."""
    return path.with_name(f".{path.name}.quorumlog")


def data_files(folder: Path) -> list[Path]:
    """Return the Parquet files under a folder that readers see, in order."""
    found = []
    for path in sorted(folder.rglob("*.parquet")):
        parts = path.relative_to(folder).parts
        if not any(part.startswith(("_", ".")) for part in parts):
            found.append(path)
    return found


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content atomically and durably."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    sync(partial)
    partial.replace(path)
    sync(path.parent)
