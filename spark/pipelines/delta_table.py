"""A Delta table that a pipeline appends to exactly once, by the package `deltalake`.

Spark's tasks write the files, and the driver adds them by one commit to the table's log. The commit
has the query's id and the micro-batch's number as application transaction, so that a repeated
micro-batch is recognised. Readers of Delta see all files of a commit or none; files of failed
attempts are in no commit.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from quorumlog.errors import EnvironmentUnusable, InvalidConfig
from quorumlog.spark.pipelines.table_folder import (
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

_NULL = "__HIVE_DEFAULT_PARTITION__"


class _DeltaFile(NamedTuple):
    """A file that is in the table."""

    partition: str
    records: int
    bytes: int


class DeltaLakeTable:
    """A Delta table that this process may change."""

    has_partition_columns = False

    def __init__(self, folder: TableFolder, deltalake: Any) -> None:
        self._folder = folder
        self._deltalake = deltalake  # the package

    def begin(self, query: str, number: int) -> Path | None:
        """Return the folder for the files of a micro-batch, None if it is in the table.

        Raises InvalidConfig unless the checkpoint wrote the table so far.
        """
        last = self._folder.read_last()
        table = self._open()
        if table is not None and last.query:
            version = table.transaction_version(last.query)
            last = LastBatch(last.query, -1 if version is None else version)
        folder = self._folder.stage(query, number, last)
        if not last.query:
            self._folder.write_last(LastBatch(query))
        return folder

    def commit(self, query: str, number: int, columns: TableColumns, rows: int) -> WrittenFiles:
        """Add the files with the rows that Spark wrote into the folder of `begin` by one commit.

        Raises InvalidConfig unless the table has these columns.
        """
        transaction = self._deltalake.transaction
        schema = self._deltalake.Schema.from_json(columns.schema)
        table = self._open()
        if table is None:
            table = self._deltalake.DeltaTable.create(
                str(self._folder.path), schema, partition_by=list(columns.partition_by)
            )
        check_columns(
            self._folder.path,
            TableColumns(table.schema().to_json(), tuple(table.metadata().partition_columns)),
            TableColumns(schema.to_json(), columns.partition_by),
        )
        actions = []
        files = self._folder.staged_files(query, number, rows)
        for each in files:
            # In no folder of a partition: its name could need two kinds of escapes.
            place = self._folder.path / each.name
            each.path.rename(place)
            actions.append(
                transaction.AddAction(
                    path=each.name,
                    size=each.bytes,
                    partition_values=partition_values(each.partition),
                    modification_time=int(place.stat().st_mtime * 1000),
                    data_change=True,
                    stats=json.dumps({"numRecords": each.records}),
                )
            )
        sync(self._folder.path)
        properties = transaction.CommitProperties(
            app_transactions=[transaction.Transaction(query, number)]
        )
        table.create_write_transaction(
            actions,
            mode="append",
            schema=schema,
            partition_by=list(columns.partition_by),
            commit_properties=properties,
        )
        return WrittenFiles(
            len(files), sum(each.records for each in files), sum(each.bytes for each in files)
        )

    def compact(
        self, target_bytes: int, on_partition: Callable[[str, int], None] | None = None
    ) -> CompactedFiles:
        """Merge small files by one commit. Old files remain for readers until a `vacuum`."""
        table = self._open()
        if table is None:
            return CompactedFiles(0, 0, 0, 0, 0)
        before = _files(table)
        table.optimize.compact(target_size=target_bytes)
        after = _files(table)
        removed = [before[path] for path in before.keys() - after.keys()]
        partitions = {each.partition for each in removed}
        return CompactedFiles(
            len(partitions),
            sum(each.partition in partitions for each in before.values()),
            sum(each.partition in partitions for each in after.values()),
            sum(each.records for each in removed),
            sum(after[path].bytes for path in after.keys() - before.keys()),
        )

    def _open(self) -> Any:
        """Return the table, None if it does not exist."""
        path = str(self._folder.path)
        if not self._deltalake.DeltaTable.is_deltatable(path):
            return None
        return self._deltalake.DeltaTable(path)


@contextmanager
def open_delta_table(path: Path, *, must_exist: bool = False) -> Iterator[DeltaLakeTable]:
    """Lock a table and yield it; see `lock_table`. Raise EnvironmentUnusable without the package
    deltalake."""
    try:
        import deltalake
        import deltalake.transaction
    except ImportError as error:
        raise EnvironmentUnusable(
            f"format delta needs the package deltalake ({error}); install quorumlog with its "
            "extra: pip install 'quorumlog[delta]'"
        ) from error
    if data_files(path) and not (path / "_delta_log").exists():
        raise InvalidConfig(f"{path}: it is no Delta table; give format parquet")
    with lock_table(path, must_exist=must_exist) as folder:
        folder.delete_work()
        yield DeltaLakeTable(folder, deltalake)


def partition_values(folder: str) -> dict[str, str | None]:
    """Return the values in a folder's name, "date=2013-01-01/region=a%2Fb"."""
    pairs = [part.partition("=") for part in Path(folder).parts]
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in pairs}


def _files(table: Any) -> dict[str, _DeltaFile]:
    """Return the files of a table by their paths."""
    return {
        row["path"]: _DeltaFile(str(row["partition"]), row["num_records"] or 0, row["size_bytes"])
        for row in pa.table(table.get_add_actions()).to_pylist()
    }
