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
from typing import Any
from urllib.parse import unquote

from quorumlog.errors import EnvironmentUnusable, InvalidConfig
from quorumlog.spark.pipelines.table_folder import (
    CompactedFiles,
    LastBatch,
    TableColumns,
    TableFolder,
    WrittenFiles,
    data_files,
    lock_table,
    sync,
)

_NULL = "__HIVE_DEFAULT_PARTITION__"


class DeltaLakeTable:
    """A Delta table that this process may change."""

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

    def commit(self, query: str, number: int, columns: TableColumns) -> WrittenFiles:
        """Add the files that Spark wrote into the folder of `begin` by one commit."""
        transaction = self._deltalake.transaction
        schema = self._deltalake.Schema.from_json(columns.schema)
        table = self._open()
        if table is None:
            table = self._deltalake.DeltaTable.create(
                str(self._folder.path), schema, partition_by=list(columns.partition_by)
            )
        self._check(table, schema, columns)
        actions = []
        files = self._folder.staged_files(query, number)
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
        before = len(table.file_uris())
        metrics = table.optimize.compact(target_size=target_bytes)
        added = metrics["filesAdded"]
        if isinstance(added, str):
            added = json.loads(added)
        return CompactedFiles(
            metrics["partitionsOptimized"],
            before,
            before + metrics["numFilesAdded"] - metrics["numFilesRemoved"],
            0,
            int(added["avg"] * added["totalFiles"]),
        )

    def _open(self) -> Any:
        """Return the table, None if it does not exist."""
        path = str(self._folder.path)
        if not self._deltalake.DeltaTable.is_deltatable(path):
            return None
        return self._deltalake.DeltaTable(path)

    def _check(self, table: Any, schema: Any, columns: TableColumns) -> None:
        """Raise InvalidConfig unless the table has these columns."""
        has = [(each.name, str(each.type)) for each in table.schema().fields]
        given = [(each.name, str(each.type)) for each in schema.fields]
        partitions = table.metadata().partition_columns
        if has != given or partitions != list(columns.partition_by):
            raise InvalidConfig(
                f"{self._folder.path}: it has the columns {_names(has)} and the partitions "
                f"{', '.join(partitions)}, not {_names(given)} and "
                f"{', '.join(columns.partition_by)}; select these, or use an empty path"
            )


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


def _names(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
