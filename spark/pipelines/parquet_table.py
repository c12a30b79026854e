"""A folder of partitioned Parquet files that a pipeline appends to exactly once.

Any reader of Parquet folders reads the table: files are in `name=value` folders, and files of
failed attempts are never in it. Spark's own file sink cannot promise that: only Spark reads its
list of committed files.

Append. Spark writes a micro-batch into a work folder beside the table. The *decision* is one
atomic replacement of `_quorumlog/table.json`: the query, the micro-batch's number, and the moves of
its files into the table. Then the files are moved, each appears at once and complete, and the list
of moves is cleared. After a crash the next run finishes the moves of a decided micro-batch and
deletes an undecided one.

Compaction. The files of a partition are merged into a new folder, which is exchanged with the
partition's folder by one system call (`renameat2`). Both have the same records, so a reader sees
each record once, whichever folder it lists, and a crash leaves only a folder to delete. The old
folder is deleted after the next partition, or at the end, so that a reader that has opened it can
list it. A reader that listed the old files and opens them later fails with a missing file.
"""

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from quorumlog.errors import DirectoryUnusable, InvalidConfig
from quorumlog.spark.pipelines.table_folder import (
    TARGET_BYTES,
    CompactedFiles,
    LastBatch,
    TableColumns,
    TableFolder,
    WrittenFiles,
    check_columns,
    data_files,
    lock_table,
    sync,
)

SMALL_RATIO: Final = 0.75
"""Files below this part of the target size are merged."""
ROW_GROUP_BYTES: Final = 64 << 20
"""Size in memory of a row group that compaction writes; also the bound of its memory."""

_RENAME_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100


class ParquetTable:
    """A table of Parquet files that this process may change."""

    has_partition_columns = False

    def __init__(self, folder: TableFolder) -> None:
        self._folder = folder
        self._last = folder.read_last()
        self._replaced: Path | None = None  # the old folder of the partition compacted last

    def begin(self, query: str, number: int) -> Path | None:
        """Return the folder for the files of a micro-batch, None if it is in the table.

        Raises InvalidConfig unless the checkpoint wrote the table so far.
        """
        return self._folder.stage(query, number, self._last)

    def commit(self, query: str, number: int, columns: TableColumns, rows: int) -> WrittenFiles:
        """Make the files with the rows that Spark wrote into the folder of `begin` visible.

        Raises InvalidConfig unless the table has these columns.
        """
        if self._last.columns is not None:
            check_columns(self._folder.path, self._last.columns, columns)
        files = self._folder.staged_files(query, number, rows)
        moves = [
            (str(each.path.relative_to(self._folder.work)), f"{each.partition}/{each.name}")
            for each in files
        ]
        work = self._folder.work
        for folder in {work / parent for source, _ in moves for parent in Path(source).parents}:
            sync(folder)
        sync(work.parent)
        self._last = LastBatch(query, number, tuple(moves), self._last.columns or columns)
        self._folder.write_last(self._last)
        self._finish_moves()
        return WrittenFiles(
            len(files), sum(each.records for each in files), sum(each.bytes for each in files)
        )

    def recover(self) -> None:
        """Finish or undo the work of a process that was killed."""
        self._finish_moves()
        self._folder.delete_work()

    def _finish_moves(self) -> None:
        """Move the files of the decided micro-batch that are not moved yet.

        Raises DirectoryUnusable if one is lost.
        """
        changed: set[Path] = set()
        for source, target in self._last.moves:
            staged, place = self._folder.work / source, self._folder.path / target
            if staged.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(place)
            elif not place.exists():
                raise DirectoryUnusable(
                    f"{place}: this file of micro-batch {self._last.number} is lost; it is not at "
                    f"{staged} either; restore the table and its checkpoint from the same time, or "
                    "use empty paths"
                )
            changed.update(self._folder.path / parent for parent in Path(target).parents)
        for folder in changed:
            sync(folder)
        if self._last.moves:  # later a compaction may delete the targets
            self._last = replace(self._last, moves=())
            self._folder.write_last(self._last)
        shutil.rmtree(self._folder.batch_folder(self._last.number), ignore_errors=True)

    # --- compaction ---

    def compact(
        self,
        target_bytes: int = TARGET_BYTES,
        on_partition: Callable[[str, int], None] | None = None,
    ) -> CompactedFiles:
        """Merge the small files of each partition into files of about `target_bytes`.

        Calls `on_partition` with the name and the rewritten records of each partition.
        """
        total = CompactedFiles(0, 0, 0, 0, 0)
        for folder in sorted({path.parent for path in data_files(self._folder.path)}):
            part = self._compact_folder(folder, target_bytes)
            if part is None:
                continue
            total = CompactedFiles(
                total.partitions + 1,
                total.files_before + part.files_before,
                total.files_after + part.files_after,
                total.records + part.records,
                total.bytes + part.bytes,
            )
            if on_partition is not None:
                on_partition(str(folder.relative_to(self._folder.path)), part.records)
        return total

    def _compact_folder(self, folder: Path, target_bytes: int) -> CompactedFiles | None:
        """Compact one partition; return None if that would not lower the number of its files."""
        if folder == self._folder.path:
            raise InvalidConfig(f"{folder}: it has no partition columns; compaction needs them")
        names = {path.name for path in folder.iterdir()}
        files = data_files(folder)
        sizes = {path: path.stat().st_size for path in files}
        small = [path for path in files if sizes[path] < target_bytes * SMALL_RATIO]
        groups = _by_schema(small)
        least = sum(-(-sum(sizes[path] for path in group) // target_bytes) for group in groups)
        if len(small) <= least or any(path.is_dir() for path in folder.iterdir()):
            return None
        new = self._folder.work / f"compact-{uuid.uuid4().hex[:8]}"
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
        if self._replaced is not None:
            shutil.rmtree(self._replaced)
        self._replaced = new
        return CompactedFiles(
            1,
            len(files),
            len(files) - len(small) + len(merged),
            records,
            sum(path.stat().st_size for path in (folder / each.name for each in merged)),
        )


@contextmanager
def open_parquet_table(path: Path, *, must_exist: bool = False) -> Iterator[ParquetTable]:
    """Lock a table, finish the work of a killed process, and yield it; see `lock_table`."""
    if (path / "_delta_log").exists():
        raise InvalidConfig(f"{path}: it is a Delta table; give format delta")
    with lock_table(path, must_exist=must_exist) as folder:
        table = ParquetTable(folder)
        table.recover()
        yield table


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
