"""A folder of partitioned Parquet files that a pipeline appends to exactly once.

Any reader of Parquet folders reads the table: files are in `name=value` folders, and files of
failed attempts are never in it. Spark's own file sink cannot promise that: only Spark reads its
list of committed files.

Append. Spark writes a micro-batch into a work folder beside the table. The *decision* is one
atomic replacement of `_quorumlog/table.json`: the query, the micro-batch's number, and the moves of
its files into the table. Then the files are moved; each appears at once and complete. After a
crash the next run finishes the moves of a decided micro-batch and deletes an undecided one.

Compaction. The files of a partition are merged into a new folder, which is exchanged with the
partition's folder by one system call (`renameat2`). Both have the same records, so a reader sees
each record once, whichever folder it lists, and a crash leaves only a folder to delete. A reader
that listed the old files and has not opened them fails with a missing file.

One process at a time changes a table, under a lock on `_quorumlog/lock`.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from quorumlog.errors import DirectoryInUse, DirectoryUnusable, InvalidConfig

TARGET_BYTES: Final = 128 << 20
"""Default size of a compacted file."""
SMALL_RATIO: Final = 0.75
"""Files below this part of the target size are merged."""
ROW_GROUP_BYTES: Final = 64 << 20
"""Size in memory of a row group that compaction writes; also the bound of its memory."""

_CONTROL: Final = "_quorumlog"  # readers ignore names that begin with an underscore
_VERSION: Final = 1
_RENAME_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100


@dataclass(frozen=True, slots=True)
class Written:
    """The files of one micro-batch."""

    files: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction."""

    partitions: int  # that had small files
    files_before: int  # of these partitions
    files_after: int
    records: int  # in rewritten files
    bytes: int  # of new files


@dataclass(frozen=True, slots=True)
class _State:
    """The last decided micro-batch."""

    query: str = ""  # empty: none
    number: int = -1
    moves: tuple[tuple[str, str], ...] = ()  # from the work folder into the table

    def encode(self) -> bytes:
        fields = {
            "version": _VERSION,
            "query": self.query,
            "batch": self.number,
            "moves": self.moves,
        }
        return json.dumps(fields, indent=1).encode()

    @staticmethod
    def decode(path: Path) -> "_State":
        try:
            fields = json.loads(path.read_bytes())
        except FileNotFoundError:
            return _State()
        except ValueError as error:
            raise DirectoryUnusable(f"{path}: it is not JSON ({error}); restore it") from error
        if fields["version"] != _VERSION:
            raise DirectoryUnusable(
                f"{path}: version {fields['version']} is not supported, only {_VERSION}; use the "
                "release that wrote it"
            )
        moves = tuple((source, target) for source, target in fields["moves"])
        return _State(fields["query"], fields["batch"], moves)


