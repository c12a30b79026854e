"""The data source that Spark registers under the name `quorumlog`.

Spark pickles instances of these classes by reference into its planner and worker processes, so
quorumlog must be installed on every Python worker. No broker is called before Spark requests a
plan. The readers, which import grpc, are imported only then: Spark imports this module to find
sources, also for queries that do not use it.
"""

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from quorumlog.errors import NotImplementedHere
from quorumlog.spark.options import Mode, check_names, parse_include_headers, parse_options
from quorumlog.spark.schema import columns_wanted, full_schema

if TYPE_CHECKING:
    from quorumlog.spark.batch import BatchReader
    from quorumlog.spark.stream import StreamReader


class QuorumlogSource(DataSource):
    """The data source: batch and streaming reads of topics."""

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
        from quorumlog.spark.batch import BatchReader

        options = parse_options(self.options, Mode.BATCH)
        columns = columns_wanted(schema, include_headers=options.include_headers)
        return BatchReader(options, schema, columns)

    def streamReader(self, schema: StructType) -> "StreamReader":
        """Return the stream reader; raise InvalidConfig for an invalid option."""
        from quorumlog.spark.stream import StreamReader

        options = parse_options(self.options, Mode.STREAM)
        columns = columns_wanted(schema, include_headers=options.include_headers)
        return StreamReader(options, schema, columns)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Raise NotImplementedHere: there is no sink yet."""
        raise _no_sink()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Raise NotImplementedHere: there is no sink yet."""
        raise _no_sink()


def _no_sink() -> NotImplementedHere:
    return NotImplementedHere(
        "writing to quorumlog through Spark is not offered yet; write from Python with the "
        "producer's send_arrow(), for example in foreachBatch"
    )
