"""The PySpark data source `quorumlog`, and the configuration of Spark sessions for it.

A source and a sink in pure Python over Arrow, for batches and streams, without a jar.
`options`, `offsets`, `plan` and `admission` are pure and import neither Spark nor a client;
`broker_calls` calls brokers; `query_group` stores a query's start and commits its progress,
`retention_lease` holds back retention; `arrow_batches` converts record batches to Arrow; `source`,
`batch_reader`, `stream_reader` and `tasks` implement Spark's interfaces for reading; `sink` those
for writing, with `write_options`, and `sink_rows`, which sends rows; `values` decodes values,
`pushdown` applies filters, and `versions` has the features of each Spark; `sessions` checks and
configures sessions; `pipelines` has ready jobs on top, and `__main__` their command line.
"""

from quorumlog.spark.sessions import configure, session

__all__ = ["configure", "session"]
