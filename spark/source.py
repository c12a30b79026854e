"""The data source that Spark registers under the name `quorumlog`, and its columns.

Names, types and order of the columns are those of Spark's Kafka connector. Spark does not pass the
columns that a query needs to a Python source; so a narrower schema given by the user selects the
columns to decode.

Spark pickles instances of these classes by reference into its planner and worker processes, so
quorumlog must be installed on every Python worker. No broker is called before Spark requests a
plan. The readers and writers, which import grpc, are imported only then: Spark imports this module
to find sources, also for queries that do not use it.
"""

from typing import TYPE_CHECKING, Any, Final

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
    ReadOptions,
    check_names,
    check_without_limits,
    parse_include_headers,
    parse_options,
    parse_values,
)
from quorumlog.spark.versions import HAS_ADMISSION_CONTROL, HAS_PUSHDOWN, SPARK_VERSION

if TYPE_CHECKING:
    from quorumlog.spark.batch_reader import BatchReader
    from quorumlog.spark.sink import BatchWriter
    from quorumlog.spark.stream_reader import StreamReader
    from quorumlog.spark.values.plan import ValuePlan

VALUE: Final = "value"

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


def columns_wanted(
    schema: StructType, *, include_headers: bool | None, value_type: DataType | None = None
) -> tuple[str, ...]:
    """Return the source's name of each column of a schema, in its order.

    Names match case-insensitively. `value_type` is the type of decoded values. Raises InvalidConfig
    for a column that is unknown, repeated or of another type, and for headers if `include_headers`
    is False.
    """
    types = _TYPES if value_type is None else _TYPES | {VALUE: value_type}
    wanted: list[str] = []
    for field in schema.fields:
        name = _BY_LOWER_NAME.get(field.name.lower())
        if name is None:
            known = ", ".join(_TYPES)
            raise InvalidConfig(f"column {field.name!r} of the schema is unknown; known: {known}")
        if field.dataType != types[name]:
            raise InvalidConfig(
                f"column {name!r} is {types[name].simpleString()}, not "
                f"{field.dataType.simpleString()}; "
                + (
                    "to decode values give the option 'valueFormat'"
                    if name == VALUE and isinstance(field.dataType, StructType)
                    else "read it with its type and cast it in the query"
                )
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

    _is_unpickled = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes. Spark pickles a source for reads, and for the commits of a query;
        it plans writes with a new one."""
        self.__dict__.update(state)
        self._is_unpickled = True

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "quorumlog"

    def schema(self) -> Any:
        """Return the columns of a read without a schema: a StructType, or text if the type of
        values is DDL, which Spark parses.

        Raises InvalidConfig for an unknown option, and for an invalid one about values.
        """
        check_names(self.options)
        columns = full_schema(include_headers=parse_include_headers(self.options) is True)
        values = parse_values(self.options)
        if values is None:
            return columns
        from quorumlog.spark.values.plan import declared_type

        declared = declared_type(values)
        if isinstance(declared, DataType):
            types = {VALUE: declared}
            return StructType(
                [StructField(each.name, types.get(each.name, each.dataType)) for each in columns]
            )
        texts = {VALUE: declared}
        return ", ".join(
            f"{each.name} {texts.get(each.name, each.dataType.simpleString())}" for each in columns
        )

    def reader(self, schema: StructType) -> "BatchReader":
        """Return the batch reader; raise InvalidConfig for an invalid option."""
        from quorumlog.spark.batch_reader import BatchReader

        options = parse_options(self.options, Mode.BATCH)
        columns, values = _plan_columns(options, schema)
        if not options.pushdown:
            return BatchReader(options, schema, columns, values)
        if not HAS_PUSHDOWN:
            raise InvalidConfig(
                "option 'pushdown' needs Spark 4.1 or later, and this is Spark "
                f"{'.'.join(map(str, SPARK_VERSION))}; remove it, and narrow the read by starting "
                "and ending options"
            )
        from quorumlog.spark.pushdown import FilteringBatchReader

        return FilteringBatchReader(options, schema, columns, values)

    def streamReader(self, schema: StructType) -> "StreamReader":
        """Return the stream reader; raise InvalidConfig for an invalid option."""
        from quorumlog.spark.stream_reader import StreamReader, UnlimitedStreamReader

        options = parse_options(self.options, Mode.STREAM)
        columns, values = _plan_columns(options, schema)
        if HAS_ADMISSION_CONTROL:
            return StreamReader(options, schema, columns, values)
        check_without_limits(options, SPARK_VERSION)
        return UnlimitedStreamReader(options, schema, columns, values)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Return the writer of a DataFrame; raise InvalidConfig for an invalid option or column,
        and UnknownTopicOrPartition."""
        from quorumlog.spark.sink import BatchWriter
        from quorumlog.spark.write_options import parse_write_options

        return BatchWriter(parse_write_options(self.options, Mode.BATCH), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":
        """Return the writer of a micro-batch; raise InvalidConfig for an invalid option or column,
        and UnknownTopicOrPartition unless it is for a commit."""
        from quorumlog.spark.sink import stream_writer
        from quorumlog.spark.write_options import parse_write_options

        options = parse_write_options(self.options, Mode.STREAM)
        return stream_writer(options, schema, overwrite, plans=not self._is_unpickled)


def _plan_columns(
    options: ReadOptions, schema: StructType
) -> tuple[tuple[str, ...], "ValuePlan | None"]:
    """Return the columns of a read and the decoding of its values; raise InvalidConfig."""
    if options.values is None:
        return columns_wanted(schema, include_headers=options.include_headers), None
    from quorumlog.spark.values.plan import ValuePlan

    plan = ValuePlan.of(options.values, schema)
    columns = columns_wanted(schema, include_headers=options.include_headers, value_type=plan.type)
    return columns, plan