class ParquetTable:
    """A table that this process may change; opened by `open_parquet_table`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._work = work_folder(path)
        self._state_path = path / _CONTROL / "table.json"
        self._state = _State.decode(self._state_path)

    def begin(self, query: str, number: int) -> Path | None:
        """Return the folder for the files of a micro-batch, None if it is in the table.

        Raises InvalidConfig unless the checkpoint wrote the table so far.
        """
        state = self._state
        if state.query and state.query != query:
            raise InvalidConfig(
                f"{self._path}: another checkpoint wrote it up to batch {state.number} (query "
                f"{state.query}, this is {query}), so records could be there twice; use that "
                "checkpoint, or an empty path"
            )
        if number == state.number:
            return None
        if number != state.number + 1:
            raise InvalidConfig(
                f"{self._path}: the checkpoint continues with batch {number} and the table with "
                f"{state.number + 1}, so records would be {_consequence(number, state.number)}; "
                "restore the checkpoint and the table from the same time, or use an empty path"
            )
        folder = self._batch_folder(number)
        if folder.exists():
            shutil.rmtree(folder)
        return folder

    def commit(self, query: str, number: int) -> Written:
        """Make the files that Spark wrote into the folder of `begin` visible."""
        folder = self._batch_folder(number)
        files = _data_files(folder) if folder.exists() else []
        moves: list[tuple[str, str]] = []
        records = size = 0
        for index, path in enumerate(files):
            records += pq.read_metadata(path).num_rows
            size += path.stat().st_size
            target = path.relative_to(folder).with_name(f"{number:010}-{index:05}-{query[:8]}")
            moves.append((str(path.relative_to(self._work)), f"{target}.parquet"))
            sync(path)
        self._state = _State(query, number, tuple(moves))
        replace_file(self._state_path, self._state.encode())
        self._finish_moves()
        return Written(len(files), records, size)

    def recover(self) -> None:
        """Finish or undo the work of a process that was killed."""
        self._finish_moves()
        if self._work.exists():
            shutil.rmtree(self._work)

    def close(self) -> None:
        """Delete the work folder."""
        if self._work.exists():
            shutil.rmtree(self._work)

    def _batch_folder(self, number: int) -> Path:
        return self._work / f"batch-{number}"

    def _finish_moves(self) -> None:
        """Move the files of the decided micro-batch that are not moved yet."""
        folders: set[Path] = set()
        for source, target in self._state.moves:
            if (self._work / source).exists():
                place = self._path / target
                place.parent.mkdir(parents=True, exist_ok=True)
                (self._work / source).rename(place)
                folders.update(self._path / parent for parent in Path(target).parents)
        for folder in folders:
            sync(folder)
        shutil.rmtree(self._batch_folder(self._state.number), ignore_errors=True)

    # --- compaction ---

    def compact(
        self,
        target_bytes: int = TARGET_BYTES,
        on_partition: Callable[[str, int], None] | None = None,
    ) -> Compacted:
        """Merge the small files of each partition into files of about `target_bytes`.

        Calls `on_partition` with the name and the rewritten records of each partition.
        """
        total = Compacted(0, 0, 0, 0, 0)
        for folder in sorted({path.parent for path in _data_files(self._path)}):
            part = self._compact_folder(folder, target_bytes)
            if part is None:
                continue
            total = Compacted(
                total.partitions + 1,
                total.files_before + part.files_before,
                total.files_after + part.files_after,
                total.records + part.records,
                total.bytes + part.bytes,
            )
            if on_partition is not None:
                on_partition(str(folder.relative_to(self._path)), part.records)
        return total

    def _compact_folder(self, folder: Path, target_bytes: int) -> Compacted | None:
        """Compact one partition; return None if that would not lower the number of its files."""
        if folder == self._path:
            raise InvalidConfig(f"{folder}: it has no partition columns; compaction needs them")
        names = {path.name for path in folder.iterdir()}
        files = [folder / name for name in sorted(names) if _is_data(name)]
        sizes = {path: path.stat().st_size for path in files}
        small = [path for path in files if sizes[path] < target_bytes * SMALL_RATIO]
        groups = _by_schema(small)
        least = sum(-(-sum(sizes[path] for path in group) // target_bytes) for group in groups)
        if len(small) <= least or any(path.is_dir() for path in folder.iterdir()):
            return None
        new = self._work / f"compact-{uuid.uuid4().hex[:8]}"
        new.mkdir(parents=True)
        for name in names - {path.name for path in small}:
            os.link(folder / name, new / name)
        merged = [path for group in groups for path in _merge(group, new, target_bytes)]
        records = _check_counts(small, merged)
        for path in merged:
            sync(path)
        sync(new)
        exchange(new, folder)
        sync(folder.parent)
        shutil.rmtree(new)
        return Compacted(
            1,
            len(files),
            len(files) - len(small) + len(merged),
            records,
            sum(path.stat().st_size for path in (folder / each.name for each in merged)),
        )


@contextmanager
def open_parquet_table(path: Path, *, must_exist: bool = False) -> Iterator[ParquetTable]:
    """Lock a table, finish the work of a killed process, and yield it.

    Creates an empty table unless `must_exist`. Raises DirectoryInUse if another process changes it,
    InvalidConfig for a folder with files that are not a pipeline's.
    """
    control = path / _CONTROL
    if must_exist and not control.is_dir():
        raise InvalidConfig(f"{path}: no table of a pipeline is there; give the path of to-lake")
    if path.is_dir() and not control.is_dir() and any(path.iterdir()):
        raise InvalidConfig(f"{path}: it has files that no pipeline wrote; use an empty path")
    control.mkdir(parents=True, exist_ok=True)
    with open(control / "lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise DirectoryInUse(
                f"{path}: another process writes or compacts it; wait for its end"
            ) from None
        table = ParquetTable(path)
        table.recover()
        yield table
        table.close()


def work_folder(path: Path) -> Path:
    """Return the folder beside a table for files that are not in it yet."""
    return path.with_name(f".{path.name}.quorumlog")


def _consequence(number: int, last: int) -> str:
    return "there twice" if number < last else "missing"


def _is_data(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(("_", "."))


def _data_files(folder: Path) -> list[Path]:
    """Return the Parquet files under a folder that readers see, in order."""
    found = []
    for path in sorted(folder.rglob("*.parquet")):
        parts = path.relative_to(folder).parts
        if not any(part.startswith(("_", ".")) for part in parts):
            found.append(path)
    return found


def _by_schema(files: Sequence[Path]) -> list[list[Path]]:
    """Return files grouped by their columns; only files with equal columns are merged."""
    groups: dict[Any, list[Path]] = {}
    for path in files:
        groups.setdefault(str(pq.read_schema(path).remove_metadata()), []).append(path)
    return list(groups.values())


def _merge(files: Sequence[Path], folder: Path, target_bytes: int) -> list[Path]:
    """Write the rows of files, in their order, into new files of about `target_bytes`.

    The names of new files occur nowhere else: a reader with the old list must not find a file
    with other rows.
    """
    first = files[0].name.split("-")[0]
    tables = _row_groups(files)
    made = []
    for table in tables:
        made.append(folder / f"{first}-{uuid.uuid4().hex[:12]}.parquet")
        _write_file(made[-1], table, tables, target_bytes)
    return made


def _write_file(path: Path, table: pa.Table, more: Iterator[pa.Table], target_bytes: int) -> None:
    """Write a table, and more until the file has the target size."""
    with open(path, "wb") as sink, pq.ParquetWriter(sink, table.schema, compression="zstd") as out:
        out.write_table(table)
        while sink.tell() < target_bytes:
            following = next(more, None)
            if following is None:
                break
            out.write_table(following)


def _row_groups(files: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the rows of files in tables of about ROW_GROUP_BYTES, all of one schema."""
    schema = pq.read_schema(files[0])
    held: list[pa.Table] = []
    size = 0
    for path in files:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as source:
            for index in range(source.num_row_groups):
                group = source.read_row_group(index)
                held.append(group.replace_schema_metadata(schema.metadata))
                size += group.nbytes
                if size >= ROW_GROUP_BYTES:
                    yield pa.concat_tables(held)
                    held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def _check_counts(old: Sequence[Path], new: Sequence[Path]) -> int:
    """Return the number of records; raise AssertionError unless old and new files have the
    same."""
    before: int = sum(pq.read_metadata(path).num_rows for path in old)
    after = sum(pq.read_metadata(path).num_rows for path in new)
    assert before == after, f"merged {before} records into {after}"
    return before


# --- files ---


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


def exchange(one: Path, other: Path) -> None:
    """Exchange two folders atomically; raise DirectoryUnusable if the system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        code = errno.ENOSYS
    else:
        if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
    raise DirectoryUnusable(
        f"{other}: its file system cannot exchange two folders ({os.strerror(code)}), so "
        "compaction would not be atomic; use a local file system of Linux, or format delta"
    )
