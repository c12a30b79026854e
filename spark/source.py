"""The data source that Spark registers under the name `quorumlog`, and its columns.

Names, types and order of the columns are those of Spark's Kafka connector. Spark does not pass the
columns that a query needs to a Python source; so a narrower schema given by the user selects the
columns to decode.

Spark pickles instances of these classes by reference into its planner and worker processes, so
quorumlog must be installed on every Python worker. No broker is called before Spark requests a
plan. The readers and writers, which import grpc, are imported only then: Spark imports this module
to find sources, also for queries that do not use it.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorumlog.errors import InvalidConfig
from quorumlog.spark.options import (
    Mode,
    check_names,
    check_without_limits,
    parse_include_headers,
    parse_options,
)
from quorumlog.spark.versions import HAS_ADMISSION_CONTROL, SPARK_VERSION

if TYPE_CHECKING:
    from quorumlog.spark.batch_reader import BatchReader
    from quorumlog.spark.sink import BatchWriter
    from quorumlog.spark.stream_reader import StreamReader

HEADERS: Final = "headers"
_HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),  # 0 when the record was created, 1 when the log took it
    HEADERS: _HEADERS_TYPE,  # null, not empty, for a record without headers
}
_BY_LOWER_NAME: Final = {name.lower(): name for name in _TYPES}


def full_schema(*, include_headers: bool) -> StructType:
    """Return all columns, headers only if requested."""
    names = [name for name in _TYPES if include_headers or name != HEADERS]
    return StructType([StructField(name, _TYPES[name]) for name in names])


def columns_wanted(schema: StructType, *, include_headers: bool | None) -> tuple[str, ...]:
    """Return the source's name of each column of a schema, in its order.

    Names match case-insensitively. Raises InvalidConfig for a column that is unknown, repeated or
    of another type, and for headers if `include_headers` is False.
    """
    wanted: list[str] = []
    for field in schema.fields:
        name = _BY_LOWER_NAME.get(field.name.lower())
        if name is None:
            known = ", ".join(_TYPES)
            raise InvalidConfig(f"column {field.name!r} of the schema is unknown; known: {known}")
        if field.dataType != _TYPES[name]:
            raise InvalidConfig(
                f"column {name!r} is {_TYPES[name].simpleString()}, not "
                f"{field.dataType.simpleString()}; read it with its type and cast it in the query"
            )
        if name in wanted:
            raise InvalidConfig(f"column {name!r} occurs more than once in the schema")
        if name == HEADERS and include_headers is False:
            raise InvalidConfig(
                "column 'headers' is in the schema, but option 'includeHeaders' is false"
            )
        wanted.append(name)
    if not wanted:
        raise InvalidConfig(f"the schema has no column; name at least one of {', '.join(_TYPES)}")
    return tuple(wanted)


class QuorumlogSource(DataSource):
    """The data source: batch and streaming reads and writes of topics."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "quorumlog"

    def schema(self) -> StructType:
        """Return the columns of a read without a schema; raise InvalidConfig for an unknown
        option."""
        check_names(self.options)
        return full_schema(include_headers=parse_include_headers(self.options) is True)

    def reader(self, schema: StructType) -> "BatchReader":
        """Return the batch reader; raise InvalidConfig for an invalid option."""
        from quorumlog.spark.batch_reader import BatchReader

        options = parse_options(self.options, Mode.BATCH)
        columns = columns_wanted(schema, include_headers=options.include_headers)
        return BatchReader(options, schema, columns)

    def streamReader(self, schema: StructType) -> "StreamReader":
        """Return the stream reader; raise InvalidConfig for an invalid option."""
        from quorumlog.spark.stream_reader import StreamReader, UnlimitedStreamReader

        options = parse_options(self.options, Mode.STREAM)
        columns = columns_wanted(schema, include_headers=options.include_headers)
        if HAS_ADMISSION_CONTROL:
            return StreamReader(options, schema, columns)
        check_without_limits(options, SPARK_VERSION)
        return UnlimitedStreamReader(options, schema, columns)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Return the writer of a DataFrame; raise InvalidConfig for an invalid option or column,
        and UnknownTopicOrPartition."""
        from quorumlog.spark.sink import BatchWriter
        from quorumlog.spark.write_options import parse_write_options

        return BatchWriter(parse_write_options(self.options, Mode.BATCH), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":
        """Return the writer of a micro-batch; raise InvalidConfig for an invalid option or column,
        and UnknownTopicOrPartition."""
        from quorumlog.spark.sink import stream_writer
        from quorumlog.spark.write_options import parse_write_options

        return stream_writer(parse_write_options(self.options, Mode.STREAM), schema, overwrite)
