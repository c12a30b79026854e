"""An Iceberg table that a pipeline appends to exactly once, by the package `pyiceberg`.

Spark's tasks write the files, and the driver adds them by one commit to the catalog. The commit has
the query's id and the micro-batch's number as properties of the table, so that a repeated
micro-batch is recognised. Readers of Iceberg see all files of a commit or none; files of failed
attempts are in no snapshot.

Files of Spark have no field ids, so the table has a name mapping. They have the partition columns,
too: each file has one value of them, which pyiceberg reads from the file's statistics.

The default catalog is a SQLite database in the table's folder.
"""

import io
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
)
from pyiceberg.io import PY_IO_IMPL, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from quorumlog.errors import DirectoryUnusable, InvalidConfig
from quorumlog.spark.pipelines.table_folder import (
    CompactedFiles,
    LastBatch,
    StagedFile,
    TableColumns,
    TableFolder,
    WrittenFiles,
    data_files,
    lock_table,
    replace_file,
    sync,
)

COMMIT_ATTEMPTS: Final = 10
"""Attempts of a commit that conflicts with commits of other writers."""
COMMIT_BACKOFF_S: Final = 0.05
"""The wait after the first conflict; it is doubled after each one."""

_CATALOG: Final = "quorumlog"
_NAMESPACE: Final = "lake"
_QUERY: Final = "quorumlog.query"
_BATCH: Final = "quorumlog.batch"
_NULL: Final = "=__HIVE_DEFAULT_PARTITION__"
_PROPERTIES: Final = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",  # else each micro-batch adds a manifest
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",  # older than the last 100
}
_TYPES: Final[Mapping[str, IcebergType]] = {
    "boolean": BooleanType(),
    "byte": IntegerType(),
    "short": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_PARTITION_TYPES: Final = (BooleanType, IntegerType, LongType, StringType, DateType, DecimalType)
"""Types with one text for each value; Spark writes a file for each text."""


class IcebergTable:
    """An Iceberg table that this process may change."""

    has_partition_columns = True

    def __init__(
        self, folder: TableFolder, catalog: Catalog, name: tuple[str, ...], *, is_own: bool
    ) -> None:
        self._folder = folder
        self._catalog = catalog
        self._name = name
        self._is_own = is_own  # the catalog is in the table's folder

    def begin(self, query: str, number: int) -> Path | None:
        """Return the folder for the files of a micro-batch, None if it is in the table.

        Raises InvalidConfig unless the checkpoint wrote the table so far.
        """
        table = self._load()
        if table is not None:
            self._write_version_hint(table)  # a killed process may not have written it
        return self._folder.stage(
            query, number, LastBatch() if table is None else _last_batch(table)
        )

    def commit(self, query: str, number: int, columns: TableColumns, rows: int) -> WrittenFiles:
        """Add the files with the rows that Spark wrote into the folder of `begin` by one commit.

        Raises InvalidConfig unless the table has these columns.
        """
        schema = iceberg_schema(columns.schema)
        table = self._load() or self._create(schema, columns.partition_by)
        _check_columns(self._folder.path, table, schema, columns.partition_by)
        files = self._folder.staged_files(query, number, rows)
        paths = self._move(files, number)
        self._append(table, LastBatch(query, number), files, paths)
        self._write_version_hint(table)
        return WrittenFiles(
            len(files), sum(each.records for each in files), sum(each.bytes for each in files)
        )

    def compact(
        self, target_bytes: int, on_partition: Callable[[str, int], None] | None = None
    ) -> CompactedFiles:
        """Raise InvalidConfig: pyiceberg has no commit that replaces files by the same rows."""
        raise InvalidConfig(
            f"{self._folder.path}: an Iceberg table cannot be compacted here; run the procedure "
            "rewrite_data_files of Spark with Iceberg's package, or OPTIMIZE of Trino"
        )

    def _load(self) -> Table | None:
        """Return the table, None if it does not exist."""
        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        except FileNotFoundError as error:
            raise DirectoryUnusable(
                f"{self._folder.path}: the metadata of its table is missing ({error}); restore it, "
                "and its path if it was moved"
            ) from error
        self._check_location(table)
        return table

    def _create(self, schema: Schema, partition_by: Sequence[str]) -> Table:
        path = self._folder.path
        if data_files(path):
            raise InvalidConfig(
                f"{path}: it has the files of another table than {'.'.join(self._name)} of catalog "
                f"{self._catalog.name}; give its catalog and table, or use an empty path"
            )
        partitions = []
        for index, name in enumerate(partition_by):
            field = schema.find_field(name)
            if not isinstance(field.field_type, _PARTITION_TYPES):
                raise InvalidConfig(
                    f"partition_by has {name!r} of type {field.field_type}: its text is not "
                    "exact; cast it by select to a string or a date"
                )
            partitions.append(
                PartitionField(
                    source_id=field.field_id,
                    field_id=1000 + index,
                    transform=IdentityTransform(),
                    name=name,
                )
            )
        if self._is_own:
            self._catalog.create_namespace_if_not_exists(self._name[:-1])
        table = self._catalog.create_table(
            self._name,
            schema,
            location=f"file://{path}",
            partition_spec=PartitionSpec(*partitions),
            properties=_PROPERTIES,
        )
        self._check_location(table)
        return table

    def _check_location(self, table: Table) -> None:
        """Raise InvalidConfig unless the table is in the folder that this process has locked."""
        place = _local_path(table.location())
        if place != self._folder.path:
            raise InvalidConfig(
                f"{self._folder.path}: table {'.'.join(self._name)} of catalog "
                f"{self._catalog.name} is at {place}, and the files of an Iceberg table cannot be "
                "moved; give that path, or another table"
            )

    def _move(self, files: Sequence[StagedFile], number: int) -> list[str]:
        """Move files into the table and return their locations.

        Each attempt has its own names: the commit of an earlier one may have an unknown outcome.
        """
        folder = self._folder.path / "data"
        folder.mkdir(exist_ok=True)
        attempt = uuid.uuid4().hex[:12]
        locations = []
        for index, each in enumerate(files):
            path = folder / f"{number:010}-{index:05}-{attempt}.parquet"
            each.path.rename(path)
            locations.append(f"file://{path}")
        sync(folder)
        sync(self._folder.path)
        return locations

    def _append(
        self, table: Table, last: LastBatch, files: Sequence[StagedFile], locations: Sequence[str]
    ) -> None:
        """Add files and a micro-batch's identity to the table by one commit.

        After a conflict with another writer it is tried again, unless the table has the
        micro-batch: an earlier commit with an unknown outcome is complete.
        """
        for attempt in range(COMMIT_ATTEMPTS):
            if _last_batch(table) == last:
                return
            added = [
                _data_file(table, each, location)
                for each, location in zip(files, locations, strict=True)
            ]
            try:
                _commit(table, last, added)
                return
            except CommitFailedException:
                if attempt == COMMIT_ATTEMPTS - 1:
                    raise
            time.sleep(COMMIT_BACKOFF_S * 2**attempt)
            table.refresh()

    def _write_version_hint(self, table: Table) -> None:
        """Name the current metadata for readers without a catalog."""
        if not self._is_own:
            return
        current = _local_path(table.metadata_location)
        hint = current.with_name("version-hint.text")
        content = current.name.removesuffix(".metadata.json").encode()
        if not hint.exists() or hint.read_bytes() != content:
            replace_file(hint, content)


@contextmanager
def open_iceberg_table(
    path: Path,
    *,
    catalog: str | None = None,
    table: str | None = None,
    must_exist: bool = False,
) -> Iterator[IcebergTable]:
    """Lock a table and yield it; see `lock_table`.

    `catalog` is a name of pyiceberg's configuration, by default a SQLite database in the table's
    folder. `table` is NAMESPACE.NAME, by default `lake` and the folder's name.
    """
    name = (_NAMESPACE, path.name) if table is None else tuple(table.split("."))
    if len(name) < 2 or not all(name):
        raise InvalidConfig(f"table is {table!r}; give NAMESPACE.NAME")
    if any(character in str(path) for character in "%?#"):
        raise InvalidConfig(f"{path}: readers of Iceberg take it for a URL; use no '%', '?' or '#'")
    if data_files(path) and not (path / "metadata").exists():
        raise InvalidConfig(f"{path}: it is no Iceberg table; give the format of its first run")
    with lock_table(path, must_exist=must_exist) as folder:
        folder.delete_work()
        with closing(_open_catalog(path, catalog)) as opened:
            yield IcebergTable(folder, opened, name, is_own=catalog is None)


def iceberg_schema(spark_schema: str) -> Schema:
    """Return the schema of Spark's JSON, all columns optional.

    Raises InvalidConfig for a type that Iceberg does not have.
    """
    ids = count(1)

    def type_of(column: str, kind: Any) -> IcebergType:
        if isinstance(kind, str):
            decimal = re.fullmatch(r"decimal\((\d+),(-?\d+)\)", kind)
            if decimal:
                return DecimalType(int(decimal[1]), int(decimal[2]))
            if kind in _TYPES:
                return _TYPES[kind]
        elif kind["type"] == "struct":
            return StructType(*fields_of(column, kind["fields"]))
        elif kind["type"] == "array":
            return ListType(next(ids), type_of(column, kind["elementType"]), element_required=False)
        elif kind["type"] == "map":
            return MapType(
                next(ids),
                type_of(column, kind["keyType"]),
                next(ids),
                type_of(column, kind["valueType"]),
                value_required=False,
            )
        raise InvalidConfig(
            f"column {column!r} has the type {kind if isinstance(kind, str) else kind['type']}, "
            "which Iceberg does not have; cast it by select"
        )

    def fields_of(parent: str, fields: Sequence[Mapping[str, Any]]) -> list[NestedField]:
        return [
            NestedField(
                field_id=next(ids),
                name=each["name"],
                field_type=type_of(parent or each["name"], each["type"]),
                required=False,
            )
            for each in fields
        ]

    return Schema(*fields_of("", json.loads(spark_schema)["fields"]))


def _last_batch(table: Table) -> LastBatch:
    """Return the micro-batch that a table has last."""
    properties = table.properties
    return LastBatch(properties.get(_QUERY, ""), int(properties.get(_BATCH, -1)))


def _data_file(table: Table, staged: StagedFile, location: str) -> DataFile:
    """Return the entry of a file in the table; raise DirectoryUnusable unless its statistics have
    its partition."""
    made = parquet_file_to_data_file(table.io, table.metadata, location)
    for index, part in enumerate(Path(staged.partition).parts):
        if (made.partition[index] is None) != part.endswith(_NULL):
            raise DirectoryUnusable(
                f"{location}: its statistics have no value of the partition {part}; remove the "
                "table's properties write.metadata.metrics.*, which turn them off"
            )
    return made


def _commit(table: Table, last: LastBatch, files: Sequence[DataFile]) -> None:
    identity = {_QUERY: last.query, _BATCH: str(last.number)}
    # A retry by pyiceberg would not compare the last micro-batch. This changes no stored property.
    properties = table.metadata.properties | {TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    with table.transaction() as transaction:
        transaction.set_properties(identity)
        if table.name_mapping() is None:  # the catalog has assigned the field ids
            mapping = table.schema().name_mapping.model_dump_json()
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        update = transaction.update_snapshot(snapshot_properties=identity)
        with update.merge_append() as append:
            for each in files:
                append.append_data_file(each)


def _check_columns(path: Path, table: Table, schema: Schema, partition_by: Sequence[str]) -> None:
    """Raise InvalidConfig unless the table has these columns and partition columns."""
    has, given = _column_names(table.schema().fields), _column_names(schema.fields)
    partitions = [
        str(table.schema().find_column_name(field.source_id))
        if isinstance(field.transform, IdentityTransform)
        else field.name
        for field in table.spec().fields
    ]
    if has != given or partitions != list(partition_by):
        raise InvalidConfig(
            f"{path}: it has the columns {has} and the partitions {', '.join(partitions)}, not "
            f"{given} and {', '.join(partition_by)}; select these, or use an empty path"
        )


def _column_names(fields: Sequence[NestedField]) -> str:
    """Return names and types of fields, without field ids."""
    return ", ".join(
        f"{each.name} {_type_name(each.field_type)}{' required' if each.required else ''}"
        for each in fields
    )


def _type_name(kind: IcebergType) -> str:
    match kind:
        case StructType():
            return f"struct<{_column_names(kind.fields)}>"
        case ListType():
            return f"list<{_type_name(kind.element_type)}>"
        case MapType():
            return f"map<{_type_name(kind.key_type)}, {_type_name(kind.value_type)}>"
        case _:
            return str(kind)


def _local_path(location: str) -> Path:
    """Return the path of a location; that of another file system remains a URL."""
    parts = urlsplit(location)
    return Path(parts.path if parts.scheme in ("", "file") else location)


# --- catalog ---


def _open_catalog(path: Path, name: str | None) -> Catalog:
    if name is None:
        implementation = f"{__name__}.{SyncedFileIO.__name__}"
        uri = f"sqlite:///{path / 'catalog.db'}"
        return SqlCatalog(_CATALOG, uri=uri, **{PY_IO_IMPL: implementation})
    try:
        return load_catalog(name)
    except (ValueError, NotInstalledError, NoSuchPropertyException) as error:
        raise InvalidConfig(
            f"catalog {name!r}: {error}; define it in pyiceberg's configuration, .pyiceberg.yaml"
        ) from error


class SyncedFileIO(PyArrowFileIO):
    """Files of the machine that are flushed to the disk when they are closed.

    The catalog must not name metadata that a power failure deletes.
    """

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write."""
        _, _, path = self.parse_location(location, self.properties)
        return _SyncedFile(location, path, self.fs_by_scheme("file", None))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        path = _local_path(self.location)
        path.parent.mkdir(parents=True, exist_ok=True)
        return _SyncedStream(path, "wb" if overwrite else "xb")


class _SyncedStream(io.BufferedWriter):
    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(io.FileIO(path, mode))
        self._folder = path.parent

    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            sync(self._folder)
