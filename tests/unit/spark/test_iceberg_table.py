"""Iceberg tables of to-lake: commits, conflicts, columns, partitions and catalogs."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import StaticTable, Table
from pyiceberg.utils.config import Config
from tests.unit.spark.table_rows import COLUMNS, DAYS, append, write_rows

from quorumlog.errors import DirectoryUnusable, EnvironmentUnusable, InvalidConfig
from quorumlog.spark.pipelines import compact, iceberg_table, lake, to_lake
from quorumlog.spark.pipelines.iceberg_table import iceberg_schema, open_iceberg_table
from quorumlog.spark.pipelines.table_folder import TableColumns


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table"


@contextmanager
def loaded(path: Path) -> Iterator[Table]:
    """Yield a table as another writer loads it."""
    with closing(SqlCatalog("quorumlog", uri=f"sqlite:///{path}/catalog.db")) as catalog:
        yield catalog.load_table(f"lake.{path.name}")


def numbers_of(path: Path, row_filter: str = "number >= 0") -> list[int]:
    """Return the numbers that a reader without a catalog finds, in order."""
    rows = StaticTable.from_metadata(str(path)).scan(row_filter=row_filter).to_arrow().to_pylist()
    assert all(row["text"] == f"{row['number']}" * 20 for row in rows)
    return sorted(row["number"] for row in rows)


def test_an_iceberg_table_has_each_micro_batch_once(path: Path) -> None:
    for number in range(3):
        rows = range(number * 10, number * 10 + 10)
        assert append(path, number, rows, format="iceberg")
        assert not append(path, number, rows, format="iceberg")
    assert numbers_of(path) == [*range(30)]
    assert numbers_of(path, f"date = '{DAYS[1]}'") == [*range(1, 30, 2)]
    with loaded(path) as table:
        assert [each["quorumlog.batch"] for each in map(summary, table.snapshots())] == [
            "0", "1", "2"
        ]  # fmt: skip
        assert len(table.scan().to_arrow()) == 30
    with open_iceberg_table(path) as opened:
        with pytest.raises(InvalidConfig, match="another checkpoint wrote it up to batch 2"):
            opened.begin("query-2", 0)
        with pytest.raises(InvalidConfig, match="records would be missing"):
            opened.begin("query-1", 4)
        other = replace(COLUMNS, partition_by=("number",))
        with pytest.raises(InvalidConfig, match=r"partitions date, not .* and number; select"):
            opened.commit("query-1", 3, other, 0)
        other = replace(COLUMNS, schema=COLUMNS.schema.replace("long", "double"))
        with pytest.raises(InvalidConfig, match=r"columns number long, .*, not number double,"):
            opened.commit("query-1", 3, other, 0)
        folder = opened.begin("query-1", 3)
        assert folder is not None
        folder.mkdir(parents=True)
        assert opened.commit("query-1", 3, COLUMNS, 0).files == 0
        assert opened.begin("query-1", 3) is None


def summary(snapshot: Any) -> dict[str, str]:
    assert snapshot.summary is not None
    found: dict[str, str] = snapshot.summary.additional_properties
    return found


@contextmanager
def before_the_first_file(monkeypatch: pytest.MonkeyPatch, act: Any) -> Iterator[None]:
    """Run a function once, after the table is loaded and before its commit."""
    done: list[str] = []

    def describe_after(io: Any, metadata: Any, location: str) -> Any:
        if not done:
            done.append(location)
            act(location)
        return parquet_file_to_data_file(io, metadata, location)

    monkeypatch.setattr(iceberg_table, "parquet_file_to_data_file", describe_after)
    yield
    assert done


def test_conflicting_commit_is_retried(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, 0, range(10), format="iceberg")

    def commit_other(_: str) -> None:
        with loaded(path) as table:
            table.append(pa.table({"number": [100], "text": ["100" * 20], "date": [DAYS[0]]}))

    with before_the_first_file(monkeypatch, commit_other):
        append(path, 1, range(10, 20), format="iceberg")
    assert numbers_of(path) == [*range(20), 100]


def test_a_commit_whose_outcome_was_unknown_is_not_repeated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(path, 0, range(10), format="iceberg")

    def finish_earlier_attempt(location: str) -> None:
        attempt = location.rpartition("-")[2]
        files = [f"file://{file}" for file in (path / "data").glob(f"*-{attempt}")]
        with loaded(path) as table, table.transaction() as transaction:
            properties = {"quorumlog.query": "query-1", "quorumlog.batch": "1"}
            transaction.set_properties(properties)
            transaction.add_files(files, properties)

    with before_the_first_file(monkeypatch, finish_earlier_attempt):
        append(path, 1, range(10, 20), format="iceberg")
    assert numbers_of(path) == [*range(20)]


def test_a_table_that_was_moved_is_refused(path: Path) -> None:
    append(path, 0, range(4), format="iceberg")
    path.rename(path.with_name("moved"))
    with (
        open_iceberg_table(path.with_name("moved"), table="lake.table") as table,
        pytest.raises(DirectoryUnusable, match=r"is missing .*restore it, and its path"),
    ):
        table.begin("query-1", 1)
    moved = path.with_name("moved") / "metadata" / "version-hint.text"
    moved = moved.with_name(f"{moved.read_text()}.metadata.json")
    (path / "metadata").mkdir(parents=True)
    (path / "metadata" / moved.name).write_bytes(moved.read_bytes())
    with (
        open_iceberg_table(path.with_name("moved"), table="lake.table") as table,
        pytest.raises(InvalidConfig, match=f"is at {path}, and the files"),
    ):
        table.begin("query-1", 1)


def test_other_formats_are_refused(path: Path) -> None:
    append(path, 0, range(4), format="iceberg")
    for format in ("parquet", "delta"):
        with pytest.raises(InvalidConfig, match="give format iceberg"):
            compact(path=str(path), format=format)
    with pytest.raises(InvalidConfig, match="run the procedure rewrite_data_files"):
        compact(path=str(path), format="iceberg")
    with pytest.raises(InvalidConfig, match="run the procedure rewrite_data_files"):
        to_lake(bootstrap="h:1", path=str(path), format="iceberg", compact=True)
    other = path.with_name("other")
    append(other, 0, range(4))
    with pytest.raises(InvalidConfig, match="it is no Iceberg table"):
        compact(path=str(other), format="iceberg")
    with (
        pytest.raises(InvalidConfig, match="are for format iceberg"),
        lake._open(other, "delta", table="a.b"),
    ):
        pass


def test_a_missing_package_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, iceberg_table.__name__)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(EnvironmentUnusable, match=r"pip install 'quorumlog\[iceberg\]'"):
        compact(path=str(path), format="iceberg")


# --- columns and partitions ---


def columns(partition_by: str, **types: Any) -> TableColumns:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in types.items()
    ]
    return TableColumns(json.dumps({"type": "struct", "fields": fields}), (partition_by,))


def test_types_of_spark_are_types_of_iceberg() -> None:
    names = ("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary")
    kinds = {name: name for name in (*names, "date", "timestamp", "timestamp_ntz")}
    struct = {"type": "struct", "fields": [{"name": "a", "type": "decimal(10,2)"}]}
    listed = {"type": "array", "elementType": struct}
    of_map = {"type": "map", "keyType": "string", "valueType": listed}
    schema = iceberg_schema(columns("date", **kinds, map=of_map).schema)
    assert iceberg_table._column_names(schema.fields) == (
        "boolean boolean, byte int, short int, integer int, long long, float float, double double, "
        "string string, binary binary, date date, timestamp timestamptz, timestamp_ntz timestamp, "
        "map map<string, list<struct<a decimal(10, 2)>>>"
    )
    with pytest.raises(InvalidConfig, match="column 'x' has the type variant, which Iceberg"):
        iceberg_schema(columns("x", x={"type": "array", "elementType": "variant"}).schema)


def write_part(folder: Path, part: str, values: list[Any], kind: pa.DataType) -> None:
    place = folder / f"quorumlog_partition_0={part}"
    place.mkdir(parents=True)
    pq.write_table(pa.table({"part": pa.array(values, kind)}), place / "part-0.parquet")


def append_parts(path: Path, number: int, kind: str, parts: dict[str, list[Any]]) -> None:
    """Append files of partitions, given by their values as text."""
    given = columns("part", part=kind)
    types = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}
    with open_iceberg_table(path) as table:
        folder = table.begin("query-1", number)
        assert folder is not None
        for part, values in parts.items():
            write_part(folder, part, values, types[kind])
        table.commit("query-1", number, given, sum(map(len, parts.values())))


def test_nested_columns_are_read_by_their_names(path: Path) -> None:
    struct = {"type": "struct", "fields": [{"name": "a", "type": "long"}]}
    listed = {"type": "array", "elementType": struct}
    of_map = {"type": "map", "keyType": "string", "valueType": listed}
    given = columns("part", map=of_map, list=listed, last="string", part="long")
    rows = {
        "map": pa.array(
            [[("k", [{"a": 1}, {"a": 2}])], None],
            pa.map_(pa.string(), pa.list_(pa.struct({"a": pa.int64()}))),
        ),
        "list": pa.array([[{"a": 3}], []], pa.list_(pa.struct({"a": pa.int64()}))),
        "last": pa.array(["x", None]),
        "part": pa.array([7, 7]),
    }
    for number in range(2):
        with open_iceberg_table(path) as table:
            folder = table.begin("query-1", number)
            assert folder is not None
            place = folder / "quorumlog_partition_0=%3D7"
            place.mkdir(parents=True)
            pq.write_table(pa.table(rows), place / "part-0.parquet")
            table.commit("query-1", number, given, 2)
    found = StaticTable.from_metadata(str(path)).scan(row_filter="part = 7").to_arrow()
    assert found.to_pylist() == pa.table(rows).to_pylist() * 2


def test_a_null_and_an_empty_string_are_two_partitions(path: Path) -> None:
    parts: dict[str, list[Any]] = {
        "__HIVE_DEFAULT_PARTITION__": [None],
        "%3D": ["", ""],
        "%3Dx": ["x"],
    }
    append_parts(path, 0, "string", parts)
    table = StaticTable.from_metadata(str(path))
    assert len(table.scan(row_filter="part is null").to_arrow()) == 1
    assert len(table.scan(row_filter="part = ''").to_arrow()) == 2


def test_a_partition_without_an_exact_value_is_refused(path: Path) -> None:
    with pytest.raises(InvalidConfig, match="partition_by has 'part' of type double"):
        append_parts(path, 0, "double", {"%3D1.0": [1.0]})
    append_parts(path, 0, "long", {"%3D1": [1]})
    with loaded(path) as table, table.transaction() as transaction:
        transaction.set_properties({"write.metadata.metrics.default": "none"})
    with pytest.raises(DirectoryUnusable, match=r"no value of the partition .*metrics\.\*"):
        append_parts(path, 1, "long", {"%3D1": [1]})


# --- catalogs ---


def test_a_catalog_of_the_configuration_has_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{tmp_path}/all.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__BROKEN__TYPE", "x")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    path = tmp_path / "table"
    with closing(SqlCatalog("mine", uri=uri)) as catalog:
        catalog.create_namespace("flights")
        for number in range(2):
            with open_iceberg_table(path, catalog="mine", table="flights.all") as table:
                folder = table.begin("query-1", number)
                assert folder is not None
                write_rows(folder, range(number * 4, number * 4 + 4), has_partition_columns=True)
                table.commit("query-1", number, COLUMNS, 4)
        found = catalog.load_table("flights.all").scan().to_arrow()
        assert sorted(found["number"].to_pylist()) == [*range(8)]
    assert not (path / "catalog.db").exists()
    with (
        open_iceberg_table(path) as table,
        pytest.raises(InvalidConfig, match=r"another table than lake\.table of catalog quorumlog"),
    ):
        table.commit("query-1", 0, COLUMNS, 0)
    for name in ("broken", "absent"):
        with (
            pytest.raises(InvalidConfig, match="define it in"),
            open_iceberg_table(path, catalog=name),
        ):
            pass
    with pytest.raises(InvalidConfig, match="give NAMESPACE"), open_iceberg_table(path, table="x"):
        pass
    with pytest.raises(InvalidConfig, match="use no '%'"), open_iceberg_table(tmp_path / "a%b"):
        pass
