"""Tables of to-lake: appends, compaction, and crashes at every file operation of both."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from tests.unit.spark.table_rows import COLUMNS, DAYS, OPENED, TARGET_BYTES, append, write_rows

from quorumlog.errors import DirectoryInUse, DirectoryUnusable, InvalidConfig
from quorumlog.spark.pipelines import parquet_table
from quorumlog.spark.pipelines.delta_table import open_delta_table, partition_values
from quorumlog.spark.pipelines.parquet_table import ParquetTable, open_parquet_table
from quorumlog.spark.pipelines.table_folder import TableColumns, check_columns, work_folder

PROGRAM = "tests.unit.spark.killed_tables"
ROOT = Path(__file__).parents[3]


def numbers_of(path: Path) -> list[int]:
    """Return the numbers that a reader of Parquet folders finds, in order."""
    found = ds.dataset(path, partitioning="hive").to_table(columns=["number", "date"]).to_pylist()
    assert all(row["date"] == DAYS[row["number"] % 2] for row in found)
    return sorted(row["number"] for row in found)


def in_delta(path: Path) -> list[int]:
    """Return the numbers that a reader of Delta finds, in order."""
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert all(row["date"] == DAYS[row["number"] % 2] for row in found)
    return sorted(row["number"] for row in found)


def compacted(path: Path) -> list[str]:
    """Return the names of a Delta table's files that compaction wrote."""
    return [name for name in DeltaTable(str(path)).file_uris() if "query-1" not in name]


def in_iceberg(path: Path) -> list[int]:
    """Return the numbers that a reader of Iceberg finds by the catalog, in order."""
    with closing(SqlCatalog("quorumlog", uri=f"sqlite:///{path}/catalog.db")) as catalog:
        found = catalog.load_table(f"lake.{path.name}").scan().to_arrow().to_pylist()
    assert all(row["date"] == DAYS[row["number"] % 2] for row in found)
    return sorted(row["number"] for row in found)


