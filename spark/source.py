"""The data source that Spark finds under the name `quorumlog`.

Spark pickles instances of these classes by reference into its planner and worker processes, so
quorumlog must be installed wherever Python workers run. Nothing here talks to a broker before
Spark asks for a plan, and the readers (with grpc behind them) are imported only then: Spark imports
this module to look for sources, also for queries that do not use it.
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
    """Reads topics, in batches and as a stream."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "quorumlog"

    def schema(self) -> StructType:
        """Return the columns of a read that gives no schema; raises InvalidConfig for an option
        that is not known."""
        check_names(self.options)
        return full_schema(include_headers=parse_include_headers(self.options) is True)

    def reader(self, schema: StructType) -> "BatchReader":
        """Return a reader of what the log holds; raises InvalidConfig for a wrong option."""
        from quorumlog.spark.batch import BatchReader

        options = parse_options(self.options, Mode.BATCH)
        columns = columns_wanted(schema, include_headers=options.include_headers)
        return BatchReader(options, schema, columns)

    def streamReader(self, schema: StructType) -> "StreamReader":
        """Return a reader that goes on; raises InvalidConfig for a wrong option."""
        from quorumlog.spark.stream import StreamReader

        options = parse_options(self.options, Mode.STREAM)
        columns = columns_wanted(schema, include_headers=options.include_headers)
        return StreamReader(options, schema, columns)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse: there is no sink yet."""
        raise _no_sink()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse: there is no sink yet."""
        raise _no_sink()


def _no_sink() -> NotImplementedHere:
    return NotImplementedHere(
        "writing to quorumlog through Spark is not offered yet; write from Python with the "
        "producer's send_arrow(), for example in foreachBatch"
    )
