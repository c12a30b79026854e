"""Rows of tables, written as Spark writes them."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from quorumlog.spark.pipelines.delta_table import open_delta_table
from quorumlog.spark.pipelines.iceberg_table import open_iceberg_table
from quorumlog.spark.pipelines.lake import LakeTable
from quorumlog.spark.pipelines.parquet_table import open_parquet_table
from quorumlog.spark.pipelines.table_folder import TableColumns

TARGET_BYTES: Final = 20_000
_SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("number", "long"), ("text", "string"), ("date", "string"))
    ],
}
COLUMNS: Final = TableColumns(json.dumps(_SCHEMA), ("date",))
OPENED: Final[dict[str, Callable[[Path], AbstractContextManager[LakeTable]]]] = {
    "parquet": open_parquet_table,
    "delta": open_delta_table,
    "iceberg": open_iceberg_table,
}
DAYS = ("2013-01-01", "2013-01-02")


def write_rows(
    folder: Path, numbers: range, *, files: int = 2, has_partition_columns: bool = False
) -> None:
    """Write numbers as Spark does: one file for each task and partition, in addition to its own
    files."""
    for day, name in enumerate(DAYS):
        place = folder / f"date={name}"
        if has_partition_columns:
            place = folder / f"quorumlog_partition_0=%3D{name}"
        place.mkdir(parents=True)
        for task in range(files):
            part = [n for n in numbers if n % len(DAYS) == day and n // len(DAYS) % files == task]
            table = pa.table({"number": part, "text": [f"{n}" * 20 for n in part]})
            if has_partition_columns:
                table = table.append_column("date", pa.array([name] * len(part), pa.string()))
            table = table.replace_schema_metadata({"spark": "row"})
            pq.write_table(table, place / f"part-{task:05}-abc.snappy.parquet", compression="none")
            (place / f".part-{task:05}-abc.snappy.parquet.crc").write_bytes(b"crc")
    (folder / "_SUCCESS").touch()


def append(
    path: Path,
    number: int,
    numbers: range,
    *,
    query: str = "query-1",
    files: int = 2,
    format: str = "parquet",
) -> bool:
    """Append numbers as a micro-batch; return False if it was in the table."""
    with OPENED[format](path) as table:
        folder = table.begin(query, number)
        if folder is None:
            return False
        is_with = table.has_partition_columns
        write_rows(folder, numbers, files=files, has_partition_columns=is_with)
        assert table.commit(query, number, COLUMNS, len(numbers)).records == len(numbers)
    return True