def files_of(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*.parquet"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table"


def test_an_appended_micro_batch_is_in_the_table_once(path: Path) -> None:
    assert append(path, 0, range(10))
    assert append(path, 1, range(10, 30))
    assert not append(path, 1, range(10, 30))
    assert numbers_of(path) == [*range(30)]
    assert not work_folder(path).exists()
    assert all(name.endswith("-query-1.parquet") for name in files_of(path))


def test_an_undecided_micro_batch_is_written_again(path: Path) -> None:
    with open_parquet_table(path) as table:
        folder = table.begin("query-1", 0)
        assert folder is not None
        write_rows(folder, range(6))
        folder = table.begin("query-1", 0)
        assert folder is not None
        assert not folder.exists()
        write_rows(folder, range(4))
        table.commit("query-1", 0, COLUMNS, 4)
    assert numbers_of(path) == [*range(4)]


def test_an_empty_micro_batch_counts(path: Path) -> None:
    with open_parquet_table(path) as table:
        folder = table.begin("query-1", 0)
        assert folder is not None
        folder.mkdir(parents=True)
        assert table.commit("query-1", 0, COLUMNS, 0).files == 0
        assert table.begin("query-1", 0) is None


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_micro_batch_with_missing_files_is_refused_and_written_again(
    path: Path, format: str
) -> None:
    opened = open_delta_table if format == "delta" else open_parquet_table
    append(path, 0, range(10), format=format)
    for found in (0, 6):
        with opened(path) as table:
            folder = table.begin("query-1", 1)
            assert folder is not None
            if found:
                write_rows(folder, range(10, 10 + found))
            else:  # Spark's driver creates it, without the executors' files
                folder.mkdir(parents=True)
            message = f"wrote 10 records of micro-batch 1 there, and {found} are found"
            with pytest.raises(DirectoryUnusable, match=message):
                table.commit("query-1", 1, COLUMNS, 10)
    with opened(path) as table:
        assert table.begin("query-1", 1) is not None
        with pytest.raises(DirectoryUnusable, match="wrote 0 records"):
            table.commit("query-1", 1, COLUMNS, 0)
    assert append(path, 1, range(10, 20), format=format)
    assert (in_delta if format == "delta" else numbers_of)(path) == [*range(20)]


def columns_with(**types: Any) -> TableColumns:
    """Return the columns of `table_rows` with other types."""
    schema = json.loads(COLUMNS.schema)
    for field in schema["fields"]:
        field["type"] = types.get(field["name"], field["type"])
        field["nullable"] = False
    return TableColumns(json.dumps(schema), COLUMNS.partition_by)


LIST = {"type": "array", "elementType": "long", "containsNull": True}


def test_other_columns_are_refused_also_by_a_later_run(path: Path) -> None:
    append(path, 0, range(10))
    with open_parquet_table(path) as table:
        for columns, message in (
            (replace(COLUMNS, partition_by=("text",)), "partitions date, not .* and text"),
            (columns_with(number="string"), "columns number long, .*not number string,"),
            (columns_with(number=LIST), "not number array<long>,"),
        ):
            with pytest.raises(InvalidConfig, match=message):
                table.commit("query-1", 1, columns, 0)
        folder = table.begin("query-1", 1)
        assert folder is not None
        write_rows(folder, range(10, 20))
        table.commit("query-1", 1, columns_with(), 10)
    assert numbers_of(path) == [*range(20)]


def test_columns_are_named_as_spark_names_them() -> None:
    struct = {"type": "struct", "fields": [{"name": "a", "type": LIST, "nullable": True}]}
    of_map = {"type": "map", "keyType": "string", "valueType": struct, "valueContainsNull": True}
    with pytest.raises(InvalidConfig, match="map<string, struct<a array<long>>>"):
        check_columns(Path("table"), COLUMNS, columns_with(text=of_map))


def interrupt(*arguments: Any) -> None:
    raise KeyboardInterrupt


def append_and_interrupt(path: Path) -> None:
    """Append micro-batch 1 up to its first move."""
    with open_parquet_table(path) as table:
        folder = table.begin("query-1", 1)
        assert folder is not None
        write_rows(folder, range(10, 20))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", interrupt)
            table.commit("query-1", 1, COLUMNS, 10)


def decide_and_die(path: Path) -> list[Path]:
    """Decide micro-batch 1 without moving its files. Return the files."""
    append(path, 0, range(10))
    with pytest.raises(KeyboardInterrupt):
        append_and_interrupt(path)
    return sorted(work_folder(path).rglob("*.parquet"))


def test_a_lost_file_of_a_decided_micro_batch_is_reported(path: Path) -> None:
    lost = decide_and_die(path)[1]
    lost.unlink()
    for _ in range(2):
        with (
            pytest.raises(DirectoryUnusable, match=r"0000000001-00001.*micro-batch 1 is lost"),
            open_parquet_table(path),
        ):
            pass


def test_files_deleted_after_their_move_are_not_lost(path: Path) -> None:
    decide_and_die(path)
    with open_parquet_table(path):
        pass
    assert numbers_of(path) == [*range(20)]
    for file in path.rglob("*.parquet"):
        file.unlink()
    with open_parquet_table(path) as table:
        assert table.begin("query-1", 1) is None


def test_a_mount_point_is_refused(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from quorumlog.spark.pipelines.parquet_table import open_parquet_table\n"
        "with open_parquet_table(Path(sys.argv[1])): pass"
    )
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    script = 'mount -t tmpfs none "$1" || exit 77; shift; "$@"'
    done = subprocess.run(
        [
            "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh",
            str(mounted), sys.executable, "-c", program, str(mounted),
        ],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    if "Traceback" not in done.stderr:
        pytest.skip(f"no mounts in a namespace here: {done.stderr}")
    assert "a mount point, so give a folder in it" in done.stderr


@pytest.mark.parametrize(
    ("query", "number", "message"),
    [
        ("query-2", 2, "another checkpoint wrote it up to batch 1"),
        ("query-1", 0, "continues with batch 0 and the table with 2.*there twice"),
        ("query-1", 3, "continues with batch 3 and the table with 2.*missing"),
    ],
)
def test_a_foreign_or_restored_checkpoint_is_refused(
    path: Path, query: str, number: int, message: str
) -> None:
    append(path, 0, range(10))
    append(path, 1, range(10, 12))
    with pytest.raises(InvalidConfig, match=message):
        append(path, number, range(10), query=query)
    assert numbers_of(path) == [*range(12)]


def test_a_second_process_is_refused(path: Path) -> None:
    with open_parquet_table(path), pytest.raises(DirectoryInUse), open_parquet_table(path):
        pass


def test_a_folder_with_other_files_is_refused(path: Path) -> None:
    write_rows(path, range(3))
    with pytest.raises(InvalidConfig, match="no pipeline wrote"), open_parquet_table(path):
        pass


def test_compaction_needs_a_table(path: Path) -> None:
    with (
        pytest.raises(InvalidConfig, match="no table"),
        open_parquet_table(path, must_exist=True),
    ):
        pass
    assert not path.exists()


def test_compaction_merges_small_files_and_keeps_large_ones(path: Path) -> None:
    for number in range(5):
        append(path, number, range(number * 100, number * 100 + 100))
    append(path, 5, range(500, 2500))
    before = files_of(path)
    large = [name for name in before if (path / name).stat().st_size >= TARGET_BYTES]
    assert len(large) == 4
    seen: list[tuple[str, int]] = []
    with open_parquet_table(path) as table:
        done = table.compact(TARGET_BYTES, lambda *partition: seen.append(partition))
        assert table.compact(TARGET_BYTES).partitions == 0
    after = files_of(path)
    assert (done.partitions, done.files_before, done.files_after) == (2, 24, len(after))
    assert done.records == 500
    assert seen == [(f"date={day}", 250) for day in DAYS]
    assert set(after) & set(before) == set(large)
    assert len(after) == 6
    assert numbers_of(path) == [*range(2500)]
    assert not work_folder(path).exists()
    new = [path / name for name in after if name not in before]
    for file in new:
        rows = pq.read_table(file, partitioning=None)
        assert rows["number"].to_pylist() == sorted(
            rows["number"].to_pylist(), key=lambda n: (n // 100, n // 2 % 2, n)
        )
        assert rows.schema.metadata == {b"spark": b"row"}


def test_a_reader_that_opened_a_partition_lists_it_after_its_compaction(path: Path) -> None:
    for number in range(3):
        append(path, number, range(number * 10, number * 10 + 10))
    folders = [path / f"date={day}" for day in DAYS]
    held = [os.open(folder, os.O_RDONLY) for folder in folders]
    try:
        with open_parquet_table(path) as table:
            table.compact(TARGET_BYTES)
            assert [len(os.listdir(handle)) for handle in held] == [0, 6]
            append_small(table, range(30, 40))
            table.compact(TARGET_BYTES)
            assert os.listdir(held[1]) == []
    finally:
        for handle in held:
            os.close(handle)
    assert numbers_of(path) == [*range(40)]


def append_small(table: ParquetTable, numbers: range) -> None:
    folder = table.begin("query-1", 3)
    assert folder is not None
    write_rows(folder, numbers)
    table.commit("query-1", 3, COLUMNS, len(numbers))


def test_a_large_merge_fills_several_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_table, "ROW_GROUP_BYTES", 10_000)
    for number in range(10):
        append(path, number, range(number * 200, number * 200 + 200))
    with open_parquet_table(path) as table:
        done = table.compact(8_000)
    assert 2 < done.files_after < done.files_before
    assert numbers_of(path) == [*range(2000)]


def test_files_of_other_columns_are_not_merged(path: Path) -> None:
    append(path, 0, range(10))
    append(path, 1, range(10, 20))
    extra = pa.table({"number": [20], "text": ["x"], "more": [1.5]})
    pq.write_table(extra, path / f"date={DAYS[0]}" / "0000000002-00000-other.parquet")
    with open_parquet_table(path) as table:
        assert table.compact(TARGET_BYTES).files_after == 3
    assert numbers_of(path) == [*range(21)]


@pytest.fixture
def killed(tmp_path: Path) -> Callable[[str], list[Path]]:
    """Change copies of a table with two micro-batches in processes that are killed at one operation
    each.

    Return the copies; the last one is complete.
    """

    def run(action: str) -> list[Path]:
        template, target = tmp_path / "template", tmp_path / "copies"
        work = target / "work"  # where an Iceberg table must stay
        format = action if action in OPENED else "parquet"
        append(work / "table", 0, range(40), files=1, format=format)
        is_iceberg = format == "iceberg"
        write_rows(work / "next", range(40, 60), files=1, has_partition_columns=is_iceberg)
        if action == "compact":
            append(work / "table", 1, range(40, 60), files=1)
        work.rename(template)
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM, str(template), str(target), action],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return [target / str(number + 1) / "table" for number in range(int(done.stdout))]

    return run


@pytest.mark.long
def test_an_append_killed_at_any_operation_is_complete_or_repeated(
    killed: Callable[[str], list[Path]],
) -> None:
    copies = killed("append")
    assert len(copies) >= 15
    outcomes: Counter[bool] = Counter()
    for copy in copies:
        found = numbers_of(copy)
        assert found == sorted(set(found)), copy
        assert {*range(40)} <= {*found} <= {*range(60)}, copy
        outcomes[append(copy, 1, range(40, 60), files=1)] += 1
        assert numbers_of(copy) == [*range(60)], copy
        assert not work_folder(copy).exists()
    assert min(outcomes[True], outcomes[False]) > 3, "before and after the decision"


@pytest.mark.long
def test_readers_see_each_record_once_wherever_a_compaction_is_killed(
    killed: Callable[[str], list[Path]],
) -> None:
    copies = killed("compact")
    assert len(copies) >= 15
    counts = set()
    for copy in copies:
        assert numbers_of(copy) == [*range(60)], copy
        counts.add(len(files_of(copy)))
        with open_parquet_table(copy) as table:
            table.compact(TARGET_BYTES)
        assert numbers_of(copy) == [*range(60)], copy
        assert len(files_of(copy)) == 2
        assert not work_folder(copy).exists()
    assert counts == {4, 3, 2}, "the partitions are replaced one by one"


# --- Delta ---


def test_a_delta_table_has_each_micro_batch_once(path: Path) -> None:
    for number in range(4):
        rows = range(number * 10, number * 10 + 10)
        assert append(path, number, rows, format="delta")
        assert not append(path, number, rows, format="delta")
    with open_delta_table(path) as table:
        done = table.compact(TARGET_BYTES)
        assert (done.partitions, done.files_before, done.files_after) == (2, 16, 2)
        assert done.records == 40
        assert done.bytes == sum((path / name).stat().st_size for name in compacted(path))
        assert table.compact(TARGET_BYTES).partitions == 0
        with pytest.raises(InvalidConfig, match="another checkpoint"):
            table.begin("query-2", 0)
        with pytest.raises(InvalidConfig, match="it has the columns"):
            table.commit("query-1", 4, replace(COLUMNS, partition_by=("number",)), 0)
    assert in_delta(path) == [*range(40)]
    with pytest.raises(InvalidConfig, match="give format delta"), open_parquet_table(path):
        pass


def test_a_parquet_table_is_not_opened_as_delta(path: Path) -> None:
    append(path, 0, range(4))
    with pytest.raises(InvalidConfig, match="give format parquet"), open_delta_table(path):
        pass


@pytest.mark.long
def test_an_append_to_delta_killed_at_any_operation_is_complete_or_repeated(
    killed: Callable[[str], list[Path]],
) -> None:
    copies = killed("delta")
    assert len(copies) >= 10
    outcomes: Counter[bool] = Counter()
    for copy in copies:
        assert in_delta(copy) in ([*range(40)], [*range(60)])
        outcomes[append(copy, 1, range(40, 60), files=1, format="delta")] += 1
        assert in_delta(copy) == [*range(60)], copy
    assert min(outcomes[True], outcomes[False]) > 0, "before and after the commit"


# --- Iceberg; its other tests are in test_iceberg_table.py ---


@pytest.mark.long
def test_an_append_to_iceberg_killed_at_any_operation_is_complete_or_repeated(
    killed: Callable[[str], list[Path]],
) -> None:
    copies = killed("iceberg")
    assert len(copies) >= 10
    work = copies[0].parents[1] / "work"
    outcomes: Counter[bool] = Counter()
    for copy in copies:
        copy.parent.rename(work)  # its metadata has this path
        found = in_iceberg(work / "table")
        assert found in ([*range(40)], [*range(60)])
        is_new = append(work / "table", 1, range(40, 60), files=1, format="iceberg")
        assert is_new == (len(found) == 40)
        outcomes[is_new] += 1
        assert in_iceberg(work / "table") == [*range(60)], copy
        table = StaticTable.from_metadata(str(work / "table"))
        assert len(table.scan().to_arrow()) == 60, "for readers without a catalog"
        work.rename(copy.parent)
    assert min(outcomes[True], outcomes[False]) > 0, "before and after the commit"


def test_partition_values_are_read_from_folders() -> None:
    folder = "date=2013-01-01/region=a%2Fb/none=__HIVE_DEFAULT_PARTITION__"
    assert partition_values(folder) == {"date": "2013-01-01", "region": "a/b", "none": None}
