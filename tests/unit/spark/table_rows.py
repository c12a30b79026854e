"""Rows of tables, as Spark writes them."""

import json
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from quorumlog.spark.pipelines.delta_table import open_delta_table
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
DAYS = ("2013-01-01", "2013-01-02")


def write_rows(folder: Path, numbers: range, *, files: int = 2) -> None:
    """Write numbers as Spark does: a file for each task and partition, beside its own files."""
    for day, name in enumerate(DAYS):
        place = folder / f"date={name}"
        place.mkdir(parents=True)
        for task in range(files):
            part = [n for n in numbers if n % len(DAYS) == day and n // len(DAYS) % files == task]
            table = pa.table({"number": part, "text": [f"{n}" * 20 for n in part]})
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
    opened = open_delta_table if format == "delta" else open_parquet_table
    with opened(path) as table:
        folder = table.begin(query, number)
        if folder is None:
            return False
        write_rows(folder, numbers, files=files)
        assert table.commit(query, number, COLUMNS, len(numbers)).records == len(numbers)
    return True
