"""Spark: the PySpark data source `quorumlog` and what makes a session ready for it.

A source in pure Python over Arrow, for `spark.read` and `spark.readStream`; no jar. `options`,
`offsets`, `planning` and `admission` decide and know neither Spark nor a broker; `cluster` and
`fetching` talk to brokers; `query_group` keeps a query's start and says how far it is,
`retention_lease` holds retention back; `batches` makes Arrow of bytes; `source`, `batch`, `stream`
and `tasks` are what Spark calls; `sessions` and `java` see that a session works.
"""

from quorumlog.spark.sessions import configure, session

__all__ = ["configure", "session"]
